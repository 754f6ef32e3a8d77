"""Storage of past predictions, per kept state and for the current epoch, and the memory it needs.

Predictions are float16 rows ``[N, K]``, or with ``topk`` packed rows ``[N, k]`` (see :mod:`vista.core.topk`).
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vista.core import collectives, topk

Store = Literal["auto", "device", "host"]
STORES: tuple[Store, ...] = get_args(Store)

# ---------------------------------------------------------------- predictions


class WrittenOnce(dict[str, Any]):
    """State entries (tensors or dicts of tensors) that never change under the same name.

    A checkpoint writes each entry once, as a separate file, and later checkpoints refer to it.
    """


@dataclass(frozen=True, eq=False)
class RowsOnDisk:
    """An immutable safetensors file with the only tensor ``values``, and that tensor as mapped rows.

    As an entry of :class:`WrittenOnce` it is not written again: the checkpoint links to the file.
    """

    rows: Tensor
    path: Path
    sha256: str


class PredictionStore:
    """Predictions of the current epoch, written row by row, and those of the kept states.

    Every buffer has one spare row after those of the samples. Rows that must not be stored (a bad index, a non-finite
    prediction) are written there, so that a step on a GPU needs no host sync to skip them.

    Args:
        initial: What each sample counts as until its first prediction, ``[N, K]``.
        kept: Number of probabilities kept per row (``topk``); by default all.
    """

    on_device = True

    def __init__(self, initial: Tensor, kept: int | None = None) -> None:
        n = len(initial)
        self._kept = kept
        rows = self._encode(initial)
        self.current = torch.zeros(n + 1, rows.shape[1], dtype=rows.dtype, device=initial.device)
        self.current[:n] = rows
        self.seen = torch.zeros(n + 1, dtype=torch.bool, device=initial.device)
        self.states: dict[int, Tensor] = {}
        self._last = torch.zeros(n + 1, dtype=torch.long, device=initial.device)

    def __len__(self) -> int:
        return len(self.current) - 1

    def write(self, index: Tensor, probs: Tensor, unique: bool = False) -> None:
        """Write rows ``probs`` ``[B, K]`` to ``index`` ``[B]``; the last row of a repeated sample is kept.

        ``unique`` asserts that no sample is repeated.
        """
        rows = self._encode(probs)
        if not rows.is_cuda:  # numpy writes in order, and whole rows as one item each: faster than torch's index_copy_
            samples = index.numpy()
            _items(self.current)[samples] = _items(rows)
            self.seen.numpy()[samples] = True
            return
        if not unique:  # a GPU writes duplicates in any order: every copy of an index writes the same, last row
            rows = rows.index_select(0, last_of_duplicates(index, self._last))
        self.current.index_copy_(0, index, rows)
        self.seen.index_fill_(0, index, True)

    def _encode(self, probs: Tensor) -> Tensor:
        return probs.to(torch.float16) if self._kept is None else topk.pack(probs, self._kept)

    def predicted(self) -> Tensor:
        """Return the most probable class of each sample by its last prediction, ``[N]``."""
        rows = self.current[:-1]
        return rows.argmax(dim=1) if self._kept is None else topk.largest(rows)

    def recorded(self) -> Tensor:
        """Samples ``[N]`` written since :meth:`start_epoch`, as a bool view."""
        return self.seen[:-1]

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the rows of a state."""
        return len(self), self.current.shape[1]

    def end_epoch(self, epoch: int) -> int:
        """Merge the rows of all processes, and return how many samples have none of this epoch."""
        collectives.merge_rows(self.current[:-1], self.recorded())
        return len(self) - int(self.recorded().sum())

    def keep(self, epoch: int) -> None:
        """Copy the rows of the current epoch as state ``epoch``."""
        self.states[epoch] = self.current[:-1].clone()

    def drop(self, epoch: int) -> None:
        """Delete a state."""
        del self.states[epoch]

    def start_epoch(self) -> None:
        """Mark all rows as not recorded; each keeps its last prediction until it is written again."""
        self.seen.zero_()

    def to(self, device: torch.device) -> None:
        self.current, self.seen = self.current.to(device), self.seen.to(device)
        self._last = self._last.to(device)
        self.states = {s: rows.to(device) for s, rows in self.states.items()}


