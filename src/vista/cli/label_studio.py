"""``vista labels RUN --to-label-studio FILE`` and ``--from-label-studio FILE``."""

from __future__ import annotations

import json
from pathlib import Path

from vista.analysis.suspects import LabelIssues
from vista.cli import terminal
from vista.cli.output_paths import file_to_write, trained_on
from vista.files import atomic
from vista.review import decisions, label_studio
from vista.review.decisions import DecisionLog
from vista.review.run_decisions import subject_of
from vista.review.samples import SampleViewer
from vista.runs.folder import RunFolder

TASKS = (".json",)


def write(folder: RunFolder, found: LabelIssues, count: int, path: str) -> list[Path]:
    """Write tasks and labelling interface; returns both paths."""
    target = file_to_write("to_label_studio", path, TASKS, list(trained_on(folder.config())))
    subject, viewer = subject_of(folder), SampleViewer(folder)
    log = folder.path / decisions.FILE
    taken = decisions.read(log, subject) if log.exists() else {}
    content = label_studio.content_of(viewer, found)
    tasks = label_studio.make_tasks(found, count, taken, content, is_image=viewer.is_image, subject=subject)
    interface = target.with_suffix(".xml")
    atomic.write(target, (json.dumps(tasks, indent=1) + "\n").encode())
    atomic.write(interface, label_studio.labelling_config(found.classes, viewer.is_image).encode())
    return [target, interface]


def read(folder: RunFolder, found: LabelIssues, path: str, as_json: bool) -> int:
    """Append what was decided in Label Studio to the decisions of the run."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise FileNotFoundError(
            f"from_label_studio {file} does not exist: export the project from Label Studio as JSON"
        )
    subject = subject_of(folder)
    suggested = dict(zip(found.ids.tolist(), found.suggested.tolist(), strict=True))
    read = label_studio.read_export(file, subject, suggested)
    log = DecisionLog(folder.path / decisions.FILE, subject)
    try:
        new = label_studio.new_decisions(read, log.current)
        if new:
            log.append(new)
    finally:
        log.close()
    if as_json:
        print(json.dumps({"run": str(folder.path), "decisions": str(log.path), "read": len(read), "new": len(new)}))
        return 0
    terminal.say(f"{len(read):,} decisions in {file}, {len(new):,} of them new; they are in {log.path} now")
    terminal.say_next("vista", "labels", folder.path, "--decisions", log.path, "--clean", "labels.csv")
    return 0
