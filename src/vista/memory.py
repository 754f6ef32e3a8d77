"""How much memory is free: of a card, of this machine, of the container that this process may be in."""

from __future__ import annotations

import os
from pathlib import Path

import torch

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
