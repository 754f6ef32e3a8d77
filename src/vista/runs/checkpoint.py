"""All state of a run at a step boundary, in a folder that is written atomically.

A checkpoint is JSON with the tensors taken out, a safetensors file that holds them, and a manifest with the SHA-256 of
every file it depends on. Tensors that never change once made (predictions or weights of an anchor, the best weights)
are files of their own under ``blobs/``, written once, referenced by hash, and deleted only after a checkpoint that no
longer needs them is in place.

Only entries with names that this module creates are deleted, and no symbolic link is followed.
"""

from __future__ import annotations

import hashlib
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
from vista.files import atomic

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


FORMAT = 1
KEPT = 2  # the newest, and the one before
AT_ONCE = KEPT + 1  # on disk, while one is being written
FOLDER, BLOBS = "checkpoints", "blobs"
STATE, TENSORS, MANIFEST = "state.json", "tensors.safetensors", "manifest.json"
CHECKPOINT = re.compile(r"(epoch-\d{5,}-step-\d{7,})(-rank\d+)?")
OWN_NAMES = {
    FOLDER: re.compile(rf"{CHECKPOINT.pattern}|\.{CHECKPOINT.pattern}\.tmp"),
    BLOBS: re.compile(r"[0-9a-f]{32}\.safetensors|\.[0-9a-f]+\.safetensors\.\d+(-[^.]*-\d+)?\.tmp"),
}
RUN_IN_CHECKPOINT_DIR = re.compile(r".+\.vista-[0-9a-f]{16}")  # a run's own folder below --checkpoint-dir


class Damaged(ValueError):
    """A checkpoint that is not what was written."""


@dataclass(frozen=True)
class Copied:
    """A state as it was at one step, still where it was made; ``ready`` says when the copies are complete."""

    skeleton: Any
    tensors: dict[str, Tensor]
    fresh: dict[str, dict[str, Tensor]]  # immutable groups that are not on disk yet
    needed: list[str]  # paths of all immutable groups
    ready: torch.cuda.Event | None


