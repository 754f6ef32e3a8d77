"""Settings that the paper does not name, compared by cross-entropy alone to choose the protocol."""

from typing import Any

from vista.reproduce import protocol
from vista.reproduce.grid import Cell, Study
from vista.reproduce.studies.table1 import paper_number

USUAL: dict[str, Any] = {"validation": 0.1}  # as in the noisy preset
CANDIDATES: dict[str, dict[str, Any]] = {
    "validation 10 %": USUAL,
    "validation 5 %": {"validation": 0.05},
    "validation 2 %": {"validation": 0.02},
    "validation 1 %": {"validation": 0.01},
    "validation 10 %, rotation by 15°": USUAL | {"rotation": 15.0},
    "validation 10 %, Nesterov": USUAL | {"nesterov": True},
    "validation 10 %, one cosine over all epochs": USUAL | {"lr_schedule": "cosine"},
}
FINALISTS = ("validation 10 %", "validation 2 %")  # the usual one, and the nearest to the paper at 40 %


def _cell(percent: int, candidate: str) -> Cell:
    changes = protocol.symmetric(percent) | CANDIDATES[candidate]
    setting = f"symmetric {percent} %"
    return Cell(f"{setting}, {candidate}", "ce", changes, paper_number("ce", setting))


STUDIES = {
    "calibration": Study(
        title="Choosing the protocol",
        about="Cross-entropy under settings that the paper leaves open. These rows alone choose the protocol: of the "
        "two that were run at three noise rates, the one nearer to the paper.",
        cells=(
            *(_cell(40, candidate) for candidate in CANDIDATES),
            *(_cell(percent, candidate) for candidate in FINALISTS for percent in (20, 60)),
        ),
        seeds=1,
    )
}
