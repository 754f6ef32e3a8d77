"""The contents of the page as JSON values."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

import vista
from vista.analysis import suspect_files
from vista.analysis.groups import Group, common_labels, grouped
from vista.analysis.runs import Run
from vista.analysis.table import COLUMNS, comparison
from vista.analysis.trajectory import best_epoch
from vista.report import figures, images, style
from vista.runs import folder
from vista.runs.folder import RunFolder

MOST_SUSPECTS = 500
WEIGHTS = {
    "coverage": "The weight of a state is its share of all the blue.",
    "accuracy": "Every past state is in the teacher, weighted by its accuracy.",
    "uniform": "Every past state is in the teacher, with equal weights.",
}


def payload(runs: Sequence[Run], *, watching: bool = False) -> dict[str, Any]:
    """The contents of the page.

    Args:
        runs: Runs from :func:`vista.analysis.read_runs`.
        watching: Whether the page reloads itself.

    Returns:
        JSON values for :func:`vista.report.page.page`.
    """
    begun = [run for run in runs if len(run)]
    groups = grouped(begun)
    first = runs[0]
    known = {name: first.config.get(name) for name in ("data", "noise")}
    epochs = max(len(run) for run in runs)
    what = _isolated(f"{known['data']}, noise {known['noise']}" if known["data"] else first.name)
    waiting = len(runs) - len(begun)
    return {
        "title": " and ".join(_listed([_isolated(group.name) for group in grouped(runs)]))
        + (f" on {_isolated(str(known['data']))}" if known["data"] else ""),
        "subtitle": f"{what}; {counted(len(runs), 'run')}, {counted(epochs, 'epoch')}"
        + (f"; {waiting} still in epoch 1" if waiting else ""),
        "footer": f"Written by vista {vista.__version__} from the records of the runs.",
        "watching": watching,
        "style": style.for_page(len(groups)),
        "table": _table(groups),
        **_figures(groups),
        "suspects": _suspects(groups),
        "runs": [_described(group, run) for group in grouped(runs) for run in group.runs],
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


def _table(groups: Sequence[Group]) -> dict[str, Any]:
    rows = comparison(groups)
    shown = [c for c in COLUMNS if any(row.cells[c.key] is not None for row in rows)]
    judged = {"gap": f", {common_labels(groups)} labels"}
    columns = [{"key": c.key, "title": c.title + judged.get(c.key, ""), "digits": c.digits} for c in shown]
    return {"columns": columns, "rows": _plain(rows)}


def _figures(groups: Sequence[Group]) -> dict[str, Any]:
    """Panels by figure, and the legend of each figure's bands."""
    if not groups:
        return {"figures": None, "bands": {}}
    panels = {name: make(groups) for name, make in figures.FIGURES.items()}
    panels["forgotten-classes"] = figures.forgotten_classes(groups)
    data = {name: _plain(own) for name, own in panels.items() if name != "life-expectancy"}
    for panel in data["marginal-coverage"]:
        panel["weighting"] = _explain_weights(panel.pop("options"))
    data["life-expectancy"] = [
        {
            "name": panel.name,
            "seeds": panel.seeds,
            "samples": panel.samples,
            "lifespans": _plain(panel.lifespans),
            "note": panel.note,
            "columns": [[0, *_trimmed(column.tolist())] for column in panel.by_age.T],
        }
        for panel in panels["life-expectancy"]
    ]
    lines = figures.timeline(groups)
    data["timeline"] = [
        {"name": line.name, "run": line.run, "kept": line.kept, "columns": _since_birth(line.weights)}
        for line in ([line for line in lines if line.kept] or lines)
    ]
    return {"figures": data, "bands": {name: figures.band_label(own) for name, own in panels.items()}}


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


def _suspects(groups: Sequence[Group]) -> dict[str, Any] | None:
    """Suspects of the run with the highest validation accuracy among those with a teacher or a list of suspects."""
    files = (folder.TEACHER, suspect_files.LIST)
    able = [r for g in groups for r in g.runs if r.is_folder and any((r.path / name).exists() for name in files)]
    if not able:
        return None
    run = max(able, key=lambda r: float(r.correct("given")[best_epoch(r.correct("given")) - 1].mean()))
    found = suspect_files.run_report(RunFolder(run.path), MOST_SUSPECTS)
    assert found is not None
    rows: list[dict[str, Any]] = [
        {key: value for key, value in row.items() if key != "file" and not key.endswith("_name")}
        for row in found["suspects"]
    ]
    about = f"about {found['estimated']:,} of {found['samples']:,} labels look wrong"
    none = f"none of {found['samples']:,} labels looks wrong"
    chosen = f", the run with the highest validation accuracy of {len(able)} with a teacher" if len(able) > 1 else ""
    note = f"Found by {_isolated(str(run.path))}{chosen}: {about if found['estimated'] else none}"
    quality = found["quality"]
    if quality is not None and quality["auroc"] is not None:
        note += (
            f"; {quality['wrong']:,} are wrong. AUROC {quality['auroc']:.4f}, average precision "
            f"{quality['average_precision']:.4f}"
        )
    if found["estimated"] > len(rows):
        note += f". The first {len(rows)} are shown; the command vista labels writes all"
    try:
        known = RunFolder(run.path).data().inputs_hash  # None in older runs
        data, root, own = (run.config[name] for name in ("data", "root", "own_validation"))
        options = {name: run.config[name] for name in ("image_size", "skip_damaged") if run.config.get(name)}
        uris = images.thumbnails(data, root, [row["id"] for row in rows], known, own, **options)
    except (OSError, ValueError) as error:
        uris, note = [], f"{note}. No images: {error}"
    for row, uri in zip(rows, uris):
        row["image"] = uri
    return {"rows": rows, "classes": list(run.classes or ()), "note": f"{note}."}


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
