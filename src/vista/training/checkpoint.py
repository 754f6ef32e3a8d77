"""All state of a run at a step boundary, in a folder that is there whole or not at all.

A checkpoint is JSON with the tensors taken out, a safetensors file that holds them, and a manifest with the SHA-256 of
every file it rests on. Tensors that never change once made (predictions of an anchor, the best weights) are files of
their own under ``blobs/``, written once, referenced by hash, and deleted only after a checkpoint that no longer needs
them is in place.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from vista import exchange
from vista.training import durable

FORMAT = 1
FOLDER, BLOBS = "checkpoints", "blobs"
STATE, TENSORS, MANIFEST = "state.json", "tensors.safetensors", "manifest.json"
IMMUTABLE = "predictions", "best"  # keys whose entries never change under the same name
TENSOR, BLOB, ARRAY = "$tensor", "$blob", "$array"


class Damaged(ValueError):
    """A checkpoint that is not what was written."""


def split(state: Any, path: str = "") -> tuple[Any, dict[str, Tensor], dict[str, dict[str, Tensor]]]:
    """State as JSON, its changing tensors by path, and its immutable groups of tensors by path."""
    if isinstance(state, Tensor):
        return {TENSOR: path}, {path: state.detach()}, {}
    if isinstance(state, np.ndarray):
        return {ARRAY: path}, {path: torch.from_numpy(np.ascontiguousarray(state))}, {}
    if isinstance(state, list | tuple):
        state = list(state)
        if not any(isinstance(value, Tensor | np.ndarray | dict | list) for value in state):
            return state, {}, {}
        parts = {str(i): value for i, value in enumerate(state)}
        skeleton, tensors, blobs = split(parts, path)
        return [skeleton[key] for key in parts], tensors, blobs
    if not isinstance(state, dict):
        return state, {}, {}
    skeleton, tensors, blobs = {}, {}, {}
    for key, value in state.items():
        inner = f"{path}/{key}" if path else str(key)
        if path.rpartition("/")[2] in IMMUTABLE:
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
        return group[""] if skeleton["single"] else group
    return {key: join(value, tensors, blobs) for key, value in skeleton.items()}


@dataclass(frozen=True)
class Copied:
    """A state as it was at one step, still where it was made; ``ready`` says when the copies are complete."""

    skeleton: Any
    tensors: dict[str, Tensor]
    fresh: dict[str, dict[str, Tensor]]  # immutable groups that are not on disk yet
    needed: list[str]  # paths of all immutable groups
    ready: torch.cuda.Event | None


class Checkpoints:
    """The checkpoints of one run folder; of a training on several processes each has its own files in them."""

    def __init__(self, run: Path, rank: int = 0) -> None:
        self.run = run
        self.suffix = f"-rank{rank}" if rank else ""
        self.is_first = rank == 0
        self._blob_files: dict[str, tuple[str, str]] = {}  # path in the state -> file name and hash
        self._writer: threading.Thread | None = None
        self._failure: BaseException | None = None

    # ------------------------------------------------------------ writing

    def save(self, name: str, state: Any, *, wait: bool = False) -> None:
        """Copy ``state`` now, where it lies; bring it over and write it in the background.

        What failed last time is raised here.
        """
        self.wait()
        skeleton, tensors, blobs = split(state)
        tensors = {path: tensor.clone() for path, tensor in tensors.items()}
        fresh = {path: group for path, group in blobs.items() if path not in self._blob_files}
        ready = torch.cuda.Event() if any(t.is_cuda for t in tensors.values()) else None
        if ready is not None:
            ready.record()
        copied = Copied(skeleton, tensors, fresh, list(blobs), ready)
        self._writer = threading.Thread(target=self._write, args=(name, copied), daemon=True)
        self._writer.start()
        if wait:
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
        try:
            if copied.ready is not None:
                copied.ready.synchronize()
            for path, group in copied.fresh.items():
                self._blob_files[path] = self._write_blob(group)
            self._blob_files = {path: self._blob_files[path] for path in copied.needed}
            files = {path: file for path, (file, _) in self._blob_files.items()}
            saved = {"format": FORMAT, "state": copied.skeleton, "blobs": files}
            tensors = tensors_to_bytes(_on_host(copied.tensors))
            content: dict[str, bytes] = {STATE: json.dumps(saved).encode(), TENSORS: tensors}
            temporary = self.run / FOLDER / f".{name}{self.suffix}.tmp"
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            hashes = {f"{BLOBS}/{file}": digest for file, digest in self._blob_files.values()}
            for file, data in content.items():
                durable.write(temporary / file, data)
                hashes[file] = hashlib.sha256(data).hexdigest()
            durable.write_json(temporary / MANIFEST, hashes)
            target = self.run / FOLDER / f"{name}{self.suffix}"
            shutil.rmtree(target, ignore_errors=True)
            durable.rename(temporary, target)
            self._forget_old()
        except BaseException as error:
            self._failure = error

    def _write_blob(self, group: dict[str, Tensor]) -> tuple[str, str]:
        data = tensors_to_bytes(_on_host({name or "values": tensor for name, tensor in group.items()}))
        digest = hashlib.sha256(data).hexdigest()
        path = self.run / BLOBS / f"{digest[:32]}.safetensors"
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            durable.write(path, data)
        return path.name, digest

    def _forget_old(self) -> None:
        """Keep the newest checkpoint and the one before; drop blobs that neither needs."""
        kept = list(self._newest_first())[:2]
        for path in self._newest_first():
            if path not in kept:
                shutil.rmtree(path, ignore_errors=True)
        if not self.is_first:
            return
        needed = set()
        for path in (self.run / FOLDER).glob("[!.]*"):
            needed |= set(durable.read_json(path / MANIFEST))
        for blob in (self.run / BLOBS).glob("*.safetensors"):
            if f"{BLOBS}/{blob.name}" not in needed:
                blob.unlink()

    # ------------------------------------------------------------ reading

    def _newest_first(self) -> Iterator[Path]:
        folder = self.run / FOLDER
        mine = [
            p for p in folder.glob("[!.]*") if p.name.endswith(self.suffix) and ("-rank" in p.name) == bool(self.suffix)
        ]
        yield from sorted(mine, key=lambda p: p.name, reverse=True)

    def names(self) -> list[str]:
        """Names of this process's checkpoints, newest first."""
        return [path.name.removesuffix(self.suffix) for path in self._newest_first()]

    def load(self, name: str) -> Any:
        """The state of a checkpoint; one that is not what was written is refused by name."""
        folder = self.run / FOLDER / f"{name}{self.suffix}"
        try:
            files = self._verified(folder)
            saved = json.loads(files[STATE])
            if saved.get("format") != FORMAT:
                raise ValueError(f"{folder} has format {saved.get('format')!r}, but this version reads {FORMAT}")
            blobs = {}
            for path, file in saved["blobs"].items():
                group = tensors_from_bytes(files[f"{BLOBS}/{file}"])
                blobs[path] = {"" if key == "values" and len(group) == 1 else key: t for key, t in group.items()}
                self._blob_files[path] = file, hashlib.sha256(files[f"{BLOBS}/{file}"]).hexdigest()
            return join(saved["state"], tensors_from_bytes(files[TENSORS]), blobs)
        except (SafetensorError, json.JSONDecodeError, KeyError) as error:
            raise Damaged(f"checkpoint {folder} is damaged: {error}") from error

    def _verified(self, folder: Path) -> dict[str, bytes]:
        if not (folder / MANIFEST).exists():
            raise Damaged(f"checkpoint {folder} is damaged: it has no {MANIFEST}")
        try:
            manifest = durable.read_json(folder / MANIFEST)
        except ValueError as error:
            raise Damaged(f"checkpoint {folder} is damaged: {error}") from error
        files = {}
        for name, digest in manifest.items():
            path = self.run / name if name.startswith(f"{BLOBS}/") else folder / name
            if not path.exists():
                raise Damaged(f"checkpoint {folder} is damaged: {path.name} is missing")
            files[name] = path.read_bytes()
            if hashlib.sha256(files[name]).hexdigest() != digest:
                raise Damaged(
                    f"checkpoint {folder} is damaged: {path.name} does not have the checksum it was written with"
                )
        return files

    def newest_sound_everywhere(self) -> Any:
        """State of the newest checkpoint that is whole on every process, or None."""
        for name in exchange.first_ranks_words(self.names()):
            state = None
            try:
                state = self.load(name)
            except Damaged as error:
                warnings.warn(f"{error}; the one before is used", stacklevel=2)
            if exchange.all_say(state is not None):
                return state
        return None

    def clear(self) -> None:
        """A finished run needs none."""
        self.wait()
        for folder in (FOLDER, BLOBS):
            shutil.rmtree(self.run / folder, ignore_errors=True)


def _on_host(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
