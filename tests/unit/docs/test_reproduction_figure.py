"""The first figure of docs/reproduction.md shows every cell of the ledger that has a number of the paper."""

from __future__ import annotations

import re
import runpy
import xml.etree.ElementTree as ET

from doc_pages import DOCS, ROOT

from vista.reproduce import load_study

MADE = runpy.run_path(str(DOCS / "draw_reproduction.py"))
POINTS = MADE["points"](ROOT / "results")


def test_figure_is_up_to_date_and_first_on_the_page() -> None:
    text = MADE["FIGURE"].read_text()
    assert text == MADE["draw"](POINTS), "run `python docs/draw_reproduction.py`"
    ET.fromstring(text)
    figures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", (DOCS / "reproduction.md").read_text())
    assert figures[0] == "images/ours-against-paper.svg"


def test_every_cell_of_table_1_that_was_run_has_a_point() -> None:
    shown = {(point.setting, point.method) for point in POINTS}
    wanted = {(cell.setting, cell.method) for cell in load_study("table1").cells if cell.paper is not None}
    assert wanted <= shown, "every cell of table 1 has a run by now"
    text = MADE["FIGURE"].read_text()
    inside = [point for point in POINTS if point.paper.value >= MADE["LOW"]]
    assert text.count("<title>") == 2 * len(inside), "two marks per cell"
    assert len(POINTS) - len(inside) == 1


def test_marks_are_at_the_numbers_and_bars_need_several_seeds() -> None:
    (several,) = [point for point in POINTS if (point.setting, point.method) == ("symmetric 40 %", "vista")]
    (single,) = [point for point in POINTS if (point.setting, point.method) == ("clean", "vista")]
    assert several.last.n == 3
    assert single.last.error is None
    marks = "".join(MADE["_marks"](several))
    assert f'cx="{MADE["_x"](69.75)}" cy="{MADE["_y"](several.last.mean)}" r="4" fill="#1f6fb2"' in marks
    assert marks.count("V") == 3, "one line between the marks, two error bars"
    assert "".join(MADE["_marks"](single)).count("V") == 1
