"""DenseNet-121 with growth 32 and the 3x3 stem for small images (Huang et al. 2017)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vista.models.staged import LinearHead, Network

GROWTH = 32
DEPTHS = (6, 12, 24, 16)


def activate_convolve(inputs: int, outputs: int, size: int) -> nn.Sequential:
    """Stack BatchNorm, ReLU and a convolution that keeps height and width."""
    return nn.Sequential(
        nn.BatchNorm2d(inputs), nn.ReLU(), nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False)
    )


class Layer(nn.Module):
    """Appends ``GROWTH`` channels to its input, through a bottleneck of ``4 * GROWTH``."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.grow = nn.Sequential(activate_convolve(inputs, 4 * GROWTH, 1), activate_convolve(4 * GROWTH, GROWTH, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.grow(x)], dim=1)


class DenseNet121(LinearHead):
    """Four dense blocks. The feature maps are their outputs, the last after the final BatchNorm and ReLU."""

    def __init__(self, *, num_classes: int, in_channels: int, image_size: int) -> None:
        if image_size < 8:
            raise ValueError(f"image_size must be at least 8 for densenet121, got {image_size}")
        blocks, transitions, channels = [], [], []
        width = 2 * GROWTH
        for stage, depth in enumerate(DEPTHS):
            if stage > 0:
                transitions.append(nn.Sequential(activate_convolve(width, width // 2, 1), nn.AvgPool2d(2)))
                width //= 2
            blocks.append(nn.Sequential(*(Layer(width + GROWTH * position) for position in range(depth))))
            width += GROWTH * depth
            channels.append(width)
        super().__init__(tuple(channels), num_classes)
        self.stem = nn.Conv2d(in_channels, 2 * GROWTH, 3, padding=1, bias=False)
        self.blocks = nn.ModuleList(blocks)
        self.transitions = nn.ModuleList([nn.Identity(), *transitions])
        self.last = nn.Sequential(nn.BatchNorm2d(width), nn.ReLU())

    def stages(self, x: Tensor) -> list[Tensor]:
        x = self.stem(x)
        maps = []
        for transition, block in zip(self.transitions, self.blocks):
            x = block(transition(x))
            maps.append(x)
        maps[-1] = self.last(x)
        return maps


NETWORKS = {"densenet121": Network(DenseNet121, "DenseNet-121 with growth 32", "8+")}
