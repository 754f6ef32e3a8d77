"""The source of the teacher's weights: the paper's ablations, and two controls that it lacks."""

from vista.reproduce import protocol
from vista.reproduce.grid import Cell, Paper, Study
from vista.reproduce.studies.table1 import paper_number

SETTINGS = {"symmetric 40 %": protocol.symmetric(40), "asymmetric 40 %": protocol.asymmetric(40)}
PAPER: dict[str, list[tuple[float, float]] | None] = {
    "ce": [(59.37, 0.36), (49.57, 0.10)],
    "vista-accuracy": [(67.73, 0.16), (62.37, 0.34)],
    "vista-chronological": [(69.49, 0.31), (64.18, 0.32)],
    "vista-smoothing": [(69.37, 0.18), (64.50, 1.30)],
    "vista": [(69.75, 0.14), (67.17, 0.10)],
    "vista-uniform": None,
    "ps-kd-beta": None,
}
CONTROLS = ("ce", "sat", "kf", "vista", "vista-light", "vista-uniform", "ps-kd-beta")

STUDIES = {
    "ablations": Study(
        title="Source of the weights",
        about="The last two methods are our controls, as in `controls`.",
        cells=tuple(
            Cell(setting, method, changes, Paper(*numbers[column]) if numbers else None)
            for method, numbers in PAPER.items()
            for column, (setting, changes) in enumerate(SETTINGS.items())
        ),
    ),
    "controls": Study(
        title="What coverage adds",
        about="`vista-uniform` gives every past state the same weight; `ps-kd-beta` distils from the last state alone, "
        "with VISTA's beta. The part of VISTA's gain that they also reach is not due to coverage.",
        cells=tuple(
            Cell("symmetric 40 %", method, protocol.symmetric(40), paper_number(method, "symmetric 40 %"))
            for method in CONTROLS
        ),
    ),
}
