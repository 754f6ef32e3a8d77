"""Which predictions the teacher averages: those of the training pass, or of a clean pass after each epoch."""

from vista.reproduce import protocol
from vista.reproduce.grid import Cell, Paper, Study
from vista.reproduce.studies.calibration import USUAL
from vista.reproduce.studies.table1 import paper_number
from vista.reproduce.studies.table6 import ANCHORS, SETTINGS

SETTING = "symmetric 40 %"
METHODS = ("vista", "vista-light", "vista:tau=0.002")
RECORDINGS = {"": "", ":record=eval": "predictions of a clean pass"}


def _cells() -> list[Cell]:
    setting, changes = f"{SETTING}, validation 10 %", protocol.symmetric(40) | USUAL
    cells = [Cell(setting, "ce", changes, paper_number("ce", SETTING))]
    for recording, note in RECORDINGS.items():
        for method in METHODS:
            most = Paper(ANCHORS[method][list(SETTINGS).index(SETTING)]) if method in ANCHORS else None
            cells.append(Cell(setting, method + recording, changes, paper_number(method, SETTING), note=note))
            cells.append(Cell(setting, method + recording, changes, most, measure="anchors", note=note))
    return cells


STUDIES = {
    "recording": Study(
        title="Which predictions the teacher averages",
        about="The paper does not say. These runs precede the choice of the protocol: 10 % of the training "
        "set is held out.",
        cells=tuple(_cells()),
        seeds=1,
    )
}
