"""VISTA Basic and Light: accuracy, and the largest number of anchors."""

from vista.reproduce import protocol
from vista.reproduce.grid import Cell, Paper, Study

SETTINGS = {
    "clean": protocol.CLEAN,
    "symmetric 40 %": protocol.symmetric(40),
    "asymmetric 40 %": protocol.asymmetric(40),
}
ACCURACY = {
    "vista": [(80.25, 0.05), (69.75, 0.14), (67.17, 0.10)],
    "vista-light": [(80.08, 0.15), (69.55, 0.15), (66.88, 0.21)],
}
ANCHORS = {"vista": [173, 176, 176], "vista-light": [7, 12, 12]}
TAUS = (0.002, 0.005)  # not in the paper: the cost of keeping fewer anchors


def _cells() -> list[Cell]:
    cells = [Cell(setting, "ce", changes) for setting, changes in SETTINGS.items()]
    for method in ACCURACY:
        for column, (setting, changes) in enumerate(SETTINGS.items()):
            accuracy, anchors = Paper(*ACCURACY[method][column]), Paper(ANCHORS[method][column])
            cells.append(Cell(setting, method, changes, accuracy))
            cells.append(Cell(setting, method, changes, anchors, measure="anchors"))
    cells += [
        Cell("symmetric 40 %", f"vista:tau={tau}", protocol.symmetric(40), measure=measure)
        for tau in TAUS
        for measure in ("accuracy", "anchors")
    ]
    return cells


STUDIES = {"table6": Study(title="Basic and Light", cells=tuple(_cells()), seeds=1)}
