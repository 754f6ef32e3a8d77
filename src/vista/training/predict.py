"""Predict the classes of new samples with a trained run; ``vista predict`` calls :func:`predict` too."""

from __future__ import annotations

import dataclasses
import io
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from vista.core.validation import suggest
from vista.data import features, source, table
from vista.data.embedded_images import decode_like
from vista.data.folder import SUFFIXES, count_images, read_files, read_images
from vista.data.new_rows import read_new_rows
from vista.data.npz import SPLIT, validate_inputs
from vista.data.source import Source
from vista.data.text import tokenize_like
from vista.files import shell
from vista.files.npz import names, read_arrays
from vista.runs.description import DataDescription
from vista.runs.folder import RunFolder, Which
from vista.training.evaluate import logits
from vista.training.samples import columns_of, load_source

STDIN = "-"


@dataclass(frozen=True, repr=False, eq=False)
class Predictions:
    """Predicted classes of samples.

    Attributes:
        labels: The predicted class name of each sample.
        probabilities: Probability of each class, float64 ``[n, K]``, in the order of ``classes``.
        classes: The class names.
        ids: Index of each sample in the data.
        files: Its file, if the samples are files.
        temperature: What the logits were divided by; ``None`` if the probabilities are not calibrated.
        total: Number of samples in the data where only the test samples among them were predicted.

    >>> found = Predictions(["cat"], np.array([[0.9, 0.1]]), ("cat", "dog"), [0], None, temperature=1.5)
    >>> found.labels, len(found)
    (['cat'], 1)
    """

    labels: list[str]
    probabilities: NDArray[np.float64]
    classes: tuple[str, ...]
    ids: Sequence[int]
    files: Sequence[str] | None
    temperature: float | None
    total: int | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        counts = Counter(self.labels).most_common()
        shown = ", ".join(f"{name} {count:,}" for name, count in counts[:5]) + (", ..." if len(counts) > 5 else "")
        how = "not calibrated" if self.temperature is None else f"calibrated, temperature {self.temperature:.3g}"
        return f"Predictions({len(self):,} sample{'' if len(self) == 1 else 's'}: {shown}; {how})"

    @property
    def confidences(self) -> NDArray[np.float64]:
        """Probability of the predicted class, ``[n]``."""
        return np.asarray(self.probabilities.max(axis=1))


def predict(
    run: str | Path,
    data: Any,
    which: Which = "best",
    *,
    raw: bool = False,
    device: str = "auto",
    network: str | None = None,
    root: str | Path | None = None,
    image_column: str | None = None,
    skip_damaged: bool = False,
) -> Predictions:
    """Predict the classes of samples, which are preprocessed exactly as those of the training.

    Args:
        run: The run folder.
        data: The samples; labels are not needed.

            - a path: an image file, a folder of images, a table, or an ``.npz`` file with the array ``x``. All of it is
              predicted;
            - data as for the training, such as ``digits``, ``folder:PATH`` or ``csv:PATH``: the test samples, if there
              is a test part or the run was trained on these data;
            - a list of image files, or of Pillow images; for a run on text, a list of texts;
            - an array: ``uint8 [n, H, W, C]`` images, or features;
            - a data frame or a dict of columns, for a run on the columns of a table.
        which: The weights of the best validation epoch, or of the last epoch.
        raw: Return the probabilities of the network itself. By default they are calibrated if the run is.
        device: ``cpu``, ``cuda``, ``cuda:1`` ...; ``auto`` selects CUDA if it is available.
        network: The run's network, required for custom code; see :func:`vista.load_model`.
        root: Folder that contains the data sets.
        image_column: For a table, its column of image files; by default that of the training data.
        skip_damaged: Leave out image files that cannot be decoded, with a warning.

    Returns:
        Class names and probabilities.

    Example:
        >>> found = vista.predict("runs/photos", ["new/a.jpg", "new/b.png"])  # doctest: +SKIP
        >>> found.labels, found.confidences  # doctest: +SKIP
        (['cat', 'dog'], array([0.98, 0.75]))
    """
    folder = RunFolder.open(run)
    samples = read_samples(folder, data, root, image_column, skip_damaged)
    scores = logits(folder, which, samples.inputs, device, network).astype(np.float64)
    temperature = None if raw else folder.temperature(which)
    scores /= temperature or 1.0
    probabilities = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    classes = folder.data().classes
    labels = [classes[best] for best in probabilities.argmax(axis=1)]
    return Predictions(labels, probabilities, classes, samples.ids, samples.files, temperature, samples.total)


# ---------------------------------------------------------------- reading samples


