"""``vista predict runs/photos --data new -o predictions.csv``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from vista.cli import terminal
from vista.cli.arguments import parse
from vista.cli.decoding_progress import decoding_shown
from vista.cli.execute import note_fusion, note_missing_calibration
from vista.cli.output_paths import TABLE, file_to_write, trained_on
from vista.data import source
from vista.files import atomic, shell, spreadsheet
from vista.runs.config import check_device
from vista.runs.folder import RunFolder, Which
from vista.training.predict import Predictions, predict, with_kind

STDOUT = "-"
MOST_SHOWN = 10  # predictions that are also printed


@dataclass(frozen=True)
class Predict:
    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Folder of a finished run."""
    data: str
    """Samples, no labels needed: an image file, a folder of images, a table (.csv, .parquet, or a dataset of Hugging
    Face), an .npz file with the array x, or - to read paths of image files (for a run on text: texts) from stdin, one
    per line. All of them are predicted. Of data named as for the training (digits, folder:PATH, csv:PATH ...) only the
    test samples are, if there is a test part or the run was trained on it."""
    out: Annotated[str, tyro.conf.arg(aliases=["-o"], metavar="FILE")] = "predictions.csv"
    """CSV file to write, or - for stdout: id (the sample's index in the data), label (class name), confidence, and file
    if the samples are files."""
    proba: bool = False
    """Also write the probability of every class, one column proba_CLASS each."""
    which: Which = "best"
    """Weights of the best-validation epoch or of the last."""
    raw: bool = False
    """Write the probabilities of the network itself, without calibration."""
    image_column: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """Column of a table with the paths of image files, relative to the table; by default that of the training data."""
    skip_damaged: bool = False
    """Leave out image files that cannot be decoded, instead of stopping at the first."""
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
    own = source.path_of(with_kind(flags.data, flags.root), flags.root)
    read = [] if own is None else [(own[1], "the samples")]
    out = None
    if flags.out != STDOUT:
        out = file_to_write("out", flags.out, TABLE, (*read, *trained_on(folder.config())))
    with decoding_shown():
        found = predict(
            folder.path, flags.data, flags.which, raw=flags.raw, device=flags.device, network=flags.network,
            root=flags.root, image_column=flags.image_column, skip_damaged=flags.skip_damaged,
        )  # fmt: skip
    if found.temperature is None and not flags.raw:
        note_missing_calibration(folder)
    columns = columns_to_write(found, flags.proba)
    written = spreadsheet.table(list(columns), zip(*columns.values(), strict=True))
    note_fusion(folder.config())
    if out is None:
        sys.stdout.write(written.decode())
        if found.total is not None:
            terminal.say(_test_samples_only(found, flags), sys.stderr)
        return 0
    atomic.write(out, written)
    if len(found) <= MOST_SHOWN:
        samples = found.files or [f"sample {sample}" for sample in found.ids]
        for sample, label, confidence in zip(samples, found.labels, found.confidences, strict=True):
            terminal.say(f"{sample}: {label} ({confidence:.1%})")
    if found.total is not None:
        terminal.say(_test_samples_only(found, flags))
    how = "" if found.temperature is None else f" (calibrated, temperature {found.temperature:.3g})"
    terminal.say(f"Wrote {len(found):,} prediction{'' if len(found) == 1 else 's'} to {out}{how}")
    terminal.say_next("vista", "export", folder.path, "--to", "model.onnx")
    return 0


def _test_samples_only(found: Predictions, flags: Predict) -> str:
    """The line that says that a part of the data was predicted, and how to predict all of it."""
    kind, _, path = flags.data.partition(":")
    remedy = ""
    if kind in ("folder", *source.TABLES) and with_kind(path, flags.root) == flags.data:
        remedy = f"; {shell.command('--data', path)} predicts all"
    return f"{len(found):,} of {found.total:,}: the test samples of {flags.data}{remedy}"


def columns_to_write(found: Predictions, proba: bool) -> dict[str, Sequence[object]]:
    """The columns of the file by name."""
    columns: dict[str, Sequence[object]] = {
        "id": found.ids,
        "label": found.labels,
        "confidence": [f"{confidence:.6f}" for confidence in found.confidences],
    }
    if found.files is not None:
        columns["file"] = found.files
    if proba:
        for number, name in enumerate(found.classes):
            columns[f"proba_{name}"] = [f"{value:.6f}" for value in found.probabilities[:, number]]
    return columns
