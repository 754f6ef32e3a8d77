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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from vista.core import collectives, host_store
from vista.core.store import RowsOnDisk, WrittenOnce
from vista.files import atomic, reader
from vista.files.reader import DamagedFile

TENSOR, BLOB, ARRAY = "$tensor", "$blob", "$array"


Group = dict[str, Tensor] | RowsOnDisk  # tensors that never change


def split(state: Any, path: str = "") -> tuple[Any, dict[str, Tensor], dict[str, Group]]:
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
            skeleton[str(key)] = {BLOB: inner, "single": not isinstance(value, dict)}
            if isinstance(value, RowsOnDisk):
                blobs[inner] = value
            else:
                group = value if isinstance(value, dict) else {"": value}
                blobs[inner] = {name: tensor.detach() for name, tensor in group.items()}
            continue
        skeleton[str(key)], more, more_blobs = split(value, inner)
        tensors.update(more)
        blobs.update(more_blobs)
    return skeleton, tensors, blobs


def join(skeleton: Any, tensors: Mapping[str, Tensor], blobs: Mapping[str, Group]) -> Any:
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
        if isinstance(group, RowsOnDisk):
            return group.rows
        return next(iter(group.values())) if skeleton["single"] else group
    parts = {key: join(value, tensors, blobs) for key, value in skeleton.items()}
    return WrittenOnce(parts) if any(isinstance(v, dict) and BLOB in v for v in skeleton.values()) else parts


FORMAT = 1
KEPT = 2  # the newest and the previous one
AT_ONCE = KEPT + 1  # on disk while one is being written
FOLDER, BLOBS = "checkpoints", "blobs"
STORE = "store"  # folder of the files of a method whose state is not in memory; a checkpoint links to them
STATE, TENSORS, MANIFEST = "state.json", "tensors.safetensors", "manifest.json"
FILES = frozenset((STATE, TENSORS, MANIFEST))  # of one checkpoint
UNUSED = ".unused"  # ending of checkpoints that are kept although this run cannot use them
CHECKPOINT = re.compile(r"(epoch-\d{5,}-step-\d{7,})(-rank\d+)?")
BLOB_NAME = re.compile(r"[0-9a-f]{32}\.safetensors")
OWN_NAMES = {
    FOLDER: re.compile(rf"{CHECKPOINT.pattern}|\.{CHECKPOINT.pattern}\.tmp"),
    STORE: host_store.OWN_FOLDER,
    BLOBS: re.compile(rf"{BLOB_NAME.pattern}|\.[0-9a-f]+\.safetensors\.\d+(-[^.]*-\d+)?\.tmp"),
}
IS_OWN_FILE: dict[str, Callable[[str], object]] = {  # by name, in a folder of such a name
    FOLDER: FILES.__contains__, STORE: host_store.OWN_FILE.fullmatch,
}  # fmt: skip
OWNER = "owner.json"  # in a run's folder below --checkpoint-dir: the path of the run
RUN_IN_CHECKPOINT_DIR = re.compile(r".+\.vista-[0-9a-f]{16}")  # a run's own folder below --checkpoint-dir


def _suffix(rank: int) -> str:
    return f"-rank{rank}" if rank else ""


class Damaged(ValueError):
    """A checkpoint whose files are not what was written."""


class Unusable(ValueError):
    """A checkpoint that cannot be read, or that belongs to another run: it may be of use to somebody else."""


