"""All methods on clean CIFAR-100, ResNet-18, top-1 error."""

from vista.reproduce.grid import Cell, Paper, Study

PAPER: dict[str, tuple[float, float | None] | None] = {
    "ce": (23.76, 0.07),
    "ddgsd": (23.39, 0.47),
    "ban": (23.04, 0.04),
    "sd-dropout": (23.00, 0.00),
    "tf-kd": (22.71, 0.15),
    "zipf-ls": (22.62, 0.32),
    "frskd": (22.29, 0.14),
    "byot": (22.12, 0.19),
    "tsd": (21.46, 0.35),
    "dks": (21.36, 0.25),
    "cs-kd": (21.30, None),
    "label-smoothing": (20.94, None),
    "ps-kd": (20.82, 0.23),
    "vista": (19.75, 0.05),
    "sat": None,
    "dlb": None,
    "ewr-kd": None,
    "temporal-ensembling": None,
    "kf": None,
    "kf-kd": None,
    "ema": None,
    "elr": None,
    "mentornet": None,
    "meta-weight-net": None,
    "vista-light": None,
}

STUDIES = {
    "table4": Study(
        title="All methods, clean CIFAR-100",
        about="The paper's row DGD (23.52) names no source and is most likely DDGSD, so we omit it. Every row of the "
        "paper but VISTA's is copied from papers with other protocols.",
        cells=tuple(
            Cell("ResNet-18, clean", method, {}, Paper(*number) if number else None, measure="error")
            for method, number in PAPER.items()
        ),
    )
}
