"""Argument validation: errors name the argument, the value and the accepted range."""

from __future__ import annotations

import difflib
import math
import operator
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Integers = Tensor | NDArray[Any] | Sequence[int]
IN_WORDS: dict[type, str] = {
    int: "a whole number", float: "a number", bool: "true or false", str: "a text", dict: "an object of options",
    type(None): "none",
}  # fmt: skip

# ---------------------------------------------------------------- numbers


def as_int(value: Any, name: str) -> int:
    """Convert an integer of any library to a Python int."""
    try:
        return operator.index(value)
    except TypeError as error:
        raise TypeError(f"{name} must be a whole number, got {value!r}") from error


def as_float(value: Any, name: str) -> float:
    """Convert a number of any library to a Python float."""
    if not isinstance(value, str | bytes):
        try:
            return float(value)
        except (TypeError, ValueError):
            pass
    raise TypeError(f"{name} must be a number, got {value!r}")


def as_recorded(value: Any, hint: Any) -> Any:
    """Convert a setting of type ``hint`` to the form of a record: Python numbers, and 1.0 for a float's 1."""
    if isinstance(value, np.generic):
        value = value.item()
    is_float = float in (typing.get_args(hint) or (hint,))
    return float(value) if is_float and isinstance(value, int) and not isinstance(value, bool) else value


def unit_interval(value: float, name: str) -> float:
    """Return ``value`` if it is in [0, 1]."""
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} must be between 0 and 1, got {value}")
    return float(value)


def not_negative(value: float, name: str) -> float:
    """Return ``value``, a weight or a rate, if it is at least 0 and finite."""
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} must be at least 0 and finite, got {value}")
    return float(value)


def positive(value: float, name: str, usual: float | None = None) -> float:
    """Return ``value`` if it is greater than 0 and finite; the error recommends ``usual``."""
    if not 0 < value < math.inf:
        advice = "" if usual is None else f" ({usual:g} is usual)"
        raise ValueError(f"{name} must be greater than 0 and finite{advice}, got {value}")
    return float(value)


# ---------------------------------------------------------------- arrays


def native(values: Any) -> NDArray[Any]:
    """Copy to a numpy array in the byte order of this machine."""
    array = np.array(values)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def as_tensor(values: Any, name: str, wanted: str = "an array of numbers") -> Tensor:
    """Convert array-likes to a tensor of the same shape; a tensor is returned unchanged."""
    if isinstance(values, Tensor):
        return values
    try:
        return torch.from_numpy(native(values))
    except (TypeError, ValueError) as error:  # text, None, rows of different lengths ...
        raise TypeError(f"{name} must be {wanted}, got a {type(values).__name__} without plain numbers") from error


def as_numbers(values: Any, like: Tensor, shape: tuple[int, ...], name: str) -> Tensor:
    """Convert to a tensor with the dtype and device of ``like``, of exactly this shape: others would broadcast."""
    tensor = values if isinstance(values, Tensor) else as_tensor(values, name).to(like)
    check_shape(tensor, shape, name)
    return tensor


def as_integers(values: Integers, name: str) -> Tensor:
    """Convert to an int64 tensor ``[n]``."""
    advice = " (vista.indexed(dataset) returns the index of each sample)" if name == "index" else ""
    tensor = as_tensor(values, name, f"whole numbers{advice}")
    if tensor.dim() != 1:
        are_labels = tensor.dim() == 2 and name.endswith("labels")
        hint = "; multi-label targets are not supported" if are_labels else ""
        raise ValueError(f"{name} must hold one number per sample, got shape {tuple(tensor.shape)}{hint}")
    if not is_integral(tensor.dtype) and tensor.numel():
        raise TypeError(f"{name} must be whole numbers (torch.long), got {tensor.dtype}")
    integers = tensor.long()
    if tensor.dtype == torch.uint64 and (integers < 0).any():
        raise ValueError(f"{name} must be below 2**63, got {int(integers[integers < 0].max()) + 2**64}")
    return integers


