"""Predictions on the host: every kept state is one immutable file of rows that the processes of a machine share.

The files are memory-mapped, so that their pages exist once per machine, and are safetensors files with the tensor
``values`` ``[N, K]``, so that a checkpoint can refer to one instead of writing the predictions again. A batch gathers
the rows of its samples. The rows of the current epoch are in a file of each process until the epoch ends; then one
process per machine writes the file of the new state.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import secrets
import shutil
import tempfile
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from vista.core import collectives, topk
from vista.core.store import RowsOnDisk
from vista.files import atomic
from vista.files.mapping import map_bytes

BLOCK = 2**23  # bytes written, or sent to another machine, at a time
AHEAD = 4  # batches that may be gathered ahead, and whose predictions may wait to be written
OWN_FOLDER = re.compile(r"vista-store-(?P<host>.+)-(?P<process>\d+)-[0-9a-f]{8}")
OWN_FILE = re.compile(r"rows|slots|epoch-\d{5,}\.safetensors(\.tmp)?")  # in such a folder
_TYPES: dict[torch.dtype, tuple[str, type[np.generic]]] = {
    torch.float16: ("F16", np.float16), torch.int32: ("I32", np.int32),
}  # fmt: skip

# ---------------------------------------------------------------- files of rows


def write_rows(path: Path, shape: tuple[int, int], dtype: torch.dtype, blocks: Iterator[Tensor]) -> str:
    """Write rows block by block as the file that safetensors would write of them; return its SHA-256."""
    name, digest = _TYPES[dtype][0], hashlib.sha256()
    size = shape[0] * shape[1] * dtype.itemsize
    header = json.dumps(
        {"values": {"dtype": name, "shape": list(shape), "data_offsets": [0, size]}}, separators=(",", ":")
    ).encode()
    header += b" " * (-len(header) % 8)
    temporary = path.with_name(f"{path.name}.tmp")
    with open(temporary, "wb") as file:
        for part in (len(header).to_bytes(8, "little"), header):
            digest.update(part)
            file.write(part)
        for block in blocks:
            content = memoryview(block.contiguous().numpy().data).cast("B")
            digest.update(content)
            file.write(content)
    temporary.replace(path)
    return digest.hexdigest()


def map_rows(path: Path, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """Map a file of :func:`write_rows`: its pages are read when they are used, and shared with other processes."""
    with open(path, "rb") as file:
        start = 8 + int.from_bytes(file.read(8), "little")
        content = map_bytes(file)[start : start + shape[0] * shape[1] * dtype.itemsize]
    return torch.from_numpy(content).view(dtype).view(shape)


class RowLog:
    """The predictions of one process in the current epoch, in the order of its samples' first occurrence.

    It is written with ``pwrite``: a full disk is then an error, where it would kill a process that writes to a map.
    """

    def __init__(self, folder: Path, samples: int, width: int, dtype: torch.dtype) -> None:
        self.path, self._width, self._dtype = folder / "rows", width, _TYPES[dtype][1]
        self.slots = np.full(samples, -1, np.int64)  # of each sample, -1 for none
        self._count = 0
        with _explained(folder):
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._close = weakref.finalize(self, os.close, self._handle)

    def write(self, index: NDArray[np.int64], rows: NDArray[np.generic]) -> None:
        """Write rows ``[B, W]`` of the samples ``index`` ``[B]``; of a repeated sample the last row is kept."""
        if len(set(index.tolist())) < len(index):
            last = np.unique(index[::-1], return_index=True)[1]
            kept = np.sort(len(index) - 1 - last)
            index, rows = index[kept], rows[kept]
        slots = self.slots[index]
        fresh = slots < 0
        if not fresh.all():
            for position in np.flatnonzero(~fresh):
                self._put(int(slots[position]), rows[position])
            index, rows = index[fresh], rows[fresh]
        self._put(self._count, rows)
        self.slots[index] = np.arange(self._count, self._count + len(index))
        self._count += len(index)

    def _put(self, slot: int, rows: NDArray[np.generic]) -> None:
        content = memoryview(np.ascontiguousarray(rows, dtype=self._dtype).data).cast("B") if rows.size else b""
        offset = slot * self._width * np.dtype(self._dtype).itemsize
        with _explained(self.path.parent):
            while content:
                written = os.pwrite(self._handle, content, offset)
                content, offset = content[written:], offset + written

    def seen(self) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self.slots >= 0
        return found

    def rows(self, samples: NDArray[np.int64]) -> NDArray[np.generic]:
        """Rows of samples that were written."""
        return self.map(self.path, self._count, self._width, self._dtype)[self.slots[samples]]

    @staticmethod
    def map(path: Path, count: int, width: int, dtype: type[np.generic]) -> NDArray[np.generic]:
        if not count:
            return np.zeros((0, width), dtype)
        return np.memmap(path, dtype, "r", shape=(count, width))

    def clear(self) -> None:
        self.slots.fill(-1)
        self._count = 0

    def close(self) -> None:
        self._close()


# ---------------------------------------------------------------- the store


class HostStore:
    """Predictions of the current epoch and of the kept states, in files; the interface of ``PredictionStore``.

    Args:
        parent: Folder in which this process makes its own folder; by default the one for temporary files.
        samples: Number of samples N.
        initial: Probabilities ``[n, K]`` that samples ``low`` to ``high`` count as until their first prediction.
        classes: Number of classes K.
        kept: Number of probabilities kept per row (``topk``); by default all.
    """

    on_device = False

    def __init__(
        self,
        parent: Path | None,
        samples: int,
        classes: int,
        initial: Callable[[int, int], Tensor],
        kept: int | None = None,
    ) -> None:
        self._kept = kept
        self._dtype, self._width = (torch.float16, classes) if kept is None else (torch.int32, kept)
        self._samples, self._initial = samples, initial
        self.folder = _own_folder(parent)
        self._remove = weakref.finalize(self, shutil.rmtree, self.folder, True)
        self._log = RowLog(self.folder, samples, self._width, self._dtype)
        self._last: Tensor | None = None  # the last predictions before this epoch; None is the initial ones
        self._last_file: RowsOnDisk | None = None
        self.states: dict[int, Tensor] = {}
        self.files: dict[int, RowsOnDisk] = {}  # of states that were written here
        self._mapped: set[int] = set()  # states in other files
        self._sharing: list[int] = []  # ranks that see the same files, known from the first end of an epoch
        self._leaders: dist.ProcessGroup | None = None
        self._writer: ThreadPoolExecutor | None = None
        self._unwritten: deque[Future[None]] = deque()

    def __len__(self) -> int:
        return self._samples

    @property
    def shape(self) -> tuple[int, int]:
        return self._samples, self._width

    def close(self) -> None:
        """Delete the files; mapped rows remain readable."""
        self._finish_writing()
        if self._writer is not None:
            self._writer.shutdown()
        self._log.close()
        self._remove()

    # ------------------------------------------------------------ the current epoch

    def write(self, index: Tensor, probs: Tensor, unique: bool = False) -> None:
        """Write rows ``probs`` ``[B, K]`` to ``index`` ``[B]``; from a GPU in the background, without a host sync.

        Rows of a GPU may have the index N, of the spare row: they are not stored.
        """
        rows = self._encode(probs)
        if not rows.is_cuda:
            self._log.write(index.cpu().numpy(), rows.numpy())
            return
        index, rows = _to_pinned(index), _to_pinned(rows)
        arrived = torch.cuda.Event()
        arrived.record()
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, "vista-store")
        if len(self._unwritten) == AHEAD:
            self._unwritten.popleft().result()
        self._unwritten.append(self._writer.submit(self._write_arrived, index, rows, arrived))

    def _encode(self, probs: Tensor) -> Tensor:
        return probs.to(torch.float16) if self._kept is None else topk.pack(probs, self._kept)

    def _write_arrived(self, index: Tensor, rows: Tensor, arrived: torch.cuda.Event) -> None:
        arrived.synchronize()
        samples, values = index.numpy(), rows.numpy()
        inside = samples < self._samples
        self._log.write(*((samples, values) if inside.all() else (samples[inside], values[inside])))

    def _finish_writing(self) -> None:
        while self._unwritten:
            self._unwritten.popleft().result()

    def recorded(self) -> Tensor:
        """Samples ``[N]`` that this process has written since :meth:`start_epoch`."""
        self._finish_writing()
        return torch.from_numpy(self._log.seen())

    def current(self) -> tuple[Tensor, Tensor]:
        """Return the last predictions before this epoch, empty before the first, and this epoch's rows.

        The rows are those of :meth:`recorded`, in the order of the samples.
        """
        self._finish_writing()
        empty = torch.zeros(0, self._width, dtype=self._dtype)
        rows = torch.from_numpy(np.array(self._log.rows(np.flatnonzero(self._log.seen()))))
        return empty if self._last is None else self._last, rows

    def last_file(self) -> RowsOnDisk | None:
        """The file of the last predictions before this epoch, if it was written here."""
        return self._last_file

    def start_epoch(self) -> None:
        self._log.clear()

    def load(
        self,
        states: dict[int, Tensor],
        last: Tensor | None,
        seen: Tensor,
        rows: Tensor | None,
        mapped: bool = False,
    ) -> None:
        """Replace everything: kept states, the last predictions, and this epoch's rows of the samples ``seen``.

        Without ``rows`` they are those of ``last``. ``mapped`` states are not written again by :meth:`share_states`.
        """
        self._finish_writing()
        self._log.clear()
        samples, at = seen.nonzero().flatten(), 0
        for part in samples.split(max(1, BLOCK // (self._width * self._dtype.itemsize))):
            if rows is None:
                assert last is not None
                block = last.index_select(0, part.to(last.device))
            else:
                block = rows[at : at + len(part)]
            self._log.write(part.cpu().numpy(), block.cpu().numpy())
            at += len(part)
        self.states, self.files = states, {}
        self._mapped = set(states) if mapped else set()
        self._last, self._last_file = last, None

    # ------------------------------------------------------------ states

    def gather(self, states: Sequence[int], index: Tensor, device: torch.device) -> list[Tensor]:
        """Gather the rows of the samples ``index`` ``[B]`` (on the CPU) from each of these states, to a device.

        To a GPU they are copied at once, from pinned memory and without a host sync.
        """
        size = len(index) * self._width
        stride = -(-size // 8) * 8  # each state's rows start at a multiple of 16 bytes
        buffer = torch.empty(len(states), stride, dtype=self._dtype, pin_memory=device.type == "cuda")
        for state, part in zip(states, buffer, strict=True):
            torch.index_select(self.states[state], 0, index, out=part[:size].view(-1, self._width))
        return [part[:size].view(-1, self._width) for part in buffer.to(device, non_blocking=True)]

    def end_epoch(self, epoch: int) -> int:
        """Merge the rows of all processes into the file of this epoch, and return how many samples have none.

        A sample that two processes wrote has the row of the lower rank; one without a row keeps its last prediction.
        Every process must call it.
        """
        self._finish_writing()
        seen = torch.from_numpy(self._log.seen())
        owner = collectives.owners(seen)
        self._find_sharing()
        path, digest, error = self._path(self.folder, epoch), "", None
        try:
            self._log.slots.tofile(self.folder / "slots")
        except OSError as failure:
            error = _full(self.folder, failure)
        collectives.raise_everywhere(error)
        counts = [int(count) for count in collectives.gather_strings(str(self._log._count))]
        if self._leads:
            blocks = self._merged(owner, counts)
            try:
                digest = write_rows(path, self.shape, self._dtype, blocks)
            except OSError as failure:
                error = _full(self.folder, failure)
                for _ in blocks:  # other machines wait for our rows
                    pass
        collectives.raise_everywhere(error)
        self._share(epoch, digest)
        self._set_last(epoch)
        return int((owner == collectives.world_size()).sum())

    def keep(self, epoch: int) -> None:
        """Keep the state of the epoch that :meth:`end_epoch` wrote."""
        assert self._last is not None
        self.states[epoch] = self._last
        if self._last_file is not None:
            self.files[epoch] = self._last_file

    def drop(self, epoch: int) -> None:
        """Delete a state."""
        del self.states[epoch]
        file = self.files.pop(epoch, None)
        if file is not None and file is not self._last_file and self._leads:
            file.path.unlink(missing_ok=True)

    def share_states(self) -> None:
        """Write the states that are in the memory of each process into files that the processes share."""
        self._find_sharing()
        for epoch in [epoch for epoch in self.states if epoch not in self.files and epoch not in self._mapped]:
            rows, digest, error = self.states[epoch], "", None
            try:
                if self._leads:
                    blocks = (rows[low:high].cpu() for low, high in self._blocks())
                    digest = write_rows(self._path(self.folder, epoch), self.shape, self._dtype, blocks)
            except OSError as failure:
                error = _full(self.folder, failure)
            collectives.raise_everywhere(error)
            self._share(epoch, digest)
            file = self._shared
            self.states[epoch], self.files[epoch] = file.rows, file

    # ------------------------------------------------------------ processes

    @property
    def _leads(self) -> bool:
        """Whether this process writes the files that it shares with others."""
        return not self._sharing or self._sharing[0] == collectives.rank()

    @staticmethod
    def _path(folder: Path, epoch: int) -> Path:
        return folder / f"epoch-{epoch:05d}.safetensors"

    def _blocks(self) -> Iterator[tuple[int, int]]:
        rows = max(1, BLOCK // (self._width * self._dtype.itemsize))
        return ((low, min(low + rows, self._samples)) for low in range(0, self._samples, rows))

    def _find_sharing(self) -> None:
        """Find out once which processes see each other's folders; the lowest of them writes their common files."""
        if self._sharing or not collectives.active():
            return
        self._folders = [Path(path) for path in collectives.gather_strings(str(self.folder))]
        seen = [r for r, folder in enumerate(self._folders) if _is_visible(folder)]
        hosts, error = collectives.gather_strings(platform.node()), None
        hidden = [r for r, host in enumerate(hosts) if host == platform.node() and r not in seen]
        if hidden:
            error = OSError(
                f"{self._folders[hidden[0]]}, where rank {hidden[0]} stores predictions, is not visible to "
                f"{collectives.here()}: give all processes of a host one store_dir that they share"
            )
        collectives.raise_everywhere(error)
        self._sharing = seen
        self._leader_of = [int(leader) for leader in collectives.gather_strings(str(seen[0]))]
        leaders = sorted(set(self._leader_of))
        if len(leaders) > 1:
            self._leaders = dist.new_group(leaders, backend="gloo")

    def _share(self, epoch: int, digest: str) -> None:
        """Map the file that the leader has written."""
        folder = self.folder
        if collectives.active():
            leader = self._sharing[0]
            digest, folder = collectives.gather_strings(digest)[leader], self._folders[leader]
        path, error = self._path(folder, epoch), None
        try:
            self._shared = RowsOnDisk(map_rows(path, self.shape, self._dtype), path, digest)
        except OSError as failure:
            error = failure
        collectives.raise_everywhere(error)

    def _set_last(self, epoch: int) -> None:
        before = self._last_file
        self._last, self._last_file = self._shared.rows, self._shared
        if before is not None and before not in self.files.values() and self._leads:
            before.path.unlink(missing_ok=True)

    def _merged(self, owner: Tensor, counts: list[int]) -> Iterator[Tensor]:
        """The rows of the epoch, block by block; the processes of other machines send theirs, once per machine."""
        owners, dtype = owner.numpy(), _TYPES[self._dtype][1]
        sharing = self._sharing or [collectives.rank()]
        folders = {r: self._folders[r] if self._sharing else self.folder for r in sharing}
        slots = {r: np.fromfile(folder / "slots", np.int64) for r, folder in folders.items()}
        logs = {r: RowLog.map(folder / "rows", counts[r], self._width, dtype) for r, folder in folders.items()}
        leader_of = np.array(self._leader_of) if self._leaders is not None else None
        for low, high in self._blocks():
            rows = self._encode(self._initial(low, high)) if self._last is None else self._last[low:high].cpu().clone()
            values, of_block = rows.numpy(), owners[low:high]
            for r in sharing:
                mine = np.flatnonzero(of_block == r)
                values[mine] = logs[r][slots[r][low + mine]]
            if leader_of is not None:
                self._exchange(values, np.append(leader_of, -1)[of_block])
            yield rows

    def _exchange(self, values: NDArray[np.generic], source: NDArray[np.int64]) -> None:
        """Send this machine's rows of a block to the others, and receive theirs; ``source``: leader of each row."""
        for leader in sorted(set(self._leader_of)):
            theirs = np.flatnonzero(source == leader)
            if len(theirs):
                sent = torch.from_numpy(values[theirs]).view(torch.uint8)
                dist.broadcast(sent, src=leader, group=self._leaders)
                values[theirs] = sent.view(self._dtype).numpy()