class Checkpoints:
    """The checkpoints below a folder; in distributed training each process has its own files in them.

    Args:
        root: Folder that holds ``checkpoints/`` and ``blobs/``: the run folder, or one below --checkpoint-dir.
        rank: Index of this process.
    """

    def __init__(self, root: Path, rank: int = 0) -> None:
        self.root = root
        self.suffix = f"-rank{rank}" if rank else ""
        self.is_first = rank == 0
        self._resumed: str | None = None  # the checkpoint this run went on from
        self._blob_files: dict[str, tuple[str, str]] = {}  # path in the state -> file name and hash
        self._writer: threading.Thread | None = None
        self._failure: BaseException | None = None

    # ------------------------------------------------------------ writing

    def save(self, name: str, state: Any, *, wait: bool = False) -> None:
        """Copy ``state`` now, where it lies; bring it over and write it in the background.

        What failed last time is raised here. Several processes wait for each other, because a checkpoint is one only
        when every process has written its part.
        """
        self.wait()
        if name == self._resumed:
            return  # it holds this very state, and would be gone for a moment
        skeleton, tensors, blobs = split(state)
        tensors = {path: tensor.clone() for path, tensor in tensors.items()}
        fresh = {path: group for path, group in blobs.items() if path not in self._blob_files}
        ready = torch.cuda.Event() if any(t.is_cuda for t in tensors.values()) else None
        if ready is not None:
            ready.record()
        copied = Copied(skeleton, tensors, fresh, list(blobs), ready)
        self._writer = threading.Thread(target=self._write, args=(name, copied), daemon=True)
        self._writer.start()
        if collectives.active():
            self._writer.join()
            in_place = collectives.all_say(self._failure is None)
            self.wait()
            if not in_place:
                raise OSError(f"another process could not write its part of the checkpoint {name}")
            self._forget_old()
        elif wait:
            self.wait()

    def wait(self) -> None:
        """Until what is being written is in place."""
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
            atomic.make_folder(folder)
            atomic.delete_entries(folder, [temporary.name])
            temporary.mkdir()
            hashes = {f"{BLOBS}/{file}": digest for file, digest in self._blob_files.values()}
            for file, data in content.items():
                atomic.write(temporary / file, data)
                hashes[file] = hashlib.sha256(data).hexdigest()
            atomic.write_json(temporary / MANIFEST, hashes)
            atomic.delete_entries(folder, [own])
            atomic.rename(temporary, folder / own)
            if not collectives.active():
                self._forget_old()
        except BaseException as error:
            with suppress(OSError, ValueError):
                atomic.delete_entries(folder, [temporary.name])
            self._failure = error

    def _write_blob(self, group: dict[str, Tensor]) -> tuple[str, str]:
        data = tensors_to_bytes(_on_host({name or "values": tensor for name, tensor in group.items()}))
        digest = hashlib.sha256(data).hexdigest()
        path = self.root / BLOBS / f"{digest[:32]}.safetensors"
        atomic.make_folder(path.parent)
        if path.is_symlink() or not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            atomic.write(path, data)
        return path.name, digest

    def _forget_old(self) -> None:
        """Keep the newest checkpoint and the one before; drop blobs that neither needs. The first process does it."""
        if not self.is_first:
            return
        self._keep_only(self.names()[:KEPT])
        needed = set()
        for name in filter(CHECKPOINT.fullmatch, atomic.list_entries(self.root / FOLDER)):
            try:
                needed |= set(atomic.read_object(self.root / FOLDER / name / MANIFEST))
            except (OSError, ValueError):
                return  # damaged since it was written: what it needs is not known, so nothing is deleted
        unneeded = [name for name in own_entries(self.root / BLOBS) if f"{BLOBS}/{name}" not in needed]
        if unneeded:
            atomic.delete_entries(self.root / BLOBS, unneeded)

    def _keep_only(self, names: list[str]) -> None:
        """Delete all other checkpoints, every process's part of them, and what a killed process left half-written."""
        entries = own_entries(self.root / FOLDER)
        if others := [name for name in entries if name.partition("-rank")[0] not in names]:
            atomic.delete_entries(self.root / FOLDER, others)

    # ------------------------------------------------------------ reading

    def names(self) -> list[str]:
        """Names of the checkpoints that this process has a part of, newest first."""
        found = [CHECKPOINT.fullmatch(name) for name in atomic.list_entries(self.root / FOLDER)]
        return sorted((match[1] for match in found if match and (match[2] or "") == self.suffix), reverse=True)

    def load(self, name: str) -> Any:
        """The state of a checkpoint; one that is not what was written is refused by name."""
        folder = self.root / FOLDER / f"{name}{self.suffix}"
        try:
            files = self._verified(folder)
            saved = json.loads(files[STATE])
            self._refuse_foreign(folder, saved)
            blobs, blob_files = {}, {}
            for path, file in saved["blobs"].items():
                blobs[path] = tensors_from_bytes(files[f"{BLOBS}/{file}"])
                blob_files[path] = file, hashlib.sha256(files[f"{BLOBS}/{file}"]).hexdigest()
            state = join(saved["state"], tensors_from_bytes(files[TENSORS]), blobs)
            self._blob_files = blob_files  # all of them or none: a blob of another checkpoint is not this one's
            return state
        except (SafetensorError, json.JSONDecodeError, KeyError) as error:
            raise Damaged(f"checkpoint {folder} is damaged: {error}") from error

    @staticmethod
    def _refuse_foreign(folder: Path, saved: dict[str, Any]) -> None:
        """Whole, but not ours to read: better to stop than to start anew over it."""
        if saved.get("format") != FORMAT:
            raise ValueError(f"{folder} has format {saved.get('format')!r}, but this version reads {FORMAT}")
        if saved["processes"] != collectives.world_size():
            raise ValueError(
                f"{folder} was written by {saved['processes']} processes, but there are {collectives.world_size()}: "
                f"go on with torchrun --nproc-per-node={saved['processes']}, or without it if that is 1"
            )

    def _verified(self, folder: Path) -> dict[str, bytes]:
        if not (folder / MANIFEST).exists():
            raise Damaged(f"checkpoint {folder} is damaged: it has no {MANIFEST}")
        try:
            manifest = atomic.read_object(folder / MANIFEST)
        except ValueError as error:
            raise Damaged(f"checkpoint {folder} is damaged: {error}") from error
        files = {}
        for name, digest in manifest.items():
            path = self.root / name if name.startswith(f"{BLOBS}/") else folder / name
            if not path.exists():
                raise Damaged(f"checkpoint {folder} is damaged: {path.name} is missing")
            files[name] = path.read_bytes()
            if hashlib.sha256(files[name]).hexdigest() != digest:
                raise Damaged(
                    f"checkpoint {folder} is damaged: {path.name} does not have the checksum it was written with"
                )
        return files

    def newest_sound_everywhere(self) -> Any:
        """State of the newest checkpoint that is whole on every process, or None; damaged ones are deleted."""
        names = self.names()
        if self.is_first:
            self._warn_of_foreign_entries()
            self._keep_only(names)
        names = collectives.first_ranks_words(names)
        for place, name in enumerate(names):
            state = self._load_or_warn(name)
            if collectives.all_say(state is not None):
                self._resumed = name
                return state
            if state is not None:
                warnings.warn(f"checkpoint {self.root / FOLDER / name} is damaged in another process", stacklevel=2)
            self._blob_files = {}
            if self.is_first:
                self._keep_only(names[place + 1 :])
        if names:
            warnings.warn(f"{self.root} has no sound checkpoint left: the run starts anew", stacklevel=2)
        return None

    def _warn_of_foreign_entries(self) -> None:
        for folder in (self.root / FOLDER, self.root / BLOBS):
            foreign = [name for name in atomic.list_entries(folder) if not OWN_NAMES[folder.name].fullmatch(name)]
            if foreign:
                warnings.warn(
                    f"{folder} holds entries that vista did not create: {', '.join(foreign[:8])}; they are left alone",
                    stacklevel=3,
                )

    def _load_or_warn(self, name: str) -> Any:
        """The state, or None where it is damaged; what the first process must refuse, every process refuses."""
        state, refusal = None, ""
        try:
            state = self.load(name)
        except Damaged as error:
            warnings.warn(f"{error}; it is not used", stacklevel=3)
        except ValueError as error:
            refusal = str(error)
        for said in collectives.first_ranks_words([refusal]):
            if said or refusal:
                raise ValueError(said or refusal)
        return state

    @contextmanager
    def settled(self) -> Iterator[None]:
        """However what is inside ends: what is being written is in place afterwards."""
        try:
            yield
        finally:
            if self._writer is not None:
                self._writer.join()

    def clear(self) -> None:
        """Delete the checkpoints of a finished run; the first process does it."""
        self.wait()
        if self.is_first:
            delete_checkpoints(self.root)


