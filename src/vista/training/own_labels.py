"""Labels and splits that replace those of the data: ``--labels``, ``--split-from`` and ``--fold``."""

from __future__ import annotations

import warnings
from collections import defaultdict, deque
from dataclasses import replace
from pathlib import Path

import numpy as np

from vista.data.source import Source
from vista.noise.label_files import read_labels
from vista.runs.config import parse_fold
from vista.runs.folder import RunFolder
from vista.split import stratified

_UNNAMED = -2  # no label of a file


def replace_labels(data: Source, path: str | Path) -> Source:
    """Replace the labels of all samples by those of a file.

    Samples that the file does not name keep their label. The samples of a separate test set follow the others: their
    first id is the number of the other samples. Test samples that lose their label are left out of the test set.

    Args:
        data: The data set.
        path: A file that :func:`vista.noise.label_files.read_labels` reads.

    Returns:
        The data set with the labels of the file.
    """
    count, is_separate = len(data.labels), data.test_ids is None
    known, files = data.labels, data.files
    if is_separate:
        known = np.concatenate([data.labels, data.test_labels])
        files = None if data.files is None else data.files + (data.test_files or ())
    unnamed = np.full(len(known), _UNNAMED, dtype=np.int64)
    labels = read_labels(path, files=files, classes=data.classes, count=len(known), otherwise=unnamed)
    kept = labels == _UNNAMED
    labels = np.where(kept, known, labels)
    data = replace(data, kept_labels=int(kept[:count].sum()))
    if data.test_ids is None:
        tested = labels[count:]
        if (labelled := tested >= 0).all():
            return replace(data, labels=labels[:count], test_labels=tested)
        names = None if data.test_files is None else tuple(np.array(data.test_files, dtype=object)[labelled])
        hashes = data.image_hashes
        if hashes is not None:
            hashes = hashes[:count] + tuple(np.array(hashes[count:], dtype=object)[labelled])
        return replace(
            data, labels=labels[:count], test_labels=tested[labelled], test_inputs=data.test_inputs[labelled],
            test_files=names, image_hashes=hashes,
        )  # fmt: skip
    return _select_test(replace(data, labels=labels), data.test_ids)


def _select_test(data: Source, ids: np.ndarray) -> Source:
    """Test on these samples, except those without a label."""
    ids = np.sort(ids)[data.labels[np.sort(ids)] >= 0]
    names = None if data.files is None else tuple(data.files[sample] for sample in ids)
    return replace(data, test_inputs=data.inputs, test_labels=data.labels[ids], test_ids=ids, test_files=names)


def hold_out_fold(data: Source, fold: str, seed: int) -> Source:
    """Test on one part of all labelled samples, the same parts for every fold.

    Args:
        data: The data set; its own test and validation samples take part like all others, a separate test set does not.
        fold: ``K/N``.
        seed: Seed of the parts.

    Returns:
        The data set with the Kth of N parts, stratified by label, as its test samples.
    """
    number, count = parse_fold(fold)
    remaining, held_out = np.flatnonzero(data.labels >= 0), np.array([], dtype=np.int64)
    for part in range(number):
        left = count - part
        if left == 1:
            held_out = remaining
            break
        parts = stratified(data.labels[remaining], 1 / left, seed + part)
        held_out, remaining = remaining[parts.val], remaining[parts.train]
    return _select_test(replace(data, validation=None), held_out)


def keep_split(data: Source, folder: RunFolder) -> Source:
    """Split the data as an earlier run did.

    Samples are matched by their content, so files may have been moved or renamed since. New samples are trained on.

    Args:
        data: The data set.
        folder: The earlier run.

    Returns:
        The data set whose validation and test samples are those of the run.
    """
    before, split = folder.data(), folder.split()
    count = len(folder.labels().given)
    if before.inputs_hash in (None, data.inputs_hash) and count == len(data.labels):
        position = np.arange(count)
    else:
        position = _match(folder, data)
    outside = np.setdiff1d(np.arange(count), np.concatenate([split.train, split.val]))
    test, val = (position[ids][position[ids] >= 0] for ids in (outside, split.val))
    if not len(val):
        raise ValueError(f"split_from {folder.path}: none of its validation samples is in {data.name}")
    if len(outside) and data.test_ids is not None:
        data = _select_test(data, test)
    return replace(data, validation=np.sort(val))


def _match(folder: RunFolder, data: Source) -> np.ndarray:
    """Position in the data of every sample of the run, -1 where it is missing."""
    hashes = folder.content_hashes()
    if hashes is None:
        raise ValueError(
            f"split_from {folder.path}: the samples of {data.name} are not those of the run, which did not record the "
            "content of its samples: restore the data, or train without --split-from"
        )
    found: dict[str, deque[int]] = defaultdict(deque)
    for sample, content in enumerate(data.sample_hashes):
        found[content].append(sample)
    position = np.array([found[each].popleft() if found[each] else -1 for each in hashes], dtype=np.int64)
    missing, new = int((position < 0).sum()), sum(map(len, found.values()))
    if missing == len(hashes):
        raise ValueError(f"split_from {folder.path}: {data.name} has none of the samples of that run")
    if missing or new:
        warnings.warn(
            f"{missing:,} samples of {folder.path} are missing in {data.name}; {new:,} new ones are trained on",
            stacklevel=3,
        )
    return position
