"""The search for a recommended recipe (docs/recipe.md): its screening runs, and the evaluation of what it finds."""

from typing import Any

from vista.reproduce import protocol
from vista.reproduce.grid import Cell, Study
from vista.runs.config import preset

# ---------------------------------------------------------------- search

CANDIDATES = ("ce", "vista-light", "ps-kd-beta", "sat", "elr", "posterior", "posterior-newest", "posterior-uniform")
# To the posterior, one at a time, then combined; with CutMix on half of the batches also to cross-entropy.
WITH_CUTMIX = " + CutMix"
ADDITIONS = (
    "posterior:noise-model=structured", "posterior:temperature=0.5", "posterior:temperature=0.7", "posterior:prior=1",
    "posterior:topk=10", "posterior:noise-model=auto", "posterior:matched=true",
    "posterior:noise-model=auto:matched=true", f"posterior:noise-model=auto:matched=true{WITH_CUTMIX}",
    f"ce{WITH_CUTMIX}", f"vista-light{WITH_CUTMIX}", "posterior:noise-model=structured:matched=true",
    "posterior:noise-model=structured:temperature=0.5:matched=true",
    f"posterior:noise-model=structured:matched=true{WITH_CUTMIX}", f"posterior:matched=true{WITH_CUTMIX}",
    "posterior:noise-model=pooled:matched=true", f"posterior:noise-model=pooled:matched=true{WITH_CUTMIX}",
)  # fmt: skip
SCHEDULES = ("restarts", "cosine", "hold")
# Both the plain weights and their average are evaluated in each run.
SCREENING: dict[str, Any] = {"epochs": 50, "validation": 0.1, "restart_epochs": 10, "ema": 0.999}
SMALL: dict[str, Any] = {
    **protocol.symmetric(15), "data": "cifar100-small", "network": "small-cnn", "precision": "fp32", "batch_size": 32,
    "lr": 0.05, "validation": 0.1,
}  # fmt: skip
TUNING: dict[str, dict[str, Any]] = {
    "symmetric 40 %": protocol.symmetric(40) | SCREENING,
    "asymmetric 40 %": protocol.asymmetric(40) | SCREENING,
    "small data, symmetric 15 %": SMALL | {"epochs": 40, "restart_epochs": 8, "ema": 0.999},
}
FIRST_SEED = 10  # 10, 11 and 12 are never reported as results


def search_cell(setting: str, method: str, schedule: str) -> Cell:
    """A cell of the screening; ``method`` is a method, or a method and CutMix."""
    changes = TUNING[setting] | {"lr_schedule": schedule}
    if method.endswith(WITH_CUTMIX):
        return Cell(f"{setting}, {schedule}, CutMix", method.removesuffix(WITH_CUTMIX), changes | {"cutmix": 0.5})
    return Cell(f"{setting}, {schedule}", method, changes)


# ---------------------------------------------------------------- evaluation

CONTROLS = ("ce", "vista-light", "ps-kd-beta", "elr")
EVALUATION: dict[str, dict[str, Any]] = {
    "CIFAR-100N": protocol.HUMAN,
    "symmetric 20 %": protocol.symmetric(20),
    "symmetric 40 %": protocol.symmetric(40),
    "symmetric 60 %": protocol.symmetric(60),
    "asymmetric 40 %": protocol.asymmetric(40),
    "clean": protocol.CLEAN,
    "CIFAR-100N, ResNet-34": {**protocol.HUMAN, "network": "resnet34"},
    "digits, symmetric 40 %": {
        **protocol.symmetric(40), **preset("digits"), "data": "digits", "network": "small-cnn", "precision": "fp32",
    },
    "small data, symmetric 15 %, 40 epochs": SMALL | {"epochs": 40, "lr_schedule": "cosine"},
    "small data, symmetric 15 %, 120 epochs": SMALL | {"epochs": 120, "lr_schedule": "cosine"},
}  # fmt: skip
# By method: the settings that tuning chose for the recipe and for each control; filled by the commit that freezes them.
FROZEN: dict[str, dict[str, Any]] = {}
NOT_FROZEN = (
    "The recipe is not frozen yet, so that these are its controls alone, with the schedule of the paper (digits and "
    "small data: one cosine). Rows as tuned, and those on misfiled images and texts, follow with it."
)


def _evaluation() -> tuple[Cell, ...]:
    paper = [Cell(setting, method, changes) for setting, changes in EVALUATION.items() for method in CONTROLS]
    frozen = [
        Cell(setting, method, changes | chosen, note="as tuned")
        for setting, changes in EVALUATION.items()
        for method, chosen in FROZEN.items()
    ]
    return (*paper, *frozen)


def _screening(title: str, methods: tuple[str, ...]) -> Study:
    return Study(
        title=title,
        about="Another protocol: 50 epochs (small data: 40), 10 % of the training set for validation, and seeds that "
        "are never reported as results. These numbers belong to no other table.",
        cells=tuple(
            search_cell(setting, method, schedule)
            for setting in TUNING
            for method in methods
            for schedule in SCHEDULES
            if not (setting.startswith("small data") and "topk=10" in method)  # of ten classes these are all
        ),
        first_seed=FIRST_SEED,
        shown_in="docs/recipe.md",
    )


STUDIES = {
    "recipe-search": _screening("Search for a recommended recipe: screening", CANDIDATES),
    "recipe-additions": _screening("Search for a recommended recipe: additions to posterior targets", ADDITIONS),
    "recipe": Study(
        title="Evaluation of the recommended recipe",
        about="" if FROZEN else NOT_FROZEN,
        cells=_evaluation(),
    ),
}
