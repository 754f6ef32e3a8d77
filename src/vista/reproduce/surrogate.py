"""Validation beside test accuracy over time: four settings of plain training."""

from typing import Any

from vista.reproduce import protocol
from vista.reproduce.grid import Cell, Study

SETTINGS: dict[str, dict[str, Any]] = {
    "symmetric 40 %, restarts": protocol.symmetric(40),
    "symmetric 40 %, one cycle": {**protocol.symmetric(40), "lr_schedule": "cosine"},
    "asymmetric 40 %": protocol.asymmetric(40),
    "symmetric 20 %": protocol.symmetric(20),
}

STUDY = Study(
    title="Validation as a surrogate of the test set",
    about="A figure of the paper without numbers: `vista report` draws it from these runs.",
    cells=tuple(Cell(setting, "ce", changes) for setting, changes in SETTINGS.items()),
    seeds=1,
    is_drawn=True,
)
