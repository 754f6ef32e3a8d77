"""Gains over plain training at 10 to 60 % symmetric noise, for four network families, DLB and VISTA."""

from vista.reproduce import protocol
from vista.reproduce.grid import Cell, Paper, Study

LEVELS = (10, 20, 30, 40, 50, 60)
NETWORKS = {"VGG-16": "vgg16", "VGG-19": "vgg19", "ResNet-18": "resnet18", "DenseNet-121": "densenet121"}
# Gains in points. The paper reads DLB's off a plot of other networks (ResNet-32, DenseNet-40).
GAINS: dict[str, dict[str, list[tuple[float, float | None]]]] = {
    "dlb": {
        "VGG-16": [(3.10, None), (3.30, None), (3.10, None), (3.00, None), (4.20, None), (5.80, None)],
        "VGG-19": [(3.20, None), (3.60, None), (4.05, None), (5.70, None), (5.80, None), (5.50, None)],
        "ResNet-18": [(2.50, None), (2.80, None), (2.60, None), (2.30, None), (3.70, None), (2.40, None)],
        "DenseNet-121": [(1.80, None), (1.40, None), (1.00, None), (1.40, None), (1.50, None), (3.65, None)],
    },
    "vista": {
        "VGG-16": [(2.83, 0.15), (4.02, 0.27), (6.44, 0.49), (12.55, 1.17), (22.29, 0.71), (13.34, 2.10)],
        "VGG-19": [(2.18, 0.43), (4.52, 0.70), (8.90, 1.33), (16.59, 0.96), (24.71, 2.73), (3.18, 1.22)],
        "ResNet-18": [(6.16, 0.41), (9.11, 0.11), (10.84, 0.30), (10.38, 0.39), (10.57, 0.28), (8.50, 0.55)],
        "DenseNet-121": [(5.87, 0.56), (7.08, 0.51), (7.31, 0.13), (10.43, 0.37), (10.01, 0.14), (8.82, 0.47)],
    },
}


def _cells() -> list[Cell]:
    cells = []
    for label, network in NETWORKS.items():
        for column, level in enumerate(LEVELS):
            changes = {"network": network, **protocol.symmetric(level)}
            setting = f"{label}, symmetric {level} %"
            cells.append(Cell(setting, "ce", changes))
            for method, gains in GAINS.items():
                value, error = gains[label][column]
                cells.append(Cell(setting, method, changes, Paper(value, error), is_gain=True))
    return cells


STUDIES = {
    "table5": Study(
        title="Gains over plain training by network and noise",
        about="The paper's numbers are gains in points over each source's own baseline; DLB's are read off a plot "
        "of other networks of the same family. We omit its rows for a WRN and ResNet-110, which have no counterpart.",
        cells=tuple(_cells()),
    )
}
