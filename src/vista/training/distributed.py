"""One training on several processes: join and leave the process group of ``torchrun``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist


def process_count() -> int:
    """Number of processes according to the environment."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first_process() -> bool:
    """Whether this process prints and writes; valid before, during and after the process group exists."""
    return process_count() == 1 or os.environ.get("RANK", "0") == "0"


def own_device(device: str) -> str:
    """The device of this process: under ``torchrun``, the CUDA device with the number of its local rank."""
    if process_count() == 1 or device not in ("auto", "cuda"):
        return device
    if not torch.cuda.is_available():
        return device  # auto resolves to the CPU; a missing CUDA device is reported when the run starts
    number, there = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if number >= there:
        raise RuntimeError(f"process {number} of this machine has no CUDA device: there are {there}; use --device cpu")
    return f"cuda:{number}"


@contextmanager
def process_group(device: str) -> Iterator[None]:
    """Join the process group of ``torchrun`` (nccl on CUDA, gloo otherwise); without it nothing happens."""
    if process_count() == 1:
        yield
        return
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise ValueError(f"WORLD_SIZE is {process_count()}, but {missing[0]} is not set: start with torchrun")
    on_cuda = device.startswith("cuda")
    if on_cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_cuda else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()
