"""The contents of the page as JSON values."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

import vista
from vista.analysis import suspect_files
from vista.analysis.groups import Group, common_labels, group_runs
from vista.analysis.runs import Run
from vista.analysis.table import COLUMNS, Row, comparison
from vista.files import shell
from vista.report import figures, images, sample_paths, series, style, summary
from vista.review import run_decisions
from vista.runs import folder
from vista.runs.folder import RunFolder
from vista.runs.predictions import FILE as PREDICTIONS

MOST_SUSPECTS = 500
WEIGHTS = {
    "coverage": "The weight of a state is its share of all that is in colour.",
    "accuracy": "Every past state is in the teacher, weighted by its accuracy.",
    "uniform": "Every past state is in the teacher, with equal weights.",
}


def payload(runs: Sequence[Run], *, watching: bool = False) -> dict[str, Any]:
    """The contents of the page.

    Args:
        runs: Runs from :func:`vista.analysis.read_runs`.
        watching: Whether the page updates itself.

    Returns:
        JSON values for :func:`vista.report.page.page`.
    """
    begun = [run for run in runs if len(run)]
    groups, everything = series.ordered(group_runs(begun)), series.ordered(group_runs(runs))
    first = runs[0]
    known = {name: first.config.get(name) for name in ("data", "noise")}
    epochs = max(len(run) for run in runs)
    what = _isolated(f"{known['data']}, noise {known['noise']}" if known["data"] else first.name)
    waiting = len(runs) - len(begun)
    rows, suspects = comparison(groups), _suspects(groups)
    return {
        "title": " and ".join(_listed([_isolated(group.name) for group in everything]))
        + (f" on {_isolated(str(known['data']))}" if known["data"] else ""),
        **_summary(groups, rows, known["noise"], suspects),
        "subtitle": f"{what}; {counted(len(runs), 'run')}, {counted(epochs, 'epoch')}"
        + (f"; {waiting} still in epoch 1" if waiting else ""),
        "footer": f"Written by vista {vista.__version__} from the records of the runs.",
        "watching": watching,
        "style": style.for_page(series.positions(everything)),
        "table": _table(groups, rows),
        **_figures(groups),
        "suspects": suspects,
        "runs": [_described(group, run) for group in everything for run in group.runs],
    }


def counted(number: int, name: str) -> str:
    """``1 run``, ``2 runs``."""
    return f"{number} {name}{'' if number == 1 else 's'}"


def _isolated(name: str) -> str:
    """Isolate a name that may be written from right to left, to keep the order of the words around it."""
    return name if name.isascii() else f"\u2068{name}\u2069"


def _listed(names: list[str]) -> list[str]:
    return names if len(names) < 3 else [", ".join(names[:-1]), names[-1]]


def _described(group: Group, run: Run) -> dict[str, Any]:
    config = {name: value for name, value in run.config.items() if name != "format"}
    return {"group": group.name, "path": str(run.path), "config": config, "environment": run.environment}


def _summary(
    groups: Sequence[Group], rows: Sequence[Row], noise: Any, suspects: dict[str, Any] | None
) -> dict[str, Any]:
    if not groups:
        return {"headline": summary.NOT_BEGUN, "detail": "", "tiles": []}
    found = summary.result(groups, rows, figures.accuracy(groups))
    return {
        "headline": summary.headline(found, noise if isinstance(noise, str) else None),
        "detail": summary.detail(found),
        "tiles": _plain(summary.tiles(found, suspects)),
    }


def _table(groups: Sequence[Group], rows: Sequence[Row]) -> dict[str, Any]:
    shown = [c for c in COLUMNS if any(row.cells[c.key] is not None for row in rows)]
    judged = {"gap": f", {common_labels(groups)} labels"}
    columns = [{"key": c.key, "title": c.title + judged.get(c.key, ""), "digits": c.digits} for c in shown]
    return {"columns": columns, "rows": _plain(rows)}


def _figures(groups: Sequence[Group]) -> dict[str, Any]:
    """Panels by figure, the legend of each figure's whiskers, and what cannot be drawn."""
    if not groups:
        return {"figures": None, "whiskers": {}, "not_shown": None, "paths": None}
    sampled = figures.with_samples(groups)
    panels = {name: list(make(figures.shown(name, groups))) for name, make in figures.FIGURES.items()}
    lines = panels.pop("timeline")
    panels["forgotten-classes"] = figures.forgotten_classes(sampled) if sampled else []
    data = {name: _plain(own) for name, own in panels.items()}
    for panel in data["marginal-coverage"]:
        panel["weighting"] = _explain_weights(panel.pop("options"))
    data["timeline"] = [{"name": line.name, "run": line.run, "columns": _since_birth(line.weights)} for line in lines]
    return {
        "figures": data,
        "whiskers": {name: figures.whisker_label(own) for name, own in panels.items()},
        "not_shown": _not_shown(groups),
        "paths": sample_paths.validation_paths(sampled),
    }