def _items(rows: Tensor) -> NDArray[np.void]:
    """View rows ``[B, W]`` as ``[B]`` items of W numbers each."""
    return rows.numpy().view(f"V{rows.shape[1] * rows.itemsize}")[:, 0]


def last_of_duplicates(index: Tensor, last: Tensor) -> Tensor:
    """Find the position of the last occurrence of each entry of ``index`` ``[B]``; ``last`` is an int64 buffer."""
    last.index_fill_(0, index, -1)
    last.scatter_reduce_(0, index, torch.arange(len(index), device=index.device), "amax")
    return last.index_select(0, index)


# ---------------------------------------------------------------- memory needed

BYTES_PER_VALUE = 2  # float16
# Memory in units of N x K float16 values: float32 targets, and float32 labels while they are made.
WORKING_TABLES = 4
# Of at most 1 / tau anchors few are ever kept: 4 to 12 with tau = 0.01, an eighth of the bound.
LIKELY_ANCHORS, LIKELY_SHARE = 12, 0.12
SHARE_AT_START = 0.5  # of the free device memory that `auto` uses before the first step: the network needs some too


def bytes_per_state(samples: int, classes: int, kept: int | None = None) -> int:
    """Size of the predictions of one state; ``kept`` probabilities per row with ``topk``."""
    return samples * (classes * BYTES_PER_VALUE if kept is None else kept * topk.BYTES_PER_ENTRY)


def states_at_most(epochs: int, tau: float) -> int:
    """Most states that are kept at once: fewer than ``1 / tau`` anchors and the newest, or every epoch at ``tau=0``."""
    return min(epochs, int(1 / tau) + 1) if tau * epochs > 1 else epochs


def likely_states(epochs: int, tau: float) -> int:
    """Most states that are likely to be kept at once: 12 anchors, or more with a tau below 0.01, and the newest."""
    likely = max(LIKELY_ANCHORS, min(epochs, LIKELY_SHARE / tau)) + 1 if tau else epochs
    return min(states_at_most(epochs, tau), math.ceil(likely))


def bytes_needed(samples: int, classes: int, epochs: int, tau: float, kept: int | None = None) -> int:
    """Size of the predictions of all states that are likely to be kept."""
    return likely_states(epochs, tau) * bytes_per_state(samples, classes, kept)


def check_store(store: str) -> Store:
    """Return ``store``, or raise an error if it is none of the known ones."""
    for known in STORES:
        if store == known:
            return known
    raise ValueError(f"store must be one of {', '.join(STORES)}, got {store!r}")


def starts_on_device(
    store: Store,
    samples: int,
    classes: int,
    epochs: int,
    tau: float,
    device: torch.device,
    folder: Path | None,
    prunes: bool = True,
    kept: int | None = None,
) -> bool:
    """Decide whether the predictions are in device memory at first, before the run starts.

    ``device`` needs memory for all states that are likely to be kept, ``auto`` for this epoch's and two more in half
    of what is free, unless the files of these three do not fit in ``folder``. ``prunes``: a higher tau may be advised.

    Raises:
        MemoryError: If the predictions fit nowhere.
    """
    if store == "device":
        check_memory(samples, classes, epochs, tau, device, prunes, kept)
        return True
    per_state, available = bytes_per_state(samples, classes, kept), bytes_available(device)
    fewest = 3 * per_state
    on_device = fewest + WORKING_TABLES * bytes_per_state(samples, classes)
    if store == "auto" and (available is None or on_device <= SHARE_AT_START * available):
        return True
    folder = Path(tempfile.gettempdir()) if folder is None else folder
    free = shutil.disk_usage(folder).free
    if fewest > free:
        if store == "auto" and available is not None and on_device <= available:
            return True
        on = f"{device} has {readable(available or 0)} free of {readable(on_device)}, and " if store == "auto" else ""
        raise MemoryError(
            f"this epoch's predictions and two states more, {samples} x {kept or classes} each, do not fit: {on}"
            f"{folder} has {readable(free)} free of {readable(fewest)}; choose a store_dir on a larger disk"
        )
    return False


