"""TinyImageNet, ResNet-18."""

from vista.reproduce import protocol
from vista.reproduce.grid import Cell, Paper, Study

SETTINGS = {
    "clean": protocol.CLEAN,
    "symmetric 20 %": protocol.symmetric(20),
    "symmetric 40 %": protocol.symmetric(40),
    "symmetric 60 %": protocol.symmetric(60),
    "asymmetric 20 %": protocol.asymmetric(20),
    "asymmetric 40 %": protocol.asymmetric(40),
}
PAPER: dict[str, list[tuple[float, float] | None]] = {
    "ce": [(65.37, 0.01), (56.32, 0.22), (49.62, 0.23), (40.02, 0.38), (58.12, 0.18), (43.42, 0.17)],
    "sat": [(63.10, 0.20), (60.59, 0.17), (54.01, 0.20), (39.92, 0.23), (62.45, 0.02), (52.73, 0.10)],
    "kf": [(68.50, 0.36), (62.80, 0.20), (57.00, 0.50), None, None, None],
    "vista": [(68.91, 0.01), (63.20, 0.03), (58.20, 0.16), (47.12, 0.20), (64.71, 0.03), (53.69, 0.04)],
}

STUDIES = {
    "table2": Study(
        title="TinyImageNet",
        cells=tuple(
            Cell(setting, method, {**protocol.TINY, **changes}, Paper(*number) if number else None)
            for method, numbers in PAPER.items()
            for (setting, changes), number in zip(SETTINGS.items(), numbers, strict=True)
        ),
    )
}
