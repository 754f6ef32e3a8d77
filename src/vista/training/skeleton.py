"""Nested state as JSON with its tensors taken out, and back.

Tensors that never change once made (:class:`vista.methods.WrittenOnce`) are kept apart from those that do, so that a
checkpoint need not write them again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from vista.methods import WrittenOnce

TENSOR, BLOB, ARRAY = "$tensor", "$blob", "$array"


def split(state: Any, path: str = "") -> tuple[Any, dict[str, Tensor], dict[str, dict[str, Tensor]]]:
    """State as JSON, its changing tensors by path, and its immutable groups of tensors by path."""
    if isinstance(state, Tensor):
        return {TENSOR: path}, {path: state.detach()}, {}
    if isinstance(state, np.ndarray):
        return {ARRAY: path}, {path: torch.from_numpy(np.ascontiguousarray(state))}, {}
    if isinstance(state, list | tuple):
        state = list(state)
        if not any(isinstance(value, Tensor | np.ndarray | dict | list | tuple) for value in state):
            return state, {}, {}
        parts = {str(i): value for i, value in enumerate(state)}
        skeleton, tensors, blobs = split(parts, path)
        return [skeleton[key] for key in parts], tensors, blobs
    if not isinstance(state, dict):
        return state, {}, {}
    skeleton, tensors, blobs = {}, {}, {}
    for key, value in state.items():
        inner = f"{path}/{key}" if path else str(key)
        if isinstance(state, WrittenOnce):
            group = value if isinstance(value, dict) else {"": value}
            skeleton[str(key)] = {BLOB: inner, "single": not isinstance(value, dict)}
            blobs[inner] = {name: tensor.detach() for name, tensor in group.items()}
            continue
        skeleton[str(key)], more, more_blobs = split(value, inner)
        tensors.update(more)
        blobs.update(more_blobs)
    return skeleton, tensors, blobs


def join(skeleton: Any, tensors: dict[str, Tensor], blobs: dict[str, dict[str, Tensor]]) -> Any:
    """The inverse of :func:`split`."""
    if isinstance(skeleton, list):
        return [join(value, tensors, blobs) for value in skeleton]
    if not isinstance(skeleton, dict):
        return skeleton
    if TENSOR in skeleton:
        return tensors[skeleton[TENSOR]]
    if ARRAY in skeleton:
        return tensors[skeleton[ARRAY]].numpy()
    if BLOB in skeleton:
        group = blobs[skeleton[BLOB]]
        return next(iter(group.values())) if skeleton["single"] else group
    parts = {key: join(value, tensors, blobs) for key, value in skeleton.items()}
    return WrittenOnce(parts) if any(isinstance(v, dict) and BLOB in v for v in skeleton.values()) else parts
