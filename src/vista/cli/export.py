"""``vista export runs/digits-none-vista-seed0 --to model.onnx``."""

from __future__ import annotations

import json
import logging
import warnings
from dataclasses import dataclass
from typing import Annotated, Any

import torch
import tyro
from safetensors.torch import save
from torch import nn

from vista.cli import terminal
from vista.cli.arguments import parse
from vista.cli.calibration_note import calibration_to_use
from vista.cli.fusion_note import note_fusion
from vista.cli.output_paths import file_to_write
from vista.files import atomic
from vista.integrations import comes_with
from vista.runs.folder import RunFolder, Which
from vista.training.network import Calibrated, load_model, network_name

HELP = "write a trained network as a plain model file"


@dataclass(frozen=True)
class Export:
    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Folder of a finished run."""
    to: Annotated[str, tyro.conf.arg(metavar="FILE")]
    """File to write: NAME.safetensors (weights, with what rebuilds the network) or NAME.onnx (the network itself)."""
    which: Which = "best"
    """Weights of the best-validation epoch or of the last."""
    raw: bool = False
    """Leave the calibration of the run out: ONNX logits are otherwise divided by its temperature; safetensors keep the
    weights as they are, with the temperature in the metadata."""
    network: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """The run's network, where it is one of your own (package.module:function): its code runs only if you name it."""


def run(argv: list[str]) -> int:
    flags = parse(Export, argv, "export", "Write a run's network as a model that needs nothing of vista.")
    path = file_to_write("to", flags.to, tuple(WRITERS))
    folder = RunFolder.open(flags.run)
    network = load_model(folder.path, flags.which, flags.network)
    temperature = calibration_to_use(folder, flags.which, flags.raw)
    about = description(folder, flags.which) | ({} if temperature is None else {"temperature": temperature})
    write = WRITERS[path.suffix.lower()]
    atomic.write(path, write(network, about))
    note_fusion(folder.config())
    epoch = folder.metrics()[flags.which]["epoch"]
    terminal.say(f"{flags.which} network of {folder.path}, epoch {epoch}, is in {path}")
    if temperature is not None:
        where = "its logits are divided by" if write is as_onnx else "weights unchanged, metadata hold"
        terminal.say(f"calibrated: {where} the temperature {temperature:.3g} (--raw leaves it out)")
    return 0


def description(folder: RunFolder, which: Which) -> dict[str, Any]:
    """What somebody who only has the file must know: the classes, and how inputs were made."""
    config, data = folder.config(), folder.data()
    mean, std = list(data.mean), list(data.std)
    normalised = {"mean": mean, "std": std} if mean else {}
    return {
        "network": network_name(config, data.sample_shape),
        "classes": list(data.classes),
        "sample_shape": list(data.sample_shape),
        **normalised,  # of pixels / 255, per channel
        "method": config.method,
        "data": data.name,
        "noise": config.noise,
        "seed": config.seed,
        "epoch": folder.metrics()[which]["epoch"],
    }


def as_safetensors(network: nn.Module, about: dict[str, Any]) -> bytes:
    """The weights to the last bit, under their names in the network; a temperature is metadata only."""
    # Each in memory of its own, as the format wants it: a network may use a weight in two places.
    plain = torch.contiguous_format
    weights = {name: tensor.clone(memory_format=plain) for name, tensor in network.state_dict().items()}
    return save(weights, metadata={name: _text(value) for name, value in about.items()})


def as_onnx(network: nn.Module, about: dict[str, Any]) -> bytes:
    """Input ``x`` ``[batch, *sample_shape]``, output ``logits`` ``[batch, K]``; the batch may have any size.

    The logits are divided by the temperature in ``about``, if it has one.
    """
    with comes_with("onnx"):
        import onnx
        import onnxscript  # noqa: F401  (what torch exports with)
    x = torch.zeros(2, *about["sample_shape"], dtype=next(network.parameters()).dtype)
    network = Calibrated(network, about["temperature"]).eval() if "temperature" in about else network
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the exporter's own plans
        program: Any = torch.onnx.export(
            network, (x,), dynamo=True, input_names=["x"], output_names=["logits"], verbose=False,
            dynamic_shapes=({0: torch.export.Dim("batch")},),
        )  # fmt: skip
    model = program.model_proto
    onnx.helper.set_model_props(model, {name: _text(value) for name, value in about.items()})
    return bytes(model.SerializeToString())


WRITERS = {".safetensors": as_safetensors, ".onnx": as_onnx}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
