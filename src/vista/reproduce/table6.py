"""Basic and Light: accuracy, and the most anchors held at once."""

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
RECORDINGS = {"": "", ":record=eval": "predictions of a clean pass"}  # what the paper does is not said


def _cells() -> list[Cell]:
    cells = [Cell(setting, "ce", changes) for setting, changes in SETTINGS.items()]
    for recording, note in RECORDINGS.items():
        for method in ACCURACY:
            for place, (setting, changes) in enumerate(SETTINGS.items()):
                accuracy, anchors = Paper(*ACCURACY[method][place]), Paper(ANCHORS[method][place])
                cells.append(Cell(setting, method + recording, changes, accuracy, note=note))
                cells.append(Cell(setting, method + recording, changes, anchors, measure="anchors", note=note))
    for recording, note in RECORDINGS.items():
        changes = protocol.symmetric(40)
        cells.append(Cell("symmetric 40 %", f"vista:tau=0.002{recording}", changes, note=note))
        cells.append(Cell("symmetric 40 %", f"vista:tau=0.002{recording}", changes, measure="anchors", note=note))
    return cells


STUDY = Study(title="Basic and Light", cells=tuple(_cells()), seeds=1)
