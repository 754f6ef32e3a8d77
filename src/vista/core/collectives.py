"""What the processes of one training tell each other at the end of an epoch.

Everything is keyed by sample, never by position: a sample that padded samplers gave to two ranks counts once, with
what the lowest rank saw. Without an initialised process group every function leaves its input as it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter


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


def total(value: Tensor) -> Tensor:
    """The sum of ``value`` over all ranks."""
    if not active():
        return value
    sent = value.detach().to(_device(), copy=True)
    dist.all_reduce(sent, op=dist.ReduceOp.SUM)
    return sent.to(value.device)


def sum_gradients(parameters: Sequence[Parameter]) -> None:
    """Replace every gradient by its sum over the ranks, in one message; a rank without one counts as zero.

    What has no gradient on any rank stays without, as in one process: an optimiser would decay it otherwise.
    """
    if not active():
        return
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    own = gradients[0].new_ones(len(parameters))  # made where the gradients are: a copy to there would wait for them
    absent = [place for place, parameter in enumerate(parameters) if parameter.grad is None]
    for place in absent:
        own[place] = 0
    flat = torch.cat([*(g.flatten() for g in gradients), own])
    dist.all_reduce(flat, op=dist.ReduceOp.SUM)
    *sums, ranks = flat.split([*(g.numel() for g in gradients), len(own)])
    anywhere = ranks.tolist() if absent else [1.0] * len(sums)  # whoever has them all need not look, nor wait
    for parameter, part, count in zip(parameters, sums, anywhere, strict=True):
        parameter.grad = part.view_as(parameter) if count else None


def first_ranks_word(value: int) -> int:
    """What rank 0 says, on every rank: for decisions that depend on the clock or on a signal."""
    if not active():
        return value
    word = torch.tensor([value], device=_device())
    dist.broadcast(word, src=0)
    return int(word)


def first_ranks_words(words: list[str]) -> list[str]:
    """A list of names as rank 0 has it, sent as JSON: nothing is pickled."""
    if not active():
        return words
    content = torch.frombuffer(bytearray(json.dumps(words).encode()), dtype=torch.uint8)
    size = first_ranks_word(len(content))
    sent = content.to(_device()) if rank() == 0 else torch.empty(size, dtype=torch.uint8, device=_device())
    dist.broadcast(sent, src=0)
    first: list[str] = json.loads(bytes(sent.tolist()))
    return first


def all_say(yes: bool) -> bool:
    """Whether every rank says yes."""
    return bool(total(torch.tensor([not yes])) == 0)
