"""The record of a run: one JSON line per epoch, and one bit per epoch and sample that says whether it was right.

Every trajectory figure can be drawn from it without a model or data. Timings are stored in a separate file, so that
the rest is a function of the configuration.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vista.files import array_file, atomic, reader
from vista.files.reader import DamagedFile

EPOCHS, TIMINGS, COVERAGE = "epochs.jsonl", "timings.jsonl", "coverage.safetensors"
FORMAT = "vista.coverage"
VERSION = "1"
VAL_GIVEN, VAL_TRUE, TEST = "val_given", "val_true", "test"
TIMED = ("train_seconds", "evaluate_seconds")


@dataclass
class Record:
    """The epochs of a run so far.

    Attributes:
        sizes: Number of samples by set, such as ``val_given``.
        lines: One object per epoch, as in ``epochs.jsonl``.
        timings: Seconds per epoch, as in ``timings.jsonl``.
        rows: Packed bits by set, one uint8 array per epoch.
    """

    sizes: dict[str, int]
    lines: list[dict[str, Any]] = field(default_factory=list)
    timings: list[dict[str, float]] = field(default_factory=list)
    rows: dict[str, list[NDArray[np.uint8]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rows = {name: self.rows.get(name, []) for name in self.sizes}

    def __len__(self) -> int:
        return len(self.lines)

    def append(self, line: dict[str, Any], timing: dict[str, float], correct: Mapping[str, NDArray[np.bool_]]) -> None:
        """Add an epoch.

        Args:
            line: Its entry in ``epochs.jsonl``.
            timing: Its entry in ``timings.jsonl``.
            correct: Bool ``[samples]`` by set: which samples were right.
        """
        self.lines.append(line)
        self.timings.append(timing)
        for name, rows in self.rows.items():
            rows.append(np.packbits(correct[name]))

    def correct(self, name: str) -> NDArray[np.bool_]:
        """Bool ``[epochs, samples]``: which samples of the set were right in which epoch."""
        if name not in self.rows:
            raise KeyError(f"the record has no set {name!r}; it has {', '.join(self.rows)}")
        return np.unpackbits(self.packed(name), axis=1, count=self.sizes[name]).astype(np.bool_)

    def seconds(self, epochs: int | None = None) -> float:
        """Time of the first ``epochs`` epochs, or of all; epochs without timings count as 0."""
        return sum(timing.get(name, 0.0) for timing in self.timings[:epochs] for name in TIMED)

    def packed(self, name: str) -> NDArray[np.uint8]:
        """The bits of a set, uint8 ``[epochs, ceil(samples / 8)]``."""
        width = -(-self.sizes[name] // 8)
        return np.stack(self.rows[name]) if self.rows[name] else np.zeros((0, width), np.uint8)

    def write(self, folder: Path) -> None:
        """Write all three files atomically, in an order in which an epoch never has its line without its bits."""
        arrays, lines = {name: self.packed(name) for name in self.sizes}, _lines(self.lines)
        _truncate_to_common(folder / EPOCHS, lines)
        atomic.write(folder / COVERAGE, array_file.to_bytes(arrays, FORMAT, VERSION, sizes=self.sizes))
        atomic.write(folder / EPOCHS, lines)
        atomic.write(folder / TIMINGS, _lines(self.timings))

    @classmethod
    def read(cls, folder: Path) -> Record:
        """Read the record in a folder.

        Args:
            folder: A run folder or a recorder's folder.

        Returns:
            The epochs that all files have; after a kill, one file may be an epoch ahead.

        Raises:
            FileNotFoundError: If the folder has no record.
            DamagedFile: If a file is damaged, or an epoch is missing.
        """
        path = folder / COVERAGE
        if missing := next((name for name in (COVERAGE, EPOCHS) if not (folder / name).exists()), None):
            raise FileNotFoundError(f"{folder} has no record of a run: {missing} is missing")
        packed, about = array_file.read(path, FORMAT, VERSION)
        sizes = _check_sizes(path, about.get("sizes"), packed)
        lines = _read_lines(folder / EPOCHS, ("anchors",))
        for number, line in enumerate(lines, 1):
            if line.get("epoch") != number:
                raise DamagedFile(
                    f"{folder / EPOCHS} line {number}", f"epoch must be {number}, got {line.get('epoch')}"
                )
        for name, rows in packed.items():
            if len(rows) < len(lines):
                raise DamagedFile(path, f"it has {len(rows)} epochs of {name}, but {EPOCHS} has {len(lines)}")
        timings = _read_lines(folder / TIMINGS, TIMED) if (folder / TIMINGS).exists() else []
        return cls(
            sizes, lines, timings[: len(lines)], {name: list(rows[: len(lines)]) for name, rows in packed.items()}
        )

    def state(self) -> dict[str, Any]:
        """The record as a checkpoint stores it."""
        return {
            "sizes": self.sizes,
            "lines": self.lines,
            "timings": self.timings,
            "rows": {name: self.packed(name) for name in self.sizes},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Record:
        """The inverse of :meth:`state`."""
        rows = {name: list(np.asarray(values)) for name, values in state["rows"].items()}
        return cls(dict(state["sizes"]), list(state["lines"]), list(state["timings"]), rows)


def _lines(values: list[Any]) -> bytes:
    return "".join(json.dumps(value, sort_keys=True, allow_nan=False) + "\n" for value in values).encode()


def _truncate_to_common(path: Path, lines: bytes) -> None:
    """Where epochs are trained again, keep only the lines before them."""
    there = reader.read_bytes(path) if path.exists() else b""
    if not lines.startswith(there):
        pairs = zip(there.splitlines(keepends=True), lines.splitlines(keepends=True))
        atomic.write(path, b"".join(old for old, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))


def _read_lines(path: Path, numbers: tuple[str, ...]) -> list[dict[str, Any]]:
    """Objects, one per line; each has all of these ``numbers`` or none of them."""
    lines = reader.read_lines(path)
    for number, line in enumerate(lines, 1):
        for name in numbers if any(name in line for name in numbers) else ():
            if not isinstance(line.get(name), int | float):
                raise DamagedFile(f"{path} line {number}", f"{name} must be a number, got {line.get(name)!r}")
    return lines


def _check_sizes(path: Path, sizes: Any, packed: Mapping[str, NDArray[Any]]) -> dict[str, int]:
    """``sizes``, if they agree with the bits of every set."""
    if not isinstance(sizes, dict) or not all(isinstance(size, int) and size >= 0 for size in sizes.values()):
        raise DamagedFile(path, f"sizes must be the number of samples of each set, got {sizes!r}")
    if set(sizes) != set(packed):
        bits, sized = (", ".join(sorted(names)) for names in (packed, sizes))
        raise DamagedFile(path, f"it has bits of {bits}, but sizes of {sized}")
    for name, rows in packed.items():
        width = -(-sizes[name] // 8)
        if rows.dtype != np.uint8 or rows.shape[1:] != (width,):
            found = f"{rows.dtype} {list(rows.shape)}"
            raise DamagedFile(path, f"{name} must be uint8 [epochs, {width}] for {sizes[name]} samples, got {found}")
    return sizes
