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
from vista.cli.execute import calibration_to_apply, note_fusion
from vista.cli.output_paths import file_to_write
from vista.files import atomic
from vista.integrations import require_extra
from vista.runs.folder import RunFolder, Which
from vista.training.network import Calibrated, load_model, network_name


@dataclass(frozen=True)
class Export:
    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Folder of a finished run."""
    to: Annotated[str, tyro.conf.arg(metavar="FILE")]
    """File to write: NAME.safetensors (weights and metadata) or NAME.onnx (the network itself)."""
    which: Which = "best"
    """Weights of the best-validation epoch or of the last."""
    raw: bool = False
    """Export without calibration. By default ONNX logits are divided by the run's temperature, and a safetensors file
    has it in its metadata."""
    network: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """The run's network, required for custom code (package.module:function), which runs only if you name it."""


def run(argv: list[str]) -> int:
    flags = parse(Export, argv, "export", "Write a run's network as a model file that works without vista.")
    path = file_to_write("to", flags.to, tuple(WRITERS))
    folder = RunFolder.open(flags.run)
    network = load_model(folder.path, flags.which, flags.network)
    temperature = calibration_to_apply(folder, flags.which, flags.raw)
    about = description(folder, flags.which) | ({} if temperature is None else {"temperature": temperature})
    write = WRITERS[path.suffix.lower()]
    atomic.write(path, write(network, about))
    note_fusion(folder.config())
    epoch = folder.metrics()[flags.which]["epoch"]
    terminal.say(f"Wrote the {flags.which} network of {folder.path} (epoch {epoch}) to {path}")
    if temperature is not None:
        how = "logits divided by" if write is as_onnx else "weights unchanged, metadata contain"
        terminal.say(f"Calibrated: {how} the temperature {temperature:.3g} (--raw exports without it)")
    terminal.say_next("vista", "predict", folder.path, "--data", folder.config().data)
    return 0


def description(folder: RunFolder, which: Which) -> dict[str, Any]:
    """The metadata of the file: the classes, and how inputs were normalised."""
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
    """The exact weights, under their names in the network."""
    # Copies, because safetensors does not accept tensors that share memory.
    plain = torch.contiguous_format
    weights = {name: tensor.clone(memory_format=plain) for name, tensor in network.state_dict().items()}
    return save(weights, metadata={name: _text(value) for name, value in about.items()})


def as_onnx(network: nn.Module, about: dict[str, Any]) -> bytes:
    """Input ``x`` ``[batch, *sample_shape]``, output ``logits`` ``[batch, K]``; the batch may have any size."""
    with require_extra("onnx"):
        import onnx
        import onnxscript  # noqa: F401  (torch exports with it)
    x = torch.zeros(2, *about["sample_shape"], dtype=next(network.parameters()).dtype)
    network = Calibrated(network, about["temperature"]).eval() if "temperature" in about else network
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations inside the exporter
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
