"""Which predictions become the teacher: those of the training pass, or of a clean pass after each epoch."""

from vista.reproduce import protocol
from vista.reproduce.calibration import USUAL
from vista.reproduce.grid import Cell, Paper, Study

PAPER: dict[str, tuple[Paper, Paper] | None] = {  # accuracy, and the most anchors
    "vista": (Paper(69.75, 0.14), Paper(176)),
    "vista-light": (Paper(69.55, 0.15), Paper(12)),
    "vista:tau=0.002": None,
}
RECORDINGS = {"": "", ":record=eval": "predictions of a clean pass"}


def _cells() -> list[Cell]:
    setting, changes = "symmetric 40 %, validation 10 %", protocol.symmetric(40) | USUAL
    cells = [Cell(setting, "ce", changes, Paper(59.37, 0.36))]
    for recording, note in RECORDINGS.items():
        for method, numbers in PAPER.items():
            accuracy, anchors = numbers or (None, None)
            cells.append(Cell(setting, method + recording, changes, accuracy, note=note))
            cells.append(Cell(setting, method + recording, changes, anchors, measure="anchors", note=note))
    return cells


STUDY = Study(
    title="Which predictions become the teacher?",
    about="The paper does not say. These runs were made before the protocol was chosen: 10 % is held out.",
    cells=tuple(_cells()),
    seeds=1,
)