def fits_one_more(per_state: int, device: torch.device) -> bool:
    """Whether a state fits in device memory at the end of an epoch, beside what a step needs."""
    available = bytes_available(device)
    if available is None:
        return True
    step = per_state  # and what a step allocates, as far as it is known
    if device.type == "cuda":
        step = torch.cuda.max_memory_allocated(device) - torch.cuda.memory_allocated(device)
    return per_state + step <= available


def check_memory(
    samples: int,
    classes: int,
    epochs: int,
    tau: float,
    device: torch.device,
    prunes: bool = True,
    kept: int | None = None,
) -> None:
    """Raise a MemoryError before the run starts if the states may not fit; ``prunes``: a higher tau may be advised."""
    needed, available = bytes_needed(samples, classes, epochs, tau, kept), bytes_available(device)
    per_state = bytes_per_state(samples, classes, kept)
    working = per_state + WORKING_TABLES * bytes_per_state(samples, classes)
    if available is None or needed + working <= available:
        return
    affordable = (available - working) // per_state - 1
    if affordable > 1 and prunes and likely_states(epochs, _round_up(1 / affordable)) < needed // per_state:
        lighter = _round_up(1 / affordable)
        size = readable(bytes_needed(samples, classes, epochs, lighter, kept) + working)
        advice = f"tau={lighter:g} would need {size}"
    else:
        advice = f"one state alone takes {readable(per_state)}: use fewer epochs or a device with more memory"
    raise MemoryError(
        f"tau={tau:g} is likely to keep {needed // per_state} states of {samples} x {kept or classes} float16 "
        f"predictions, {readable(needed + working)} with working memory, but {device} has {readable(available)} free; "
        f"{advice} (Vista with store='auto' moves what does not fit to files)"
    )


def _round_up(value: float) -> float:
    """Round up to two significant digits, so that the advised value is sufficient."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return round(math.ceil(value / unit - 1e-9) * unit, 12)


def readable(size: float) -> str:
    """Format a number of bytes."""
    for unit in ("B", "KB", "MB", "GB"):
        if size < 999.5:  # larger values would print as 1e+03
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{float(f'{size:.3g}'):,g} TB"


# ---------------------------------------------------------------- memory available

CONTROL_GROUPS = Path("/sys/fs/cgroup")
# For either version of control groups: folder, files with the limit and the usage, and the reclaimable part of it.
_LIMITS = (
    ("", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def bytes_available(device: torch.device) -> int | None:
    """Free memory of the device, or ``None`` if the system does not report it.

    Processes of one training on this machine share its memory equally.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    known = [free for free in (_free_on_machine(), free_in_container()) if free is not None]
    return min(known) // collectives.ranks_on_machine() if known else None


def _free_on_machine() -> int | None:
    try:
        with open("/proc/meminfo") as meminfo:
            fields = dict(line.split(":", 1) for line in meminfo)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        names = os.sysconf_names
        if "SC_AVPHYS_PAGES" in names and "SC_PAGE_SIZE" in names:
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return None


def free_in_container(root: Path = CONTROL_GROUPS) -> int | None:
    """Memory left under the limit of the container, or ``None`` without a limit or a readable one."""
    for name, limit, used, reclaimable in _LIMITS:
        folder = root / name
        try:
            most, taken = int((folder / limit).read_text()), int((folder / used).read_text())
            fields = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            return max(0, most - taken + int(fields.get(reclaimable, 0)))
        except (OSError, ValueError):  # missing, the other version, or "max"
            continue
    return None
