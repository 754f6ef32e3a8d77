"""What may come in: arguments checked by name, with the value that came and what would do."""

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

NONE = torch.iinfo(torch.long).max
BAD_INDEX, BAD_LOGITS = 0, 1


class FirstFault:
    """The first bad row that came, in one device tensor.

    A row's code is ``(call, kind, row's index)`` packed into one integer, so that the smallest code is the first one.
    """

    def __init__(self, device: torch.device) -> None:
        self._code = torch.full((1,), NONE, dtype=torch.long, device=device)
        self._calls = torch.zeros(1, dtype=torch.long, device=device)

    def spare(self, index: Tensor, size: int, logits: Tensor | None) -> Tensor:
        """``index`` with every bad row sent to the spare row ``size``; the first bad one is remembered."""
        inside = index.clamp(0, size - 1) == index
        good = inside if logits is None else inside & torch.isfinite(logits.detach()).all(dim=1)
        code = (self._calls * 2 + inside) * (size + 2) + (index.clamp(-1, size) + 1)
        codes = torch.cat([self._code, torch.where(good, NONE, code)])  # never empty, whatever the batch
        self._code.copy_(codes.amin(0, keepdim=True))
        self._calls += 1
        return torch.where(good, index, size)

    def raise_if_any(self, epoch: int, size: int) -> None:
        """One look from the host; what was found is forgotten once it is raised."""
        code = int(self._code)
        if code == NONE:
            return
        self._code.fill_(NONE)
        kind, place = divmod(code, size + 2)
        if kind % 2 == BAD_INDEX:
            side = "below 0" if place == 0 else f"above {size - 1}"
            raise IndexError(f"an index {side} came in epoch {epoch}, but samples are numbered 0 to {size - 1}")
        raise FloatingPointError(
            f"logits were not finite in epoch {epoch}, first for sample {place - 1}; it was not stored"
        )

    def to(self, device: torch.device) -> FirstFault:
        self._code, self._calls = self._code.to(device), self._calls.to(device)
        return self


Integers = Tensor | NDArray[Any] | Sequence[int]
IN_WORDS: dict[type, str] = {
    int: "a whole number", float: "a number", bool: "true or false", str: "a text", dict: "an object of options",
    type(None): "none",
}  # fmt: skip


def is_integral(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


def as_integers(values: Integers, name: str) -> Tensor:
    """``values`` as a one-dimensional int64 tensor."""
    tensor = values if isinstance(values, Tensor) else _tensor(values, name)
    if tensor.dim() != 1:
        are_labels = tensor.dim() == 2 and name.endswith("labels")
        hint = "; multi-label targets are not supported" if are_labels else ""
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, but one number per sample is needed{hint}")
    if not is_integral(tensor.dtype) and tensor.numel():
        raise TypeError(f"{name} has type {tensor.dtype}, but whole numbers are needed (torch.long)")
    return tensor.long()


def _tensor(values: Any, name: str) -> Tensor:
    """A copy of anything that holds numbers: in this machine's byte order, forwards, and free to be written to."""
    try:
        array = native(values)
        tensor = torch.from_numpy(array)
    except (TypeError, ValueError) as error:  # text, None, rows of different length ...
        what = f"{name} is a {type(values).__name__} that holds no plain numbers"
        advice = "; vista.indexed(dataset) gives each sample's" if name == "index" else ""
        raise TypeError(f"{what}, but whole numbers are needed{advice}") from error
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name} holds {array.max()}, which is neither a class nor a sample")
    return tensor


def native(values: Any) -> NDArray[Any]:
    """A copy in this machine's byte order."""
    array = np.array(values)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def whole(value: Any, name: str) -> int:
    """``value`` as a plain int, whatever library it comes from."""
    try:
        return operator.index(value)
    except TypeError as error:
        raise TypeError(f"{name} is {value!r}, but a whole number is needed") from error


def as_recorded(value: Any, hint: Any) -> Any:
    """A setting as a record has it: numbers are Python's own, and a float's 1 is 1.0, so that equal runs read alike."""
    if isinstance(value, np.generic):
        value = value.item()
    is_float = float in (typing.get_args(hint) or (hint,))
    return float(value) if is_float and isinstance(value, int) and not isinstance(value, bool) else value


def real(value: Any, name: str) -> float:
    """``value`` as a plain float, whatever library it comes from."""
    if not isinstance(value, str | bytes):
        try:
            return float(value)
        except (TypeError, ValueError):
            pass
    raise TypeError(f"{name} is {value!r}, but a number is needed")


def as_logits(values: Any, name: str) -> Tensor:
    """``values`` as floats ``[n, K]``; what the rows must be is the business of :func:`check_logits`."""
    if not isinstance(values, Tensor):
        try:
            values = torch.from_numpy(native(values))
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name} is a {type(values).__name__}, but rows of logits [n, K] are needed") from error
    tensor: Tensor = values
    if tensor.dim() != 2:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, but rows of logits [n, K] are needed")
    return tensor


def as_labels(labels: Integers, num_classes: int, name: str, missing: int | None = None) -> Tensor:
    """Class labels as int64 on the CPU; ``missing`` and -1 become -1 where a label may be absent."""
    if num_classes < 2:
        raise ValueError(f"num_classes is {num_classes}, but a classifier needs at least 2")
    tensor = as_integers(labels, name).cpu().clone()
    if len(tensor) == 0:
        raise ValueError(f"{name} is empty, but at least one sample is needed")
    if missing is not None:
        tensor[tensor == missing] = -1
    check_classes(tensor, num_classes, name, may_be_absent=missing is not None)
    return tensor


