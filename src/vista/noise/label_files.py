"""Labels from files: `.npz` or CSV of any origin, and the human labels of CIFAR-100N."""

import csv
import io
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath

import numpy as np

from vista.core.validation import suggest
from vista.files.npz import read_arrays
from vista.files.spreadsheet import cell

HUMAN_FILE = "cifar-100n.npz"


def read_labels(
    path: str | Path,
    *,
    files: Sequence[str] | None,
    classes: Sequence[str],
    count: int,
    otherwise: np.ndarray | None = None,
) -> np.ndarray:
    """Read labels, by id or by file name, as class numbers or class names.

    A CSV file has a header with a column ``label`` and a column ``id`` or ``file``; other columns are ignored. Where
    the class names are themselves numbers, ``class`` (names) or ``number`` instead of ``label`` says which is meant.
    With both ``id`` and ``file``, a line whose file is not that of its id is rejected, because the data have changed.
    An empty label, or -1, means no label. A ``.npz`` file has the array ``labels`` for all samples, or for those of
    ``ids`` or ``files``.

    Args:
        path: The file.
        files: File of each sample, ``[count]``, or None if the samples are not files. A bare file name is enough where
            it is unique.
        classes: Class names; those of plain numbers are ``("0", "1", ...)``.
        count: Number of samples.
        otherwise: Labels ``[count]`` of the samples that the file does not name; by default they have none.

    Returns:
        Labels, int64 ``[count]``; -1 where there is none.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "labels.csv").write_text("file,label\\nb.png,dog\\na.png,0\\n")
    ...     read_labels(Path(folder, "labels.csv"), files=["a.png", "b.png", "c.png"], classes=["cat", "dog"], count=3)
    array([ 0,  1, -1])
    """
    path = Path(path).expanduser()
    if path.is_dir():
        raise ValueError(f"label file must be a .csv or .npz file, but {path} is a folder")
    if not path.is_file():
        raise FileNotFoundError(f"label file {path} does not exist{looked_for(path)}")
    named = _Files(path, files)
    rows = _npz_rows(path, count, classes) if path.suffix.lower() == ".npz" else _csv_rows(path, classes)
    given = np.full(count, -1, dtype=np.int64) if otherwise is None else otherwise.astype(np.int64)
    seen = np.zeros(count, dtype=bool)
    for where, index, label, file in rows:
        if index is None:
            assert file is not None
            index = named.find(where, file)
        elif not 0 <= index < count:
            raise ValueError(f"{path}, {where}: id must be 0 to {count - 1}, got {index}")
        elif file is not None and files is not None and file not in (files[index], cell(files[index])):
            moved = f"id {index} must be {files[index]}, got {file}: files were added or removed since it was written"
            raise ValueError(f"{path}, {where}: {moved}")
        if seen[index]:
            which = f"id {index}" if file is None else f"{file} (id {index})"
            raise ValueError(f"{path}, {where}: {which} has a label already")
        if not -1 <= label < len(classes):
            raise ValueError(f"{path}, {where}: label must be 0 to {len(classes) - 1}, or -1 for no label, got {label}")
        given[index], seen[index] = label, True
    if not seen.any():
        raise ValueError(f"{path} must have at least one label, got none")
    return given


def read_label_file(
    path: str | Path,
    true_labels: np.ndarray,
    num_classes: int,
    names: Sequence[str] = (),
    files: Sequence[str] | None = None,
) -> np.ndarray:
    """Read the labels of ``--noise file:PATH``; see :func:`read_labels`.

    Args:
        path: The file.
        true_labels: Labels of the data, [N], -1 for none; samples that the file does not name keep theirs.
        num_classes: Number of classes.
        names: Names of the classes; the class numbers by default.
        files: File of each sample.

    Returns:
        Labels, int64 [N].
    """
    true = check_labels(true_labels, num_classes, missing=True)
    classes = tuple(names) or tuple(map(str, range(num_classes)))
    return read_labels(path, files=files, classes=classes, count=len(true), otherwise=true)


def _nearest(name: str, known: Sequence[str]) -> str:
    """Format a suggestion for messages, or a short list of what is known."""
    advice = suggest(name, known) if len(known) <= 2000 else ""  # comparing a name with very many takes seconds
    return f"; {advice}" if advice.startswith("did") or len(known) <= 20 else ""


class _Files:
    """Positions of samples by file: the path in the data, or the bare name where it is unique."""

    def __init__(self, path: Path, files: Sequence[str] | None) -> None:
        self.path, self.files = path, files

    @cached_property
    def positions(self) -> dict[str, int]:
        bare = [PurePosixPath(file).name for file in self.files or ()]
        unique = Counter(bare)
        found = {name: position for position, name in enumerate(bare) if unique[name] == 1}
        for spelled in (cell, str):  # a spreadsheet-safe file quotes some names
            found |= {spelled(file): position for position, file in enumerate(self.files or ())}
        return found

    def find(self, where: str, file: str) -> int:
        if self.files is None:
            raise ValueError(f"{self.path}, {where}: the samples of these data are not files: use a column id")
        position = self.positions.get(file.removeprefix("./"))
        if position is None:
            raise ValueError(f"{self.path}, {where}: file {file!r} is not in the data{_nearest(file, self.files)}")
        return position


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


