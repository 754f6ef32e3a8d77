"""How to read each part of the page, in a sentence or two."""

from typing import Any

HOW = {
    "comparison": (
        "Means over the seeds with standard errors; the best of a column in bold. Validation labels drawn from those "
        "for training carry their noise, test labels do not; nothing is chosen by the test set."
    ),
    "forgetting": (
        "Yellow: how many validation samples were right at an epoch. Blue: how many of those very samples are "
        "still right at the end. The yellow that shows above the blue was known once and then lost."
    ),
    "timeline": (
        "Each column is a past state, each row the teacher made after an epoch. A cell's colour is the weight of "
        "that state in that teacher: long columns are states that stayed needed, the diagonal is the present."
    ),
    "marginal-coverage": (
        "The anchors at the end, best-ranked first. Grey is what better-ranked anchors cover already, blue what "
        "this one adds, the yellow line all it gets right. Beside it are the samples it adds and its weight in the "
        "teacher."
    ),
    "life-expectancy": (
        "A bar above an epoch is as tall as the number of epochs its state was still the only one to get some "
        "sample right; its colour fades as later states take over. Short bars: what was learned is handed on."
    ),
    "end-of-training": (
        "How much of the validation set each epoch still has to itself when all states are ranked at the end. "
        "Spikes far from the right edge are knowledge that the final model does not have."
    ),
    "contributing-set": (
        "The number of past states whose predictions the teacher needs. The highest point is the storage that a "
        "run needs."
    ),
    "test-vs-validation": (
        "Test labels are clean; validation labels drawn from those for training have their noise, so their curve lies "
        "lower. The two rise and fall together when validation is a good guide."
    ),
    "forgotten-classes": (
        "Per class, the share of validation samples that were right at some epoch and are wrong at the end."
    ),
    "suspects": (
        "Training samples whose given label the final teacher believes least, compared with what is usual for a "
        "class. From a score of 0.5 on another class is believed at least as much; higher is more suspect."
    ),
    "no_suspects": ("None of these runs has finished with a teacher, so there is nothing to suspect labels by."),
    "runs": ("What each run was, and where it ran."),
}

WEIGHTS = {
    "coverage": "The weight of a state is its share of all the blue.",
    "accuracy": "Every past state teaches, the more it gets right the more, whatever it adds.",
    "uniform": "Every past state teaches with the same weight, whatever it adds.",
}


def weights_of_anchors(options: dict[str, Any]) -> str:
    """What the order and the weights of a run's anchors come from."""
    said = [WEIGHTS[options["weights"]]]
    if options["order"] == "newest":
        said.insert(0, "The newest state is ranked first.")
    if options["smoothing"] > 1:
        said.append(f"It teaches by the mean of {options['smoothing']} epochs.")
    return " ".join(said)
