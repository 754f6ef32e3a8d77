"""Whether the paper validated on clean labels, as the study from which it takes KF's numbers does."""

from vista.reproduce import protocol
from vista.reproduce.grid import Cell, Paper, Study
from vista.reproduce.studies.table1 import paper_number
from vista.reproduce.studies.table6 import ANCHORS, SETTINGS

METHODS = {
    "ce": "",
    "kf": "",
    "kf:window=1:rounds=1000": "the authors' window, until nothing improves",
    "vista": "",
    "vista-light": "",
}
CLEAN_HALF = ", clean validation"


def _cells() -> list[Cell]:
    cells = []
    for setting in ("asymmetric 40 %", "symmetric 40 %", "clean"):
        changes = SETTINGS[setting] | protocol.CLEAN_VALIDATION
        for method, note in METHODS.items():
            name = setting + CLEAN_HALF
            cells.append(Cell(name, method, changes, paper_number(method.partition(":")[0], setting), note=note))
            if method in ANCHORS:
                most = Paper(ANCHORS[method][list(SETTINGS).index(setting)])
                cells.append(Cell(name, method, changes, most, measure="anchors"))
    return cells


STUDIES = {
    "clean-validation": Study(
        title="Validation on clean labels",
        about="Another protocol: half of the test set, drawn by the seed, validates with its clean labels; "
        "the other half is the test set, and all training samples are trained on. A real task with noisy labels has no "
        "such validation set. These numbers belong to no other table.",
        cells=tuple(_cells()),
        seeds=1,
    )
}
