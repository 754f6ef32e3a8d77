"""Rows of a table for a trained network: encoded as its training data were, without labels."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vista.data import features, hf_dataset, table
from vista.data.decoding import DamagedImage
from vista.data.embedded_images import decode_like
from vista.data.folder import read_files
from vista.data.table import Selection, Table
from vista.data.text import tokenize_like


def read_new_rows(
    kind: str,
    path: Path,
    columns: Mapping[str, Any],
    *,
    encoding: features.Encoding | None,
    tokenizer: dict[str, Any] | None,
    sample_shape: tuple[int, ...],
    image_size: int | None,
    skip_damaged: bool = False,
    test_only: bool = False,
) -> tuple[np.ndarray, list[str] | None, int | None]:
    """Read the rows of a table.

    Args:
        kind: `csv`, `parquet` or `hf`.
        path: The table.
        columns: Which columns are what in the training data; see :meth:`vista.data.table.Selection.of`.
        encoding: How feature columns were encoded.
        tokenizer: How text was tokenised.
        sample_shape: Shape of a network input.
        image_size: Working resolution of photos; None if images were used unchanged.
        skip_damaged: Leave out rows whose image file is damaged.
        test_only: Read only the part test of a table that has one.

    Returns:
        The inputs as the network's data were stored, the file names of images, and the number of rows if only some
        of them were read.
    """
    rows = read_table(kind, path)
    total = None
    if test_only and rows.sizes.get("test"):
        rows, total = _test_part(rows), sum(rows.sizes.values())
    chosen = Selection.of(columns)
    if tokenizer is not None and chosen.text is not None:
        texts = rows.column(chosen.text, "--text-column")
        return tokenize_like(table.as_texts(texts), tokenizer, sample_shape[0]), None, total
    if encoding is not None:
        cleaned = {name: table.clean(values) for name, values in rows.columns.items()}
        return features.encode(path, cleaned, encoding), None, total
    if chosen.image is None:
        raise ValueError(
            f"{path} is a table, but the run was trained on data without columns: name its column of image files with "
            "--image-column, or use another --data"
        )
    contents = table.embedded_images(rows, chosen.image)
    try:
        if contents is not None:
            return decode_like(path, contents, sample_shape, image_size), None, total
        folder, files = table.image_files(rows, chosen.image)
        kept, pixels = read_files(folder, files, sample_shape[0], image_size, skip_damaged)
        return pixels, [str(files[position].relative_to(folder)) for position in kept], total
    except DamagedImage as error:
        raise ValueError(f"{error}; replace it, or remove its row") from error


def read_table(kind: str, path: Path) -> Table:
    """Read all rows of a table, its parts one after the other."""
    if kind == "hf":
        return hf_dataset.read_saved(path)
    return table.read_parts(path, f".{kind}", {"csv": table.read_csv, "parquet": table.read_parquet}[kind], True)


def _test_part(rows: Table) -> Table:
    count = rows.sizes["test"]
    return Table(rows.path, {name: values[-count:] for name, values in rows.columns.items()}, {"test": count})
