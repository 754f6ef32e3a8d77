"""``vista compare BEFORE AFTER``: two finished runs on the same, corrected test labels."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from vista.cli import terminal
from vista.runs.config import check_device
from vista.runs.folder import RunFolder
from vista.training.before_after import compare_before_after

ABOUT = (
    """Test two finished runs on the test labels of the second, for example before and after labels were corrected."""
)


@dataclass(frozen=True)
class CompareRuns:
    before: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="BEFORE")]
    """Folder of the first run."""
    after: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="AFTER")]
    """Folder of the second run, whose test labels count."""
    which: Literal["best", "last"] = "best"
    """Weights of the best-validation epoch, or of the last."""
    root: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Folder that contains the data sets, if it has moved."""
    device: str = "auto"
    """cpu, cuda, cuda:1 ...; auto selects CUDA if it is available."""
    json: bool = False
    """Print one JSON object to stdout."""


def compare(flags: CompareRuns) -> int:
    """Print the test results of both runs."""
    check_device(flags.device)
    before, after = RunFolder.open(flags.before), RunFolder.open(flags.after)
    for folder in (before, after):
        folder.metrics()  # an unfinished run is reported with the command that continues it
    found = compare_before_after(before, after, flags.which, flags.device, flags.root)
    if flags.json:
        print(json.dumps({"before": str(before.path), "after": str(after.path), **_values(found)}, allow_nan=False))
        return 0
    corrected = "" if found.changed is None else f", {found.changed:,} of them corrected"
    title = f"{found.samples:,} test samples with the labels of {after.path}{corrected}"
    columns = ("run", "accuracy %", "ECE %", "NLL")
    results = [(str(before.path), found.before), (str(after.path), found.after)]
    if found.before_uncorrected is not None and found.changed:
        results.insert(0, (f"{before.path}, on its own labels", found.before_uncorrected))
    rows = [[name, f"{100 * m['top1']:.2f}", f"{100 * m['ece']:.2f}", f"{m['nll']:.4f}"] for name, m in results]
    out = terminal.console()
    terminal.print_rows(out, columns, rows, columns[1:], title)
    out.print(
        f"Difference: {100 * found.difference:+.2f} points, standard error {100 * found.standard_error:.2f} over the "
        "test samples. Other seeds give other differences: train several before you rely on a small one.",
        soft_wrap=True,
    )
    if found.left_out:
        out.print(
            f"{found.left_out:,} test samples are not counted: {before.path} was trained on them.", soft_wrap=True
        )
    terminal.say_next("vista", "report", before.path, after.path, "--open")
    return 0


def _values(found: Any) -> dict[str, Any]:
    values = dataclasses.asdict(found)
    return {{"before": "metrics_before", "after": "metrics_after"}.get(name, name): v for name, v in values.items()}
