"""VISTA: train a classifier on labels that cannot be fully trusted, with its own past states as its teacher."""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vista import functional
    from vista.analysis.recorder import TrajectoryRecorder
    from vista.analysis.suspects import LabelIssues, find_label_issues
    from vista.core.calibration import Calibration, calibrate
    from vista.core.posterior import Posterior
    from vista.core.vista import Summary, Vista
    from vista.data.indexed import indexed
    from vista.training.api import Result, train
    from vista.training.compare import compare
    from vista.training.network import load_model
    from vista.training.predict import Predictions, predict

try:
    __version__ = version("vista-distill")
except PackageNotFoundError:  # run from a source tree that was not installed
    __version__ = "0.0.0"

__all__ = [
    "Calibration", "LabelIssues", "Posterior", "Predictions", "Result", "Summary", "TrajectoryRecorder", "Vista",
    "__version__", "calibrate", "compare", "find_label_issues", "functional", "indexed", "load_model", "predict",
    "train",
]  # fmt: skip

# Imported on first use, so that `vista --help` needs no torch and `import vista` no training layer.
_MODULES = {
    "Calibration": "vista.core.calibration",
    "LabelIssues": "vista.analysis.suspects",
    "Posterior": "vista.core.posterior",
    "Predictions": "vista.training.predict",
    "Result": "vista.training.api",
    "Summary": "vista.core.vista",
    "TrajectoryRecorder": "vista.analysis.recorder",
    "Vista": "vista.core.vista",
    "calibrate": "vista.core.calibration",
    "compare": "vista.training.compare",
    "find_label_issues": "vista.analysis.suspects",
    "indexed": "vista.data.indexed",
    "load_model": "vista.training.network",
    "predict": "vista.training.predict",
    "train": "vista.training.api",
}


def __getattr__(name: str) -> Any:
    if name == "functional":
        return importlib.import_module("vista.functional")
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'vista' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
