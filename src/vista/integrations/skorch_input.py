"""What a net is given: which of ``vista__*`` there are, what skorch calls otherwise, samples to validate on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import signature
from typing import Any

from torch.nn import CrossEntropyLoss

from vista.core.vista import Vista
from vista.data.holdout import holdout
from vista.integrations import positions

# skorch makes the component that a parameter belongs to anew; these belong to none and are read when a fit needs them.
READ_LATER = "vista__", "iterator_train__", "iterator_valid__", "dataset__"
GIVEN_BY_FIT = {"labels", "val_labels", "num_classes", "epochs", "tau"}


def check_options(names: Iterable[str]) -> None:
    """Refuse what looks like an option of ``Vista`` and is none, or is the net's own."""
    known = [f"vista__{name}" for name in signature(Vista).parameters if name not in GIVEN_BY_FIT]
    for name in names:
        if name.startswith("vista") and not name.endswith("_") and name not in known:
            raise ValueError(f"{name} is no parameter; there are epochs, tau and, for Vista, {', '.join(known)}")


def refuse_unheeded(given: Mapping[str, Any]) -> None:
    """What skorch would take and a net with VISTA would not heed."""
    if "max_epochs" in given:
        raise ValueError(f"max_epochs is {given['max_epochs']}, but it is called epochs here: VISTA plans with it")
    if given.get("train_split") is not None:
        raise ValueError(
            f"train_split is {given['train_split']}, but VISTA must know the labels it validates on: "
            "use validation_fraction, or fit(X, y, X_val, y_val)"
        )


def check_criterion(criterion: Any) -> None:
    """Refuse a loss that would not be heeded: VISTA's takes its place, with its weights of classes alone."""
    criterion = getattr(criterion, "_orig_mod", criterion)  # torch.compile wraps it
    if type(criterion) is not CrossEntropyLoss:
        raise ValueError(
            f"criterion is {type(criterion).__name__}, but VISTA trains by a cross-entropy of logits: "
            "use CrossEntropyLoss, and a module without softmax"
        )
    usual = CrossEntropyLoss()
    for name in ("ignore_index", "reduction", "label_smoothing"):
        if (value := getattr(criterion, name)) != (default := getattr(usual, name)):
            raise ValueError(
                f"criterion__{name} is {value!r}, but VISTA heeds criterion__weight alone: leave it at {default!r}"
            )


def check_validation(loader: Any) -> None:
    """Refuse a loader that gives its samples in another order, or not all of them."""
    given, samples = sum(map(len, positions(loader))), len(loader.dataset)
    if getattr(loader, "drop_last", False) and given < samples:
        raise ValueError(
            f"iterator_valid__drop_last is True, which drops {samples - given} of the {samples} validation samples, "
            "but VISTA needs them all: use iterator_valid__drop_last=False"
        )


def parts(net: Any, X: Any, y: Any) -> tuple[Any, Any, Any, Any]:
    """Samples to train and to validate on, and the labels of both: a share set aside, or what ``fit`` was given."""
    train = net.get_dataset(X, y)
    if net.validation_ is None:
        return holdout(train, y, net.validation_fraction, net.split_seed)
    val_labels = net.encoder_.transform(net.validation_[1])
    return train, net.get_dataset(net.validation_[0], val_labels), y, val_labels
