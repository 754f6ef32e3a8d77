"""DenseNet-121 with growth 32 and the 3x3 stem for small images (Huang et al. 2017)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vista.models.staged import LinearHead

GROWTH = 32
DEPTHS = (6, 12, 24, 16)


def activate_convolve(inputs: int, outputs: int, size: int) -> nn.Sequential:
    return nn.Sequential(
        nn.BatchNorm2d(inputs), nn.ReLU(), nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False)
    )


class Layer(nn.Module):
    """Adds ``GROWTH`` channels to what it was given, through a bottleneck of four times as many."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.grow = nn.Sequential(activate_convolve(inputs, 4 * GROWTH, 1), activate_convolve(4 * GROWTH, GROWTH, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.grow(x)], dim=1)


class DenseNet121(LinearHead):
    """Four dense blocks. The maps are the blocks' outputs, the last one after the final BatchNorm and ReLU."""

    def __init__(self, *, num_classes: int, in_channels: int, image_size: int) -> None:
        if image_size < 8:
            raise ValueError(f"image_size is {image_size}, but densenet121 halves three times and needs at least 8")
        blocks, transitions, channels = [], [], []
        width = 2 * GROWTH
        for stage, depth in enumerate(DEPTHS):
            if stage > 0:
                transitions.append(nn.Sequential(activate_convolve(width, width // 2, 1), nn.AvgPool2d(2)))
                width //= 2
            blocks.append(nn.Sequential(*(Layer(width + GROWTH * place) for place in range(depth))))
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


NETWORKS = {"densenet121": DenseNet121}
