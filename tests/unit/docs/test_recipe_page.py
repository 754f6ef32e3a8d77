"""The check of posterior targets on docs/recipe.md equals its record."""

from __future__ import annotations

import json
import statistics
from typing import Any

import pytest
from doc_pages import DOCS, ROOT

RECORD: dict[str, Any] = json.loads((ROOT / "results" / "recipe_digits.json").read_text())
ROWS = {row["method"]: row for row in RECORD["rows"]}
PAGE = " ".join((DOCS / "recipe.md").read_text().split())


@pytest.mark.parametrize("method", ROWS)
def test_row_of_a_method_equals_the_record(method: str) -> None:
    cells = [ROWS[method][name] for name in ("criterion", "test_last", "test_best", "ece_last")]
    shown = " | ".join(f"{cell['mean']:.1f} ± {cell['se']:.1f}" for cell in cells)
    assert f"| `{method}` | {shown} |" in PAGE


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ("vista-light", "{} above `vista-light`"),
        ("elr", "{} **below** `elr`"),
        ("posterior-uniform", "{} **below** `posterior-uniform`"),
    ],
)
def test_paired_difference_equals_the_record(other: str, words: str) -> None:
    pairs = zip(ROWS["posterior"]["runs"], ROWS[other]["runs"], strict=True)
    differences = [one["criterion"] - two["criterion"] for one, two in pairs]
    mean, error = statistics.fmean(differences), statistics.stdev(differences) / len(differences) ** 0.5
    assert ("above" in words) == (mean > 0)
    assert words.format(f"{abs(mean):.2f} ± {error:.2f}") in PAGE


def test_fitted_values_equal_the_record() -> None:
    runs = ROWS["posterior"]["runs"]
    for name in ("noise_rate", "temperature"):
        first, second, third = (f"{run[name]:.2f}" for run in runs)
        assert f"{first}, {second} and {third}" in PAGE
    assert {f"{run['true_noise_rate']:.2f}" for run in runs} == {"0.37"}
    assert min(run["temperature"] for run in ROWS["posterior-uniform"]["runs"]) == pytest.approx(0.05, rel=1e-3)


def test_seeds_are_the_tuning_seeds() -> None:
    assert RECORD["seeds"] == [10, 11, 12]
    assert "Seeds 10, 11 and 12" in PAGE
