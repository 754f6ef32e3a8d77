"""Arrays with a description in one safetensors file; equal content gives equal bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from vista.files import reader

_KEY = "vista"  # one entry, because the order of several changes between processes


def to_bytes(arrays: Mapping[str, np.ndarray], format: str, version: str, **about: Any) -> bytes:
    """Serialise arrays with a description; ``about`` must be serialisable as JSON."""
    description = json.dumps({"format": format, "version": version, **about}, sort_keys=True)
    return save(dict(arrays), metadata={_KEY: description})


def read(path: str | Path, format: str, version: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read arrays and description; a damaged file, another format or version raises a ValueError that names it."""
    arrays, metadata = reader.read_arrays(Path(path))
    about = reader.parse_object(metadata.get(_KEY, "{}"), path)
    if (about.get("format"), about.get("version")) != (format, version):
        kind, other = about.get("format"), about.get("version")
        raise ValueError(f"{path} is {kind} version {other}, expected {format} version {version}")
    return arrays, about
