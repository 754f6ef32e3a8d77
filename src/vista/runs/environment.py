"""The environment of a run: machine, versions, commit."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch

import vista
from vista.core import collectives


def environment(device: torch.device) -> dict[str, Any]:
    """Machine and versions that may explain a difference between two runs."""
    return {
        "vista": vista.__version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "safetensors": safetensors.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "threads": torch.get_num_threads(),
        "processes": collectives.world_size(),
    }


def versions() -> dict[str, str]:
    """Versions that decide the result; that of vista includes its source, which may have been edited."""
    package, digest = Path(vista.__file__).parent, hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + path.read_bytes())
    return {
        "vista": f"{vista.__version__} (source {digest.hexdigest()[:8]})",
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
    }


def _commit() -> str | None:
    """The source's commit, where vista runs from a checkout or VISTA_COMMIT names it (a copy without its history)."""
    if named := os.environ.get("VISTA_COMMIT"):
        return named
    place = Path(vista.__file__).parent
    try:
        out = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=place, capture_output=True, text=True, timeout=5, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return out.stdout.strip() or None


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
        return names[0] if names else platform.processor()
    except OSError:
        return platform.processor()
