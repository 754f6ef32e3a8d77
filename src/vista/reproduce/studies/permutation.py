"""The class permutation of asymmetric noise: within a superclass, or to the next class number."""

from vista.reproduce import protocol
from vista.reproduce.grid import Cell, Study
from vista.reproduce.studies.table1 import paper_number

PERCENT = (20, 40)
METHODS = ("ce", "sat", "kf", "vista", "vista-light")
KINDS = {"within a superclass": protocol.asymmetric, "to the next class": protocol.pairflip}

STUDIES = {
    "permutation": Study(
        title="The permutation of asymmetric noise",
        about="The paper moves labels by a fixed permutation of the classes and does not say which. In table 1 they "
        "move within a superclass, to similar classes; here also to the next class number, which need not be similar.",
        cells=tuple(
            Cell(f"{percent} %, {kind}", method, noise(percent), paper_number(method, f"asymmetric {percent} %"))
            for percent in PERCENT
            for kind, noise in KINDS.items()
            for method in METHODS
        ),
        seeds=1,
    )
}
