"""Write the figures of docs/reliability.md from results/reliability.json: `python docs/reliability_table.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORD, PAGE = ROOT / "results" / "reliability.json", ROOT / "docs" / "reliability.md"
START, END = "<!-- figures -->\n", "<!-- /figures -->"
# What the names of the entries start with, what was tried, and the result. Numbers are sums over these entries.
ROWS: list[tuple[str | tuple[str, ...], str, str]] = [
    ("kills", "{kills} kills by SIGKILL, of one process or of two", "{resumed} resumed to the same bytes"),
    ("torchrun", "{stops} stop by the launcher of `torchrun`", "{resumed} resumed to the same bytes"),
    (
        "power loss",
        "{losses:,} states that a power loss may leave, in {operations:,} operations of {entries} recorded runs",
        "{kept:,} kept every complete checkpoint; all {resumed} that were then trained to the end had the same bytes",
    ),
    (
        "failing",
        "{faults:,} failing reads, writes, flushes, renames and thread starts, one per run",
        "{stopped:,} stopped the run with an error; {resumed:,} ended with the same bytes, resumed where needed",
    ),
    (
        ("link in", "hard link in", "FIFO in", "folder in"),
        "{calls:,} calls of commands on run folders with a link, FIFO or folder at {most_positions} positions",
        "{harmed} changed or deleted anything foreign; all {finished} that finished a run ended with the same bytes",
    ),
    (
        "bit flips",
        "{flips} flipped bits in {files} files of a finished run, {commands} calls of commands that read them",
        "{noticed} calls reported the file",
    ),
    ("moved folder", "{moves} run folders moved during training", "{resumed} stopped, and resumed to the same bytes"),
    (
        "fuzzing",
        "{inputs:,} forged and damaged files of {entries} formats",
        "{rejected:,} reported by name, {read:,} still valid; no other error",
    ),
    (
        "commands on a forged",
        "{calls} calls of `runs`, `report`, `labels` and `export` on forged runs",
        "{reported} ended with one error; no traceback, and no other run was hidden",
    ),
]  # fmt: skip


def rows(tests: dict[str, dict[str, int]]) -> list[str]:
    """A row of the table for every kind of test in the record."""
    lines, left = [], dict(tests)
    for prefix, tried, result in ROWS:
        entries = [left.pop(name) for name in tests if name.startswith(prefix)]
        names = {name for counts in entries for name in counts}
        values: dict[str, Any] = {name: sum(counts[name] for counts in entries) for name in names}
        values["entries"] = len(entries)
        values["most_positions"] = max((counts.get("positions", 0) for counts in entries), default=0)
        lines.append(f"| {tried.format(**values)} | {result.format(**values)} |")
    if left:
        raise ValueError(f"add rows for {', '.join(left)}")
    return lines


def page() -> str:
    """docs/reliability.md with the figures of the record."""
    record = json.loads(RECORD.read_text())
    about = record["environment"]
    before, _, rest = PAGE.read_text().partition(START)
    lines = [
        "| tried | result |", "|---|---|", *rows(record["tests"]), "",
        f"Measured at commit `{about['commit']}` on {about['device']}, {about['system']}, Python {about['python']}, "
        f"torch {about['torch']}.", "",
    ]  # fmt: skip
    return f"{before}{START}" + "\n".join(lines) + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page())
