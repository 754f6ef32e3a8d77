"""Labels that come from a file: anybody's `.npz` or CSV, and the human labels of CIFAR-100N."""

import csv
import io
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from vista.files.npz import read_arrays
from vista.files.spreadsheet import cell

HUMAN_FILE = "cifar-100n.npz"


def read_label_file(
    path: str | Path,
    true_labels: np.ndarray,
    num_classes: int,
    names: Sequence[str] = (),
    files: Sequence[str] | None = None,
) -> np.ndarray:
    """Labels from `.npz` (key `labels`, all N or those of key `ids`) or CSV `id,label` or `id,label,file`; int64 [N].

    Ids are positions in the data as shipped; samples not named keep their label; -1 means no label.
    `names` are those of the classes, for whoever wrote them in place of their numbers. `files` says where each sample
    lies: a line that is about another file than its id is refused, because the data have changed.
    """
    path = Path(path).expanduser()
    true = checked_labels(true_labels, num_classes)
    if path.is_dir():
        raise ValueError(f"label file {path} is a folder, but a .csv or .npz file is needed")
    if not path.is_file():
        raise FileNotFoundError(f"label file {path} does not exist{looked_for(path)}")
    rows = _npz_rows(path, len(true)) if path.suffix.lower() == ".npz" else _csv_rows(path, num_classes, names)
    given, seen = true.copy(), np.zeros(len(true), dtype=bool)
    for place, index, label, file in rows:
        if not 0 <= index < len(true):
            raise ValueError(f"{path}, {place}: id is {index}, but there are {len(true)} samples (0..{len(true) - 1})")
        if file is not None and files is not None and file not in (files[index], cell(files[index])):
            said = f"id {index} is {files[index]} now, but the line is about {file}: files have come or gone"
            raise ValueError(f"{path}, {place}: {said}")
        if seen[index]:
            raise ValueError(f"{path}, {place}: id {index} has a label already")
        if not -1 <= label < num_classes:
            raise ValueError(f"{path}, {place}: label is {label}, but num_classes is {num_classes} (-1 means no label)")
        given[index], seen[index] = label, True
    if not seen.any():
        raise ValueError(f"{path} holds no labels")
    return given


def looked_for(path: Path) -> str:
    """Where a relative path led, as the end of a sentence: a run may be resumed from another folder."""
    return "" if path.is_absolute() else f" in {Path.cwd()}"


def read_human_labels(true: np.ndarray, num_classes: int, root: str | Path | None) -> np.ndarray:
    """CIFAR-100N's labels, only if its idea of the true ones agrees with the data: another order would be nonsense."""
    place = root if root is not None else os.environ.get("VISTA_DATA")
    advice = "get it with `vista data get cifar100n --root DIR`"
    if place is None:
        raise FileNotFoundError(f"human labels need {HUMAN_FILE}: say where with --root or VISTA_DATA, or {advice}")
    below = Path(place).expanduser()
    found = [path for pattern in (HUMAN_FILE, f"*/{HUMAN_FILE}") for path in sorted(below.glob(pattern))]
    if not found:
        raise FileNotFoundError(f"{HUMAN_FILE} is not in {place}, nor in a folder there; {advice}")
    arrays = _arrays(found[0], ("clean_label", "noisy_label"))
    for key in ("clean_label", "noisy_label"):
        if key not in arrays:
            raise ValueError(f"{found[0]} has no key {key!r}")
        if len(arrays[key]) != len(true):
            raise ValueError(f"{found[0]}: {key!r} has {len(arrays[key])} entries, but there are {len(true)} samples")
    differing = np.flatnonzero(arrays["clean_label"] != true)
    if len(differing):
        raise ValueError(
            f"{found[0]} belongs to other data or another order: {len(differing)} of its true labels differ from those "
            f"shipped, the first at sample {differing[0]} ({arrays['clean_label'][differing[0]]}, {true[differing[0]]})"
        )
    return checked_labels(arrays["noisy_label"], num_classes)


def checked_labels(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """A copy as int64 [N], or an error that names the first label outside 0..K-1."""
    array = np.asarray(labels)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"labels must be integers of shape [N], but they are {array.dtype} of shape {array.shape}")
    wrong = np.flatnonzero((array < 0) | (array >= num_classes))
    if len(wrong):
        raise ValueError(f"labels[{wrong[0]}] is {array[wrong[0]]}, but num_classes is {num_classes}")
    return array.astype(np.int64)


def _arrays(path: Path, keys: Sequence[str]) -> dict[str, np.ndarray]:
    """The integer arrays of shape [n] under those of `keys` that a `.npz` file has."""
    arrays = read_arrays(path, keys)
    for key, array in arrays.items():
        if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
            raise ValueError(
                f"{path}: {key!r} must be integers of shape [n], but is {array.dtype} of shape {array.shape}"
            )
    return arrays


def _npz_rows(path: Path, count: int) -> Iterator[tuple[str, int, int, None]]:
    arrays = _arrays(path, ("labels", "ids"))
    if "labels" not in arrays:
        raise ValueError(f"{path} has no key 'labels'")
    labels, ids = arrays["labels"], arrays.get("ids")
    expected = count if ids is None else len(ids)
    if len(labels) != expected:
        against = f"there are {count} samples (key 'ids' may name some)" if ids is None else f"'ids' has {expected}"
        raise ValueError(f"{path}: 'labels' has {len(labels)} entries, but {against}")
    for row, label in enumerate(labels.tolist()):
        yield f"row {row}", row if ids is None else int(ids[row]), label, None


def _csv_rows(path: Path, num_classes: int, names: Sequence[str]) -> Iterator[tuple[str, int, int, str | None]]:
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: no readable CSV: {error}") from error
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        header = [name.strip() for name in next(reader, [])]
        if header not in (["id", "label"], ["id", "label", "file"]):
            said = ",".join(header)
            raise ValueError(f"{path}, line 1: the header is {said!r}, but it must be 'id,label' or 'id,label,file'")
        for row in reader:
            if not row:
                continue
            place = f"line {reader.line_num}"
            if len(row) != len(header):
                wanted = f"{len(header)} ({','.join(header)})"
                raise ValueError(f"{path}, {place}: {len(row)} fields, but there must be {wanted}")
            label = _label(row[1], path, place, num_classes, names)
            yield place, _integer(row[0], path, place), label, row[2] if len(row) > 2 else None
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num + 1}: no readable CSV: {error}") from error


def _label(text: str, path: Path, place: str, num_classes: int, names: Sequence[str]) -> int:
    try:
        return _integer(text, path, place)
    except ValueError as error:
        name = text.strip()
        number = f"that of {name!r} is {names.index(name)}" if name in names else "as the data set numbers its classes"
        raise ValueError(f"{error}: labels are class numbers 0 to {num_classes - 1}, {number}") from None


def _integer(text: str, path: Path, place: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,18}", text.strip()):
        raise ValueError(f"{path}, {place}: {text!r} is no integer")
    return int(text)
