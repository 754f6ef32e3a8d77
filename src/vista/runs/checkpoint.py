"""All state of a run at a step boundary, in a folder that is written atomically.

A checkpoint consists of JSON without the tensors, a safetensors file with them, and a manifest with the SHA-256 of
every file it depends on. Tensors that never change after they are created (predictions or weights of an anchor, the
best weights) are separate files in ``blobs/``: written once, referenced by hash, and deleted only after a checkpoint
that does not need them is complete.

Only entries with names that this module creates are deleted, and no symbolic link is followed. A damaged checkpoint is
deleted. One that cannot be read, belongs to another run, or holds foreign entries is renamed and kept.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import secrets
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from vista.core import collectives
from vista.core.store import WrittenOnce
from vista.files import atomic, reader
from vista.files.reader import DamagedFile

TENSOR, BLOB, ARRAY = "$tensor", "$blob", "$array"


def split(state: Any, path: str = "") -> tuple[Any, dict[str, Tensor], dict[str, dict[str, Tensor]]]:
    """Split a state into JSON, its changing tensors by path, and its immutable groups of tensors by path."""
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


FORMAT = 1
KEPT = 2  # the newest and the previous one
AT_ONCE = KEPT + 1  # on disk while one is being written
FOLDER, BLOBS = "checkpoints", "blobs"
STATE, TENSORS, MANIFEST = "state.json", "tensors.safetensors", "manifest.json"
FILES = frozenset((STATE, TENSORS, MANIFEST))  # of one checkpoint
UNUSED = ".unused"  # ending of checkpoints that are kept although this run cannot use them
CHECKPOINT = re.compile(r"(epoch-\d{5,}-step-\d{7,})(-rank\d+)?")
BLOB_NAME = re.compile(r"[0-9a-f]{32}\.safetensors")
OWN_NAMES = {
    FOLDER: re.compile(rf"{CHECKPOINT.pattern}|\.{CHECKPOINT.pattern}\.tmp"),
    BLOBS: re.compile(rf"{BLOB_NAME.pattern}|\.[0-9a-f]+\.safetensors\.\d+(-[^.]*-\d+)?\.tmp"),
}
OWNER = "owner.json"  # in a run's folder below --checkpoint-dir: the path of the run
RUN_IN_CHECKPOINT_DIR = re.compile(r".+\.vista-[0-9a-f]{16}")  # a run's own folder below --checkpoint-dir


class Damaged(ValueError):
    """A checkpoint whose files are not what was written."""


class Unusable(ValueError):
    """A checkpoint that cannot be read, or that belongs to another run: it may be of use to somebody else."""


@dataclass(frozen=True)
class Copied:
    """A copy of the state at one step, still on its device; ``ready`` is reached when the copies are complete."""

    skeleton: Any
    tensors: dict[str, Tensor]
    fresh: dict[str, dict[str, Tensor]]  # immutable groups that are not on disk yet
    needed: list[str]  # paths of all immutable groups
    ready: torch.cuda.Event | None


class Checkpoints:
    """The checkpoints below a folder. In distributed training each process writes its own part of each of them.

    Args:
        root: Folder that holds ``checkpoints/`` and ``blobs/``: the run folder, or one below --checkpoint-dir.
        rank: Index of this process.
    """

    def __init__(self, root: Path, rank: int = 0) -> None:
        self.root = root
        self.suffix = f"-rank{rank}" if rank else ""
        self.is_first = rank == 0
        self._resumed: str | None = None  # the checkpoint that this run was resumed from
        self._blob_files: dict[str, tuple[str, str]] = {}  # path in the state -> file name and hash
        self._writer: threading.Thread | None = None
        self._failure: BaseException | None = None

    # ------------------------------------------------------------ writing

    def save(self, name: str, state: Any, *, wait: bool = False) -> None:
        """Copy ``state`` on its device now; transfer and write it in the background.

        In distributed training it waits until every process has written its part.

        Args:
            name: Such as ``epoch-00002-step-0000001``.
            state: Nested dicts and lists of tensors, arrays and JSON values.
            wait: Return only when the checkpoint is complete.

        Raises:
            OSError: If this checkpoint, or the previous one in the background, could not be written.
        """
        self.wait()
        if name == self._resumed:
            return  # it holds this state already, and would not exist for a moment
        skeleton, tensors, blobs = split(state)
        tensors = {path: tensor.clone() for path, tensor in tensors.items()}
        fresh = {path: group for path, group in blobs.items() if path not in self._blob_files}
        ready = torch.cuda.Event() if any(t.is_cuda for t in tensors.values()) else None
        if ready is not None:
            ready.record()
        copied = Copied(skeleton, tensors, fresh, list(blobs), ready)
        if collectives.active():
            self._write(name, copied)
            in_place = collectives.all_agree(self._failure is None)
            self.wait()
            if not in_place:
                raise OSError(f"another process could not write its part of the checkpoint {name}")
            self._forget_old()
            return
        writer = threading.Thread(target=self._write, args=(name, copied), daemon=True)
        try:
            writer.start()
        except RuntimeError as error:
            raise RuntimeError(f"no thread could be started to write the checkpoint {name}: {error}") from error
        self._writer = writer
        if wait:
            self.wait()

    def wait(self) -> None:
        """Wait until the checkpoint in the background is complete; raise the error if it failed."""
        if self._writer is not None:
            self._writer.join()
            self._writer = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _write(self, name: str, copied: Copied) -> None:
        folder, own = self.root / FOLDER, f"{name}{self.suffix}"
        temporary = folder / f".{own}.tmp"
        try:
            if copied.ready is not None:
                copied.ready.synchronize()
            if not is_in_checkpoint_dir(self.root) and not self.root.is_dir():  # a removed run is not created again
                raise FileNotFoundError(f"cannot write a checkpoint: {self.root} does not exist any more")
            for path, group in copied.fresh.items():
                self._blob_files[path] = self._write_blob(group)
            self._blob_files = {path: self._blob_files[path] for path in copied.needed}
            files = {path: file for path, (file, _) in self._blob_files.items()}
            saved = {
                "format": FORMAT,
                "processes": collectives.world_size(),
                "state": copied.skeleton,
                "blobs": files,
            }
            tensors = tensors_to_bytes(_on_host(copied.tensors))
            content: dict[str, bytes] = {STATE: json.dumps(saved).encode(), TENSORS: tensors}
            self._make_folder(folder)
            _delete_entries(folder, [temporary.name])
            temporary.mkdir()
            hashes = {f"{BLOBS}/{file}": digest for file, digest in self._blob_files.values()}
            for file, data in content.items():
                atomic.write(temporary / file, data)
                hashes[file] = hashlib.sha256(data).hexdigest()
            atomic.write_json(temporary / MANIFEST, hashes)
            _delete_entries(folder, [own])
            atomic.rename(temporary, folder / own)
            if not collectives.active():
                self._forget_old()
        except BaseException as error:
            with suppress(OSError, ValueError):
                _delete_entries(folder, [temporary.name])
            self._failure = error

    def _write_blob(self, group: dict[str, Tensor]) -> tuple[str, str]:
        data = tensors_to_bytes(_on_host({name or "values": tensor for name, tensor in group.items()}))
        digest = hashlib.sha256(data).hexdigest()
        path = self.root / BLOBS / f"{digest[:32]}.safetensors"
        self._make_folder(path.parent)
        if _has_digest(path, digest):
            atomic.sync_folder(path.parent)  # the process that wrote it may have ended before it flushed the name
        else:
            atomic.write(path, data)
        return path.name, digest

    def _make_folder(self, folder: Path) -> None:
        """Make ``checkpoints/`` or ``blobs/``, but never the folder of a run that was moved or removed meanwhile."""
        atomic.make_folder(folder, parents=is_in_checkpoint_dir(self.root))

    def _forget_old(self) -> None:
        """Keep the newest checkpoint and the previous one; delete blobs that no checkpoint needs. Rank 0 does it."""
        if self.is_first:
            self._keep_only(self.names()[:KEPT])
            _delete_unneeded_blobs(self.root)

    def _keep_only(self, names: list[str]) -> None:
        """Delete all other checkpoints, the parts of all processes, and incomplete ones of killed processes."""
        entries = own_entries(self.root / FOLDER)
        if others := [name for name in entries if name.partition("-rank")[0] not in names]:
            _delete_entries(self.root / FOLDER, others)

    # ------------------------------------------------------------ reading

    def names(self) -> list[str]:
        """Names of the checkpoints that this process has a part of, newest first."""
        found = [CHECKPOINT.fullmatch(name) for name in atomic.list_entries(self.root / FOLDER)]
        return sorted((match[1] for match in found if match and (match[2] or "") == self.suffix), reverse=True)

    def load(self, name: str, identity: Any = None) -> Any:
        """Read the state of a checkpoint.

        Args:
            name: One of :meth:`names`.
            identity: The identity of the run; if given, a checkpoint of another run is unusable.

        Returns:
            The state that was saved.

        Raises:
            Damaged: If a file is not what was written.
            Unusable: If a file cannot be read, or the checkpoint belongs to another run.
            ValueError: If another version, or another number of processes, wrote it.
        """
        folder = self.root / FOLDER / f"{name}{self.suffix}"
        try:
            files = self._read_verified(folder)
            saved = reader.parse_object(files[STATE], folder / STATE, any_number=True)
            self._check_readable_here(folder, saved)
            blobs, blob_files = {}, {}
            for path, file in saved["blobs"].items():
                blobs[path] = tensors_from_bytes(files[f"{BLOBS}/{file}"])
                blob_files[path] = file, hashlib.sha256(files[f"{BLOBS}/{file}"]).hexdigest()
            state = join(saved["state"], tensors_from_bytes(files[TENSORS]), blobs)
            if identity is not None and state["identity"] != identity:
                raise Unusable(f"checkpoint {folder} belongs to another run")
            self._blob_files = blob_files  # all of them or none: a blob of another checkpoint is not this one's
            return state
        except (SafetensorError, DamagedFile, LookupError, TypeError, AttributeError) as error:
            raise Damaged(f"checkpoint {folder} is damaged: {error}") from error
        except OSError as error:
            raise Unusable(f"checkpoint {folder} cannot be read: {error}") from error

    @staticmethod
    def _check_readable_here(folder: Path, saved: dict[str, Any]) -> None:
        """Reject a complete checkpoint of another version or number of processes: it must not be overwritten."""
        if saved.get("format") != FORMAT:
            raise ValueError(f"{folder} has format {saved.get('format')!r}, but this version reads {FORMAT}")
        if saved["processes"] != collectives.world_size():
            raise ValueError(
                f"{folder} was written by {saved['processes']} processes, but there are {collectives.world_size()}: "
                f"resume with torchrun --nproc-per-node={saved['processes']}, or without it if that is 1"
            )

    def _read_verified(self, folder: Path) -> dict[str, bytes]:
        """Content of all files of a checkpoint; the manifest may name only files that this module creates."""
        files = {}
        try:
            manifest = reader.read_object(folder / MANIFEST)
            for name, digest in manifest.items():
                parent, _, file = name.rpartition("/")
                if name not in (STATE, TENSORS) and not (parent == BLOBS and BLOB_NAME.fullmatch(file)):
                    raise Damaged(f"checkpoint {folder} is damaged: {MANIFEST} names the foreign file {name!r}")
                files[name] = reader.read_bytes((self.root if parent else folder) / name)
                if hashlib.sha256(files[name]).hexdigest() != digest:
                    raise Damaged(
                        f"checkpoint {folder} is damaged: {file} does not have the checksum it was written with"
                    )
        except FileNotFoundError as error:
            missing = MANIFEST if not (folder / MANIFEST).exists() else file
            raise Damaged(f"checkpoint {folder} is damaged: {missing} is missing") from error
        return files

    def load_newest(self, identity: Any = None) -> Any:
        """Read the newest checkpoint that every process can use.

        Args:
            identity: The identity of the run, which the checkpoint must have.

        Returns:
            Its state, or None without a usable checkpoint. Damaged checkpoints are deleted; those that cannot be read
            or belong to another run are renamed to ``NAME.unused``.
        """
        names = self.names()
        if self.is_first:
            self._warn_of_foreign_entries()
            self._keep_only(names)
        names = collectives.broadcast_strings(names)
        for number, name in enumerate(names):
            state = self._load_or_warn(name, identity)
            if collectives.all_agree(state is not None):
                self._resumed = name
                return state
            if state is not None:
                warnings.warn(f"checkpoint {self.root / FOLDER / name} is damaged in another process", stacklevel=2)
            self._blob_files = {}
            if self.is_first:
                self._keep_only(names[number + 1 :])
        if names:
            warnings.warn(f"{self.root} has no usable checkpoint left: the run starts from epoch 1", stacklevel=2)
        return None

    def _warn_of_foreign_entries(self) -> None:
        for folder in (self.root / FOLDER, self.root / BLOBS):
            foreign = [name for name in atomic.list_entries(folder) if not OWN_NAMES[folder.name].fullmatch(name)]
            if foreign:
                warnings.warn(
                    f"{folder} holds entries that are not of this run: {', '.join(foreign[:8])}; they are left alone",
                    stacklevel=3,
                )

    def _load_or_warn(self, name: str, identity: Any) -> Any:
        """The state, or None if the checkpoint cannot be used; an error of rank 0 is raised in every process."""
        state, message = None, ""
        try:
            state = self.load(name, identity)
        except Damaged as error:
            warnings.warn(f"{error}; it is not used", stacklevel=3)
        except Unusable as error:
            own = f"{name}{self.suffix}"
            kept = _free_path(self.root / FOLDER / f"{own}{UNUSED}")
            atomic.rename(self.root / FOLDER / own, kept)
            warnings.warn(f"{error}; it is not used, and kept as {kept}", stacklevel=3)
        except ValueError as error:
            message = str(error)
        for first in collectives.broadcast_strings([message]):
            if first or message:
                raise ValueError(first or message)
        return state

    @contextmanager
    def settled(self) -> Iterator[None]:
        """Wait for the background writer when the block ends, also after an error."""
        try:
            yield
        finally:
            if self._writer is not None:
                self._writer.join()

    def clear(self) -> None:
        """Delete the checkpoints of a finished run; rank 0 does it."""
        self.wait()
        if self.is_first:
            delete_checkpoints(self.root)


def _on_host(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}


# ---------------------------------------------------------------- the folder that holds them


def own_entries(folder: Path) -> list[str]:
    """Names in ``checkpoints/`` or ``blobs/`` that this module created, temporary ones included."""
    return [name for name in atomic.list_entries(folder) if OWN_NAMES[folder.name].fullmatch(name)]


def _delete_entries(folder: Path, names: list[str]) -> None:
    """Delete checkpoints by name; a folder that holds foreign entries is renamed to ``NAME.unused`` and kept."""
    for name in atomic.delete_entries(folder, names, FILES):
        kept = _free_path(folder / f"{name.strip('.')}{UNUSED}")
        with suppress(OSError):
            atomic.rename(folder / name, kept)
            warnings.warn(f"{kept} holds entries that are not of this run; they are left alone", stacklevel=2)


def delete_checkpoints(root: Path) -> None:
    """Delete all checkpoints and blobs below ``root``, then the folders that are empty; errors leave the rest."""
    for folder in (root / FOLDER, root / BLOBS):
        with suppress(OSError):
            if not folder.is_symlink():
                if folder.name == FOLDER:
                    _delete_entries(folder, own_entries(folder))
                else:
                    _delete_unneeded_blobs(root)
                folder.rmdir()
    with suppress(OSError):
        if is_in_checkpoint_dir(root) and not root.is_symlink():
            atomic.delete_entries(root, [OWNER])
            root.rmdir()


def _delete_unneeded_blobs(root: Path) -> None:
    """Delete blobs that no checkpoint needs, including those kept as unused; nothing if a manifest is unreadable."""
    needed = set()
    for name in atomic.list_entries(root / FOLDER):
        if CHECKPOINT.fullmatch(name.partition(UNUSED)[0]):
            try:
                needed |= set(reader.read_object(root / FOLDER / name / MANIFEST))
            except (OSError, ValueError) as error:
                if UNUSED in name and isinstance(error, FileNotFoundError):
                    continue  # only foreign entries are left of it
                return
    if unneeded := [name for name in own_entries(root / BLOBS) if f"{BLOBS}/{name}" not in needed]:
        atomic.delete_entries(root / BLOBS, unneeded)


def _has_digest(path: Path, digest: str) -> bool:
    try:
        return reader.sha256(path) == digest
    except (OSError, DamagedFile):
        return False


def _free_path(path: Path) -> Path:
    """``path``, with a number added if it exists."""
    numbered = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    return next(each for each in itertools.chain([path], numbered) if not each.exists())


def reject_links(root: Path) -> None:
    """Reject symbolic links at every path that writing or deleting checkpoints uses."""
    for folder in (root / FOLDER, root / BLOBS):
        for name in own_entries(folder):
            atomic.reject_link(folder / name)


def is_in_checkpoint_dir(root: Path) -> bool:
    """Whether ``root`` is the folder of one run below --checkpoint-dir, by its name."""
    return RUN_IN_CHECKPOINT_DIR.fullmatch(root.name) is not None


def write_owner(root: Path, run: Path) -> None:
    """Note in a folder below --checkpoint-dir which run it belongs to."""
    if is_in_checkpoint_dir(root):
        atomic.make_folder(root)
        atomic.write_json(root / OWNER, {"run": str(run.resolve())})


def read_owner(root: Path) -> Path | None:
    """The run that a folder below --checkpoint-dir belongs to; ``None`` if it is not known."""
    try:
        path = reader.read_object(root / OWNER).get("run")
    except (OSError, ValueError):
        return None
    return Path(path) if isinstance(path, str) and os.path.isabs(path) and "\0" not in path else None


def new_name_in_checkpoint_dir(run: Path) -> str:
    """A new unique name for the run's folder in a --checkpoint-dir, which several runs may share."""
    return f"{os.path.basename(run.resolve())[:40] or 'run'}.vista-{secrets.token_hex(8)}"
