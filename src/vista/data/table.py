"""Read `csv:PATH` and `parquet:PATH`: a table with a label column, and an image, a text or feature columns.

PATH is one file, of which a stratified fifth becomes the test set, or a folder with train, test and optionally val
files (train.csv, test.csv, val.csv).
"""

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vista.core.validation import suggest
from vista.data import features
from vista.data.embedded_images import read_embedded
from vista.data.folder import Decoded, read_listed
from vista.data.source import Source, channel_statistics, default_padding, draw_test_ids
from vista.data.text import TokenizerOptions, tokenize
from vista.noise.label_files import looked_for

PARTS = ("train", "val", "test")
_MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "?")  # in feature columns; a label is missing only if empty
_CSV_FIELD = 2**27  # characters; Python's own limit is 131,072, less than a long text
Columns = dict[str, Sequence[Any]]  # values by column name: text, numbers, booleans, or None


@dataclass(frozen=True)
class Selection:
    """Which columns of a table are what.

    Attributes:
        label: The label column; `label` if not given.
        image: The column of image paths, relative to the table.
        text: The text column.
        tokenizer: How text becomes token ids.
    """

    label: str | None = None
    image: str | None = None
    text: str | None = None
    tokenizer: TokenizerOptions = field(default_factory=TokenizerOptions)

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> "Selection":
        """Make a selection of `label_column`, `image_column`, `text_column`, `network`, `tokenizer`, `max_length`."""
        how = ("network", "tokenizer", "max_length")
        tokenizer = TokenizerOptions(**{name: columns[name] for name in how if name in columns})
        return cls(columns.get("label_column"), columns.get("image_column"), columns.get("text_column"), tokenizer)

    def __post_init__(self) -> None:
        if self.image is not None and self.text is not None:
            raise ValueError(
                f"image_column is {self.image!r} and text_column is {self.text!r}, but a sample is one or the other: "
                "leave out --image-column or --text-column"
            )


@dataclass(frozen=True)
class Table:
    """A table as read, all parts below one another in the order of `PARTS`.

    Attributes:
        path: Its file or folder, for messages and as the folder of image paths.
        columns: Values by column name.
        sizes: Number of rows of each part.
    """

    path: Path
    columns: Columns
    sizes: dict[str, int]

    def column(self, name: str, option: str) -> Sequence[Any]:
        """Return a column; an unknown name raises ``ValueError`` with the nearest one."""
        if name not in self.columns:
            raise ValueError(
                f"{self.path} has no column {name!r}; {suggest(name, list(self.columns))} (set it with {option})"
            )
        return self.columns[name]


def load_csv(path: str | Path, own_validation: bool = True, **options: Any) -> Source:
    """Read a data set from CSV files; see :func:`load_table` for the options."""
    return load_table(read_parts(Path(path), ".csv", read_csv, own_validation), **options)


def load_parquet(path: str | Path, own_validation: bool = True, **options: Any) -> Source:
    """Read a data set from Parquet files; see :func:`load_table` for the options."""
    return load_table(read_parts(Path(path), ".parquet", read_parquet, own_validation), **options)


def read_parts(path: Path, suffix: str, read: Callable[[Path], Columns], own_validation: bool) -> Table:
    """Read one file, or the files train, val and test of a folder, and put them below one another."""
    path = path.expanduser()
    if not path.exists():
        remedy = "" if path.is_absolute() else "; --root can name the folder that contains it"
        raise FileNotFoundError(f"data file {path} does not exist{looked_for(path)}{remedy}")
    if not path.is_dir():
        if not path.is_file():  # a device or FIFO may have no end
            raise ValueError(f"data file {path} must be a regular file")
        columns = read(path)
        return Table(path, columns, {"train": len(next(iter(columns.values())))})
    wanted = [part for part in PARTS if part != "val" or own_validation]
    files = {part: path / f"{part}{suffix}" for part in wanted if (path / f"{part}{suffix}").is_file()}
    if not {"train", "test"} <= set(files):
        missing = "train" if "train" not in files else "test"
        raise FileNotFoundError(f"{path} has no {missing}{suffix}: name one file, or a folder with train and test")
    return join_parts(path, {part: read(file) for part, file in files.items()})


def join_parts(path: Path, parts: dict[str, Columns]) -> Table:
    """Put parts with the same columns below one another."""
    train = parts["train"]
    for part, columns in parts.items():
        differing = sorted(set(train) ^ set(columns))
        if differing:
            missing = part if differing[0] in train else "train"
            raise ValueError(f"{path}: column {differing[0]!r} is missing in {missing}, but all parts need the same")
    ordered = [part for part in PARTS if part in parts]
    columns = {name: [value for part in ordered for value in parts[part][name]] for name in train}
    return Table(path, columns, {part: len(next(iter(parts[part].values()))) for part in ordered})


