"""Networks by name. A family is a file here with a table ``NETWORKS`` of names and factories."""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from vista.models import vit
from vista.models.dropout import set_generator
from vista.models.staged import Staged

__all__ = ["SQUARE_ONLY", "Staged", "build", "names", "seeded", "set_generator"]

Factory = Callable[..., object]


def _collect() -> dict[str, Factory]:
    networks: dict[str, Factory] = {}
    for file in pkgutil.iter_modules(__path__):
        family = importlib.import_module(f"{__name__}.{file.name}")
        networks.update(getattr(family, "NETWORKS", {}))
    return networks


_NETWORKS = _collect()
SQUARE_ONLY = frozenset(vit.NETWORKS)  # patches have places in a square; the others pool, whatever the sides


def names() -> tuple[str, ...]:
    """Every name that ``build`` knows, sorted."""
    return tuple(sorted(_NETWORKS))


def build(name: str, *, num_classes: int, in_channels: int = 3, image_size: int = 32, seed: int = 0) -> nn.Module:
    """The network of that name, float32 and on the CPU, its weights a function of the seed alone.

    ``name`` may also be ``package.module:function``. That function is called with ``num_classes``, and with
    ``in_channels`` and ``image_size`` where they are among its parameters. No random state outside is touched.
    """
    sizes = {"num_classes": num_classes, "in_channels": in_channels, "image_size": image_size}
    for argument, value in sizes.items():
        if value < 1:
            raise ValueError(f"{argument} is {value}, but it must be at least 1")
    with seeded(seed):
        network = _made_by(name, sizes) if is_from_outside(name) else _known(name)(**sizes)
    if not isinstance(network, nn.Module):
        raise ValueError(f"network {name!r} returned {type(network).__name__}, but an nn.Module is needed")
    return network.to(device="cpu", dtype=torch.float32)


def is_from_outside(name: str) -> bool:
    """Whether a function of somebody else's makes the network."""
    return ":" in name


def _known(name: str) -> Factory:
    if name in _NETWORKS:
        return _NETWORKS[name]
    near = difflib.get_close_matches(name.lower().replace("_", "-"), names(), n=1, cutoff=0.0)[0]
    raise ValueError(
        f"no network is named {name!r}; did you mean {near!r}? Known: {', '.join(names())}, or package.module:function"
    )


def _made_by(name: str, sizes: dict[str, int]) -> object:
    """What the function that ``package.module:function`` names returns; an error of its own is named as such."""
    factory = _foreign(name)
    given = _taken(factory, sizes)
    try:
        return factory(**given)
    except Exception as error:
        called = ", ".join(f"{argument}={size}" for argument, size in given.items())
        raise ValueError(f"network {name!r}, called with {called}, fails: {type(error).__name__}: {error}") from error


def _foreign(name: str) -> Factory:
    """The function that ``package.module:function`` names."""
    place, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in [*place.split("."), *attribute.split(".")]):
        raise ValueError(f"network {name!r} is not of the form package.module:function")
    if os.getcwd() not in sys.path:  # as `python -m` has it: a file beside the user's own
        sys.path.append(os.getcwd())
    try:
        found: object = importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise  # the module is there, but something it imports is not
        raise ValueError(f"network {name!r}: there is no module {error.name!r} on the import path") from error
    except ImportError:
        raise
    except Exception as error:
        raise ValueError(f"network {name!r}: {place} cannot be imported: {type(error).__name__}: {error}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ValueError(f"network {name!r}: {place} has no {attribute!r}")
        found = getattr(found, part)
    if not callable(found):
        raise ValueError(
            f"network {name!r} is {type(found).__name__}, but a function that returns an nn.Module is needed"
        )
    return found


def _taken(factory: Factory, sizes: dict[str, int]) -> dict[str, int]:
    """The sizes that a foreign factory names. A ``**kwargs`` names none: most pass it on to what knows only some."""
    try:
        parameters = set(inspect.signature(factory).parameters)
    except ValueError:  # a callable without a readable signature
        parameters = set()
    return {argument: size for argument, size in sizes.items() if argument == "num_classes" or argument in parameters}


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Whatever is drawn inside comes from the seed, in float32 on the CPU; outside nothing changes."""
    dtype = torch.get_default_dtype()
    # No device is forked and only the CPU's generator is seeded: torch.manual_seed would reach CUDA's too.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.set_default_dtype(torch.float32)
        torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
