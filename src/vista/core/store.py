"""Where past predictions rest: float16 rows ``[N, K]`` of every kept state, and the buffer of the current epoch."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

CONTROL_GROUPS = Path("/sys/fs/cgroup")
# Of either version of control groups: where its files lie, the limit, what is used, and what of that could be dropped.
_LIMITS = (
    ("", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def bytes_available(device: torch.device) -> int | None:
    """Free memory of the device, or ``None`` where the system does not say."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    known = [free for free in (_of_the_machine(), of_the_container()) if free is not None]
    return min(known, default=None)


def _of_the_machine() -> int | None:
    try:
        with open("/proc/meminfo") as meminfo:
            fields = dict(line.split(":", 1) for line in meminfo)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        names = os.sysconf_names
        if "SC_AVPHYS_PAGES" in names and "SC_PAGE_SIZE" in names:
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return None


def of_the_container(root: Path = CONTROL_GROUPS) -> int | None:
    """What its limit leaves, or ``None`` where there is no limit or no way to know it."""
    for folder, limit, used, droppable in _LIMITS:
        place = root / folder
        try:
            most, taken = int((place / limit).read_text()), int((place / used).read_text())
            fields = dict(line.split() for line in (place / "memory.stat").read_text().splitlines())
            return max(0, most - taken + int(fields.get(droppable, 0)))
        except (OSError, ValueError):  # not there, of the other version, or "max"
            continue
    return None


BYTES_PER_VALUE = 2  # float16
# Room for the running epoch's rows, for the targets in float32, and for the labels as float32 rows while both are made.
WORKING_STATES = 5


class WrittenOnce(dict[str, Any]):
    """State entries (tensors or dicts of tensors) that never change under the same name.

    A checkpoint writes each entry once, as a separate file, and later checkpoints refer to it.
    """


class PredictionStore:
    """Predictions of the running epoch, written row by row, and those of the states that were kept.

    Every buffer has one row more than there are samples. Rows that must not be stored (a bad index, a non-finite
    prediction) are written there, so that nothing depends on values the host would have to look at.
    """

    def __init__(self, initial: Tensor) -> None:
        """``initial`` ``[N, K]`` is what a sample counts as until it is seen."""
        n, classes = initial.shape
        self.current = torch.zeros(n + 1, classes, dtype=torch.float16, device=initial.device)
        self.current[:n] = initial
        self.seen = torch.zeros(n + 1, dtype=torch.bool, device=initial.device)
        self.states: dict[int, Tensor] = {}
        self._place = torch.zeros(n + 1, dtype=torch.long, device=initial.device)

    def __len__(self) -> int:
        return len(self.current) - 1

    def write(self, index: Tensor, probs: Tensor, unique: bool = False) -> None:
        """Write rows ``probs`` ``[B, K]`` to ``index`` ``[B]``. Of a sample that comes twice the last row stands.

        ``unique`` promises that none does.
        """
        rows = probs.to(torch.float16)
        if not rows.is_cuda:  # numpy writes in order, and several times faster than torch's indexed copy of halves
            self.current.numpy()[index.numpy()] = rows.numpy()
            self.seen.numpy()[index.numpy()] = True
            return
        if not unique:  # a device writes duplicates in any order: let every copy of an index write the same, last row
            rows = rows.index_select(0, last_of_duplicates(index, self._place))
        self.current.index_copy_(0, index, rows)
        self.seen.index_fill_(0, index, True)

    def recorded(self) -> Tensor:
        """Which samples ``[N]`` were written since the last :meth:`turn`."""
        return self.seen[:-1]

    def keep(self, epoch: int) -> None:
        """The running epoch's rows become state ``epoch``."""
        self.states[epoch] = self.current[:-1].clone()

    def turn(self) -> None:
        """A new epoch: no row has been written yet; rows keep their last prediction until they are."""
        self.seen.zero_()

    def to(self, device: torch.device) -> None:
        self.current, self.seen = self.current.to(device), self.seen.to(device)
        self._place = self._place.to(device)
        self.states = {s: rows.to(device) for s, rows in self.states.items()}


def last_of_duplicates(index: Tensor, place: Tensor) -> Tensor:
    """For each entry of ``index`` ``[B]`` where its value comes last in it; ``place`` is room for one int64 a value."""
    place.index_fill_(0, index, -1)
    place.scatter_reduce_(0, index, torch.arange(len(index), device=index.device), "amax")
    return place.index_select(0, index)


def states_at_most(epochs: int, tau: float) -> int:
    """Most states that are kept at once: under ``1 / tau`` anchors and the newest, or every epoch at ``tau=0``."""
    return min(epochs, int(1 / tau) + 1) if tau * epochs > 1 else epochs


def bytes_needed(samples: int, classes: int, epochs: int, tau: float) -> int:
    """Most that the predictions of kept states can take."""
    return states_at_most(epochs, tau) * samples * classes * BYTES_PER_VALUE


def check_room(samples: int, classes: int, epochs: int, tau: float, device: torch.device, prunes: bool = True) -> None:
    """Refuse before the run starts what could not be stored at its end; ``prunes`` says whether tau may be raised."""
    kept, available = bytes_needed(samples, classes, epochs, tau), bytes_available(device)
    per_state = samples * classes * BYTES_PER_VALUE
    working = WORKING_STATES * per_state
    if available is None or kept + working <= available:
        return
    affordable = (available - working) // per_state - 1
    if affordable > 1 and prunes:
        lighter = _rounded_up(1 / affordable)
        size = readable(bytes_needed(samples, classes, epochs, lighter) + working)
        advice = f"tau={lighter:g} would need at most {size}"
    else:
        advice = f"one state alone takes {readable(per_state)}: use fewer epochs or a device with more memory"
    raise MemoryError(
        f"tau={tau:g} may keep {kept // per_state} states of {samples} x {classes} float16 predictions, "
        f"{readable(kept + working)} with what works on them, but {device} has {readable(available)} free; {advice}"
    )


def _rounded_up(value: float) -> float:
    """To two significant digits, so that what is advised fits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return round(math.ceil(value / unit - 1e-9) * unit, 12)


def readable(size: float) -> str:
    """A number of bytes as people write it."""
    for unit in ("B", "KB", "MB", "GB"):
        if size < 999.5:  # from there on three digits would be 1e+03
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{float(f'{size:.3g}'):,g} TB"
