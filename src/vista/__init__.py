"""VISTA: train a classifier on labels that cannot be fully trusted, with its own past states as its teacher."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from vista import functional
from vista.data.indexed import indexed
from vista.distiller import Summary, Vista

try:
    __version__ = version("vista-distill")
except PackageNotFoundError:  # run from a source tree that was not installed
    __version__ = "0.0.0"

__all__ = ["Summary", "Vista", "__version__", "functional", "indexed", "load_model"]


def __getattr__(name: str) -> Any:
    """What needs the training layer is imported when it is asked for, so that ``import vista`` stays small."""
    if name == "load_model":
        from vista.training.run_folder import load_model

        return load_model
    raise AttributeError(f"module 'vista' has no attribute {name!r}")
