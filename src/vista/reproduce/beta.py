"""How the teacher's weight rises, 40 % symmetric noise."""

from vista.reproduce import protocol
from vista.reproduce.grid import Cell, Paper, Study

PLAIN = "ce"  # a fixed beta of 0: to the bit the same network
PAPER: dict[str, tuple[float, float] | None] = {
    PLAIN: (59.39, 0.41),
    "vista:schedule=fixed:value=0.5": (61.68, 0.38),
    "vista:schedule=fixed:value=1:start=uniform": (0.94, 0.06),
    "vista:schedule=fixed:value=1": None,
    "vista:schedule=linear": (69.26, 0.08),
    "vista:schedule=cosine": (69.36, 0.02),
    "vista:k=1": (69.23, 0.15),
    "vista": (69.75, 0.14),
    "vista:k=3": (69.53, 0.59),
}

STUDY = Study(
    title="The schedule of beta",
    about="A fixed beta of 0 is plain training, whose runs stand in its row. The paper's 0.94 % at a fixed beta of 1 "
    "is what a uniform first teacher gives; with labels in epoch 1 it is the row below it.",
    cells=tuple(
        Cell(
            "symmetric 40 %",
            method,
            protocol.symmetric(40),
            Paper(*number) if number else None,
            note="beta fixed at 0" if method == PLAIN else "",
        )
        for method, number in PAPER.items()
    ),
    seeds=1,
)