def _is_visible(folder: Path) -> bool:
    """Whether this process sees the folder of another one."""
    return folder.is_dir()


def _to_pinned(values: Tensor) -> Tensor:
    return torch.empty_like(values, device="cpu", pin_memory=True).copy_(values, non_blocking=True)


# ---------------------------------------------------------------- batches ahead


class Ahead:
    """Computes the targets of coming batches in a thread; what is not asked for is dropped.

    On a GPU it uses a stream of its own, so that the training loop neither waits for the copies nor launches them.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._beside: tuple[torch.cuda.Stream, torch.cuda.Event] | None = None  # the event: what it reads is ready
        self._pending: dict[bytes, Future[tuple[Tensor, torch.cuda.Event | None]]] = {}

    def start(self, index: Tensor, compute: Callable[[Tensor], Tensor], device: torch.device) -> None:
        """Start to compute for the samples ``index`` ``[B]``, on the CPU; the result is on ``device``."""
        key = index.numpy().tobytes()
        if key in self._pending:
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "vista-ahead")
        if device.type == "cuda" and self._beside is None:
            self._beside = torch.cuda.Stream(device), torch.cuda.current_stream(device).record_event()
        while len(self._pending) >= AHEAD:
            self._pending.pop(next(iter(self._pending))).cancel()
        self._pending[key] = self._pool.submit(self._compute, compute, index.clone())

    def _compute(self, compute: Callable[[Tensor], Tensor], index: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
        if self._beside is None:
            return compute(index), None
        stream, ready = self._beside
        with torch.cuda.stream(stream):
            stream.wait_event(ready)
            return compute(index), stream.record_event()

    def take(self, index: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """Return what was started for these samples, or compute it now."""
        started = self._pending.pop(index.numpy().tobytes(), None) if self._pending else None
        if started is None:
            return compute(index)
        found, done = started.result()
        if done is not None:
            stream = torch.cuda.current_stream(found.device)
            stream.wait_event(done)
            found.record_stream(stream)  # its memory is not reused before this stream has read it
        return found

    def clear(self) -> None:
        """Drop everything, and wait for what is being computed: it reads states that may be deleted next."""
        for future in self._pending.values():
            if not future.cancel():
                future.exception()
        self._pending.clear()
        self._beside = None


# ---------------------------------------------------------------- the folder


def check_folder(parent: Path | None) -> Path:
    """Return the folder in which the files of a store are made; it must be a writable folder."""
    parent = Path(tempfile.gettempdir()) if parent is None else Path(parent).expanduser()
    with _explained(parent):
        atomic.make_folder(parent.resolve())  # durably: checkpoints may be stored beside it
        if not os.access(parent, os.W_OK | os.X_OK):
            raise PermissionError(13, os.strerror(13))
    return parent


def _own_folder(parent: Path | None) -> Path:
    """Make the folder of this process, after those of processes that were killed on this machine are removed."""
    parent, host = check_folder(parent), re.sub(r"[^\w.]", "_", platform.node()) or "host"
    remove_abandoned(parent)
    path = parent / f"vista-store-{host}-{os.getpid()}-{secrets.token_hex(4)}"
    with _explained(parent):
        path.mkdir(mode=0o755)
    return path


def remove_abandoned(parent: Path) -> None:
    """Remove the folders of processes of this machine that have ended without removing them."""
    host = re.sub(r"[^\w.]", "_", platform.node()) or "host"
    for folder in parent.glob("vista-store-*"):
        match = OWN_FOLDER.fullmatch(folder.name)
        is_ours = match and match["host"] == host and folder.is_dir() and not folder.is_symlink()
        if match and is_ours and not atomic.is_alive(int(match["process"])):
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _full(folder, error) from error


def _full(folder: Path, error: OSError) -> OSError:
    if error.errno is None or str(folder) in str(error.args[-1]):
        return error
    why = os.strerror(error.errno)
    return OSError(
        error.errno, f"predictions cannot be stored in {folder}: {why}; free disk space, or choose another store_dir"
    )
