"""What the processes of one training tell each other at the end of an epoch.

Everything is keyed by sample, never by position: a sample that padded samplers gave to two ranks counts once, with
what the lowest rank saw. Without an initialised process group every function leaves its input as it is.
"""

from __future__ import annotations

import hashlib

import torch
import torch.distributed as dist
from torch import Tensor


def active() -> bool:
    """Whether this process is one of several."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def rank() -> int:
    return dist.get_rank() if active() else 0


def world_size() -> int:
    return dist.get_world_size() if active() else 1


def _device() -> torch.device:
    """Where the process group can send from: the current CUDA device under nccl, else the CPU."""
    if "nccl" in dist.get_backend():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def merge_rows(rows: Tensor, seen: Tensor) -> None:
    """Give every rank, in place, each row ``[N, ...]`` of the lowest rank that has ``seen`` ``[N]`` it.

    Rows that nobody saw stay as they are. Exactly one rank contributes a row and the others zeros, so the sum that
    carries it is exact. Afterwards ``seen`` says which rows anybody saw.
    """
    if not active():
        return
    owner = torch.where(seen, rank(), world_size()).to(device=_device(), dtype=torch.int32)
    dist.all_reduce(owner, op=dist.ReduceOp.MIN)
    owner = owner.to(rows.device)
    mine = (owner == rank()).view(-1, *[1] * (rows.dim() - 1))
    sent = torch.where(mine, rows, torch.zeros_like(rows)).to(_device())
    dist.all_reduce(sent, op=dist.ReduceOp.SUM)
    anybody = owner < world_size()
    rows.copy_(torch.where(anybody.view(mine.shape), sent.to(rows.device), rows))
    seen.copy_(anybody)


def broadcast(tensor: Tensor) -> None:
    """Give every rank, in place, what rank 0 holds."""
    if not active():
        return
    sent = tensor.detach().to(_device(), copy=True)
    dist.broadcast(sent, src=0)
    with torch.no_grad():
        tensor.copy_(sent)


def agree(decision: bytes, what: str) -> None:
    """Compare a hash of ``decision`` over all ranks; ranks that differ stop here instead of drifting apart."""
    if not active():
        return
    digest = torch.frombuffer(bytearray(hashlib.sha256(decision).digest()), dtype=torch.uint8).to(_device())
    digests = [torch.empty_like(digest) for _ in range(world_size())]
    dist.all_gather(digests, digest)
    others = [r for r, other in enumerate(digests) if not torch.equal(other, digests[0])]
    if others:
        raise RuntimeError(f"{what} differ between rank 0 and ranks {others}; do all processes hold the same data?")
