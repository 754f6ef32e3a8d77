"""What coverage adds: plain training, the nearest rivals, VISTA, and two controls that the paper lacks."""

from vista.reproduce import protocol
from vista.reproduce.grid import Cell, Paper, Study

PAPER: dict[str, Paper | None] = {
    "ce": Paper(59.37, 0.36),
    "sat": Paper(66.67, 0.09),
    "kf": Paper(67.00, 0.10),
    "vista": Paper(69.75, 0.14),
    "vista-light": Paper(69.55, 0.15),
    "vista-uniform": None,
    "ps-kd-beta": None,
}

STUDY = Study(
    title="What coverage adds",
    about="vista-uniform weighs every past state the same, ps-kd-beta takes the last state alone, with VISTA's beta: "
    "what they reach, coverage did not add.",
    cells=tuple(Cell("symmetric 40 %", method, protocol.symmetric(40), paper) for method, paper in PAPER.items()),
)
