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
CLEAN = json.loads((ROOT / "results" / "calibration_digits_clean.json").read_text())
NOISE = {"symmetric:0.4": "symmetric 40 %", "asymmetric:0.4": "asymmetric 40 %", "none": "none"}
BETWEEN = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- end -->)", re.DOTALL)


def percent(cell: dict[str, Any]) -> str:
    return f"{100 * cell['mean']:.1f} ± {100 * cell['se']:.1f}"


def table() -> str:
    """The table of the record, in Markdown."""
    head = (
        "| noise | method | weights | accuracy | before | after | symmetric | structured | noise ignored | noise rate |"
    )
    lines = ["", head, "|---|---|---|---|---|---|---|---|---|---|"]
    for row in RECORD["rows"] + CLEAN["rows"]:
        found, true = (f"{100 * cell['mean']:.1f}" for cell in (row["calibrated"]["noise_rate"], row["true_rate"]))
        eces = [
            percent(row[name]["ece"]) for name in ("before", "calibrated", "symmetric", "structured", "noise ignored")
        ]
        cells = [NOISE[row["noise"]], f"`{row['method']}`", row["which"], percent(row["top1"]), *eces]
        lines.append(f"| {' | '.join([*cells, f'{found} ({true})'])} |")
    return "\n".join([*lines, "", ""])


def test_the_table_equals_the_record() -> None:
    found = BETWEEN.search(PAGE.read_text())
    assert found is not None
    assert found[0] == table()


def test_the_text_names_values_of_the_record() -> None:
    text = " ".join(PAGE.read_text().split())
    rows = {(r["noise"], r["method"], r["which"]): r for r in RECORD["rows"]}
    elr, smoothed = rows["asymmetric:0.4", "elr", "best"], rows["asymmetric:0.4", "label-smoothing", "last"]
    before, after, symmetric = (100 * elr[name]["ece"]["mean"] for name in ("before", "calibrated", "symmetric"))
    assert f"raises the ECE of `elr` from {before:.1f} to {symmetric:.1f}" in text
    assert after <= before + 1e-9
    before, after = (100 * smoothed[name]["ece"]["mean"] for name in ("before", "calibrated"))
    assert f"last weights of `label-smoothing`, from {before:.1f} to {after:.1f}" in text
    largest = 0.0
    for row in RECORD["rows"] + CLEAN["rows"]:
        if row is not smoothed:
            largest = max(largest, row["calibrated"]["ece"]["mean"] - row["before"]["ece"]["mean"])
    assert f"by at most {100 * largest:.1f} points" in text
    chosen = [
        r["calibrated"]["noise_rate"]["mean"]
        for (noise, method, _), r in rows.items()
        if noise == "asymmetric:0.4" and method != "elr"
    ]
    assert f"{100 * min(chosen):.0f} to {100 * max(chosen):.0f} %" in text


def test_symmetric_noise_is_recognised_in_every_run_and_clean_labels_have_a_rate_of_zero() -> None:
    symmetric = [r for r in RECORD["rows"] if r["noise"] == "symmetric:0.4"]
    assert {r["calibrated"]["is_structured"]["mean"] for r in symmetric} == {0.0}
    off = [abs(r["calibrated"]["noise_rate"]["mean"] - r["true_rate"]["mean"]) for r in symmetric]
    assert max(off) < 0.03
    rates = [round(100 * r["calibrated"]["noise_rate"]["mean"], 1) for r in CLEAN["rows"]]
    assert rates == [0.0] * len(rates)


def test_the_page_names_seeds_and_validation_labels_of_the_record() -> None:
    for record in (RECORD, CLEAN):
        assert record["seeds"] == [0, 1, 2]
        assert {row["samples"] for row in record["per_seed"]} == {270}
        assert record["config"]["epochs"] == 40
        assert not {"dirty"} & {*record["environment"]["commit"].split("-")}


if __name__ == "__main__":
    PAGE.write_text(BETWEEN.sub(table(), PAGE.read_text()))