def _not_shown(groups: Sequence[Group]) -> str | None:
    """Which runs the figures of samples lack; None if they show all."""
    lacking = {g.name: [run for run in g.runs if not run.has_samples] for g in groups}
    parts = []
    for group in groups:
        own = lacking[group.name]
        if len(own) == len(group.runs):
            parts.append(group.name)
        elif own:
            parts.append(f"{group.name} with seed {', '.join(str(run.seed) for run in own)}")
    if not parts:
        return None
    return (
        "The records of these runs hold accuracies but not which samples were right, so that the figures of samples do "
        f"not show them: {'; '.join(parts)}."
    )


def _explain_weights(options: dict[str, Any]) -> str:
    """How the anchors of a run are ranked and weighted."""
    sentences = [WEIGHTS[options["weights"]]]
    if options["order"] == "newest":
        sentences.insert(0, "The newest state is ranked first.")
    if options["smoothing"] > 1:
        sentences.append(f"Each state is averaged over {options['smoothing']} epochs.")
    return " ".join(sentences)


def _since_birth(weights: Any) -> list[list[float]]:
    """For each state its first row and its weights from there on."""
    rounded = np.round(weights, 4)
    return [[s, *_trimmed(rounded[s:, s].tolist())] for s in range(len(weights))]


def _trimmed(values: list[Any]) -> list[Any]:
    while values and not values[-1]:
        values.pop()
    return values


def judging_runs(groups: Sequence[Group]) -> list[Run]:
    """The runs that can judge labels, the one with the highest validation accuracy first."""
    files = (folder.TEACHER, PREDICTIONS, suspect_files.LIST)
    able = [r for g in groups for r in g.runs if r.is_folder and any((r.path / name).exists() for name in files)]
    return sorted(able, key=lambda r: -float(r.correct("given").mean(axis=1).max()))


def _suspects(groups: Sequence[Group]) -> dict[str, Any] | None:
    """Suspects of the run with the highest validation accuracy among those that can judge labels."""
    able = judging_runs(groups)
    if not able:
        return None
    run = able[0]
    found = suspect_files.run_report(RunFolder(run.path), MOST_SUSPECTS)
    assert found is not None
    rows: list[dict[str, Any]] = [
        {key: value for key, value in row.items() if not key.endswith("_name")} for row in found["suspects"]
    ]
    quality = found["quality"]
    note = _suspects_note(run, len(able), found, len(rows))
    try:
        known = RunFolder(run.path).data().inputs_hash  # None in older runs
        data, root, own = (run.config[name] for name in ("data", "root", "own_validation"))
        options = {name: run.config[name] for name in ("image_size", "skip_damaged") if run.config.get(name)}
        uris = images.thumbnails(data, root, [row["id"] for row in rows], known, own, **options)
    except (OSError, ValueError) as error:
        uris, note = [], f"{note}. No images: {error}"
    for row, uri in zip(rows, uris):
        row["image"] = uri
    paths = sample_paths.predicted_paths(RunFolder(run.path), [row["id"] for row in rows])
    for row in rows:
        if row["id"] in paths:
            row["path"] = paths[row["id"]]
    return {
        "rows": rows,
        "classes": list(run.classes or ()),
        "note": f"{note}.",
        "run": run.name,
        "estimated": found["estimated"],
        "samples": found["samples"],
        "interval": found.get("interval"),
        "caution": found.get("caution"),
        "wrong": None if quality is None else quality["wrong"],
    }


def _suspects_note(run: Run, able: int, found: dict[str, Any], shown: int) -> str:
    about = f"about {found['estimated']:,} of {found['samples']:,} labels look wrong"
    none = f"none of {found['samples']:,} labels looks wrong"
    chosen = f", the run with the highest validation accuracy of {able} that judge labels" if able > 1 else ""
    note = f"Found by {_isolated(str(run.path))}{chosen}: {about if found['estimated'] else none}"
    quality = found["quality"]
    if quality is not None and quality["auroc"] is not None:
        note += (
            f"; {quality['wrong']:,} are wrong. AUROC {quality['auroc']:.4f}, average precision "
            f"{quality['average_precision']:.4f}"
        )
    if found.get("caution"):
        note += f". {found['caution'].removesuffix('.')}"
    if found["estimated"] > shown:
        command = _isolated(shell.command("vista", "labels", run.path))
        note += f". This page has the first {shown:,} of {found['estimated']:,}. The full list: {command}"
    if run.metrics is not None:
        said, command = after_review(RunFolder(run.path), found)
        note += f"{said}: {_isolated(command)}"
    return note


def after_review(run: RunFolder, found: dict[str, Any]) -> tuple[str, str]:
    """How many of the suspects of a report are decided, and the command that follows."""
    doubted = [row["id"] for row in found["suspects"] if row["score"] > 0.5]
    decided = run_decisions.count_decided(run, doubted)
    is_over = decided == len(doubted) and found["estimated"] <= len(found["suspects"])
    said = "" if decided is None else f". {decided:,} of the {len(doubted):,} with a score above 0.5 are decided"
    said += ". To use the decisions" if is_over else ". To decide about them"
    return said, run_decisions.next_command(run, is_over)


def _plain(value: Any) -> Any:
    """Dataclasses and arrays as JSON values, rounded to five digits, NaN as null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        rounded, unknown = np.round(value, 5), np.isnan(value)
        return np.where(unknown, np.array(None), rounded).tolist() if unknown.any() else rounded.tolist()
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
