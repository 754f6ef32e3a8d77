"""The paper's figures. They need the trajectories of their runs: ``vista report`` draws them."""

from vista.reproduce import protocol
from vista.reproduce.grid import Cell, Paper, Study
from vista.reproduce.studies import table6

AT_40 = "symmetric 40 %"
GAPS = {"ce": 10.60, "vista": 2.97}  # the paper's mean deviation gap
WITHOUT_NUMBERS = "A figure of the paper without numbers: `vista report` draws it from these runs."
VALIDATION_SETTINGS = {
    "symmetric 40 %, restarts": protocol.symmetric(40),
    "symmetric 40 %, one cycle": {**protocol.symmetric(40), "lr_schedule": "cosine"},
    "asymmetric 40 %": protocol.asymmetric(40),
    "symmetric 20 %": protocol.symmetric(20),
}
TRAJECTORIES = tuple(Cell(AT_40, method, protocol.symmetric(40)) for method in ("ce", "vista", "vista-light"))

STUDIES = {
    "fig1": Study(
        title="The deviation gap",
        about="The paper gives one number per method and does not say for which data, noise or labels. We assume 40 % "
        "symmetric noise, the setting of its figure of coverage at the end of training, and report the gap on given, "
        "true and test labels.",
        cells=tuple(
            Cell(AT_40, method, protocol.symmetric(40), Paper(gap), measure=measure)
            for measure in ("gap_given", "gap_true", "gap_test")
            for method, gap in GAPS.items()
        ),
        is_drawn=True,
    ),
    "lifespan": Study(
        title="How long a state stays an anchor", about=WITHOUT_NUMBERS, cells=TRAJECTORIES, seeds=1, is_drawn=True
    ),
    "coverage": Study(
        title="What each epoch still adds at the end", about=WITHOUT_NUMBERS, cells=TRAJECTORIES, seeds=1, is_drawn=True
    ),
    "contributing": Study(
        title="Number of anchors in each epoch",
        about="The paper names the maximum of each curve; `vista report` draws the curves from these runs.",
        cells=tuple(
            Cell(setting, method, changes, Paper(most), measure="anchors")
            for method, numbers in table6.ANCHORS.items()
            for (setting, changes), most in zip(table6.SETTINGS.items(), numbers, strict=True)
        ),
        seeds=1,
        is_drawn=True,
    ),
    "surrogate": Study(
        title="Validation accuracy as a surrogate for test accuracy",
        about=WITHOUT_NUMBERS,
        cells=tuple(Cell(setting, "ce", changes) for setting, changes in VALIDATION_SETTINGS.items()),
        seeds=1,
        is_drawn=True,
    ),
}
