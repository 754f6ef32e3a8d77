"""Averages of weights beside averages of predictions, clean CIFAR-100."""

from vista.reproduce.grid import Cell, Paper, Study

PAPER = {"ce": (78.66, 0.11), "ema": (78.32, 0.14), "vista": (80.25, 0.05), "vista-ema": (76.60, 0.23)}

STUDY = Study(
    title="Averages of weights",
    about="How VISTA-EMA blends is not said in the paper; ours is described on its card.",
    cells=tuple(Cell("ResNet-18, clean", method, {}, Paper(*number)) for method, number in PAPER.items()),
    seeds=1,
)
