"""Which classes asymmetric noise takes for which: those of a superclass, or the next by number."""

from vista.reproduce import protocol
from vista.reproduce.grid import Cell, Study
from vista.reproduce.table1 import papers

PERCENT = (20, 40)
METHODS = ("ce", "sat", "kf", "vista", "vista-light")
KINDS = {"within a superclass": protocol.asymmetric, "to the next class": protocol.pairflip}

STUDY = Study(
    title="Which asymmetric noise is the paper's?",
    about="The paper moves labels by a fixed permutation of the classes and does not say which. Table 1 has them moved "
    "within a superclass, to classes that look alike; here also to the next class by number, which need not.",
    cells=tuple(
        Cell(f"{percent} %, {kind}", method, noise(percent), papers(method, f"asymmetric {percent} %"))
        for percent in PERCENT
        for kind, noise in KINDS.items()
        for method in METHODS
    ),
    seeds=1,
)
