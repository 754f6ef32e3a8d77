"""The record of a run: a line of JSON per epoch, and which samples were right in which epoch, a bit each.

It is enough to draw every trajectory figure again without a model or data. Timings lie in a file of their own, so
that everything else is a function of the configuration.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vista.files import array_file, atomic

EPOCHS, TIMINGS, COVERAGE = "epochs.jsonl", "timings.jsonl", "coverage.safetensors"
FORMAT = "vista.coverage"
VERSION = "1"
VAL_GIVEN, VAL_TRUE, TEST = "val_given", "val_true", "test"
TIMED = ("train_seconds", "evaluate_seconds")


@dataclass
class Record:
    """The epochs of a run so far. ``sizes`` names the sets whose samples are followed, and how many they have."""

    sizes: dict[str, int]
    lines: list[dict[str, Any]] = field(default_factory=list)
    timings: list[dict[str, float]] = field(default_factory=list)
    rows: dict[str, list[NDArray[np.uint8]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rows = {name: self.rows.get(name, []) for name in self.sizes}

    def __len__(self) -> int:
        return len(self.lines)

    def append(self, line: dict[str, Any], timing: dict[str, float], correct: Mapping[str, NDArray[np.bool_]]) -> None:
        """Add an epoch."""
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
        """Time that the first ``epochs`` of them took, or all; 0 where nobody took it, as a recorder does not."""
        return sum(timing.get(name, 0.0) for timing in self.timings[:epochs] for name in TIMED)

    def packed(self, name: str) -> NDArray[np.uint8]:
        width = -(-self.sizes[name] // 8)
        return np.stack(self.rows[name]) if self.rows[name] else np.zeros((0, width), np.uint8)

    def write(self, folder: Path) -> None:
        """Write all three files, each whole or not at all; at no instant has an epoch its line but not its bits."""
        arrays, lines = {name: self.packed(name) for name in self.sizes}, _lines(self.lines)
        _go_back(folder / EPOCHS, lines)
        atomic.write(folder / COVERAGE, array_file.to_bytes(arrays, FORMAT, VERSION, sizes=self.sizes))
        atomic.write(folder / EPOCHS, lines)
        atomic.write(folder / TIMINGS, _lines(self.timings))

    @classmethod
    def read(cls, folder: Path) -> Record:
        """Read and check: every epoch once, in order, in all files."""
        path = folder / COVERAGE
        if not path.exists():
            raise FileNotFoundError(f"{folder} is no record of a run: it has no {COVERAGE}")
        packed, about = array_file.read(path, FORMAT, VERSION)
        sizes = _checked_sizes(path, about.get("sizes"), packed)
        lines = _read_lines(folder / EPOCHS, ("anchors",))
        for place, line in enumerate(lines, 1):
            if line.get("epoch") != place:
                raise ValueError(
                    f"{folder / EPOCHS} line {place} is of epoch {line.get('epoch')}: epoch {place} is missing"
                )
        for name, rows in packed.items():
            if len(rows) < len(lines):
                raise ValueError(
                    f"{path} has {len(rows)} epochs of {name}, but {EPOCHS} has {len(lines)}: it was cut short"
                )
        timings = _read_lines(folder / TIMINGS, TIMED) if (folder / TIMINGS).exists() else []
        return cls(
            sizes, lines, timings[: len(lines)], {name: list(rows[: len(lines)]) for name, rows in packed.items()}
        )

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of it."""
        return {
            "sizes": self.sizes,
            "lines": self.lines,
            "timings": self.timings,
            "rows": {name: self.packed(name) for name in self.sizes},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Record:
        rows = {name: list(np.asarray(values)) for name, values in state["rows"].items()}
        return cls(dict(state["sizes"]), list(state["lines"]), list(state["timings"]), rows)


def _lines(values: list[Any]) -> bytes:
    return "".join(json.dumps(value, sort_keys=True, allow_nan=False) + "\n" for value in values).encode()


def _go_back(path: Path, lines: bytes) -> None:
    """Where epochs are made again that have their lines, leave those before them alone."""
    there = path.read_bytes() if path.exists() else b""
    if not lines.startswith(there):
        pairs = zip(there.splitlines(keepends=True), lines.splitlines(keepends=True))
        atomic.write(path, b"".join(old for old, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))


def _read_lines(path: Path, numbers: tuple[str, ...]) -> list[dict[str, Any]]:
    """Objects, one a line; each has all of these ``numbers`` or none."""
    if not path.exists():
        raise FileNotFoundError(f"{path.parent} is no record of a run: it has no {path.name}")
    try:
        texts = path.read_text("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise _damaged(str(path), "it is no UTF-8 text") from error
    lines = []
    for place, text in enumerate(texts, 1):
        try:
            line = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} line {place} is not JSON: the record was cut short") from error
        if not isinstance(line, dict):
            kind = type(line).__name__
            raise _damaged(f"{path} line {place}", f"it holds {kind}, where an object of named values belongs")
        for name in numbers if any(name in line for name in numbers) else ():
            if not isinstance(line.get(name), int | float) or not math.isfinite(line[name]):
                raise _damaged(f"{path} line {place}", f"{name} is {line.get(name)!r}, where a number belongs")
        lines.append(line)
    return lines


def _checked_sizes(path: Path, sizes: Any, packed: Mapping[str, NDArray[Any]]) -> dict[str, int]:
    """``sizes``, if every set has its size and its bits, and they agree."""
    if not isinstance(sizes, dict) or not all(isinstance(size, int) and size >= 0 for size in sizes.values()):
        raise _damaged(str(path), f"sizes is {sizes!r}, where the number of samples of each set belongs")
    if set(sizes) != set(packed):
        bits, sized = (", ".join(sorted(names)) for names in (packed, sizes))
        raise _damaged(str(path), f"it has bits of {bits}, but sizes of {sized}")
    for name, rows in packed.items():
        width = -(-sizes[name] // 8)
        if rows.dtype != np.uint8 or rows.shape[1:] != (width,):
            found = f"its bits of {name} are {rows.dtype} {list(rows.shape)}"
            raise _damaged(str(path), f"{found}, where {sizes[name]} samples need uint8 [epochs, {width}]")
    return sizes


def _damaged(place: str, what: str) -> ValueError:
    return ValueError(f"{place} is damaged: {what}; put the file back, or make the run again")
