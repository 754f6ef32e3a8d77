"""The training methods, one file each, found by name."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
import typing
from dataclasses import dataclass
from typing import Any

from vista.core.validation import IN_WORDS, as_recorded, suggest
from vista.methods.base import Batch, EarlierRun, EpochEnd, Family, Method, Task, WholeBatch, WrittenOnce

__all__ = [
    "Batch", "Chosen", "EarlierRun", "EpochEnd", "Method", "Task", "WholeBatch", "WrittenOnce",
    "available", "choose", "register",
]  # fmt: skip

_registered: dict[str, type[Method]] = {}


@dataclass(frozen=True)
class Chosen:
    """A method and its options, as returned by :func:`choose`."""

    name: str
    method: type[Method]
    config: Any
    given: dict[str, Any]  # the options set by the name, the spec and the caller; the others are defaults

    @property
    def options(self) -> dict[str, Any]:
        return dataclasses.asdict(self.config)


def register(method: type[Method]) -> type[Method]:
    """Register a custom method under its ``name`` and its variants, for this process.

    Args:
        method: A subclass of :class:`Method`.

    Returns:
        ``method``, so that this works as a class decorator.

    Example:
        >>> @register  # doctest: +SKIP
        ... class Flat(Method):
        ...     name = "flat"
        ...     ...
    """
    _registered[method.name] = method
    return method


@functools.cache
def _shipped() -> dict[str, type[Method]]:
    found: dict[str, type[Method]] = {}
    for module in pkgutil.iter_modules(__path__):
        if module.name == "base":
            continue
        for value in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Method) and value is not Method and "name" in vars(value):
                found[value.name] = value
    return found


def available() -> dict[str, type[Method]]:
    """List the methods by name.

    Returns:
        The class of every name, variants included, sorted by family, then by name.

    Example:
        >>> available()["ps-kd-beta"].name
        'ps-kd'
    """
    names: dict[str, type[Method]] = {}
    for method in {**_shipped(), **_registered}.values():
        names[method.name] = method
        names.update(dict.fromkeys(method.variants, method))
    rank = {family: number for number, family in enumerate(typing.get_args(Family))}
    return dict(sorted(names.items(), key=lambda item: (rank[item[1].family], item[1].name, item[0] != item[1].name)))


def choose(spec: str, options: dict[str, Any] | None = None) -> Chosen:
    """Look up a method and resolve its options.

    Args:
        spec: ``NAME`` or ``NAME:option=value:option=value``.
        options: Options as Python values; they override those of ``spec``.

    Returns:
        The method's name, its class and its validated ``Config``.

    Example:
        >>> choose("elr:weight=3").options
        {'weight': 3.0, 'momentum': 0.9}
    """
    name, *pairs = spec.split(":")
    known = available()
    if name not in known:
        raise ValueError(f"method {name!r} is unknown; {suggest(name, list(known))} (`vista methods` describes them)")
    method = known[name]
    hints = typing.get_type_hints(method.Config)
    texts = {key.replace("-", "_"): text for key, _, text in (pair.partition("=") for pair in pairs)}
    options = options or {}
    fields = [field.name for field in dataclasses.fields(method.Config)]
    for key in (*texts, *options):
        if key not in fields:
            raise ValueError(f"method {name!r} has no option {key!r}; its options are {', '.join(fields) or 'none'}")
    values = dict(method.variants.get(name, {}))
    values |= {key: _parse(text, hints[key], f"{name}:{key}") for key, text in texts.items()}
    for key, value in options.items():
        if hints[key] is bool and not isinstance(value, bool):
            raise ValueError(f"{name}:{key} must be {_describe_type(bool)}, got {value!r}")
        values[key] = as_recorded(value, hints[key])
    return Chosen(name, method, method.Config(**values), values)


def _parse(text: str, hint: Any, name: str) -> Any:
    """Convert the text of an option to the type of its field."""
    choices = [hint] if typing.get_origin(hint) is typing.Literal else list(typing.get_args(hint) or (hint,))
    for choice in choices:
        if typing.get_origin(choice) is typing.Literal:
            if text in typing.get_args(choice):
                return text
        elif choice is bool and text.lower() in ("true", "false"):
            return text.lower() == "true"
        elif choice is type(None) and text.lower() == "none":
            return None
        elif choice in (int, float):
            try:
                return choice(text)
            except ValueError:
                continue
        elif choice is str:
            return text
    raise ValueError(f"{name} must be {' or '.join(map(_describe_type, choices))}, got {text!r}")


def _describe_type(kind: Any) -> str:
    if typing.get_origin(kind) is typing.Literal:
        return f"one of {', '.join(map(str, typing.get_args(kind)))}"
    return IN_WORDS[kind]
