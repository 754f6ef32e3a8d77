"""The page on the record names what runs hold."""

from __future__ import annotations

import json
import re

import torch
from doc_pages import DOCS, ROOT

from vista.runs.environment import environment

PAGE = (DOCS / "record-format.md").read_text()


def row(key: str) -> str:
    """What the page's table says of a file or key."""
    return next(line for line in PAGE.splitlines() if re.match(rf"\| (`\w+`, )*`{re.escape(key)}`", line))


def test_every_value_of_environment_json_is_named() -> None:
    assert set(environment(torch.device("cpu"))) <= set(re.findall(r"`(\w+)`", row("environment.json")))


def test_what_lines_of_every_run_hold_is_not_said_to_be_there_at_times() -> None:
    records = sorted((ROOT / "results" / "runs").glob("*.json"))
    lines = [line for path in records for line in json.loads(path.read_text())["epochs"]]
    always = set.intersection(*map(set, lines))
    assert "val_true_accuracy" in always
    for key in always:
        assert "where" not in row(key), key
