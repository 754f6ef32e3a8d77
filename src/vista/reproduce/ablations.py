"""What the weights come from: the paper's ablations, and two controls it does not have."""

from vista.reproduce import protocol
from vista.reproduce.grid import Cell, Paper, Study

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

STUDY = Study(
    title="Where the weights come from",
    about="The last two are controls of ours, as in `controls`.",
    cells=tuple(
        Cell(setting, method, changes, Paper(*numbers[place]) if numbers else None)
        for method, numbers in PAPER.items()
        for place, (setting, changes) in enumerate(SETTINGS.items())
    ),
)
