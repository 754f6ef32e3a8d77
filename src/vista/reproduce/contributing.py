"""How many anchors there are in each epoch, Basic and Light: a figure, drawn from the records of these runs."""

from vista.reproduce.grid import Cell, Paper, Study
from vista.reproduce.table6 import ANCHORS, SETTINGS

STUDY = Study(
    title="How many anchors there are in each epoch",
    about="Of each curve the paper names the maximum; `vista report` draws the curves from these runs.",
    cells=tuple(
        Cell(setting, method, changes, Paper(most), measure="anchors")
        for method, numbers in ANCHORS.items()
        for (setting, changes), most in zip(SETTINGS.items(), numbers, strict=True)
    ),
    seeds=1,
    is_drawn=True,
)
