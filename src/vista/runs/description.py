"""The typed content of ``data.json``: what a run was trained on."""

from __future__ import annotations

import dataclasses
import math
import typing
from dataclasses import dataclass
from typing import Any

FORMAT = 1
REQUIRED = ("name", "classes", "sample_shape", "mean", "std")
HASHES = ("inputs_hash", "labels_hash", "split_hash", "test_hash")  # in the order in which changes are reported


@dataclass(frozen=True)
class DataDescription:
    """Class names, shapes, preprocessing and hashes of a run's data.

    Attributes:
        name: The data set, as in ``--data``.
        classes: Class names, in the order of the class numbers.
        sample_shape: Shape of one sample as the network receives it.
        network: The network's name, ``auto`` already resolved.
        samples: Number of samples by part: ``train``, ``val``, ``test``.
        noise_rate: Share of the given training labels that differ from the labels of the data set.
        mean, std: Normalisation per channel; empty for features.
        flip, padding: The data set's own augmentation.
        inputs_hash, labels_hash, split_hash, test_hash: Hashes; ``None`` in runs recorded before they existed.
        files: File name of each sample by id, for data read from a folder.
        image_size: Working resolution of photos, which were resized to it; ``None`` for other data.
        backbone: Architecture of a network of transformers or timm; see :class:`vista.models.Backbone`.
        encoding: How the columns of a table became features; see :mod:`vista.data.features`.
        tokenizer: ``name``, ``max_length`` and ``pad_id`` of the tokenizer of text.
    """

    name: str
    classes: tuple[str, ...]
    sample_shape: tuple[int, ...]
    network: str = "auto"
    samples: dict[str, int] = dataclasses.field(default_factory=dict)
    noise_rate: float = 0.0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    flip: bool = False
    padding: int = 0
    inputs_hash: str | None = None
    labels_hash: str | None = None
    split_hash: str | None = None
    test_hash: str | None = None
    files: tuple[str, ...] | None = None
    image_size: int | None = None
    backbone: dict[str, Any] | None = None
    encoding: dict[str, Any] | None = None
    tokenizer: dict[str, Any] | None = None

    @property
    def is_image(self) -> bool:
        """Whether the samples are images, which are normalised per channel, or feature vectors."""
        return bool(self.mean)

    def to_json(self) -> dict[str, Any]:
        """The JSON object of ``data.json``; fields without a value are left out."""
        values = {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
        lists = {name: list(value) for name, value in values.items() if isinstance(value, tuple)}
        return {"format": FORMAT, **values, **lists}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> DataDescription:
        """Read what :meth:`to_json` wrote; a missing or malformed field raises ``ValueError`` with its name."""
        if values.get("format") != FORMAT:
            raise ValueError(f"format is {values.get('format')!r}, but this version reads {FORMAT}")
        read: dict[str, Any] = {}
        for item in dataclasses.fields(cls):
            hint = _HINTS[item.name]
            if item.name in REQUIRED and item.name not in values:
                raise ValueError(f"{item.name} is missing")
            if item.name in values:
                read[item.name] = _checked(item.name, values[item.name], hint)
        return cls(**read)


_HINTS = typing.get_type_hints(DataDescription)


def _checked(name: str, value: Any, hint: Any) -> Any:
    """``value`` as the type of its field."""
    kinds = [kind for kind in (typing.get_args(hint) if hint in _OPTIONAL else (hint,)) if kind is not type(None)]
    kind, arguments = typing.get_origin(kinds[0]) or kinds[0], typing.get_args(kinds[0])
    if kind is tuple and isinstance(value, list) and all(_is_a(each, arguments[0]) for each in value):
        return tuple(value)
    if kind is dict and isinstance(value, dict) and all(_is_a(each, arguments[1]) for each in value.values()):
        return dict(value)
    if kind not in (tuple, dict) and _is_a(value, kind):
        return value
    raise ValueError(f"{name} has an unusable value: {str(value)[:80]!r}")


_OPTIONAL = {str | None, int | None, tuple[str, ...] | None, dict[str, Any] | None}


def _is_a(value: Any, kind: Any) -> bool:
    if kind is Any:
        return True
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
