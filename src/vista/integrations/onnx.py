"""ONNX: a trained network with its preprocessing, for onnxruntime and other runtimes."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vista.data.pixel_file import stored_size
from vista.integrations import require_extra
from vista.runs.description import DataDescription

OPSET = 20
_FLOAT, _DOUBLE = 1, 11  # element types of ONNX
# Pillow's bicubic filter: first along the width, then along the height, each rounded to whole pixel values.
_RESIZE_AXIS = """
    resized{axis} = Resize<mode: string = "cubic", cubic_coeff_a: float = -0.5, antialias: int = 1,
        exclude_outside: int = 1, axes: ints = [{axis}]>({input}, , , stored_size)
    rounded{axis} = Round(resized{axis})
    limited{axis} = Clip(rounded{axis}, zero, largest)
"""
_RESIZE = f"""
    hw = Shape<start: int = 1, end: int = 3>(image)
    shorter = ReduceMin<keepdims: int = 1>(hw)
    square_size = Concat<axis: int = 0>(shorter, shorter)
    square = CenterCropPad<axes: ints = [1, 2]>(image, square_size)
    pixels = Cast<to: int = 1>(square)
    channels_first = Transpose<perm: ints = [0, 3, 1, 2]>(pixels)
    stored_size = Constant<value_ints: ints = [{{stored}}]>()
    zero = Constant<value_float: float = 0.0>()
    largest = Constant<value_float: float = 255.0>()
    {_RESIZE_AXIS.format(axis=3, input="channels_first")}
    {_RESIZE_AXIS.format(axis=2, input="limited3")}
    network_size = Constant<value_ints: ints = [{{size}}, {{size}}]>()
    cropped = CenterCropPad<axes: ints = [2, 3]>(limited2, network_size)
"""
_UNCHANGED = """
    pixels = Cast<to: int = 1>(image)
    cropped = Transpose<perm: ints = [0, 3, 1, 2]>(pixels)
"""


def to_onnx(network: nn.Module, data: DataDescription, about: Mapping[str, Any]) -> bytes:
    """Make an ONNX model of a trained network and its preprocessing.

    The outputs are ``logits`` and ``probabilities``, ``[batch, K]``, for a batch of any size. The input of an image
    network is ``image``, uint8 ``[batch, height, width, C]`` as decoded: for photos of any size (the images of a batch
    have one size), whose centre square is resized as in training, otherwise of the size of the training images. Other
    networks take ``x``: features as float32 ``[batch, ...]``, or token ids as int64 ``[batch, L]``.

    Args:
        network: The network, in eval mode on the CPU.
        data: What it was trained on.
        about: Metadata of the model; values that are not text are stored as JSON.

    Returns:
        The content of an ``.onnx`` file.
    """
    with require_extra("onnx"):
        import onnx
        import onnxscript  # noqa: F401  (torch exports with it)
    dtype = next(network.parameters()).dtype
    x = torch.zeros(2, *data.sample_shape, dtype=torch.int64 if data.tokenizer is not None else dtype)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations inside the exporter
        program: Any = torch.onnx.export(
            _WithProbabilities(network).eval(), (x,), dynamo=True, input_names=["x"], opset_version=OPSET,
            output_names=["logits", "probabilities"], verbose=False,
            dynamic_shapes=({0: torch.export.Dim("batch")},),
        )  # fmt: skip
    model = program.model_proto
    if data.is_image:
        before = onnx.parser.parse_model(_preprocessing(data, dtype, model.ir_version))
        model = onnx.compose.merge_models(before, model, io_map=[("x", "x")])
    onnx.helper.set_model_props(model, {name: as_text(value) for name, value in about.items()})
    return bytes(model.SerializeToString())


def as_text(value: Any) -> str:
    """Metadata as text: JSON, unless it is text already."""
    return value if isinstance(value, str) else json.dumps(value)


class _WithProbabilities(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits: Tensor = self.network(x)
        return logits, logits.softmax(dim=1)


def _preprocessing(data: DataDescription, dtype: torch.dtype, ir_version: int) -> str:
    """The graph from decoded images to inputs of the network, in ONNX's text format."""
    channels, height, width = data.sample_shape
    number = _DOUBLE if dtype == torch.float64 else _FLOAT
    kind = "double" if dtype == torch.float64 else "float"
    scale = ", ".join(repr(1.0 / (255.0 * std)) for std in data.std)
    shift = ", ".join(repr(-mean / std) for mean, std in zip(data.mean, data.std, strict=True))
    if data.image_size is None:
        size, steps = f"{height}, {width}", _UNCHANGED
    else:
        size, steps = "height, width", _RESIZE.format(stored=stored_size(data.image_size), size=data.image_size)
    return f"""
<ir_version: {ir_version}, opset_import: ["" : {OPSET}]>
preprocessing (uint8[batch, {size}, {channels}] image) => ({kind}[batch, {channels}, {height}, {width}] x)
<{kind}[{channels}, 1, 1] scale = {{{scale}}}, {kind}[{channels}, 1, 1] shift = {{{shift}}}>
{{{steps}
    values = Cast<to: int = {number}>(cropped)
    scaled = Mul(values, scale)
    x = Add(scaled, shift)
}}
"""