@dataclass(frozen=True, eq=False)
class NewSamples:
    """Samples as they are stored: uint8 images ``[n, H, W, C]``, features or token ids."""

    ids: Sequence[int]
    inputs: NDArray[Any]
    files: Sequence[str] | None = None
    total: int | None = None  # samples in the data, where only the test samples are read


def read_samples(
    run: RunFolder,
    data: Any,
    root: str | Path | None = None,
    image_column: str | None = None,
    skip_damaged: bool = False,
) -> NewSamples:
    """Read samples as a run's own were read; arguments as in :func:`predict`, and ``-`` for lines of stdin."""
    trained = run.data()
    if isinstance(data, str) and data == STDIN:
        data = [line for line in sys.stdin.read().splitlines() if line.strip()]
        if not data:
            raise ValueError("stdin is empty: write one path per line to it")
    if isinstance(data, str | Path):
        return _read_named(run, os.fspath(data), root, image_column, skip_damaged)
    if isinstance(data, Image.Image):
        data = [data]
    if isinstance(data, Mapping) or hasattr(data, "columns"):
        return _counted(_encode_columns(trained, {str(name): list(data[name]) for name in data}))
    if isinstance(data, Sequence):
        return _read_list(trained, list(data), skip_damaged)
    return _counted(_from_array(trained, np.asarray(data)))


def with_kind(data: str, root: str | Path | None = None) -> str:
    """Add the kind to the path of an existing file or folder: ``photos`` becomes ``folder:photos``."""
    found = source.path_of(f"folder:{data}", root)
    if data in source.names() or source.path_of(data) is not None or found is None:
        return data
    path = found[1]
    suffix = path.suffix.lower()
    if suffix in SUFFIXES:
        return f"folder:{data}"
    if path.is_dir():
        is_saved = any((path / name).is_file() for name in ("dataset_dict.json", "dataset_info.json"))
        return f"{'hf' if is_saved else 'folder'}:{data}"
    if path.is_file() and suffix in (".npz", ".csv", ".parquet"):
        return f"{suffix[1:]}:{data}"
    return data


def _counted(inputs: NDArray[Any]) -> NewSamples:
    return NewSamples(range(len(inputs)), inputs)


def _read_list(trained: DataDescription, given: list[Any], skip_damaged: bool) -> NewSamples:
    """Read listed texts, image files or images."""
    if not given:
        raise ValueError("data is empty: it must have at least one sample")
    if trained.tokenizer is not None and all(isinstance(each, str) for each in given):
        return _counted(tokenize_like(given, trained.tokenizer, trained.sample_shape[0]))
    if all(isinstance(each, str | Path) for each in given):
        _check_images(trained)
        files = [Path(each).expanduser().resolve() for each in given]
        for shown, file in zip(given, files, strict=True):
            if not file.is_file():
                raise FileNotFoundError(f"image file {shown} does not exist")
        base = Path(os.path.commonpath([file.parent for file in files]))
        kept, inputs = read_files(base, files, trained.sample_shape[0], trained.image_size, skip_damaged)
        return NewSamples(range(len(kept)), inputs, [os.fspath(given[position]) for position in kept])
    if all(isinstance(each, Image.Image) for each in given):
        _check_images(trained)
        return _counted(_resized(trained, given))
    return _counted(_from_array(trained, np.asarray(given)))


def _check_images(trained: DataDescription) -> None:
    if not trained.is_image:
        raise ValueError(f"data must be samples like those of {trained.name}, which are no images, got image files")


def _resized(trained: DataDescription, images: Sequence[Image.Image]) -> NDArray[Any]:
    """Images in memory, resized as files are."""
    contents = []
    for image in images:
        shown = ImageOps.exif_transpose(image)
        if shown.mode in ("CMYK", "YCbCr", "LAB", "HSV"):  # which PNG does not have
            shown = shown.convert("RGB")
        buffer = io.BytesIO()
        shown.save(buffer, "PNG", compress_level=1)
        contents.append(buffer.getvalue())
    return decode_like(Path("data"), contents, trained.sample_shape, trained.image_size)


def _from_array(trained: DataDescription, values: NDArray[Any]) -> NDArray[Any]:
    """Images or features; photos are resized as files are."""
    inputs = validate_inputs(Path("data"), "x", values)
    if trained.image_size is None:
        return inputs
    if inputs.dtype != np.uint8 or inputs.shape[-1] not in (1, 3):
        raise ValueError(
            "data must be images, uint8 [n, H, W, C] with 1 or 3 channels, as the run was trained on photos, "
            f"got {values.dtype} of shape {values.shape}"
        )
    return _resized(trained, [Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image) for image in inputs])


