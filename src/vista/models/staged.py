"""What the networks here tell besides their logits: the maps of their stages, and the way from a map to logits."""

from __future__ import annotations

from torch import Tensor, nn


class Staged(nn.Module):
    """A classifier whose forward is ``classify(embed(stages(x)[-1]))``, each part open to methods that need it.

    A network without maps (a transformer, a perceptron) declares ``stage_channels = ()``; its ``stages`` then give
    one tensor, and that is what ``embed`` takes.
    """

    stage_channels: tuple[int, ...] = ()
    """Channels of the maps, shallow to deep; height and width halve from one map to the next."""
    num_features: int
    """Width of what ``embed`` gives and ``classify`` takes."""

    def stages(self, x: Tensor) -> list[Tensor]:
        """The maps ``[B, C_s, h_s, w_s]``, shallow to deep."""
        raise NotImplementedError

    def embed(self, last_map: Tensor) -> Tensor:
        """The last map, pooled: features ``[B, num_features]``."""
        raise NotImplementedError

    def classify(self, features: Tensor) -> Tensor:
        """Features ``[B, num_features]`` to logits ``[B, K]``."""
        raise NotImplementedError

    def dense_logits(self, last_map: Tensor) -> Tensor | None:
        """The classifier at every position of the map, ``[B, K, h, w]``; None where the head is not one linear map."""
        return None

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.embed(self.stages(x)[-1]))


class LinearHead(Staged):
    """Global average pooling and one linear layer on the last map."""

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
    """Refuse a network without the maps that ``method`` needs, saying which have them."""
    if not isinstance(network, Staged) or len(network.stage_channels) < 2:
        raise ValueError(
            f"{method} needs the maps of at least two stages, but {type(network).__name__} gives none; "
            "the resnet, preact-resnet, densenet and vgg networks, small-cnn and tiny-staged have them"
        )
