"""What each epoch still adds at the end, 40 % symmetric noise: a figure, drawn from the records of these runs."""

from vista.reproduce import protocol
from vista.reproduce.grid import Cell, Study

STUDY = Study(
    title="What each epoch still adds at the end",
    about="A figure of the paper without numbers: `vista report` draws it from these runs.",
    cells=tuple(Cell("symmetric 40 %", method, protocol.symmetric(40)) for method in ("ce", "vista", "vista-light")),
    seeds=1,
    is_drawn=True,
)
