"""``vista export runs/digits-none-vista-seed0 --to model.onnx``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from vista.cli import terminal
from vista.cli.arguments import parse
from vista.cli.execute import calibration_to_apply, note_fusion
from vista.cli.output_paths import file_to_write, folder_to_write
from vista.data.pixel_file import stored_size
from vista.files import atomic
from vista.integrations.model_folder import README, to_folder, to_safetensors
from vista.integrations.onnx import to_onnx
from vista.runs.folder import RunFolder, Which
from vista.training.network import Calibrated, load_model, network_name

FILES = (".safetensors", ".onnx")


@dataclass(frozen=True)
class Export:
    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Folder of a finished run."""
    to: Annotated[str, tyro.conf.arg(metavar="PATH")]
    """NAME.onnx (the network with resizing and normalisation, which runs without PyTorch), NAME.safetensors (weights
    and metadata), or a new folder (weights, label map, README; from_pretrained loads it if the network is hf:...)."""
    which: Which = "best"
    """Weights of the best-validation epoch or of the last."""
    raw: bool = False
    """Export without calibration. By default ONNX logits are divided by the run's temperature; files of weights have it
    in their metadata."""
    network: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """The run's network, required for custom code (package.module:function), which runs only if you name it."""


def run(argv: list[str]) -> int:
    flags = parse(Export, argv, "export", "Write a run's network in a form that works without vista.")
    suffix = Path(flags.to).suffix.lower()
    is_folder = Path(flags.to).expanduser().is_dir() or flags.to.endswith(os.sep) or not suffix
    if not is_folder and suffix not in FILES:
        raise ValueError(f"to must end in {' or '.join(FILES)}, or be a folder ({flags.to}{os.sep}), got {flags.to}")
    path = folder_to_write("to", flags.to) if is_folder else file_to_write("to", flags.to, FILES)
    folder = RunFolder.open(flags.run)
    network = load_model(folder.path, flags.which, flags.network)
    config, data = folder.config(), folder.data()
    temperature = calibration_to_apply(folder, flags.which, flags.raw)
    about = description(folder, flags.which) | ({} if temperature is None else {"temperature": temperature})
    how = "weights unchanged, metadata contain"
    if is_folder:
        write_folder(path, to_folder(network, config, data, about))
    elif path.suffix.lower() == ".onnx":
        how = "logits divided by"
        atomic.write(path, to_onnx(network if temperature is None else Calibrated(network, temperature), data, about))
    else:
        atomic.write(path, to_safetensors(network.state_dict(), about))
    note_fusion(config)
    epoch = folder.metrics()[flags.which]["epoch"]
    terminal.say(f"Wrote the {flags.which} network of {folder.path} (epoch {epoch}) to {path}")
    if temperature is not None:
        terminal.say(f"Calibrated: {how} the temperature {temperature:.3g} (--raw exports without it)")
    if is_folder:
        terminal.say(f"{path / README} has the code that loads it")
    terminal.say_next("vista", "predict", folder.path, "--data", config.data)
    return 0


def description(folder: RunFolder, which: Which) -> dict[str, Any]:
    """The metadata of the file: the classes, and how samples are preprocessed."""
    config, data = folder.config(), folder.data()
    preprocessing: dict[str, Any] = {}
    if data.mean:
        preprocessing |= {"mean": list(data.mean), "std": list(data.std)}  # of pixels / 255, per channel
    if data.image_size is not None:  # the shorter side is resized to the former, the centre cropped to the latter
        preprocessing |= {"resize": stored_size(data.image_size), "crop": data.image_size}
    if data.encoding is not None:
        preprocessing["encoding"] = data.encoding
    if data.tokenizer is not None:
        preprocessing["tokenizer"] = data.tokenizer
    reported = folder.metrics()
    metrics = reported.get("network", reported)[which]  # of the network alone, where predictions were fused
    return {
        "network": network_name(config, data.sample_shape),
        "classes": list(data.classes),
        "sample_shape": list(data.sample_shape),
        **preprocessing,
        "method": config.method,
        "data": data.name,
        "noise": config.noise,
        "seed": config.seed,
        "epoch": metrics["epoch"],
        "test_accuracy": metrics["test"]["top1"],
    }


def write_folder(folder: Path, files: dict[str, bytes]) -> None:
    """Write a model folder; it may hold an earlier export, but nothing else."""
    foreign = sorted(path.name for path in folder.iterdir() if path.name not in files) if folder.is_dir() else []
    if foreign:
        raise ValueError(f"to must be a new folder, got {folder}: it contains {foreign[0]}")
    atomic.make_folder(folder)
    for name, content in files.items():
        atomic.write(folder / name, content)
