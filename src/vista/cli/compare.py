"""``vista compare --data digits --noise symmetric:0.4 --methods ce,vista,vista-light --seeds 3``."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.table import Table
from rich.text import Text

from vista.analysis.groups import read_runs
from vista.cli import errors, terminal
from vista.cli.arguments import On, Output, Preset, given_fields, parse, train_config, training_flags
from vista.cli.execute import execute, show_choice
from vista.runs.config import TrainConfig, check_device
from vista.runs.folder import RunFolder
from vista.training import distributed
from vista.training.before_after import compare_before_after
from vista.training.compare import DEFAULT_METHODS, Entry, check_folders, jobs_of, plan, rows_of, verdict
from vista.training.events import Interrupted
from vista.training.recommend import complete, keep_choices

ABOUT = """Train every method with every seed on the same labels, and compare them.

Finished runs are reused and interrupted runs are resumed, so the same command always continues.

`vista compare BEFORE AFTER` trains nothing: it tests two finished runs on the test labels of the second, for example
before and after labels were corrected."""

ABOUT_TWO = (
    "Test two finished runs on the test labels of the second, for example before and after labels were corrected."
)


@dataclass(frozen=True)
class CompareFlags(Output):
    """Methods, seeds, folder and output."""

    methods: str = ",".join(DEFAULT_METHODS)
    """Methods, separated by commas, or all; options may follow a name, as in vista:tau=0.02."""
    seeds: int = 3
    """Number of seeds: 3 means 0, 1 and 2."""
    preset: Preset = "auto"
    """Defaults of the other options. auto is recommended for custom data, digits for the digits, otherwise clean or
    noisy by --noise; paper is clean or noisy with 2 % of the samples for validation."""
    out: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Folder of the runs; default: runs/compare-DATA-NOISE."""
    at_once: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """Concurrent runs; default: 5 on CUDA, on the CPU one per core if batches are small, otherwise 1."""
    on: On = None
    """Train on a cluster: ray, ray:ADDRESS, slurm or slurm:PARTITION. --out and --root must be visible on all nodes;
    --at-once is then per GPU. Without GPUs on this machine, also give --device cuda."""


def run(argv: list[str]) -> int:
    if argv and not argv[0].startswith("-"):
        return _compare_two(parse(CompareRuns, argv, "compare", ABOUT_TWO))
    fields: list[Any] = [("compare", CompareFlags, CompareFlags()), *training_flags(argv, without=("method", "seed"))]
    read: Any = parse(dataclasses.make_dataclass("Compare", fields), argv, "compare", ABOUT)
    flags, given = read.compare, given_fields(argv) | {"method", "options"}
    base = complete(train_config(read), flags.preset, given)
    methods = [method.strip() for method in flags.methods.split(",") if method.strip()]
    entries = plan(base, methods, flags.seeds, flags.out)
    jobs = jobs_of(entries)
    if not flags.fresh:
        keep_choices(jobs, given)
    show_choice(jobs[0].config, flags)
    check_folders(jobs, flags.fresh, flags.on)
    try:
        execute(jobs, flags, flags.at_once, on=flags.on)
    except Interrupted as error:
        return errors.report_stop(error, of_several=True)
    except Exception as error:
        return errors.report_failed_job(error, jobs)
    _print(entries, base, flags)
    failed = [(job, job.error) for job in jobs if job.error is not None]
    for job, failure in failed:
        errors.show(failure, f"{job.out.name}: ")
    return 1 if failed else 0


def _print(entries: list[Entry], base: TrainConfig, flags: CompareFlags) -> None:
    rows = rows_of(entries)
    if not distributed.is_first_process():
        return
    if flags.json:
        shared = {k: v for k, v in base.to_json().items() if k not in ("method", "options", "seed")}
        config = {**shared, "methods": [entry.method for entry in entries], "seeds": flags.seeds}
        print(json.dumps({"config": config, "rows": rows, "verdict": verdict(rows)}, allow_nan=False))
        return
    out = terminal.console()
    out.print(comparison_table(rows, base, flags.seeds))
    if any(row["reconstruction"] for row in rows):
        out.print(terminal.RECONSTRUCTED)
    mean = ", mean ± standard error over the seeds" if flags.seeds > 1 else ""
    out.print(
        f"Test accuracy in %{mean}, at the epoch with the best validation accuracy and at the last epoch. "
        "gap: mean deviation gap on the given validation labels."
    )
    if any(row["ece_calibrated"]["mean"] is not None for row in rows):
        out.print(probabilities_table(rows))
    for row in rows:
        if row["same_as"]:
            out.print(
                f"{row['method']} and {row['same_as']} are the same training here, done once: their tolerance is less "
                "than one validation sample."
            )
    out.print(verdict(rows)["sentence"])
    if not flags.quiet:
        terminal.say_next("vista", "report", entries[0].jobs[0].out.parent, "--open")