def _encode_columns(trained: DataDescription, columns: dict[str, list[Any]]) -> NDArray[Any]:
    if trained.encoding is None:
        raise ValueError(f"data are columns of a table, but the run was trained on {trained.name}: use samples like it")
    return features.encode(
        Path("data"), {name: table.clean(values) for name, values in columns.items()}, trained.encoding
    )


def _read_named(
    run: RunFolder, data: str, root: str | Path | None, image_column: str | None, skip_damaged: bool
) -> NewSamples:
    """Read all of a plain path, and of ``KIND:PATH`` or a data set the test samples if it has some."""
    given, data = data, with_kind(data, root)
    is_plain = data != given
    kind, path = source.path_of(data, root) or ("", Path())
    if ":" not in data and data not in source.names() and not Path(data).expanduser().exists():
        advice = suggest(data, [name for name in source.names() if ":" not in name])
        raise FileNotFoundError(f"data {data!r} is neither an existing path nor a data set; {advice}")
    if kind == "folder" and not path.exists():
        remedy = "" if path.is_absolute() else "; --root can name the folder that contains it"
        raise FileNotFoundError(f"{path} does not exist{remedy}")
    trained = run.data()
    if kind == "npz" and path.is_file():  # x alone is enough, without labels
        found = read_arrays(path, ("x",))
        if "x" in found:
            inputs = validate_inputs(path, "x", found["x"])
            return _counted(inputs if trained.image_size is None else _from_array(trained, inputs))
        _check_test_part(path)
    if kind in ("folder", *source.TABLES) and not is_plain and path.exists() and _is_own(run, path):
        return _test_samples(run, _load_own(run, data, root))
    if kind in source.TABLES:
        columns = columns_of(run.config()) | ({} if image_column is None else {"image_column": image_column})
        inputs, named, total = read_new_rows(
            kind, path, columns, encoding=trained.encoding, tokenizer=trained.tokenizer,
            sample_shape=trained.sample_shape, image_size=trained.image_size, skip_damaged=skip_damaged,
            test_only=not is_plain,
        )  # fmt: skip
        return NewSamples(range(len(inputs)), inputs, named, total)
    has_test_part = not is_plain and all((path / part).is_dir() for part in ("train", "test"))
    if kind == "folder" and not has_test_part:
        _check_images(trained)
        files, inputs = read_images(path, trained.sample_shape[0], trained.image_size, skip_damaged)
        return NewSamples(range(len(files)), inputs, files)
    if kind == "folder" and trained.image_size is not None:
        files, inputs = read_images(path / "test", trained.sample_shape[0], trained.image_size, skip_damaged)
        return NewSamples(range(len(files)), inputs, [f"test/{file}" for file in files], count_images(path))
    return _test_samples(run, source.load(data, root, own_validation=False))


def _load_own(run: RunFolder, data: str, root: str | Path | None) -> Source:
    """The data of the run, from the path where they are now; changed data would be split differently."""
    loaded, trained = load_source(dataclasses.replace(run.config(), data=data), root), run.data()
    pairs = ((trained.inputs_hash, loaded.inputs_hash), (trained.test_hash, loaded.test_hash))
    if any(before not in (None, now) for before, now in pairs):
        path = data.partition(":")[2]
        raise ValueError(
            f"{data} has changed since {run.path} was trained on it, so that its test samples are not known: "
            f"{shell.command('--data', path)} predicts all of it"
        )
    return loaded


def _test_samples(run: RunFolder, loaded: Source) -> NewSamples:
    inputs = loaded.test_samples()
    if run.data().image_size is not None and loaded.image_size is None:
        inputs = _from_array(run.data(), inputs)
    if loaded.test_ids is None:
        return NewSamples(range(len(inputs)), inputs, loaded.test_files, len(loaded.inputs) + len(inputs))
    return NewSamples(loaded.test_ids.tolist(), inputs, loaded.test_files, len(loaded.inputs))


def _check_test_part(path: Path) -> None:
    """A file without ``x`` must have test samples."""
    found = names(path)
    if any(name not in found for name in SPLIT):
        listed = ", ".join(found[:5]) + (" ..." if len(found) > 5 else "") or "nothing"
        raise ValueError(f"{path} must contain the array x, got {listed}: save the samples as x")


def _is_own(run: RunFolder, folder: Path) -> bool:
    """Whether the run was trained on this folder or table."""
    config = run.config()
    trained_on = source.path_of(config.data, config.root)
    return trained_on is not None and trained_on[1].resolve() == folder.resolve()
