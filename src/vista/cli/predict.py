"""``vista predict runs/digits-none-vista-seed0 --data npz:new.npz -o predictions.csv``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from numpy.typing import NDArray

from vista.cli import terminal
from vista.cli.arguments import parse
from vista.cli.decoding_progress import decoding_shown
from vista.cli.execute import calibration_to_apply, note_fusion
from vista.cli.output_paths import TABLE, file_to_write, trained_on
from vista.data import source
from vista.data.folder import SUFFIXES, read_images
from vista.data.new_rows import read_new_rows
from vista.data.npz import SPLIT, validate_inputs
from vista.files import atomic, spreadsheet
from vista.files.npz import names, read_arrays
from vista.runs.config import check_device
from vista.runs.folder import RunFolder, Which
from vista.training.evaluate import logits
from vista.training.samples import columns_of, load_source


@dataclass(frozen=True)
class Predict:
    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Folder of a finished run."""
    data: str
    """Samples: an image file, all images below folder:PATH, the array x of npz:PATH, the rows of csv:PATH, parquet:PATH
    or hf:PATH (no label needed), or the test samples of digits, cifar10 ...; of data with a test part, and of the
    folder or table that the run was trained on, only the test samples."""
    out: Annotated[str, tyro.conf.arg(aliases=["-o"], metavar="FILE")] = "predictions.csv"
    """CSV file to write: id (the sample's index in the data), label (class name), confidence, and file for a folder."""
    which: Which = "best"
    """Weights of the best-validation epoch or of the last."""
    raw: bool = False
    """Write the confidences of the network itself, without calibration."""
    network: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """The run's network, required for custom code (package.module:function), which runs only if you name it."""
    root: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Folder that contains the data sets; default: the environment variable VISTA_DATA."""
    device: str = "auto"
    """cpu, cuda, cuda:1 ...; auto selects CUDA if it is available."""


def run(argv: list[str]) -> int:
    flags = parse(Predict, argv, "predict", "Predict the classes of samples with a trained network.")
    check_device(flags.device)
    folder = RunFolder.open(flags.run)
    data = f"folder:{flags.data}" if Path(flags.data).expanduser().suffix.lower() in SUFFIXES else flags.data
    own = source.path_of(data, flags.root)
    read = [] if own is None else [(own[1], "the samples")]
    out = file_to_write("out", flags.out, TABLE, (*read, *trained_on(folder.config())))
    classes = folder.data().classes
    with decoding_shown():
        ids, inputs, files = samples(folder, data, flags.root)
    scores = logits(folder, flags.which, inputs, flags.device, flags.network).astype(np.float64)
    temperature = calibration_to_apply(folder, flags.which, flags.raw)
    scores /= temperature or 1.0
    probabilities = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    columns: dict[str, Sequence[object]] = {
        "id": ids,
        "label": [classes[best] for best in probabilities.argmax(axis=1)],
        "confidence": [f"{confidence:.6f}" for confidence in probabilities.max(axis=1)],
    }
    if files is not None:
        columns["file"] = files
    atomic.write(out, spreadsheet.table(list(columns), zip(*columns.values(), strict=True)))
    note_fusion(folder.config())
    how = "" if temperature is None else f" (calibrated, temperature {temperature:.3g})"
    terminal.say(f"Wrote {len(probabilities):,} predictions to {out}{how}")
    terminal.say_next("vista", "export", folder.path, "--to", "model.safetensors")
    return 0


def samples(run: RunFolder, data: str, root: str | None) -> tuple[Sequence[int], NDArray[Any], Sequence[str] | None]:
    """Ids of the samples, the samples as stored, and their file names, if each is a file."""
    kind, path = source.path_of(data, root) or ("", Path())
    if kind == "npz" and path.is_file():  # predict needs x alone, without labels
        found = read_arrays(path, ("x",))
        if "x" in found:
            return range(len(found["x"])), validate_inputs(path, "x", found["x"]), None
        _check_test_part(path)
    trained = run.data()
    if kind in source.TABLES and not _is_own(run, path):
        config = run.config()
        inputs, named = read_new_rows(
            kind, path, columns_of(config), encoding=trained.encoding, tokenizer=trained.tokenizer,
            sample_shape=trained.sample_shape, image_size=trained.image_size,
        )  # fmt: skip
        return range(len(inputs)), inputs, named
    if kind == "folder" and (path.is_file() or (path.is_dir() and not _has_test_part(run, path))):
        files, inputs = read_images(path, len(trained.mean), trained.image_size)
        return range(len(files)), inputs, files
    if path.exists() and kind in ("folder", *source.TABLES) and _is_own(run, path):  # decoded already
        loaded = load_source(dataclasses.replace(run.config(), data=data, clean_validation=False), root)
    elif kind == "folder" and trained.image_size is not None:
        files, inputs = read_images(path / "test", len(trained.mean), trained.image_size)
        return range(len(files)), inputs, [f"test/{file}" for file in files]
    else:
        loaded = source.load(data, root, own_validation=False)
    inputs = loaded.test_samples()
    ids = range(len(inputs)) if loaded.test_ids is None else loaded.test_ids.tolist()
    return ids, inputs, loaded.test_files


def _check_test_part(path: Path) -> None:
    """A file without ``x`` must have test samples."""
    found = names(path)
    if any(name not in found for name in SPLIT):
        listed = ", ".join(found[:5]) + (" ..." if len(found) > 5 else "") or "nothing"
        raise ValueError(f"{path} must contain the array x, got {listed}: save the samples as x")


def _has_test_part(run: RunFolder, folder: Path) -> bool:
    """Whether the folder has test images: in test/, or held out by the run."""
    if all((folder / part).is_dir() for part in ("train", "test")):
        return True
    return _is_own(run, folder)


def _is_own(run: RunFolder, folder: Path) -> bool:
    """Whether the run was trained on this folder or table."""
    config = run.config()
    trained_on = source.path_of(config.data, config.root)
    return trained_on is not None and trained_on[1].resolve() == folder.resolve()
