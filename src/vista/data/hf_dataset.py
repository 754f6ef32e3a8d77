"""Read `hf:PATH`: a dataset of Hugging Face, as `save_to_disk` writes it."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vista.data.source import Source
from vista.data.table import Columns, Table, join_parts, load_table
from vista.noise.label_files import looked_for

_PARTS = {"train": "train", "validation": "val", "val": "val", "valid": "val", "test": "test"}


def load(path: str | Path, own_validation: bool = True, **options: Any) -> Source:
    """Read a saved ``Dataset``, or a ``DatasetDict`` with the splits train, test and optionally validation.

    Args:
        path: The folder.
        own_validation: Whether to read the validation split.
        **options: See :func:`vista.data.table.load_table`. A column of type ``Image`` is an image column.

    Returns:
        The data set.
    """
    return load_table(read_saved(Path(path), own_validation), **options)


def read_saved(path: Path, own_validation: bool = True) -> Table:
    """Read the columns of a saved dataset; see :func:`load`."""
    folder = path.expanduser()
    if not folder.is_dir():
        remedy = "" if folder.is_absolute() else "; --root can name the folder that contains it"
        raise FileNotFoundError(f"dataset folder {folder} does not exist{looked_for(folder)}{remedy}")
    load_from_disk = _datasets().load_from_disk
    try:
        saved = load_from_disk(str(folder))
    except (FileNotFoundError, ValueError, KeyError) as error:
        raise ValueError(f"{folder} is not a dataset that save_to_disk wrote: {error}") from error
    if not isinstance(saved, Mapping):
        return Table(folder, read_columns(saved), {"train": len(saved)})
    parts = {_PARTS[name]: read_columns(part) for name, part in saved.items() if name in _PARTS}
    if not own_validation:
        parts.pop("val", None)
    if "train" not in parts:
        raise ValueError(f"{folder} must have the split train, got {', '.join(saved)}")
    return join_parts(folder, parts)


def _datasets() -> Any:
    try:
        import datasets
    except ImportError as error:
        raise ImportError("hf: data need the library datasets: `pip install 'vista-distill[datasets]'`") from error
    return datasets


def read_columns(dataset: Any) -> Columns:
    """Return the columns of a ``datasets.Dataset``: class labels as names, images as their encoded bytes."""
    library = _datasets()
    columns: Columns = {}
    for name, feature in dataset.features.items():
        if isinstance(feature, library.Image):
            dataset = dataset.cast_column(name, library.Image(decode=False))
    for name, feature in dataset.features.items():
        values = list(dataset.with_format(None)[name])
        if isinstance(feature, library.ClassLabel):
            names = feature.names
            values = [None if value is None or value < 0 else names[value] for value in values]
        columns[name] = values
    return columns


def store(dataset: Any, folder: Path) -> str:
    """Save a dataset object once, so that a run on it can be resumed, and return it as `hf:PATH`.

    Args:
        dataset: A ``datasets.Dataset`` or ``DatasetDict``.
        folder: Where to save it, in a folder named after its content.

    Returns:
        The name for ``data``.
    """
    parts = dataset.values() if isinstance(dataset, Mapping) else (dataset,)
    digest = hashlib.sha256("\0".join(part._fingerprint for part in parts).encode()).hexdigest()[:16]
    path = folder / digest
    if not path.exists():
        unfinished = folder / f"{digest}.tmp"
        dataset.save_to_disk(str(unfinished))
        unfinished.rename(path)
    return f"hf:{path}"
