"""Which predictions become the teacher: those of the training pass, or of a clean pass after each epoch."""

from vista.reproduce import protocol
from vista.reproduce.calibration import USUAL
from vista.reproduce.grid import Cell, Paper, Study
from vista.reproduce.table1 import papers
from vista.reproduce.table6 import ANCHORS, SETTINGS

SETTING = "symmetric 40 %"
METHODS = ("vista", "vista-light", "vista:tau=0.002")
RECORDINGS = {"": "", ":record=eval": "predictions of a clean pass"}


def _cells() -> list[Cell]:
    setting, changes = f"{SETTING}, validation 10 %", protocol.symmetric(40) | USUAL
    cells = [Cell(setting, "ce", changes, papers("ce", SETTING))]
    for recording, note in RECORDINGS.items():
        for method in METHODS:
            most = Paper(ANCHORS[method][list(SETTINGS).index(SETTING)]) if method in ANCHORS else None
            cells.append(Cell(setting, method + recording, changes, papers(method, SETTING), note=note))
            cells.append(Cell(setting, method + recording, changes, most, measure="anchors", note=note))
    return cells


STUDY = Study(
    title="Which predictions become the teacher?",
    about="The paper does not say. These runs were made before the protocol was chosen: 10 % is held out.",
    cells=tuple(_cells()),
    seeds=1,
)