def read_csv(path: Path) -> Columns:
    """Read a CSV file with a header; every value is text."""
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: not readable as UTF-8: save it as CSV (UTF-8)") from error
    csv.field_size_limit(_CSV_FIELD)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[list[str]] = []
    try:
        header = [name.strip() for name in next(reader, [])]
        _check_header(path, header)
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                raise ValueError(
                    f"{path}, line {reader.line_num}: a row must have {len(header)} fields like the header, "
                    f"got {len(row)}"
                )
            rows.append(row)
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: not readable as CSV: {error}") from error
    _check_rows(path, len(rows))
    return {name: [row[position] for row in rows] for position, name in enumerate(header)}


def read_parquet(path: Path) -> Columns:
    """Read a Parquet file; values keep their types."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError("parquet: data need pyarrow: `pip install 'vista-distill[tables]'`") from error
    try:
        read = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} is not a readable Parquet file: {' '.join(str(error).split())}") from error
    _check_header(path, read.column_names)
    _check_rows(path, read.num_rows)
    return {name: read.column(name).to_pylist() for name in read.column_names}


def _check_header(path: Path, header: Sequence[str]) -> None:
    repeated = next((name for name in header if list(header).count(name) > 1), None)
    if repeated is not None or not header:
        found = "none" if not header else f"{repeated!r} twice"
        raise ValueError(f"{path} must have a header with different column names, got {found}")


def _check_rows(path: Path, count: int) -> None:
    if not count:
        raise ValueError(f"{path} must have at least one row below its header, got none")


def load_table(
    table: Table,
    columns: Mapping[str, Any] | None = None,
    image_size: int | None = None,
    skip_damaged: bool = False,
) -> Source:
    """Make a data set of a table.

    Rows without a label are unlabelled (-1); without a test part, the test set is drawn from labelled rows only.

    Args:
        table: The table.
        columns: Which columns are what, see :meth:`Selection.of`; without an image or text column, all columns but the
            label are features.
        image_size: Working resolution of images; see :func:`vista.data.folder.load`.
        skip_damaged: Whether to leave out rows whose image is damaged.

    Returns:
        The data set.
    """
    chosen = Selection.of(columns or {})
    label = chosen.label or "label"
    labels, classes = encode_labels(table.path, label, table.column(label, "--label-column"))
    ends = np.cumsum([table.sizes.get(part, 0) for part in PARTS])
    has_test = bool(table.sizes.get("test"))
    common: dict[str, Any] = {"name": str(table.path), "classes": classes}
    if image_size is not None and chosen.image is None:
        raise ValueError(
            f"image_size is {image_size}, but no image column is named: add --image-column, or leave it out"
        )
    if chosen.image is not None:
        read, files = _read_images(table, chosen.image, image_size, skip_damaged)
        labels, ends = labels[read.kept], np.searchsorted(read.kept, ends)
        parts = _Parts(table.path, labels, ends, has_test)
        if read.photos is None:
            mean, std = channel_statistics(read.pixels, parts.not_training)
        else:
            mean, std = read.photos.statistics(parts.training)
        names, known = None if files is None else [files[position] for position in read.kept], int(ends[1])
        return Source(
            **common, **parts.split(read.pixels), mean=mean, std=std,
            padding=default_padding(read.pixels) if read.photos is None else 0,
            files=None if names is None else tuple(names[:known]),
            test_files=None if names is None else tuple(names[row] for row in parts.test),
            image_size=read.image_size, image_hashes=None if read.photos is None else read.photos.hashes,
        )  # fmt: skip
    parts = _Parts(table.path, labels, ends, has_test)
    plain: dict[str, Any] = {**common, "mean": (), "std": (), "flip": False, "padding": 0}
    if chosen.text is not None:
        texts = table.column(chosen.text, "--text-column")
        ids, tokenizer = tokenize(as_texts(texts), chosen.tokenizer)
        return Source(**plain, **parts.split(ids), tokenizer=tokenizer)
    given = {name: values for name, values in table.columns.items() if name != label}
    encoding = features.fit(table.path, {name: clean(values) for name, values in given.items()}, parts.training)
    encoded = features.encode(table.path, {name: clean(values) for name, values in given.items()}, encoding)
    return Source(**plain, **parts.split(encoded), encoding=encoding)


def as_texts(values: Sequence[Any]) -> list[str]:
    """Return the texts of a column; a missing one is empty."""
    return ["" if value is None else str(value) for value in values]


def clean(values: Sequence[Any]) -> Sequence[Any]:
    """Return the values of a feature column: numbers where all are numbers, otherwise text, and None where missing."""
    if all(isinstance(value, str) for value in values):
        known = [None if value.strip() in _MISSING else value.strip() for value in values]
        try:
            return [None if value is None else float(value.replace("_", " ")) for value in known]
        except ValueError:
            return known
    return [None if isinstance(value, float) and math.isnan(value) else value for value in values]


def encode_labels(path: Path, name: str, values: Sequence[Any]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Number the classes of a label column, sorted by value if all are integers, otherwise by name.

    Args:
        path: The file, for messages.
        name: The column, for messages.
        values: Text, integers, booleans or None; an empty text, None or NaN means no label.

    Returns:
        Labels, int64 [N], -1 where there is none, and the class names.

    >>> encode_labels(Path("t.csv"), "label", ["dog", "cat", "", "dog"])
    (array([ 1,  0, -1,  1]), ('cat', 'dog'))
    """
    texts = [_label_text(path, name, value) for value in values]
    found = {text for text in texts if text is not None}
    if len(found) < 2:
        only = f"1 ({found.pop()})" if found else "no label"
        raise ValueError(f"{path}: column {name!r} must have at least 2 classes, got {only}")
    try:
        classes = tuple(sorted(found, key=int))
    except ValueError:
        classes = tuple(sorted(found))
    number = {text: position for position, text in enumerate(classes)}
    return np.array([-1 if text is None else number[text] for text in texts], dtype=np.int64), classes


