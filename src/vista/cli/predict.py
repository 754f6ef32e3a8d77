"""``vista predict runs/digits-none-vista-seed0 --data npz:new.npz -o predictions.csv``."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from numpy.typing import NDArray

from vista import durable
from vista.cli import terminal
from vista.cli.arguments import parse
from vista.cli.fusion_note import note_fusion
from vista.cli.output_paths import file_to_write
from vista.data import source
from vista.data.arrays import checked_inputs
from vista.npz import read_arrays
from vista.spreadsheet import cell
from vista.training.config import check_device
from vista.training.evaluation import logits
from vista.training.run_folder import RunFolder, Which

HELP = "predict the classes of samples, to a CSV file"


@dataclass(frozen=True)
class Predict:
    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Folder of a finished run."""
    data: str
    """Samples: the array x of npz:PATH, or the test part of folder:PATH, digits, cifar10 ..."""
    out: Annotated[str, tyro.conf.arg(aliases=["-o"], metavar="FILE")] = "predictions.csv"
    """CSV file to write: id (the sample's place in the data), label (class name), confidence."""
    which: Which = "best"
    """Weights of the best-validation epoch or of the last."""
    network: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """The run's network, where it is one of your own (package.module:function): its code runs only if you name it."""
    root: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder that holds the data sets; the environment variable VISTA_DATA if not given."""
    device: str = "auto"
    """cpu, cuda, cuda:1 ...; auto takes CUDA where there is one."""


def run(argv: list[str]) -> int:
    flags = parse(Predict, argv, "predict", "Predict the classes of samples that a run may never have seen.")
    check_device(flags.device)
    out = file_to_write("out", flags.out)
    if flags.data.startswith("npz:") and out.resolve() == _path(flags.data).resolve():
        raise ValueError(f"out is {out}, which holds the samples: name another file")
    folder = RunFolder.open(flags.run)
    classes = folder.data()["classes"]
    ids, inputs = samples(flags.data, flags.root)
    scores = logits(folder, flags.which, inputs, flags.device, flags.network).astype(np.float64)
    probabilities = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["id", "label", "confidence"])
    for sample, row in zip(ids, probabilities, strict=True):
        best = int(row.argmax())
        table.writerow([sample, cell(classes[best]), f"{row[best]:.6f}"])
    durable.write(out, text.getvalue().encode())
    note_fusion(folder.config())
    terminal.say(f"{len(probabilities):,} predictions are in {out}")
    return 0


def samples(data: str, root: str | None) -> tuple[Sequence[int], NDArray[Any]]:
    """Ids of the samples, and the samples as they are stored; an ``x`` needs no labels beside it."""
    path = _path(data)
    if data.startswith("npz:") and path.is_file():
        found = read_arrays(path, ("x",))
        if "x" in found:
            if not len(found["x"]):
                raise ValueError(f"{path}: x has shape {found['x'].shape}: there is no sample in it")
            return range(len(found["x"])), checked_inputs(path, "x", found["x"])
    loaded = source.load(data, root)
    inputs = loaded.test_samples()
    return range(len(inputs)) if loaded.set_aside is None else loaded.set_aside.tolist(), inputs


def _path(data: str) -> Path:
    return Path(data.removeprefix("npz:")).expanduser()
