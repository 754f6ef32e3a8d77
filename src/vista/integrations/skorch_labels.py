"""Labels as a net is given them, and the classes it knows by them."""

from __future__ import annotations

from typing import Any

import numpy as np

MISSING = {"nan": "NaN", "None": "None", "<NA>": "NA", "NaT": "NaT"}


def check_labels(y: Any, X_val: Any, y_val: Any) -> None:
    """Refuse a fit without labels, which a data set alone would hide, and labels that are missing."""
    if y is None or (X_val is None) != (y_val is None):
        raise ValueError(f"{'y' if y is None else 'X_val or y_val'} is None, but VISTA needs fit(X, y, X_val, y_val)")
    _refuse_missing(y, "y")
    _refuse_missing(y_val, "y_val")


def _refuse_missing(y: Any, name: str) -> None:
    """NaN among floats would become a class, and among texts could not even be sorted."""
    if y is None or (labels := np.asarray(y)).dtype.kind not in "fO":
        return
    if labels.dtype.kind == "f":
        missing = np.isnan(labels)
    else:
        missing = np.array([not isinstance(label, str) and str(label) in MISSING for label in labels.flat])
    if missing.any():
        i = int(missing.argmax())
        kind = MISSING[str(labels.flat[i])]
        raise ValueError(f"{name} contains {kind}, first at {name}[{i}], but every sample needs a label: drop those")


def classes_of(net: Any) -> Any:
    """The classes in order, as the last fit found them or as they were given."""
    if "encoder_" in vars(net):
        return net.encoder_.classes_
    if net.classes is None:
        raise AttributeError(
            "the net does not know its classes, which load_params does not bring: give it classes=..., fit it, "
            "or pickle the whole net"
        )
    return np.unique(net.classes)
