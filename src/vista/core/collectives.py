"""Communication between the processes of one training.

Rows are keyed by sample, not by position: a sample that a padded sampler gave to two ranks counts once, with the row of
the lower rank. Without an initialised process group every function returns its input unchanged.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import secrets
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter


def active() -> bool:
    """Whether this process belongs to a group of several."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def rank() -> int:
    return dist.get_rank() if active() else 0


def world_size() -> int:
    return dist.get_world_size() if active() else 1


def ranks_on_machine() -> int:
    """Number of processes of this training on this machine, as the launcher reports it; all without a report."""
    return max(1, int(os.environ.get("LOCAL_WORLD_SIZE", world_size()))) if active() else 1


def here() -> str:
    """This process in an error message that every process shows: ``rank 1 on host node-b``."""
    return f"rank {rank()} on host {platform.node()}"


def _device() -> torch.device:
    """Device the process group sends from: the current CUDA device with nccl, otherwise the CPU."""
    if "nccl" in dist.get_backend():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def owners(seen: Tensor) -> Tensor:
    """Return the lowest rank that has ``seen`` each row, int32 ``[N]`` on the CPU; the number of ranks if none has."""
    owner = torch.where(seen, rank(), world_size()).to(torch.int32)
    if active():
        owner = owner.to(_device())
        dist.all_reduce(owner, op=dist.ReduceOp.MIN)
    return owner.cpu()


def merge_rows(rows: Tensor, seen: Tensor) -> None:
    """Merge rows of all ranks in place: each row is taken from the lowest rank that has ``seen`` it.

    Each rank in turn sends the rows that it contributes, so that every row is sent once.

    Args:
        rows: Rows ``[N, ...]``; those that no rank has seen keep their values.
        seen: Rows of this rank, bool ``[N]``; afterwards those of any rank.
    """
    if not active():
        return
    owner = owners(seen).to(rows.device)
    for source in range(world_size()):
        theirs = (owner == source).nonzero().flatten()
        if len(theirs):
            sent = rows.index_select(0, theirs).to(_device())
            dist.broadcast(sent, src=source)
            rows.index_copy_(0, theirs, sent.to(rows.device))
    seen.copy_(owner < world_size())


def broadcast(tensor: Tensor) -> None:
    """Copy the tensor of rank 0 to every rank, in place."""
    if not active():
        return
    sent = tensor.detach().to(_device(), copy=True)
    dist.broadcast(sent, src=0)
    with torch.no_grad():
        tensor.copy_(sent)


def agree(decision: bytes, what: str) -> None:
    """Raise a RuntimeError on every rank if ``decision``, compared by its hash, differs between ranks."""
    if not active():
        return
    digest = torch.frombuffer(bytearray(hashlib.sha256(decision).digest()), dtype=torch.uint8).to(_device())
    digests = [torch.empty_like(digest) for _ in range(world_size())]
    dist.all_gather(digests, digest)
    others = [r for r, other in enumerate(digests) if not torch.equal(other, digests[0])]
    if others:
        raise RuntimeError(f"{what} differ between rank 0 and ranks {others}: give all processes the same data")


def total(value: Tensor) -> Tensor:
    """Return the sum of ``value`` over all ranks."""
    if not active():
        return value
    sent = value.detach().to(_device(), copy=True)
    dist.all_reduce(sent, op=dist.ReduceOp.SUM)
    return sent.to(value.device)


def sum_gradients(parameters: Sequence[Parameter]) -> None:
    """Replace every gradient by its sum over the ranks, in one message; a missing gradient counts as zero.

    A parameter without a gradient on every rank keeps none, as in one process: an optimiser would decay it otherwise.
    """
    if not active():
        return
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    own = gradients[0].new_ones(len(parameters))  # on their device: a copy would wait for the gradients
    absent = [i for i, parameter in enumerate(parameters) if parameter.grad is None]
    for i in absent:
        own[i] = 0
    flat = torch.cat([*(g.flatten() for g in gradients), own])
    dist.all_reduce(flat, op=dist.ReduceOp.SUM)
    *sums, ranks = flat.split([*(g.numel() for g in gradients), len(own)])
    anywhere = ranks.tolist() if absent else [1.0] * len(sums)  # with all gradients there is no need for a host sync
    for parameter, part, count in zip(parameters, sums, anywhere, strict=True):
        parameter.grad = part.view_as(parameter) if count else None


def broadcast_int(value: int) -> int:
    """Return the value of rank 0 on every rank, for decisions that depend on the clock or a signal."""
    if not active():
        return value
    sent = torch.tensor([value], device=_device())
    dist.broadcast(sent, src=0)
    return int(sent)


def broadcast_strings(words: list[str]) -> list[str]:
    """Return the list of strings of rank 0 on every rank; it is sent as JSON, without pickle."""
    if not active():
        return words
    content = torch.frombuffer(bytearray(json.dumps(words).encode()), dtype=torch.uint8)
    size = broadcast_int(len(content))
    sent = content.to(_device()) if rank() == 0 else torch.empty(size, dtype=torch.uint8, device=_device())
    dist.broadcast(sent, src=0)
    first: list[str] = json.loads(bytes(sent.tolist()))
    return first


def gather_strings(text: str) -> list[str]:
    """Return the strings that all ranks pass, by rank."""
    if not active():
        return [text]
    content = torch.frombuffer(bytearray(text.encode() + b"\n"), dtype=torch.uint8)  # an empty tensor cannot be sent
    sizes = [torch.zeros(1, dtype=torch.long, device=_device()) for _ in range(world_size())]
    dist.all_gather(sizes, torch.tensor([len(content)], device=_device()))
    padded = torch.zeros(max(map(int, sizes)), dtype=torch.uint8)
    padded[: len(content)] = content
    received = [torch.empty_like(padded, device=_device()) for _ in range(world_size())]
    dist.all_gather(received, padded.to(_device()))
    return [bytes(part[: int(size) - 1].tolist()).decode() for part, size in zip(received, sizes, strict=True)]


def raise_everywhere(error: Exception | None) -> None:
    """Raise the error of any rank on every rank, named by rank and host; ``None`` is no error.

    Args:
        error: The error of this rank. It is raised here itself; on other ranks the error of the lowest one is.
    """
    if not active():
        if error is not None:
            raise error
        return
    texts = gather_strings("" if error is None else f"{here()}: {error}")
    if error is not None:
        raise error
    for text in texts:
        if text:
            raise OSError(text)


def ranks_sharing(folder: Path) -> list[int]:
    """Return the ranks that see the same folder as this one, lowest first; the folder is made if needed."""
    if not active():
        return [0]
    token = broadcast_strings([secrets.token_hex(8)])[0]
    names, error = [f".folder.{r}-{token}-0.tmp" for r in range(world_size())], None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / names[rank()]).touch()
    except OSError as failure:
        error = failure
    raise_everywhere(error)
    sharing = [r for r, name in enumerate(names) if (folder / name).exists()]
    all_agree(True)  # every rank has looked
    (folder / names[rank()]).unlink(missing_ok=True)
    return sharing


def all_agree(yes: bool) -> bool:
    """Whether ``yes`` is true on every rank."""
    return bool(total(torch.tensor([not yes])) == 0)