@dataclass(frozen=True)
class Copied:
    """A copy of the state at one step, still on its device; ``ready`` is reached when the copies are complete."""

    skeleton: Any
    tensors: dict[str, Tensor]
    fresh: dict[str, Group]  # immutable groups that are not on disk yet
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
        self.suffix = _suffix(rank)
        self._sharing: tuple[Path, list[int]] | None = None  # the ranks that see the same folder
        self._resumed: str | None = None  # the checkpoint that this run was resumed from
        self._blob_files: dict[str, tuple[str, str]] = {}  # path in the state -> file name and hash
        self._writer: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._root_at_save: os.stat_result | None = None

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
        self._root_at_save = _stat(self.root)
        self._find_sharing()
        skeleton, tensors, blobs = split(state)
        tensors = {path: tensor.clone() for path, tensor in tensors.items()}
        fresh = {path: group for path, group in blobs.items() if path not in self._blob_files}
        ready = torch.cuda.Event() if any(t.is_cuda for t in tensors.values()) else None
        if ready is not None:
            ready.record()
        copied = Copied(skeleton, tensors, fresh, list(blobs), ready)
        if collectives.active():
            self._save_together(name, copied)
            return
        self._link_files(copied)  # now: the method may delete its own name of a file at the end of the epoch
        writer = threading.Thread(target=self._write_alone, args=(name, copied), daemon=True)
        try:
            writer.start()
        except RuntimeError as error:
            raise RuntimeError(f"no thread could be started to write the checkpoint {name}: {error}") from error
        self._writer = writer
        if wait:
            self.wait()

    def _save_together(self, name: str, copied: Copied) -> None:
        """Write the parts of all processes under temporary names; they are renamed when all of them are complete.

        One process of those that share a folder writes what is equal in all of them. A part under its final name thus
        means that every process has a complete part, under one of its names.
        """
        folder, own = self.root / FOLDER, f"{name}{self.suffix}"
        with self._failure_kept():
            self._link_files(copied)
            if self._leads:
                self._write_blobs(copied)
        self._agree_or_raise(name)
        with self._failure_kept(folder / f".{own}.tmp"):
            self._write_blobs(copied)
            self._write_part(name, copied)
        self._agree_or_raise(name)
        with self._failure_kept():
            _delete_entries(folder, [own])
            atomic.rename(folder / f".{own}.tmp", folder / own)
        self._agree_or_raise(name)
        self._forget_old()

    def _agree_or_raise(self, name: str) -> None:
        in_place = collectives.all_agree(self._failure is None)
        self.wait()
        if not in_place:
            with suppress(OSError, ValueError):
                _delete_entries(self.root / FOLDER, [f".{name}{self.suffix}.tmp"])
            raise OSError(f"another process could not write its part of the checkpoint {name}")

    def wait(self) -> None:
        """Wait until the checkpoint in the background is complete; raise the error if it failed."""
        if self._writer is not None:
            self._writer.join()
            self._writer = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    @contextmanager
    def _failure_kept(self, temporary: Path | None = None) -> Iterator[None]:
        """Keep an error for :meth:`wait`, and delete what was half written."""
        try:
            yield
        except BaseException as error:
            if temporary is not None:
                with suppress(OSError, ValueError):
                    _delete_entries(temporary.parent, [temporary.name])
            self._failure = error

    def _write_alone(self, name: str, copied: Copied) -> None:
        folder = self.root / FOLDER
        with self._failure_kept(folder / f".{name}.tmp"):
            self._write_blobs(copied)
            self._write_part(name, copied)
            _delete_entries(folder, [name])
            atomic.rename(folder / f".{name}.tmp", folder / name)
            self._forget_old()

    def _write_part(self, name: str, copied: Copied) -> None:
        """Write this process's part of a checkpoint under its temporary name, the manifest last."""
        folder, own = self.root / FOLDER, f"{name}{self.suffix}"
        temporary = folder / f".{own}.tmp"
        self._blob_files = {path: self._blob_files[path] for path in copied.needed}
        files = {path: file for path, (file, _) in self._blob_files.items()}
        saved = {
            "format": FORMAT,
            "processes": collectives.world_size(),
            "per_machine": collectives.ranks_on_machine(),
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

    def _write_blobs(self, copied: Copied) -> None:
        """Write the immutable groups that are not on disk yet."""
        if copied.ready is not None:
            copied.ready.synchronize()
        self._check_root()
        for path, group in copied.fresh.items():
            if isinstance(group, RowsOnDisk):
                atomic.sync_file(self.root / BLOBS / _blob_name(group.sha256))
            elif path not in self._blob_files:
                self._blob_files[path] = self._write_blob(group)

    def _check_root(self) -> None:
        """A run that was moved or removed is not created again, and a folder in its place is left alone."""
        if is_in_checkpoint_dir(self.root):
            return
        before, now = self._root_at_save, _stat(self.root)
        if before is None or now is None or not os.path.samestat(before, now):
            raise FileNotFoundError(f"cannot write a checkpoint: {self.root} does not exist any more")

    def _link_files(self, copied: Copied) -> None:
        """Give the files that the method has written another name in ``blobs/``: they are not written again."""
        for path, group in copied.fresh.items():
            if isinstance(group, RowsOnDisk):
                self._make_folder(self.root / BLOBS)
                name = _blob_name(group.sha256)
                atomic.link(group.path, self.root / BLOBS / name)
                self._blob_files[path] = name, group.sha256

    def _write_blob(self, group: dict[str, Tensor]) -> tuple[str, str]:
        data = tensors_to_bytes(_on_host({name or "values": tensor for name, tensor in group.items()}))
        digest = hashlib.sha256(data).hexdigest()
        path = self.root / BLOBS / _blob_name(digest)
        self._make_folder(path.parent)
        if path.exists() if collectives.active() and not self._leads else _has_digest(path, digest):
            atomic.sync_folder(path.parent)  # the process that wrote it may have ended before it flushed the name
        else:
            atomic.write(path, data)
        return path.name, digest

    def _make_folder(self, folder: Path) -> None:
        """Make ``checkpoints/`` or ``blobs/``, but never the folder of a run that was moved or removed meanwhile."""
        self._check_root()
        atomic.make_folder(folder, parents=is_in_checkpoint_dir(self.root))

    def _forget_old(self) -> None:
        """Keep the newest checkpoint and the previous one; delete blobs that no checkpoint needs.

        In every folder one of the processes that share it does so.
        """
        if self._leads:
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

    def load(self, name: str, identity: Any = None, part: int | None = None) -> Any:
        """Read the state of a checkpoint; tensors of immutable groups are memory-mapped.

        Args:
            name: One of :meth:`names`.
            identity: The identity of the run; if given, a checkpoint of another run is unusable.
            part: Index of the process that wrote it; by default this one.

        Returns:
            The state that was saved.

        Raises:
            Damaged: If a file is not what was written.
            Unusable: If a file cannot be read, or the checkpoint belongs to another run.
            ValueError: If another version wrote it.
        """
        folder = self.root / FOLDER / f"{name}{self.suffix if part is None else _suffix(part)}"
        try:
            hashes = self._verify(folder)
            saved = reader.parse_object(reader.read_bytes(folder / STATE), folder / STATE, any_number=True)
            if saved.get("format") != FORMAT:  # it must not be overwritten
                raise ValueError(f"{folder} has format {saved.get('format')!r}, but this version reads {FORMAT}")
            blob_files = {path: (file, hashes[f"{BLOBS}/{file}"]) for path, file in saved["blobs"].items()}
            blobs = {path: reader.map_tensors(self.root / BLOBS / file) for path, (file, _) in blob_files.items()}
            tensors = reader.read_tensors(folder / TENSORS) if TENSORS in hashes else {}
            state = join(saved["state"], tensors, blobs)
            if identity is not None and state["identity"] != identity:
                raise Unusable(f"checkpoint {folder} belongs to another run")
            self._blob_files = blob_files  # all of them or none: a blob of another checkpoint is not this one's
            return state
        except (SafetensorError, DamagedFile, LookupError, TypeError, AttributeError) as error:
            raise Damaged(f"checkpoint {folder} is damaged: {error}") from error
        except OSError as error:
            raise Unusable(f"checkpoint {folder} cannot be read: {error}") from error

    def _verify(self, folder: Path) -> dict[str, str]:
        """SHA-256 of all files of a checkpoint, compared; the manifest may name only files that this module creates."""
        file = MANIFEST
        try:
            manifest: dict[str, str] = reader.read_object(folder / MANIFEST)
            for name, digest in manifest.items():
                parent, _, file = name.rpartition("/")
                if name not in (STATE, TENSORS) and not (parent == BLOBS and BLOB_NAME.fullmatch(file)):
                    raise Damaged(f"checkpoint {folder} is damaged: {MANIFEST} names the foreign file {name!r}")
                if reader.sha256((self.root if parent else folder) / name) != digest:
                    raise Damaged(
                        f"checkpoint {folder} is damaged: {file} does not have the checksum it was written with"
                    )
        except FileNotFoundError as error:
            missing = MANIFEST if not (folder / MANIFEST).exists() else file
            raise Damaged(f"checkpoint {folder} is damaged: {missing} is missing") from error
        return manifest

    def load_newest(self, identity: Any = None) -> Any:
        """Read the newest checkpoint that every process can use.

        Args:
            identity: The identity of the run, which the checkpoint must have.

        Returns:
            Its state, or None without a usable checkpoint. Damaged checkpoints are deleted; those that cannot be read
            or belong to another run are renamed to ``NAME.unused``.

        Raises:
            OSError: If some processes have, or can read, a checkpoint that others cannot: nothing is deleted, because
                a folder may be restored.
        """
        self._find_sharing()
        if (state := self._load_of_others(identity)) is not None:
            return state
        names = self._complete_names()
        if self._leads:
            self._warn_of_foreign_entries()
            self._keep_only(names)
        for number, name in enumerate(names):
            state = self._load_or_warn(name, identity)
            if state is not None:
                self._resumed = name
                return state
            self._blob_files = {}
            if self._leads:
                self._keep_only(names[number + 1 :])
        if names:
            warnings.warn(f"{self.root} has no usable checkpoint left: the run starts from epoch 1", stacklevel=2)
        return None

    def _load_of_others(self, identity: Any) -> Any:
        """The newest checkpoint if another number of processes wrote it: all of its parts, in one state; else None.

        The first process receives the parts of all processes, as ``other_parts`` of the state; the other ones receive
        the first part, with ``other_parts`` that are None.
        """
        written = 0
        if collectives.rank() == 0 and (names := self.names()):
            with suppress(OSError, ValueError, LookupError):
                path = self.root / FOLDER / names[0] / STATE
                saved = reader.parse_object(reader.read_bytes(path), path, any_number=True)
                written = int(saved["processes"]) if saved["format"] == FORMAT else 0
        written = collectives.broadcast_int(written)
        if written in (0, collectives.world_size()):
            return None
        name = collectives.broadcast_strings(self.names()[:1])[0]
        state, error = None, None
        try:
            others = [self.load(name, identity, part) for part in range(1, written) if collectives.rank() == 0]
            state = {**self.load(name, identity, 0), "other_parts": others if collectives.rank() == 0 else None}
        except ValueError as failure:
            error = ValueError(
                f"{failure}. It was written by {written} processes, and another number needs all of their parts in one "
                f"folder: copy them to {self.root / FOLDER}, or resume with {self._launch_command(name)}"
            )
        collectives.raise_everywhere(error)
        if collectives.rank() == 0:
            warnings.warn(
                f"{self.root / FOLDER / name} was written by {written} processes and is resumed by "
                f"{collectives.world_size()}: the run will not end with the bytes of an undisturbed one",
                stacklevel=3,
            )
        return state

    def _launch_command(self, name: str) -> str:
        with suppress(OSError, ValueError, LookupError):
            path = self.root / FOLDER / name / STATE
            saved = reader.parse_object(reader.read_bytes(path), path, any_number=True)
            return launch_command(saved["processes"], saved.get("per_machine", saved["processes"]))
        return "as many processes as before"

    def _complete_names(self) -> list[str]:
        """Names of the checkpoints of which every process has a part, newest first.

        A process that was killed before it renamed its complete part renames it now. A newer checkpoint of which a
        process has no part, and no older one that all have, means that its folder is not the one it wrote to.
        """
        if not collectives.active():
            return self.names()
        hidden = (name[1:].removesuffix(".tmp") for name in atomic.list_entries(self.root / FOLDER) if name[0] == ".")
        parts = [match for match in map(CHECKPOINT.fullmatch, hidden) if match and (match[2] or "") == self.suffix]
        unnamed = [match[1] for match in parts if (self.root / FOLDER / f".{match[0]}.tmp" / MANIFEST).exists()]
        gathered = [json.loads(text) for text in collectives.gather_strings(json.dumps([self.names(), unnamed]))]
        complete: list[str] = []
        lost: dict[str, list[int]] = {}
        for name in sorted({name for names, _ in gathered for name in names}, reverse=True):
            without = [r for r, (names, unnamed_there) in enumerate(gathered) if name not in names + unnamed_there]
            if not without:
                complete.append(name)
            elif not complete:  # an older one may have been deleted by some processes and not yet by others
                lost[name] = without
        hosts = collectives.gather_strings(collectives.here())
        for name, without in lost.items():
            raise OSError(
                f"checkpoint {name} cannot be resumed: {', '.join(hosts[r] for r in without)} has no part of it in "
                f"{self.root / FOLDER}, and others have theirs; nothing was deleted. Restore that folder, or delete "
                f"{FOLDER}/{name}* of every process to resume from an earlier checkpoint or from epoch 1"
            )
        error = None
        try:
            for name in set(complete) & set(unnamed) - set(self.names()):
                own = f"{name}{self.suffix}"
                atomic.rename(self.root / FOLDER / f".{own}.tmp", self.root / FOLDER / own)
        except OSError as failure:
            error = failure
        collectives.raise_everywhere(error)
        return complete

    def _find_sharing(self) -> None:
        """Find out which processes see the same folder, when it is used for the first time."""
        if collectives.active() and (self._sharing is None or self._sharing[0] != self.root):
            self._sharing = self.root, collectives.ranks_sharing(self.root)

    @property
    def _leads(self) -> bool:
        """Whether this process cleans the folder, and writes what is equal in all processes that share it."""
        return self._sharing is None or self._sharing[1][0] == collectives.rank()

    def _warn_of_foreign_entries(self) -> None:
        for folder in (self.root / FOLDER, self.root / BLOBS, self.root / STORE):
            foreign = [name for name in atomic.list_entries(folder) if not OWN_NAMES[folder.name].fullmatch(name)]
            if foreign:
                warnings.warn(
                    f"{folder} holds entries that are not of this run: {', '.join(foreign[:8])}; they are left alone",
                    stacklevel=3,
                )

    def _load_or_warn(self, name: str, identity: Any) -> Any:
        """The state, or None if no process can use the checkpoint; an error of one process is raised in all of them."""
        state, failed = None, None
        try:
            state = self.load(name, identity)
        except ValueError as error:  # Damaged and Unusable, too
            failed = error
        rejected = failed is not None and not isinstance(failed, Damaged | Unusable)
        gathered = collectives.gather_strings(json.dumps([str(failed) if failed else "", rejected, collectives.here()]))
        failures = [json.loads(text) for text in gathered]
        for message, is_rejection, _ in failures:
            if is_rejection:
                raise ValueError(message)
        if all(message for message, _, _ in failures):
            self._set_aside(name, failed)
            return None
        unreadable = [f"{who}: {message}" for message, _, who in failures if message]
        if unreadable:
            raise OSError(
                f"checkpoint {name} cannot be resumed, although other processes can read their parts of it; nothing "
                f"was deleted. {'; '.join(unreadable)}. Restore what is named, or delete {FOLDER}/{name}* of every "
                "process to resume from the checkpoint before"
            )
        return state

    def _set_aside(self, name: str, failed: ValueError | None) -> None:
        """Warn of a checkpoint that is not used; keep one that may be of use to somebody else under another name."""
        if isinstance(failed, Unusable):
            own = f"{name}{self.suffix}"
            kept = _free_path(self.root / FOLDER / f"{own}{UNUSED}")
            atomic.rename(self.root / FOLDER / own, kept)
            warnings.warn(f"{failed}; it is not used, and kept as {kept}", stacklevel=4)
        else:
            warnings.warn(f"{failed}; it is not used", stacklevel=4)

    @contextmanager
    def settled(self) -> Iterator[None]:
        """Wait for the background writer when the block ends, also after an error."""
        try:
            yield
        finally:
            if self._writer is not None:
                self._writer.join()

    def clear_store(self) -> None:
        """Delete what a killed process left in ``store/``; all processes call it, before the method is made."""
        self._find_sharing()
        if self._leads:
            clear_store(self.root)
        collectives.all_agree(True)

    def clear(self) -> None:
        """Delete the checkpoints of a finished run, in every folder."""
        self.wait()
        self._find_sharing()
        if self._leads:
            delete_checkpoints(self.root)


def _on_host(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}


# ---------------------------------------------------------------- the folder that holds them


def _blob_name(digest: str) -> str:
    return f"{digest[:32]}.safetensors"


def launch_command(processes: int, per_machine: int) -> str:
    """How to start this number of processes.

    >>> launch_command(8, 4)
    'torchrun --nnodes=2 --nproc-per-node=4'
    """
    if processes == 1:
        return "one process, without torchrun"
    machines = -(-processes // max(1, per_machine))
    return f"torchrun{f' --nnodes={machines}' if machines > 1 else ''} --nproc-per-node={processes // machines}"


def _stat(folder: Path) -> os.stat_result | None:
    """What identifies a folder, or ``None`` if it does not exist."""
    return folder.stat() if folder.is_dir() else None


def own_entries(folder: Path) -> list[str]:
    """Names in ``checkpoints/``, ``blobs/`` or ``store/`` that this module created, temporary ones included."""
    return [name for name in atomic.list_entries(folder) if OWN_NAMES[folder.name].fullmatch(name)]


def _delete_entries(folder: Path, names: list[str]) -> None:
    """Delete checkpoints by name; a folder that holds foreign entries is renamed to ``NAME.unused`` and kept."""
    for name in atomic.delete_entries(folder, names, IS_OWN_FILE[FOLDER]):
        kept = _free_path(folder / f"{name.strip('.')}{UNUSED}")
        with suppress(OSError):
            atomic.rename(folder / name, kept)
            warnings.warn(f"{kept} holds entries that are not of this run; they are left alone", stacklevel=2)


def delete_checkpoints(root: Path) -> None:
    """Delete all checkpoints and blobs below ``root``, then the folders that are empty; errors leave the rest."""
    clear_store(root)
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


def clear_store(root: Path) -> None:
    """Delete the files in ``store/`` that a method has left: a state that a checkpoint needs is in ``blobs/`` too."""
    if (root / STORE).is_dir() and not (root / STORE).is_symlink():
        with suppress(OSError):
            atomic.delete_entries(root / STORE, own_entries(root / STORE), IS_OWN_FILE[STORE])
        remove_empty_store(root)


def remove_empty_store(root: Path) -> None:
    """Remove ``store/`` unless another process still uses it."""
    with suppress(OSError):
        (root / STORE).rmdir()


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
    atomic.reject_link(root / STORE)
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
        with suppress(PermissionError):  # a process that made it may have ended before it flushed the name
            atomic.sync_folder(root.parent)
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
