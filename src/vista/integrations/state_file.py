"""The state of a ``Vista`` as one safetensors file, for checkpoints that are folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from vista.files import atomic

FORMAT = "vista.state"
VERSION = "1"


def write_state(path: str | Path, state: dict[str, Any]) -> None:
    """Write what ``Vista.state_dict()`` gave; it appears under its name only when complete."""
    tensors: dict[str, Tensor] = {f"predictions/{s}": rows for s, rows in state["predictions"].items()}
    tensors |= {name: value for name, value in state.items() if isinstance(value, Tensor)}
    rest = {name: value for name, value in state.items() if name not in {*tensors, "predictions"}}
    about = {"format": FORMAT, "version": VERSION, "state": json.dumps(rest)}
    content = save({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, metadata=about)
    atomic.write(Path(path), content)


def read_state(path: str | Path) -> dict[str, Any]:
    """What :func:`write_state` wrote, for ``Vista.load_state_dict``."""
    if not Path(path).exists():
        raise FileNotFoundError(f"{path} is not there: the checkpoint was saved without VISTA's state")
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            if (about.get("format"), about.get("version")) != (FORMAT, VERSION):
                found = f"{about.get('format')} version {about.get('version')}"
                raise ValueError(f"{path} is {found}, but this version reads {FORMAT} version {VERSION}")
            tensors: dict[str, torch.Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged or cut short: {error}") from error
    state: dict[str, Any] = {**json.loads(about["state"]), "predictions": {}}
    for name, tensor in tensors.items():
        group, _, key = name.rpartition("/")
        if group:
            state["predictions"][key] = tensor
        else:
            state[key] = tensor
    return state
