"""Weight averages compared with prediction averages, clean CIFAR-100."""

from vista.reproduce.grid import Cell, Paper, Study

PAPER = {"ce": (78.66, 0.11), "ema": (78.32, 0.14), "vista": (80.25, 0.05), "vista-ema": (76.60, 0.23)}

STUDIES = {
    "ema": Study(
        title="Weight averages",
        about="The paper does not say how VISTA-EMA blends; its method page describes our version.",
        cells=tuple(Cell("ResNet-18, clean", method, {}, Paper(*number)) for method, number in PAPER.items()),
        seeds=1,
    )
}