def _label_text(path: Path, name: str, value: Any) -> str | None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, float):
        if not value.is_integer():
            raise ValueError(
                f"{path}: column {name!r} must hold classes, got the number {value}: a classifier needs names or "
                "whole numbers"
            )
        value = int(value)
    if not isinstance(value, str | int):
        raise ValueError(f"{path}: column {name!r} must hold text or whole numbers, got {type(value).__name__}")
    return str(value).strip() or None


def _read_images(
    table: Table, name: str, image_size: int | None, skip_damaged: bool
) -> tuple[Decoded, list[str] | None]:
    """Decode the images of a column: bytes in the table, or paths inside its folder; return the paths as well."""
    contents = embedded_images(table, name)
    if contents is not None:
        return read_embedded(table.path, contents, image_size, skip_damaged), None
    folder, files = image_files(table, name)
    read = read_listed(folder, files, image_size, skip_damaged, base=table.path.resolve())
    return read, [str(file.relative_to(folder)) for file in files]


def embedded_images(table: Table, name: str) -> list[bytes] | None:
    """Return the encoded images of a column; None if it holds paths."""
    values = table.column(name, "--image-column")
    if all(isinstance(value, Mapping) and isinstance(value.get("bytes"), bytes) for value in values):
        return [value["bytes"] for value in values]
    return None


def image_files(table: Table, name: str) -> tuple[Path, list[Path]]:
    """Return the folder of a table, and the image files of a column, all inside of it."""
    folder = (table.path if table.path.is_dir() else table.path.parent).resolve()
    files = []
    for row, value in enumerate(table.column(name, "--image-column")):
        path = value.get("path") if isinstance(value, Mapping) else value
        if not isinstance(path, str) or not path or not (folder / path).resolve().is_relative_to(folder):
            raise ValueError(f"{_where(table, row)}: image {path!r} must be a path inside {folder}")
        if not (folder / path).is_file():
            raise FileNotFoundError(
                f"{_where(table, row)}: image {path} is not in {folder}: paths are relative to the table"
            )
        files.append(folder / path)
    return folder, files


def _where(table: Table, row: int) -> str:
    """Name the file and line of a row for messages, or its number from 1 where the file has no lines."""
    ends = np.cumsum(list(table.sizes.values()))
    part = int(np.searchsorted(ends, row, side="right"))
    row -= int(ends[part - 1]) if part else 0
    name = list(table.sizes)[part]
    files = [table.path / f"{name}{suffix}" for suffix in (".csv", ".parquet")] if table.path.is_dir() else [table.path]
    file = next((each for each in files if each.is_file()), table.path)
    if file.suffix.lower() != ".csv":
        return f"{file}, row {row + 1}"
    with file.open(encoding="utf-8-sig", newline="") as text:
        reader = csv.reader(text)
        lines = [reader.line_num for fields in reader if fields]
    return f"{file}, line {lines[row + 1]}"  # below the header


class _Parts:
    """Rows of a table by part; the test rows are those of the part test, or else a stratified fifth."""

    def __init__(self, path: Path, labels: np.ndarray, ends: np.ndarray, has_test: bool) -> None:
        self.labels = labels
        train, known, total = map(int, ends)
        for start, stop, part in ((0, train, "training"), (train, known, "validation"), (known, total, "test")):
            if stop > start and not (labels[start:stop] >= 0).any():
                raise ValueError(f"{path} has no labelled {part} row: fill in the label column")
        self.validation = np.arange(train, known) if known > train else None
        self.test_ids = None if has_test else draw_test_ids(labels[:known], path)
        self.known = known
        self.test = np.arange(known, total) if self.test_ids is None else self.test_ids
        self.test = self.test[labels[self.test] >= 0]
        self.training = np.setdiff1d(np.arange(train), self.test)
        self.not_training = np.setdiff1d(np.arange(total), self.training)

    def split(self, inputs: np.ndarray) -> dict[str, Any]:
        """Fields of a source."""
        return {
            "inputs": inputs[: self.known],
            "labels": self.labels[: self.known],
            "test_inputs": self._test_inputs(inputs),
            "test_labels": self.labels[self.test],
            "test_ids": self.test_ids,
            "validation": self.validation,
        }

    def _test_inputs(self, inputs: np.ndarray) -> np.ndarray:
        if self.test_ids is not None:
            return inputs
        all_labelled = len(self.test) == len(inputs) - self.known
        return inputs[self.known :] if all_labelled else inputs[self.test]
