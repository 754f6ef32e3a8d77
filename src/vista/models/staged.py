"""Base classes of our networks, which expose the feature maps of their stages, and the entry of a network by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True)
class Network:
    """An entry of a family's table ``NETWORKS``."""

    factory: Callable[..., nn.Module]
    """Called with ``num_classes``, ``in_channels`` and ``image_size``."""
    description: str
    image_sizes: str = "any"
    """Accepted heights and widths, in words."""


class Staged(nn.Module):
    """A classifier with ``forward(x) = classify(embed(stages(x)[-1]))``; methods may use each part.

    A network without feature maps (a transformer, an MLP) has ``stage_channels = ()``; its ``stages`` returns one
    tensor, the input of ``embed``.
    """

    stage_channels: tuple[int, ...] = ()
    """Channels of the feature maps, shallow to deep; height and width halve from one map to the next."""
    num_features: int
    """Width of the output of ``embed``, the input of ``classify``."""

    def stages(self, x: Tensor) -> list[Tensor]:
        """Return the feature maps ``[B, C_s, h_s, w_s]``, shallow to deep."""
        raise NotImplementedError

    def embed(self, last_map: Tensor) -> Tensor:
        """Pool the last feature map to features ``[B, num_features]``."""
        raise NotImplementedError

    def classify(self, features: Tensor) -> Tensor:
        """Map features ``[B, num_features]`` to logits ``[B, K]``."""
        raise NotImplementedError

    def dense_logits(self, last_map: Tensor) -> Tensor | None:
        """Apply the classifier at every position, ``[B, K, h, w]``; None if the head is not one linear layer."""
        return None

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.embed(self.stages(x)[-1]))


class LinearHead(Staged):
    """Global average pooling and one linear layer on the last feature map."""

    def __init__(self, stage_channels: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        self.stage_channels = stage_channels
        self.num_features = stage_channels[-1]
        self.head = nn.Linear(self.num_features, num_classes)

    def embed(self, last_map: Tensor) -> Tensor:
        return last_map.mean(dim=(2, 3))

    def classify(self, features: Tensor) -> Tensor:
        logits: Tensor = self.head(features)
        return logits

    def dense_logits(self, last_map: Tensor) -> Tensor | None:
        logits: Tensor = self.head(last_map.permute(0, 2, 3, 1))
        return logits.permute(0, 3, 1, 2)


def check_stages(network: nn.Module, method: str) -> None:
    """Raise an error if ``network`` does not expose the feature maps that ``method`` needs."""
    if not isinstance(network, Staged) or len(network.stage_channels) < 2:
        raise ValueError(
            f"{method} needs the feature maps of at least two stages, but {type(network).__name__} has none; use a "
            "resnet, preact-resnet, densenet or vgg network, small-cnn or tiny-staged"
        )
