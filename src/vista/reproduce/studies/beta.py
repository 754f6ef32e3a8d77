"""Schedules of beta, the teacher's share of the target, at 40 % symmetric noise."""

from vista.reproduce import protocol
from vista.reproduce.grid import Cell, Paper, Study

PAPER: dict[str, tuple[float, float] | None] = {
    "ce": (59.39, 0.41),  # beta fixed at 0 trains a bit-identical network
    "vista:schedule=fixed:value=0.5": (61.68, 0.38),
    "vista:schedule=fixed:value=1:start=uniform": (0.94, 0.06),
    "vista:schedule=fixed:value=1": None,
    "vista:schedule=linear": (69.26, 0.08),
    "vista:schedule=cosine": (69.36, 0.02),
    "vista:k=1": (69.23, 0.15),
    "vista": (69.75, 0.14),
    "vista:k=3": (69.53, 0.59),
}

STUDIES = {
    "beta": Study(
        title="The schedule of beta",
        about="With beta fixed at 0 VISTA is plain training, so that row shows the plain runs. The paper's 0.94 % for "
        "beta fixed at 1 matches a uniform first teacher; the row below it trains on labels in epoch 1.",
        cells=tuple(
            Cell(
                "symmetric 40 %",
                method,
                protocol.symmetric(40),
                Paper(*number) if number else None,
                note="beta fixed at 0" if method == "ce" else "",
            )
            for method, number in PAPER.items()
        ),
        seeds=1,
    )
}