def check_classes(labels: Tensor, num_classes: int, name: str, may_be_absent: bool) -> None:
    """Refuse labels ``[n]`` that are no class, nor -1 where they may be absent."""
    bad = ((labels < (-1 if may_be_absent else 0)) | (labels >= num_classes)).nonzero().flatten()
    if len(bad):
        place, none = int(bad[0]), ", or -1 for none" if may_be_absent else ""
        known = f"labels are 0 to {num_classes - 1}{none}"
        raise ValueError(f"{name}[{place}] is {int(labels[place])}, but num_classes is {num_classes}: {known}")


def check_index(index: Integers, size: int, name: str = "index") -> Tensor:
    """``index`` as int64 ``[B]``; on the CPU every value is checked, on CUDA the caller masks (no host sync)."""
    tensor = as_integers(index, name)
    if not tensor.is_cuda and len(tensor):
        low, high = torch.aminmax(tensor)
        if int(low) < 0 or int(high) >= size:
            place = int(((tensor < 0) | (tensor >= size)).nonzero()[0])
            raise IndexError(f"{name}[{place}] is {int(tensor[place])}, but samples are numbered 0 to {size - 1}")
    return tensor


def check_logits(logits: Tensor, rows: int, num_classes: int, name: str = "logits") -> None:
    """Shape and type; values are the business of :func:`check_finite`."""
    if not isinstance(logits, Tensor):
        raise TypeError(f"{name} is a {type(logits).__name__}, but a tensor is needed")
    if tuple(logits.shape) != (rows, num_classes):
        raise ValueError(f"{name} has shape {tuple(logits.shape)}, but {rows} samples of {num_classes} classes came")
    if not logits.is_floating_point():
        raise TypeError(f"{name} has type {logits.dtype}, but floating-point logits are needed")


def check_finite(logits: Tensor, index: Tensor, epoch: int, name: str = "logits") -> None:
    """Refuse NaN and infinity, naming the samples. One sum tells whether a closer look is needed."""
    values = logits.detach()
    total = values.sum(dtype=torch.float32) if values.dtype.itemsize < 4 else values.sum()
    if bool(torch.isfinite(total)):
        return
    bad = (~torch.isfinite(logits)).any(dim=1).cpu()
    if bool(bad.any()):
        samples = index.cpu()[bad].tolist()
        raise FloatingPointError(
            f"{name} are not finite in epoch {epoch} for samples {first_few(samples)}; nothing was stored"
        )


def predicted_classes(logits: Tensor, index: Integers | None, m: int, num_classes: int, epoch: int) -> Tensor:
    """The classes that ``val_logits`` name for ``m`` validation samples, int64 ``[m]``, -1 for one without a row.

    Rows are in the samples' order, or those of the samples ``index``; of one that comes twice the first counts.
    """
    if index is None and len(logits) != m:
        raise ValueError(f"val_logits has {len(logits)} rows, but there are {m} val_labels")
    rows = torch.arange(m) if index is None else check_index(index, m, "val_index").cpu()
    check_logits(logits, len(rows), num_classes, "val_logits")
    check_finite(logits, rows, epoch, "val_logits")
    classes = torch.full((m,), -1)
    classes[rows.flip(0)] = logits.argmax(dim=1).cpu().flip(0)
    return classes


def check_all_named(seen: Tensor) -> None:
    """Refuse a validation of which ``seen`` ``[m]`` does not say that every sample came."""
    absent = (~seen).nonzero().flatten().tolist()
    if absent:
        m = len(seen)
        raise ValueError(f"val_index names {m - len(absent)} of {m} samples; the first absent one is {absent[0]}")


def first_few(samples: Sequence[int] | NDArray[np.int64], most: int = 8) -> str:
    """Numbers of samples as an error names them."""
    more = f" and {len(samples) - most} more" if len(samples) > most else ""
    return ", ".join(map(str, samples[:most])) + more


def as_numbers(values: Any, like: Tensor, shape: tuple[int, ...], name: str) -> Tensor:
    """``values`` as a tensor beside ``like``, of this very shape: any other would be broadcast into another loss."""
    tensor = values if isinstance(values, Tensor) else plain_numbers(values, name).to(like)
    check_shape(tensor, shape, name)
    return tensor


def plain_numbers(values: Any, name: str) -> Tensor:
    """``values`` as a tensor of whatever shape they have."""
    if isinstance(values, Tensor):
        return values
    try:
        return torch.from_numpy(native(values))
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} is a {type(values).__name__} that holds no plain numbers") from error


def check_shape(values: Tensor | NDArray[Any], shape: Sequence[int], name: str) -> None:
    """Refuse another shape, which might be broadcast."""
    if tuple(values.shape) != tuple(shape):
        wanted = " x ".join(map(str, shape))
        raise ValueError(f"{name} has shape {tuple(values.shape)}, but {wanted} numbers are needed")


def unit_interval(value: float, name: str) -> float:
    """``value`` if it lies in [0, 1]."""
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} is {value}, but it must lie between 0 and 1")
    return float(value)


def not_negative(value: float, name: str) -> float:
    """``value``, a weight or a rate, if it is at least 0 and finite."""
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} is {value}, but it must be at least 0 and finite")
    return float(value)


def positive(value: float, name: str, usual: float | None = None) -> float:
    """``value`` if it is greater than 0 and finite; ``usual`` is what would do."""
    if not 0 < value < math.inf:
        advice = "" if usual is None else f" ({usual:g} is usual)"
        raise ValueError(f"{name} is {value}, but it must be greater than 0 and finite{advice}")
    return float(value)


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
