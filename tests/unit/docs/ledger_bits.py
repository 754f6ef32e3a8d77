"""Coverage of runs in the ledger, for numbers in the docs that are counted from it."""

from __future__ import annotations

import numpy as np
from doc_pages import ROOT
from numpy.typing import NDArray

from vista.runs import record


def right(identity: str) -> NDArray[np.bool_]:
    """Correctness of each epoch of a run by the given validation labels, ``[E, m]``."""
    (bits,) = (ROOT / "results" / "runs").glob(f"*-{identity}.safetensors")
    rows, about = record.array_file.read(bits, record.FORMAT, record.VERSION)
    return np.unpackbits(rows["val_given"], axis=1)[:, : about["sizes"]["val_given"]].astype(bool)
