"""VGG with BatchNorm (Simonyan and Zisserman 2015): a linear head, or two hidden layers of 4096 with dropout."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from vista.models.dropout import Dropout
from vista.models.staged import LinearHead, Network

WIDTHS = (64, 128, 256, 512, 512)
HIDDEN = 4096


def block(inputs: int, width: int, depth: int) -> nn.Sequential:
    """Stack ``depth`` times 3x3 convolution, BatchNorm and ReLU, then 2x2 max pooling."""
    layers: list[nn.Module] = []
    for position in range(depth):
        convolution = nn.Conv2d(inputs if position == 0 else width, width, 3, padding=1)
        layers += [convolution, nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.MaxPool2d(2))


class VGG(LinearHead):
    """Five pooled blocks. The feature maps are those of the last four, to match the four of the other families."""

    def __init__(self, depths: tuple[int, ...], *, num_classes: int, in_channels: int, image_size: int) -> None:
        if image_size < 32:
            raise ValueError(f"image_size must be at least 32 for VGG, got {image_size}")
        super().__init__(WIDTHS[1:], num_classes)
        inputs = (in_channels, *WIDTHS[:-1])
        self.blocks = nn.ModuleList(block(before, width, depth) for before, width, depth in zip(inputs, WIDTHS, depths))

    def stages(self, x: Tensor) -> list[Tensor]:
        maps = []
        for pooled in self.blocks:
            x = pooled(x)
            maps.append(x)
        return maps[1:]


class FullyConnectedVGG(VGG):
    """VGG with the original head: two hidden layers of 4096, each with ReLU and dropout."""

    def __init__(self, depths: tuple[int, ...], *, num_classes: int, in_channels: int, image_size: int) -> None:
        super().__init__(depths, num_classes=num_classes, in_channels=in_channels, image_size=image_size)
        self.hidden = nn.Sequential(
            nn.Linear(self.num_features, HIDDEN), nn.ReLU(), Dropout(0.5),
            nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), Dropout(0.5),
        )  # fmt: skip
        self.head = nn.Linear(HIDDEN, num_classes)

    def classify(self, features: Tensor) -> Tensor:
        return super().classify(self.hidden(features))

    def dense_logits(self, last_map: Tensor) -> Tensor | None:
        return None


DEPTHS_16 = (2, 2, 3, 3, 3)
DEPTHS_19 = (2, 2, 4, 4, 4)

NETWORKS = {
    "vgg16": Network(partial(VGG, DEPTHS_16), "VGG-16 with a linear head", "32+"),
    "vgg16-fc": Network(partial(FullyConnectedVGG, DEPTHS_16), "VGG-16 with the original head", "32+"),
    "vgg19": Network(partial(VGG, DEPTHS_19), "VGG-19 with a linear head", "32+"),
    "vgg19-fc": Network(partial(FullyConnectedVGG, DEPTHS_19), "VGG-19 with the original head", "32+"),
}