def as_labels(labels: Integers, num_classes: int, name: str, missing: int | None = None) -> Tensor:
    """Convert class labels to int64 on the CPU; with ``missing``, that value and -1 become -1 (no label)."""
    if num_classes < 2:
        raise ValueError(f"num_classes must be at least 2, got {num_classes}")
    tensor = as_integers(labels, name).cpu().clone()
    if len(tensor) == 0:
        raise ValueError(f"{name} must have at least one sample, got none")
    if missing is not None:
        tensor[tensor == missing] = -1
    check_classes(tensor, num_classes, name, may_be_absent=missing is not None)
    return tensor


def as_logits(values: Any, name: str) -> Tensor:
    """Convert to a two-dimensional tensor; :func:`check_logits` checks its shape and dtype."""
    tensor = as_tensor(values, name, "rows of logits [n, K]")
    if tensor.dim() != 2:
        raise ValueError(f"{name} must be rows of logits [n, K], got shape {tuple(tensor.shape)}")
    return tensor


def is_integral(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


def check_shape(values: Tensor | NDArray[Any], shape: Sequence[int], name: str) -> None:
    """Reject any other shape, even one that would broadcast."""
    if tuple(values.shape) != tuple(shape):
        raise ValueError(f"{name} must have shape {tuple(shape)}, got {tuple(values.shape)}")


def check_classes(labels: Tensor, num_classes: int, name: str, may_be_absent: bool) -> None:
    """Reject labels ``[n]`` outside 0 to K - 1; -1 is accepted if labels may be absent."""
    bad = ((labels < (-1 if may_be_absent else 0)) | (labels >= num_classes)).nonzero().flatten()
    if len(bad):
        first, none = int(bad[0]), ", or -1 for no label" if may_be_absent else ""
        raise ValueError(f"{name}[{first}] must be 0 to {num_classes - 1}{none}, got {int(labels[first])}")


def check_index(index: Integers, size: int, name: str = "index") -> Tensor:
    """Convert to int64 ``[B]``; values are checked on the CPU; on CUDA :class:`FirstFault` masks them."""
    tensor = as_integers(index, name)
    if not tensor.is_cuda and len(tensor):
        low, high = torch.aminmax(tensor)
        if int(low) < 0 or int(high) >= size:
            first = int(((tensor < 0) | (tensor >= size)).nonzero()[0])
            raise IndexError(f"{name}[{first}] must be 0 to {size - 1}, got {int(tensor[first])}")
    return tensor


def check_logits(logits: Tensor, rows: int, num_classes: int, name: str = "logits") -> None:
    """Check shape and dtype; :func:`check_finite` checks the values."""
    if not isinstance(logits, Tensor):
        raise TypeError(f"{name} must be a tensor, got a {type(logits).__name__}")
    if logits.shape != (rows, num_classes):
        wanted = f"({rows}, {num_classes})"
        raise ValueError(f"{name} must have shape {wanted} (samples, classes), got {tuple(logits.shape)}")
    if not logits.is_floating_point():
        raise TypeError(f"{name} must be floating point, got {logits.dtype}")


def check_finite(
    logits: Tensor, index: Tensor, epoch: int, name: str = "logits", computed: Tensor | float | None = None
) -> None:
    """Reject NaN and infinity and name the samples; individual values are read only if the sum is not finite.

    ``computed`` replaces the sum: any number that a NaN or infinity in the logits would make NaN or infinite.
    """
    if computed is None:
        values = logits.detach()
        computed = values.sum(dtype=torch.float32) if values.dtype.itemsize < 4 else values.sum()
    if math.isfinite(computed):
        return
    bad = (~torch.isfinite(logits)).any(dim=1).cpu()
    if bool(bad.any()):
        samples = first_few(index.cpu()[bad].tolist())
        raise FloatingPointError(
            f"{name} must be finite, got NaN or infinity in epoch {epoch} for samples {samples}; nothing was stored"
        )


def first_few(samples: Sequence[int] | NDArray[np.int64], most: int = 8) -> str:
    """Format sample numbers for an error message."""
    more = f" and {len(samples) - most} more" if len(samples) > most else ""
    return ", ".join(map(str, samples[:most])) + more


# ---------------------------------------------------------------- validation predictions


def predicted_classes(logits: Tensor, index: Integers | None, m: int, num_classes: int, epoch: int) -> Tensor:
    """Return the predicted class of each of ``m`` validation samples, int64 ``[m]``, -1 for a sample without a row.

    Rows are in the order of the samples, or belong to the samples ``index``; the first row of a repeated sample counts.
    """
    if index is None and len(logits) != m:
        raise ValueError(f"val_logits must have {m} rows, one for each of val_labels, got {len(logits)}")
    rows = torch.arange(m) if index is None else check_index(index, m, "val_index").cpu()
    check_logits(logits, len(rows), num_classes, "val_logits")
    check_finite(logits, rows, epoch, "val_logits")
    classes = torch.full((m,), -1)
    classes[rows.flip(0)] = logits.argmax(dim=1).cpu().flip(0)
    return classes


def check_all_named(seen: Tensor) -> None:
    """Reject an incomplete validation: ``seen`` ``[m]`` must be true everywhere."""
    absent = (~seen).nonzero().flatten().tolist()
    if absent:
        m = len(seen)
        raise ValueError(
            f"val_index must name all {m} validation samples, got {m - len(absent)}; the first missing is {absent[0]}"
        )


# ---------------------------------------------------------------- rows on a GPU

NO_FAULT = torch.iinfo(torch.long).max
BAD_INDEX, BAD_LOGITS = 0, 1


class FirstFault:
    """Finds bad rows on a GPU without a host sync, and keeps the first one for a later error.

    A bad row is encoded as ``(call, kind, index)`` in one integer, so that the smallest code is the first bad row.
    """

    def __init__(self, device: torch.device) -> None:
        self._code = torch.full((1,), NO_FAULT, dtype=torch.long, device=device)
        self._calls = torch.zeros(1, dtype=torch.long, device=device)

    def redirect(self, index: Tensor, size: int, logits: Tensor | None) -> Tensor:
        """Return ``index`` with every bad row redirected to the spare row ``size``, and note the first bad row."""
        inside = index.clamp(0, size - 1) == index
        good = inside if logits is None else inside & torch.isfinite(logits.detach()).all(dim=1)
        code = (self._calls * 2 + inside) * (size + 2) + (index.clamp(-1, size) + 1)
        codes = torch.cat([self._code, torch.where(good, NO_FAULT, code)])  # not empty, even if the batch is
        self._code.copy_(codes.amin(0, keepdim=True))
        self._calls += 1
        return torch.where(good, index, size)

    def raise_if_any(self, epoch: int, size: int) -> None:
        """Raise the first fault and clear it: one host sync."""
        code = int(self._code)
        if code == NO_FAULT:
            return
        self._code.fill_(NO_FAULT)
        kind, position = divmod(code, size + 2)
        if kind % 2 == BAD_INDEX:
            side = "below 0" if position == 0 else f"above {size - 1}"
            raise IndexError(f"index must be 0 to {size - 1}, got a value {side} in epoch {epoch}")
        raise FloatingPointError(
            f"logits must be finite, got NaN or infinity in epoch {epoch}, first for sample {position - 1}; "
            "its prediction was not stored"
        )

    def to(self, device: torch.device) -> FirstFault:
        self._code, self._calls = self._code.to(device), self._calls.to(device)
        return self


def suggest(name: str, known: Iterable[str] | Mapping[str, str]) -> str:
    """Suggest the known name that is close to an unknown one, or list the known names.

    Args:
        name: The unknown name.
        known: The known names, or how each of them is written.

    Returns:
        ``did you mean 'vista'?``, or ``known: ce, vista`` if none is close.

    >>> suggest("visat", ["ce", "vista"])
    "did you mean 'vista'?"
    >>> suggest("foo", {"none": "none", "symmetric": "symmetric:0.4"})
    'known: none, symmetric:0.4'
    """
    written = known if isinstance(known, Mapping) else {each: each for each in known}
    close = difflib.get_close_matches(name.lower(), written, n=1, cutoff=0.6)
    return f"did you mean {written[close[0]]!r}?" if close else f"known: {', '.join(written.values())}"