def comparison_table(rows: list[dict[str, Any]], base: TrainConfig, seeds: int) -> Table:
    """One row per method, with the highest accuracies in bold."""
    names = ("seeds", "best epoch", "last epoch", "gap %", "anchors", "s/run")
    table = terminal.narrow_table(f"{base.data}, noise {base.noise}, {base.epochs} epochs", "method", names)
    top = {key: max((row[key]["mean"] for row in rows if row["seeds"]), default=None) for key in ("best", "last")}
    for row in rows:
        counted = str(row["seeds"]) if row["seeds"] == seeds else f"{row['seeds']} of {seeds}"
        accuracies = [_accuracy(row[key], row[key]["mean"] == top[key]) for key in ("best", "last")]
        table.add_row(
            row["method"] + (" †" if row["reconstruction"] else ""),
            counted,
            *accuracies,
            _number(row["deviation_gap"], 2),
            _number(row["anchors_max"], 0),
            _number(row["seconds"], 1),
        )
    return table


def probabilities_table(rows: list[dict[str, Any]]) -> Table:
    """ECE, NLL and AURC of the test set at the best epoch, before (first line) and after calibration."""
    table = terminal.narrow_table("Test set at the best epoch, calibrated below", "method", ("ECE %", "NLL", "AURC %"))
    for row in rows:
        for name, suffix in ((row["method"], ""), ("  calibrated", "_calibrated")):
            values = [(row[f"{key}{suffix}"], digits) for key, digits in (("ece", 1), ("nll", 3), ("aurc", 2))]
            table.add_row(name, *(_uncertain(value, digits) for value, digits in values))
    return table


def _accuracy(value: dict[str, float | None], is_top: bool) -> Text:
    if value["mean"] is None:
        return Text("failed", style="red")
    error = f" ± {value['se']:.2f}" if value["se"] is not None else ""
    return Text(f"{value['mean']:.2f}{error}", style="bold" if is_top else "")


def _uncertain(value: dict[str, float | None], digits: int) -> str:
    """Mean ± standard error over the seeds, which is large if a calibration rests on few validation labels."""
    error = "" if value["se"] is None else f" ± {value['se']:.{digits}f}"
    return "" if value["mean"] is None else f"{value['mean']:.{digits}f}{error}"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


# ---------------------------------------------------------------- two finished runs


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


def _compare_two(flags: CompareRuns) -> int:
    """Print the test results of both runs."""
    check_device(flags.device)
    before, after = RunFolder.open(flags.before), RunFolder.open(flags.after)
    for folder in (before, after):
        folder.metrics()  # an unfinished run is reported with the command that continues it
    found = compare_before_after(before, after, flags.which, flags.device, flags.root)
    if flags.json:
        print(json.dumps({"before": str(before.path), "after": str(after.path), **_values_of(found)}, allow_nan=False))
        return 0
    corrected = "" if found.changed is None else f", {found.changed:,} of them corrected"
    weights = {"best": "best validation epoch", "last": "last epoch"}[flags.which]
    title = f"{found.samples:,} test samples with the labels of {after.path}{corrected}; weights of the {weights}"
    columns = ("run", "accuracy %", "ECE %", "NLL")
    results = [(str(before.path), found.before), (str(after.path), found.after)]
    if found.before_uncorrected is not None and found.changed:
        results.insert(0, (f"{before.path}, on its own labels", found.before_uncorrected))
    rows = [[name, f"{100 * m['top1']:.2f}", f"{100 * m['ece']:.2f}", f"{m['nll']:.4f}"] for name, m in results]
    out = terminal.console()
    terminal.print_rows(out, columns, rows, columns[1:], title)
    out.print(
        f"Difference: {100 * found.difference:+.2f} points, standard error {100 * found.standard_error:.2f} over the "
        "test samples. Other seeds give other differences: train several before you rely on a small one."
    )
    if found.left_out:
        out.print(
            f"{found.left_out:,} test samples are not counted: {before.path} was trained on them.", soft_wrap=True
        )
    terminal.say_next("vista", "report", *_drawn_together(before, after), "--open")
    return 0


def _drawn_together(before: RunFolder, after: RunFolder) -> list[Path]:
    """Both runs, or the second alone where their validation sets differ, as after labels were corrected."""
    try:
        return [run.path for run in read_runs([before.path, after.path])]
    except ValueError:
        return [after.path]


def _values_of(found: Any) -> dict[str, Any]:
    values = dataclasses.asdict(found)
    return {{"before": "metrics_before", "after": "metrics_after"}.get(name, name): v for name, v in values.items()}
