"""Plain training and VISTA, with and without CutMix."""

from typing import Any

from vista.reproduce import protocol
from vista.reproduce.grid import Cell, Paper, Study

SETTINGS: dict[str, dict[str, Any]] = {
    "clean": protocol.CLEAN,
    "symmetric 20 %": protocol.symmetric(20),
    "symmetric 40 %": protocol.symmetric(40),
    "asymmetric 20 %": protocol.asymmetric(20),
    "asymmetric 40 %": protocol.asymmetric(40),
    "TinyImageNet, clean": protocol.TINY,
}
PAPER = {
    "ce": [(78.66, 0.11), (64.98, 0.11), (59.37, 0.36), (66.61, 0.12), (49.57, 0.10), (65.37, 0.01)],
    "ce + CutMix": [(80.75, 0.16), (73.60, 0.15), (67.15, 0.46), (75.10, 0.21), (62.81, 0.31), (68.45, 0.19)],
    "vista": [(80.25, 0.05), (74.09, 0.01), (69.75, 0.14), (75.61, 0.18), (67.17, 0.10), (68.91, 0.01)],
    "vista + CutMix": [(80.74, 0.09), (74.45, 0.19), (69.19, 0.30), (75.95, 0.12), (71.47, 0.16), (70.62, 0.04)],
}


def _cells() -> list[Cell]:
    cells = []
    for row, numbers in PAPER.items():
        method, _, mixed = row.partition(" + ")
        for (setting, changes), number in zip(SETTINGS.items(), numbers, strict=True):
            mixing = {"cutmix": 0.5} if mixed else {}
            cells.append(Cell(setting, method, {**changes, **mixing}, Paper(*number), note=mixed))
    return cells


STUDIES = {
    "cutmix": Study(
        title="CutMix",
        about="The paper names no probability; we use 0.5. Under CutMix VISTA records predictions in a clean pass.",
        cells=tuple(_cells()),
        seeds=1,
    )
}
