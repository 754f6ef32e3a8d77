"""One file per method, found by name: put a file here (or a class anywhere, registered), and all tools know it."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import pkgutil
import typing
from dataclasses import dataclass
from typing import Any

from vista.core.validation import IN_WORDS, as_recorded
from vista.methods.base import Batch, EarlierRun, EpochEnd, Family, Method, Task, WholeBatch, WrittenOnce

__all__ = [
    "Batch", "Chosen", "EarlierRun", "EpochEnd", "Method", "Task", "WholeBatch", "WrittenOnce",
    "available", "choose", "register",
]  # fmt: skip

_registered: dict[str, type[Method]] = {}


@dataclass(frozen=True)
class Chosen:
    """A method by its public name, with its options resolved."""

    name: str
    method: type[Method]
    config: Any
    given: dict[str, Any]  # what name and options said; the rest of the config follows from it

    @property
    def options(self) -> dict[str, Any]:
        return dataclasses.asdict(self.config)


def register(method: type[Method]) -> type[Method]:
    """Make a method from outside the package known by its name."""
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
    """Every public name, variants included, and its class; sorted by family, then name."""
    names: dict[str, type[Method]] = {}
    for method in {**_shipped(), **_registered}.values():
        names[method.name] = method
        names.update(dict.fromkeys(method.variants, method))
    rank = {family: place for place, family in enumerate(typing.get_args(Family))}
    return dict(sorted(names.items(), key=lambda item: (rank[item[1].family], item[1].name, item[0] != item[1].name)))


def choose(spec: str, options: dict[str, Any] | None = None) -> Chosen:
    """The method of ``NAME`` or ``NAME:option=value:option=value``; ``options`` (already typed) come on top."""
    name, *pairs = spec.split(":")
    known = available()
    if name not in known:
        nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
        raise ValueError(f"method {name!r} is unknown; nearest is {nearest[0]!r} (`vista methods` lists all)")
    method = known[name]
    values = dict(method.variants.get(name, {}))
    fields = {f.name: f for f in dataclasses.fields(method.Config)}
    hints = typing.get_type_hints(method.Config)
    for pair in pairs:
        key, given, text = pair.partition("=")
        key = key.replace("-", "_")
        if key in fields and not given:
            raise ValueError(f"method {name!r}: option {pair!r} has no value; write it as {pair}=VALUE")
        if key not in fields:
            raise ValueError(
                f"method {name!r} has no option {pair!r}; it takes {', '.join(fields) or 'none'}, as in key=value"
            )
        values[key] = _read(text, hints[key], f"{name}:{key}")
    for key, value in (options or {}).items():
        if key not in fields:
            raise ValueError(f"method {name!r} has no option {key!r}; it takes {', '.join(fields) or 'none'}")
        if hints[key] is bool and not isinstance(value, bool):
            raise ValueError(f"{name}:{key} is {value!r}, but it must be {_in_words(bool)}")
        values[key] = as_recorded(value, hints[key])
    return Chosen(name, method, method.Config(**values), values)


def _read(text: str, hint: Any, name: str) -> Any:
    """An option's text as its field's type."""
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
    raise ValueError(f"{name} is {text!r}, but it must be {' or '.join(map(_in_words, choices))}")


def _in_words(kind: Any) -> str:
    if typing.get_origin(kind) is typing.Literal:
        return f"one of {', '.join(map(str, typing.get_args(kind)))}"
    return IN_WORDS[kind]
