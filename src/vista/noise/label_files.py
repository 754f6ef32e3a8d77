"""Labels from files: `.npz` or CSV of any origin, and the human labels of CIFAR-100N."""

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
    """Read labels from an `.npz` or CSV file.

    Args:
        path: `.npz` with the key `labels` (all N, or those of the key `ids`), or CSV `id,label` or `id,label,file`. Ids
            are positions in the data as shipped; -1 means no label.
        true_labels: Labels of the data, [N]; samples that the file does not name keep theirs.
        num_classes: Number of classes.
        names: Names of the classes, to help users who wrote names instead of numbers.
        files: File of each sample. A line that names another file is rejected, because the data have changed.

    Returns:
        Labels, int64 [N].
    """
    path = Path(path).expanduser()
    true = check_labels(true_labels, num_classes)
    if path.is_dir():
        raise ValueError(f"label file must be a .csv or .npz file, but {path} is a folder")
    if not path.is_file():
        raise FileNotFoundError(f"label file {path} does not exist{looked_for(path)}")
    rows = _npz_rows(path, len(true)) if path.suffix.lower() == ".npz" else _csv_rows(path, num_classes, names)
    given, seen = true.copy(), np.zeros(len(true), dtype=bool)
    for where, index, label, file in rows:
        if not 0 <= index < len(true):
            raise ValueError(f"{path}, {where}: id must be 0 to {len(true) - 1}, got {index}")
        if file is not None and files is not None and file not in (files[index], cell(files[index])):
            moved = f"id {index} must be {files[index]}, got {file}: files were added or removed since it was written"
            raise ValueError(f"{path}, {where}: {moved}")
        if seen[index]:
            raise ValueError(f"{path}, {where}: id {index} has a label already")
        if not -1 <= label < num_classes:
            raise ValueError(f"{path}, {where}: label must be 0 to {num_classes - 1}, or -1 for no label, got {label}")
        given[index], seen[index] = label, True
    if not seen.any():
        raise ValueError(f"{path} must have at least one label, got none")
    return given


def looked_for(path: Path) -> str:
    """Format the folder a relative path refers to, for messages: a run may be resumed from another folder."""
    return "" if path.is_absolute() else f" in {Path.cwd()}"


def read_human_labels(true: np.ndarray, num_classes: int, root: str | Path | None) -> np.ndarray:
    """Read the labels of CIFAR-100N; its true labels must equal those of the data, or the order differs."""
    folder = root if root is not None else os.environ.get("VISTA_DATA")
    advice = "get it with `vista data get cifar100n --root DIR`"
    if folder is None:
        raise FileNotFoundError(f"human labels need {HUMAN_FILE}: name its folder by --root or VISTA_DATA, or {advice}")
    parent = Path(folder).expanduser()
    found = [path for pattern in (HUMAN_FILE, f"*/{HUMAN_FILE}") for path in sorted(parent.glob(pattern))]
    if not found:
        raise FileNotFoundError(f"{HUMAN_FILE} is not in {folder} or a folder below it; {advice}")
    arrays = _arrays(found[0], ("clean_label", "noisy_label"))
    for key in ("clean_label", "noisy_label"):
        if key not in arrays:
            raise ValueError(f"{found[0]} has no key {key!r}")
        if len(arrays[key]) != len(true):
            raise ValueError(f"{found[0]}: {key!r} must have {len(true)} entries, got {len(arrays[key])}")
    differing = np.flatnonzero(arrays["clean_label"] != true)
    if len(differing):
        raise ValueError(
            f"{found[0]} belongs to other data or another order: {len(differing)} of its true labels differ from those "
            f"of the data, first sample {differing[0]} ({arrays['clean_label'][differing[0]]}, {true[differing[0]]})"
        )
    return check_labels(arrays["noisy_label"], num_classes)


def check_labels(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Return a copy as int64 [N], or raise an error that names the first label outside 0 to K - 1."""
    array = np.asarray(labels)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"labels must be integers of shape [N], got {array.dtype} of shape {array.shape}")
    wrong = np.flatnonzero((array < 0) | (array >= num_classes))
    if len(wrong):
        raise ValueError(f"labels[{wrong[0]}] must be 0 to {num_classes - 1}, got {array[wrong[0]]}")
    return array.astype(np.int64)


def _arrays(path: Path, keys: Sequence[str]) -> dict[str, np.ndarray]:
    """Read those integer arrays of shape [n] that a `.npz` file has."""
    arrays = read_arrays(path, keys)
    for key, array in arrays.items():
        if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
            raise ValueError(f"{path}: {key!r} must be integers of shape [n], got {array.dtype}, {array.shape}")
    return arrays


def _npz_rows(path: Path, count: int) -> Iterator[tuple[str, int, int, None]]:
    arrays = _arrays(path, ("labels", "ids"))
    if "labels" not in arrays:
        raise ValueError(f"{path} has no key 'labels'")
    labels, ids = arrays["labels"], arrays.get("ids")
    expected = count if ids is None else len(ids)
    if len(labels) != expected:
        why = "one per sample (the key 'ids' may name some)" if ids is None else "as many as 'ids'"
        raise ValueError(f"{path}: 'labels' must have {expected} entries, {why}, got {len(labels)}")
    for row, label in enumerate(labels.tolist()):
        yield f"row {row}", row if ids is None else int(ids[row]), label, None


def _csv_rows(path: Path, num_classes: int, names: Sequence[str]) -> Iterator[tuple[str, int, int, str | None]]:
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: not readable as CSV: {error}") from error
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        header = [name.strip() for name in next(reader, [])]
        if header not in (["id", "label"], ["id", "label", "file"]):
            raise ValueError(f"{path}, line 1: header must be 'id,label' or 'id,label,file', got {','.join(header)!r}")
        for row in reader:
            if not row:
                continue
            where = f"line {reader.line_num}"
            if len(row) != len(header):
                wanted = f"{len(header)} fields ({','.join(header)})"
                raise ValueError(f"{path}, {where}: a row must have {wanted}, got {len(row)}")
            label = _parse_label(row[1], path, where, num_classes, names)
            yield where, _parse_int(row[0], path, where), label, row[2] if len(row) > 2 else None
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num + 1}: not readable as CSV: {error}") from error


def _parse_label(text: str, path: Path, where: str, num_classes: int, names: Sequence[str]) -> int:
    try:
        return _parse_int(text, path, where)
    except ValueError as error:
        name = text.strip()
        number = f"that of {name!r} is {names.index(name)}" if name in names else "as the data set numbers its classes"
        raise ValueError(f"{error}: labels are class numbers 0 to {num_classes - 1}, {number}") from None


def _parse_int(text: str, path: Path, where: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,18}", text.strip()):
        raise ValueError(f"{path}, {where}: {text!r} is not an integer")
    return int(text)
