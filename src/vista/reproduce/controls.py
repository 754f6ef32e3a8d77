"""What coverage adds: plain training, the nearest rivals, VISTA, and two controls that the paper lacks."""

from vista.reproduce import protocol
from vista.reproduce.grid import Cell, Study
from vista.reproduce.table1 import papers

SETTING = "symmetric 40 %"
METHODS = ("ce", "sat", "kf", "vista", "vista-light", "vista-uniform", "ps-kd-beta")

STUDY = Study(
    title="What coverage adds",
    about="vista-uniform weighs every past state the same, ps-kd-beta takes the last state alone, with VISTA's beta: "
    "what they reach, coverage did not add.",
    cells=tuple(Cell(SETTING, method, protocol.symmetric(40), papers(method, SETTING)) for method in METHODS),
)
