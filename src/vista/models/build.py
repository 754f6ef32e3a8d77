"""Find a network by name and build it: one of ours, of transformers or timm, or a custom `package.module:function`."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch
from torch import nn

from vista.core.validation import suggest
from vista.models import densenet, huggingface, preact_resnet, resnet, small, timm, vgg, vit
from vista.models.backbone import Backbone, is_backbone
from vista.models.huggingface import HuggingFaceNetwork
from vista.models.staged import Network, Staged
from vista.models.timm import TimmNetwork

Factory = Callable[..., object]

_NETWORKS: dict[str, Network] = {
    **resnet.NETWORKS,
    **preact_resnet.NETWORKS,
    **densenet.NETWORKS,
    **vgg.NETWORKS,
    **vit.NETWORKS,
    **small.NETWORKS,
}
SQUARE_ONLY = frozenset(vit.NETWORKS)  # position embeddings assume a square grid of patches; other networks pool


def names() -> tuple[str, ...]:
    """Return the names of all built-in networks, sorted."""
    return tuple(sorted(_NETWORKS))


def available() -> dict[str, Network]:
    """Return every built-in network by name, grouped by family.

    Returns:
        Name to :class:`Network`: its ``description`` and the accepted ``image_sizes`` (``32+`` means at least 32).

    >>> available()["vgg16"].image_sizes
    '32+'
    """
    return dict(_NETWORKS)


def count_parameters(name: str, *, num_classes: int = 100, in_channels: int = 3, image_size: int = 32) -> int:
    """Count a built-in network's parameters without allocating them.

    Args:
        name: One of :func:`names`.
        num_classes: Number of outputs.
        in_channels: Channels of an image.
        image_size: Height and width of an image.

    Returns:
        The number of parameters, trainable or not.

    >>> count_parameters("resnet18")
    11220132
    """
    with torch.device("meta"):
        network = _find(name).factory(num_classes=num_classes, in_channels=in_channels, image_size=image_size)
    return sum(parameter.numel() for parameter in network.parameters())


def build(
    name: str,
    *,
    num_classes: int,
    in_channels: int = 3,
    image_size: int = 32,
    seed: int = 0,
    backbone: Backbone | None = None,
) -> nn.Module:
    """Build a network in float32 on the CPU. Global random state is left untouched.

    Args:
        name: One of :func:`names`, ``hf:NAME_OR_FOLDER``, ``timm:NAME_OR_FOLDER`` (with random weights), or
            ``package.module:function``. Such a function is called with ``num_classes``, and with ``in_channels`` and
            ``image_size`` if its signature names them.
        num_classes: Number of outputs.
        in_channels: Channels of an image, or the number of flat features.
        image_size: Height and width of an image; 1 for flat features.
        seed: Determines the initial weights.
        backbone: The description of an ``hf:`` or ``timm:`` network, if it was read already.

    Returns:
        The network, in training mode.

    >>> build("small-cnn", num_classes=10, in_channels=1, image_size=8)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """
    sizes = {"num_classes": num_classes, "in_channels": in_channels, "image_size": image_size}
    for argument, value in sizes.items():
        if value < 1:
            raise ValueError(f"{argument} must be at least 1, got {value}")
    with seed_context(seed):
        if is_backbone(name):
            network: object = _build_backbone(name, backbone or read_backbone(name), sizes)
        else:
            network = _build_custom(name, sizes) if is_custom_network(name) else _find(name).factory(**sizes)
    if not isinstance(network, nn.Module):
        raise ValueError(f"network {name!r} must return an nn.Module, got {type(network).__name__}")
    return network.to(device="cpu", dtype=torch.float32)


def is_custom_network(name: str) -> bool:
    """Return whether ``name`` is a custom network, ``package.module:function``."""
    return ":" in name and not is_backbone(name)


def is_third_party(name: str) -> bool:
    """Return whether ``name`` is a network that is not ours: custom, or of transformers or timm."""
    return ":" in name


@lru_cache(maxsize=8)
def read_backbone(name: str) -> Backbone:
    """Read the description of ``hf:NAME_OR_FOLDER`` or ``timm:NAME_OR_FOLDER``.

    Args:
        name: The network's name. A name on the hub is looked up in the local cache, then downloaded.

    Returns:
        Its architecture, and the image size and normalisation of its pretrained weights.
    """
    return huggingface.read(name) if name.startswith("hf:") else timm.read(name)


def load_pretrained(name: str, network: nn.Module, *, image_size: int, seed: int = 0) -> None:
    """Load the pretrained weights of an ``hf:`` or ``timm:`` network in place; the head stays random.

    Args:
        name: The network's name.
        network: The network, as :func:`build` returns it.
        image_size: Height and width of the images.
        seed: Determines the random weights of the head.
    """
    backbone = read_backbone(name)
    with seed_context(seed):
        if isinstance(network, HuggingFaceNetwork):
            huggingface.load_pretrained(name, network, backbone.image_size, image_size)
        elif isinstance(network, TimmNetwork):
            timm.load_pretrained(name, network, backbone)


def head_of(network: nn.Module) -> nn.Module:
    """Return the part of a network that maps features to logits; everything else is its backbone.

    Args:
        network: A network of :func:`build`.

    Returns:
        The head: ``classifier`` or ``score`` in transformers, ``get_classifier()`` in timm, the last linear layer
        otherwise.

    >>> head_of(build("resnet18", num_classes=10))
    Linear(in_features=512, out_features=10, bias=True)
    """
    if isinstance(network, (Staged, HuggingFaceNetwork, TimmNetwork)) and isinstance(network.head, nn.Module):
        return network.head
    linear = [module for module in network.modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise ValueError(f"{type(network).__name__} has no linear layer, so its head is unknown")
    return linear[-1]


def _find(name: str) -> Network:
    if name in _NETWORKS:
        return _NETWORKS[name]
    raise ValueError(
        f"network {name!r} is unknown; {suggest(name, names())} (others: hf:NAME_OR_FOLDER, timm:NAME, "
        "package.module:function)"
    )


def _build_backbone(name: str, backbone: Backbone, sizes: dict[str, int]) -> nn.Module:
    """Build a network of another library; an exception it raises is reported with the sizes."""
    make = huggingface.build if backbone.library == "hf" else timm.build
    try:
        return make(backbone, **sizes)
    except ImportError:
        raise
    except Exception as error:
        native = f": use --image-size {backbone.image_size}" if sizes["image_size"] != backbone.image_size else ""
        raise ValueError(
            f"network {name!r} cannot be built for {sizes['in_channels']} channels and {sizes['image_size']} pixels "
            f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}){native}"
        ) from error


def _build_custom(name: str, sizes: dict[str, int]) -> object:
    """Call the function ``package.module:function``; an exception it raises is reported with the call."""
    factory = _import_factory(name)
    arguments = _accepted_sizes(factory, sizes)
    try:
        return factory(**arguments)
    except Exception as error:
        call = ", ".join(f"{argument}={size}" for argument, size in arguments.items())
        raise ValueError(f"network {name!r}, called with {call}, fails: {type(error).__name__}: {error}") from error


def _import_factory(name: str) -> Factory:
    module, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in [*module.split("."), *attribute.split(".")]):
        raise ValueError(f"network {name!r} is not of the form package.module:function")
    if os.getcwd() not in sys.path:  # like `python -m`: modules in the working directory can be imported
        sys.path.append(os.getcwd())
    try:
        found: object = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module exists, but one of its own imports does not
        raise ValueError(f"network {name!r}: module {error.name!r} is not on the import path") from error
    except ImportError:
        raise
    except Exception as error:
        raise ValueError(f"network {name!r}: {module} cannot be imported: {type(error).__name__}: {error}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            advice = suggest(part, [each for each in dir(found) if callable(getattr(found, each, None))])
            near = f"; {advice}" if advice.startswith("did") else ""
            raise ValueError(f"network {name!r}: {module} has no {attribute!r}{near}")
        found = getattr(found, part)
    if not callable(found):
        raise ValueError(f"network {name!r} must be a function that returns an nn.Module, got {type(found).__name__}")
    return found


def _accepted_sizes(factory: Factory, sizes: dict[str, int]) -> dict[str, int]:
    """Select ``num_classes`` and the sizes that the signature names; ``**kwargs`` does not count as naming them."""
    try:
        parameters = set(inspect.signature(factory).parameters)
    except ValueError:  # a callable without a readable signature
        parameters = set()
    return {argument: size for argument, size in sizes.items() if argument == "num_classes" or argument in parameters}


@contextmanager
def seed_context(seed: int) -> Iterator[None]:
    """Seed the CPU generator and default to float32 on the CPU inside the block; restore everything afterwards."""
    dtype = torch.get_default_dtype()
    # fork_rng(devices=[]) and default_generator leave CUDA's generators alone; torch.manual_seed would seed them.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.set_default_dtype(torch.float32)
        torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
