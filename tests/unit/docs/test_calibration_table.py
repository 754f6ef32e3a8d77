"""The table in docs/calibration.md equals its record.

python tests/unit/docs/test_calibration_table.py     # rewrites the table
"""

from __future__ import annotations

import json
import re
from typing import Any

from doc_pages import DOCS, ROOT

PAGE = DOCS / "calibration.md"
RECORD = json.loads((ROOT / "results" / "calibration_digits.json").read_text())
NOISE = {"symmetric:0.4": "symmetric 40 %", "asymmetric:0.4": "asymmetric 40 %", "none": "none"}
BETWEEN = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- end -->)", re.DOTALL)


def percent(cell: dict[str, Any]) -> str:
    return f"{100 * cell['mean']:.1f} ± {100 * cell['se']:.1f}"


def table() -> str:
    """The table of the record, in Markdown."""
    head = "| noise | method | weights | accuracy | ECE before | ECE after | structured | noise ignored | noise rate |"
    lines = ["", head, "|---|---|---|---|---|---|---|---|---|"]
    for row in RECORD["rows"]:
        found, true = (f"{100 * cell['mean']:.1f}" for cell in (row["calibrated"]["noise_rate"], row["true_rate"]))
        eces = [percent(row[name]["ece"]) for name in ("before", "calibrated", "structured", "noise ignored")]
        cells = [NOISE[row["noise"]], f"`{row['method']}`", row["which"], percent(row["top1"]), *eces]
        lines.append(f"| {' | '.join([*cells, f'{found} ({true})'])} |")
    return "\n".join([*lines, "", ""])


def test_the_table_equals_the_record() -> None:
    found = BETWEEN.search(PAGE.read_text())
    assert found is not None
    assert found[0] == table()


def test_the_page_names_the_loss_that_rises_on_clean_labels() -> None:
    (row,) = [r for r in RECORD["rows"] if (r["noise"], r["method"], r["which"]) == ("none", "elr", "best")]
    before, after = (row[name]["nll"]["mean"] for name in ("before", "calibrated"))
    assert f"NLL of `elr` rises from {before:.3f} to {after:.3f}" in " ".join(PAGE.read_text().split())


def test_the_page_names_seeds_and_validation_labels_of_the_record() -> None:
    assert RECORD["seeds"] == [0, 1, 2]
    assert {row["samples"] for row in RECORD["per_seed"]} == {270}
    assert RECORD["config"]["epochs"] == 40
    assert RECORD["environment"]["commit"]


if __name__ == "__main__":
    PAGE.write_text(BETWEEN.sub(table(), PAGE.read_text()))
