"""The page on the record format names the contents of runs."""

from __future__ import annotations

import json
import re

import torch
from doc_pages import DOCS, ROOT

from vista.runs.environment import environment

PAGE = (DOCS / "record-format.md").read_text()


def row(key: str) -> str:
    """The row of a file or key in the page's tables."""
    return next(line for line in PAGE.splitlines() if re.match(rf"\| (`\w+`, )*`{re.escape(key)}`", line))


def test_every_value_of_environment_json_is_named() -> None:
    assert set(environment(torch.device("cpu"))) <= set(re.findall(r"`(\w+)`", row("environment.json")))


def test_keys_that_are_always_present_are_not_described_as_optional() -> None:
    records = sorted((ROOT / "results" / "runs").glob("*.json"))
    lines = [line for path in records for line in json.loads(path.read_text())["epochs"]]
    always = set.intersection(*map(set, lines))
    assert "val_true_accuracy" in always
    for key in always:
        assert "where" not in row(key), key
