"""Three networks on clean CIFAR-100: top-1 error, top-5 error, AURC."""

from vista.reproduce.grid import Cell, Paper, Study

NETWORKS = {"ResNet-18": "resnet18", "DenseNet-121": "densenet121", "ResNet-101": "resnet101"}
MEASURES = ("error", "top5_error", "aurc")
PAPER: dict[str, list[float]] = {
    "ce": [23.76, 6.90, 67.65, 20.05, 4.99, 52.21, 20.75, 5.28, 55.45],
    "tf-kd": [22.71, 6.01, 61.77, 19.88, 5.10, 69.23, 20.10, 5.10, 58.80],
    "cs-kd": [21.30, 5.70, 56.56, 20.47, 6.21, 73.37, 20.76, 5.62, 64.44],
    "label-smoothing": [20.94, 6.02, 57.74, 19.80, 5.46, 91.06, 19.84, 5.07, 95.76],
    "ps-kd": [20.82, 5.10, 52.10, 18.73, 3.90, 45.55, 19.43, 4.30, 49.01],
    "vista": [19.75, 4.25, 50.76, 18.67, 3.95, 44.33, 18.04, 3.65, 42.81],
}
# Standard errors; None where the paper gives none.
ERRORS: dict[str, list[float | None]] = {
    "ce": [0.07, *[None] * 8],
    "tf-kd": [0.15, *[None] * 8],
    "ps-kd": [0.23, *[None] * 8],
    "vista": [0.05, 0.03, 0.02, 0.08, 0.03, 0.88, 0.10, 0.07, 0.34],
}
COLUMNS = [(label, network, measure) for label, network in NETWORKS.items() for measure in MEASURES]

STUDIES = {
    "table3": Study(
        title="Three networks, clean CIFAR-100",
        about="In the paper every row but VISTA's is copied from papers with other protocols, and some rows "
        "combine several of them.",
        cells=tuple(
            Cell(label, method, {"network": network}, Paper(value, error), measure=measure)
            for method, values in PAPER.items()
            for (label, network, measure), value, error in zip(
                COLUMNS, values, ERRORS.get(method, [None] * len(COLUMNS)), strict=True
            )
        ),
    )
}
