"""CIFAR-100 and CIFAR-100N, ResNet-18."""

from vista.reproduce import protocol
from vista.reproduce.grid import Cell, Paper, Study

SETTINGS = {
    "CIFAR-100N, 40 % human": protocol.HUMAN,
    "clean": protocol.CLEAN,
    "symmetric 20 %": protocol.symmetric(20),
    "symmetric 40 %": protocol.symmetric(40),
    "symmetric 60 %": protocol.symmetric(60),
    "asymmetric 20 %": protocol.asymmetric(20),
    "asymmetric 40 %": protocol.asymmetric(40),
}
PAPER: dict[str, list[tuple[float, float] | None]] = {
    "ce": [(54.53, 0.44), (78.66, 0.11), (64.98, 0.11), (59.37, 0.36), (50.92, 0.48), (66.61, 0.12), (49.57, 0.10)],
    "sat": [(53.18, 0.43), (77.84, 0.01), (71.97, 0.10), (66.67, 0.09), (55.79, 0.91), (74.43, 0.07), (63.26, 0.13)],
    "kf": [None, (79.13, 0.14), (72.80, 0.10), (67.00, 0.10), None, (74.20, 0.10), (62.10, 0.50)],
    "vista": [(63.92, 0.08), (80.25, 0.05), (74.09, 0.01), (69.75, 0.14), (59.42, 0.26), (75.61, 0.18), (67.17, 0.10)],
    "vista-light": [None, (80.08, 0.15), None, (69.55, 0.15), None, None, (66.88, 0.21)],
}


def paper_number(method: str, setting: str) -> Paper | None:
    """The paper's number for a method in a setting, if it has one."""
    number = PAPER[method][list(SETTINGS).index(setting)] if method in PAPER else None
    return Paper(*number) if number else None


STUDIES = {
    "table1": Study(
        title="CIFAR-100 and CIFAR-100N",
        about="The paper's KF numbers are copied from another paper's protocol; all others are its own runs.",
        cells=tuple(
            Cell(setting, method, changes, paper_number(method, setting))
            for method in PAPER
            for setting, changes in SETTINGS.items()
        ),
    )
}
