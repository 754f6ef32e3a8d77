"""The demo table of the README equals the record of the demo."""

from __future__ import annotations

import json

from doc_pages import ROOT

NAMES = {"ce": "cross-entropy", "vista": "VISTA", "vista-light": "VISTA Light (τ = 0.01)"}


def test_demo_table_equals_the_record() -> None:
    demo = json.loads((ROOT / "results" / "demo.json").read_text())["result"]
    readme = (ROOT / "README.md").read_text()
    for row in demo["rows"]:
        best, last = (f"{row[which]['mean']:.2f} ± {row[which]['se']:.2f}" for which in ("best", "last"))
        gap, anchors = f"{row['deviation_gap']:.2f} %", row["anchors_max"] or ""
        cells = map(str, (NAMES[row["method"]], row["seeds"], best, last, gap, anchors))
        assert f"| {' | '.join(cells)} |" in readme