def check_labels(labels: np.ndarray, num_classes: int, missing: bool = False) -> np.ndarray:
    """Return a copy as int64 [N], or raise an error that names the first label outside 0 to K - 1.

    With ``missing``, -1 means that a sample has no label.
    """
    array = np.asarray(labels)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"labels must be integers of shape [N], got {array.dtype} of shape {array.shape}")
    wrong = np.flatnonzero((array < (-1 if missing else 0)) | (array >= num_classes))
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


_Row = tuple[str, int | None, int, str | None]  # where it is, id, label and file


def _npz_rows(path: Path, count: int, classes: Sequence[str]) -> Iterator[_Row]:
    arrays = read_arrays(path, ("labels", "ids", "files"))
    if "labels" not in arrays:
        raise ValueError(f"{path} has no key 'labels'")
    for key, array in arrays.items():
        kinds = {"labels": "iuU", "ids": "iu", "files": "U"}[key]
        if array.ndim != 1 or array.dtype.kind not in kinds:
            wanted = {"labels": "integers or text", "ids": "integers", "files": "text"}[key]
            raise ValueError(f"{path}: {key!r} must be {wanted} of shape [n], got {array.dtype}, {array.shape}")
    labels = arrays["labels"]
    keys = [key for key in ("ids", "files") if key in arrays]
    expected = len(arrays[keys[0]]) if keys else count
    if len(labels) != expected:
        why = f"as many as {keys[0]!r}" if keys else "one per sample (the key 'ids' may name some)"
        raise ValueError(f"{path}: 'labels' must have {expected} entries, {why}, got {len(labels)}")
    ids = arrays["ids"].tolist() if "ids" in arrays else None if keys else range(count)
    files = arrays["files"].tolist() if "files" in arrays else None
    known = _numbers(classes)
    for row, value in enumerate(labels.tolist()):
        where = f"row {row}"
        label = _parse_label(value, "class", f"{path}, {where}", classes, known) if isinstance(value, str) else value
        yield where, None if ids is None else ids[row], label, None if files is None else files[row]


def _csv_rows(path: Path, classes: Sequence[str]) -> Iterator[_Row]:
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: not readable as CSV: {error}") from error
    reader, known = csv.reader(io.StringIO(text, newline="")), _numbers(classes)
    try:
        header = [name.strip() for name in next(reader, [])]
        kinds = [name for name in ("label", "class", "number") if name in header]
        if len(kinds) != 1 or not {"id", "file"} & set(header):
            raise ValueError(
                f"{path}, line 1: header must have a column label and a column id or file, got {','.join(header)!r}"
            )
        for row in reader:
            if not row:
                continue
            where = f"line {reader.line_num}"
            if len(row) != len(header):
                wanted = f"{len(header)} fields ({','.join(header)})"
                raise ValueError(f"{path}, {where}: a row must have {wanted}, got {len(row)}")
            values = dict(zip(header, row, strict=True))
            label = _parse_label(values[kinds[0]], kinds[0], f"{path}, {where}", classes, known)
            index = _parse_int(values["id"], path, where) if "id" in values else None
            yield where, index, label, values.get("file")
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num + 1}: not readable as CSV: {error}") from error


def are_ambiguous(classes: Sequence[str]) -> bool:
    """Whether a class has the number of another one as its name."""
    return any(_is_integer(name) and int(name) != number for number, name in enumerate(classes))


def are_words(classes: Sequence[str]) -> bool:
    """Whether a label file can hold these names: none looks like a number, and each is read back as its own class."""
    known = _numbers(classes)
    return bool(classes) and all(
        not _looks_like_number(name) and known.get(cell(name).strip()) == number for number, name in enumerate(classes)
    )


def _looks_like_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return not name.strip()
    return True


def _numbers(classes: Sequence[str]) -> dict[str, int]:
    """Class numbers by name, and by the name as a spreadsheet-safe file quotes it."""
    return {spelled(name): number for spelled in (cell, str) for number, name in enumerate(classes)}


def _parse_label(text: str, kind: str, where: str, classes: Sequence[str], known: dict[str, int]) -> int:
    """Parse a class number or name; `kind` is the column: label (either), class (a name) or number."""
    name = text.strip()
    if not name or name == "-1":
        return -1
    number = int(name) if _is_integer(name) else None
    named = known.get(name) if kind != "number" else None
    if kind == "label" and named is not None and number not in (None, named) and 0 <= number < len(classes):
        raise ValueError(
            f"{where}: label {name} is the number of class {classes[number]!r} and the name of class number {named}: "
            "rename the column to class if it holds names, or to number"
        )
    if named is not None:
        return named
    if kind != "class" and number is not None:
        return number
    if kind == "number":
        raise ValueError(f"{where}: {text!r} is not an integer")
    raise ValueError(f"{where}: {text!r} is no class and no class number{_nearest(name, classes)}")


def _is_integer(text: str) -> bool:
    return re.fullmatch(r"-?[0-9]{1,18}", text) is not None


def _parse_int(text: str, path: Path, where: str) -> int:
    if not _is_integer(text.strip()):
        raise ValueError(f"{path}, {where}: {text!r} is not an integer")
    return int(text)
