"""The pre-activation ResNet-18 of the self-distillation literature (PS-KD, CS-KD, Zipf's LS)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from vista.models.staged import LinearHead, Network

WIDTHS = (64, 128, 256, 512)


class Block(nn.Module):
    """BatchNorm and ReLU before each of two 3x3 convolutions.

    The shortcut branches off after the first ReLU, even if it is the identity, and has no BatchNorm. He et al. use
    the block's input instead, but the networks behind the published numbers do not.
    """

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, width, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        same = stride == 1 and inputs == width
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, width, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm1(x))
        residual = self.conv2(F.relu(self.norm2(self.conv1(x))))
        total: Tensor = residual + self.shortcut(x)
        return total


class PreActResNet18(LinearHead):
    """Two blocks per stage. The feature maps are sums before any ReLU; no BatchNorm or ReLU follows the last."""

    def __init__(self, *, num_classes: int, in_channels: int, image_size: int) -> None:
        super().__init__(WIDTHS, num_classes)
        self.stem = nn.Sequential(
            nn.Conv2d(in_channels, WIDTHS[0], 3, padding=1, bias=False), nn.BatchNorm2d(WIDTHS[0]), nn.ReLU()
        )
        inputs = (WIDTHS[0], *WIDTHS[:-1])
        self.groups = nn.ModuleList(
            nn.Sequential(Block(before, width, 1 if stage == 0 else 2), Block(width, width, 1))
            for stage, (before, width) in enumerate(zip(inputs, WIDTHS))
        )

    def stages(self, x: Tensor) -> list[Tensor]:
        x = self.stem(x)
        maps = []
        for blocks in self.groups:
            x = blocks(x)
            maps.append(x)
        return maps


NETWORKS = {"preact-resnet18": Network(PreActResNet18, "pre-activation ResNet-18")}