def _on_host(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}


# ---------------------------------------------------------------- the folder that holds them


def own_entries(folder: Path) -> list[str]:
    """Names in ``checkpoints/`` or ``blobs/`` that this module created, temporary ones included."""
    return [name for name in atomic.list_entries(folder) if OWN_NAMES[folder.name].fullmatch(name)]


def delete_checkpoints(root: Path) -> None:
    """Delete all checkpoints and blobs below ``root``, and the folders that are empty then; errors leave the rest."""
    for folder in (root / FOLDER, root / BLOBS):
        with suppress(OSError):
            if not folder.is_symlink():
                atomic.delete_entries(folder, own_entries(folder))
                folder.rmdir()
    with suppress(OSError):
        if is_in_checkpoint_dir(root):
            root.rmdir()


def reject_links(root: Path) -> None:
    """Reject symbolic links at every path that writing or deleting checkpoints uses."""
    for folder in (root / FOLDER, root / BLOBS):
        for name in own_entries(folder):
            atomic.reject_link(folder / name)


def is_in_checkpoint_dir(root: Path) -> bool:
    """Whether ``root`` is the folder of one run below --checkpoint-dir, by its name."""
    return RUN_IN_CHECKPOINT_DIR.fullmatch(root.name) is not None


def new_name_in_checkpoint_dir(run: Path) -> str:
    """A name that no other run has, as several may share a --checkpoint-dir."""
    return f"{os.path.basename(run.resolve())[:40] or 'run'}.vista-{secrets.token_hex(8)}"
