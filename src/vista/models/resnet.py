"""Residual networks, post-activation (He et al. 2016): a 3x3 stem, or that of ImageNet from 128 pixels on."""

from __future__ import annotations

from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from vista.models.staged import LinearHead, Network

WIDTHS = (64, 128, 256, 512)
LARGE_IMAGE = 128  # pixels from which the stem reduces the image by 4 first


def convolve(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    """Stack a convolution, padded to keep height and width apart from its stride, and BatchNorm."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False), nn.BatchNorm2d(outputs)
    )


class Block(nn.Module):
    """The ReLU of ``residual(x) + shortcut(x)``."""

    def __init__(self, inputs: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        outputs = 4 * width if bottleneck else width
        if bottleneck:
            self.residual = nn.Sequential(
                convolve(inputs, width, 1), nn.ReLU(), convolve(width, width, 3, stride), nn.ReLU(),
                convolve(width, outputs, 1),
            )  # fmt: skip
        else:
            self.residual = nn.Sequential(convolve(inputs, width, 3, stride), nn.ReLU(), convolve(width, width, 3))
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else convolve(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.residual(x) + self.shortcut(x))


class Stage(nn.Module):
    """A sequence of blocks."""

    def __init__(self, blocks: list[Block]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class ResNet(LinearHead):
    """Four stages of residual blocks; ``depths`` is the number of blocks of each."""

    def __init__(
        self, depths: tuple[int, ...], bottleneck: bool, num_classes: int, in_channels: int, large: bool
    ) -> None:
        channels = tuple(4 * width if bottleneck else width for width in WIDTHS)
        super().__init__(channels, num_classes)
        if large:
            self.stem = nn.Sequential(
                convolve(in_channels, WIDTHS[0], 7, stride=2), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1)
            )
        else:
            self.stem = nn.Sequential(convolve(in_channels, WIDTHS[0], 3), nn.ReLU())
        self.groups = nn.ModuleList()
        inputs = WIDTHS[0]
        for depth, width, outputs in zip(depths, WIDTHS, channels):
            first = Block(inputs, width, 1 if width == WIDTHS[0] else 2, bottleneck)
            self.groups.append(Stage([first, *(Block(outputs, width, 1, bottleneck) for _ in range(depth - 1))]))
            inputs = outputs

    def stages(self, x: Tensor) -> list[Tensor]:
        x = self.stem(x)
        maps = []
        for stage in self.groups:
            x = stage(x)
            maps.append(x)
        return maps


def _resnet(
    depths: tuple[int, ...], bottleneck: bool, *, num_classes: int, in_channels: int, image_size: int
) -> ResNet:
    return ResNet(depths, bottleneck, num_classes, in_channels, image_size >= LARGE_IMAGE)


NETWORKS = {
    "resnet18": Network(partial(_resnet, (2, 2, 2, 2), False), "ResNet-18"),
    "resnet34": Network(partial(_resnet, (3, 4, 6, 3), False), "ResNet-34"),
    "resnet50": Network(partial(_resnet, (3, 4, 6, 3), True), "ResNet-50"),
    "resnet101": Network(partial(_resnet, (3, 4, 23, 3), True), "ResNet-101"),
}
