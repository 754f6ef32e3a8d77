"""Small networks: for 8x8 digits, for flat features, and a cheap one with four stages for tests."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from vista.models.staged import LinearHead, Network, Staged


def convolve(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """Stack a 3x3 convolution, BatchNorm and ReLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
    )


class SmallCNN(Staged):
    """Four 3x3 convolutions (32, 32, 64, 64), max pooling after the second, a linear layer on a 2x2 average."""

    stage_channels = (32, 64)
    num_features = 256

    def __init__(self, *, num_classes: int, in_channels: int, image_size: int) -> None:
        super().__init__()
        if image_size < 4:
            raise ValueError(f"image_size must be at least 4 for small-cnn, got {image_size}")
        self.shallow = nn.Sequential(convolve(in_channels, 32), convolve(32, 32))
        self.deep = nn.Sequential(nn.MaxPool2d(2), convolve(32, 64), convolve(64, 64))
        self.head = nn.Linear(self.num_features, num_classes)

    def stages(self, x: Tensor) -> list[Tensor]:
        shallow = self.shallow(x)
        return [shallow, self.deep(shallow)]

    def embed(self, last_map: Tensor) -> Tensor:
        # Equals adaptive average pooling to 2x2, whose backward pass is not deterministic on CUDA.
        height, width = last_map.shape[2:]
        size = (height - height // 2, width - width // 2)
        return F.avg_pool2d(last_map, size, stride=(height // 2, width // 2)).flatten(1)

    def classify(self, features: Tensor) -> Tensor:
        logits: Tensor = self.head(features)
        return logits


class MLP(Staged):
    """Two hidden layers of 128. Flat features ``[B, F]`` need ``in_channels=F, image_size=1``; images are flattened."""

    num_features = 128

    def __init__(self, *, num_classes: int, in_channels: int, image_size: int) -> None:
        super().__init__()
        inputs = in_channels * image_size**2
        self.hidden = nn.Sequential(
            nn.Linear(inputs, self.num_features), nn.ReLU(), nn.Linear(self.num_features, self.num_features), nn.ReLU()
        )
        self.head = nn.Linear(self.num_features, num_classes)

    def stages(self, x: Tensor) -> list[Tensor]:
        return [self.hidden(x.flatten(1))]

    def embed(self, last_map: Tensor) -> Tensor:
        return last_map

    def classify(self, features: Tensor) -> Tensor:
        logits: Tensor = self.head(features)
        return logits


class TinyStaged(LinearHead):
    """One convolution per stage (8, 16, 24, 32), each halving the size: four stages from 8x8 images up."""

    def __init__(self, *, num_classes: int, in_channels: int, image_size: int) -> None:
        super().__init__((8, 16, 24, 32), num_classes)
        inputs = (in_channels, *self.stage_channels[:-1])
        self.groups = nn.ModuleList(
            convolve(before, width, 1 if stage == 0 else 2)
            for stage, (before, width) in enumerate(zip(inputs, self.stage_channels))
        )

    def stages(self, x: Tensor) -> list[Tensor]:
        maps = []
        for group in self.groups:
            x = group(x)
            maps.append(x)
        return maps


NETWORKS = {
    "small-cnn": Network(SmallCNN, "4 convolutions, small images", "4+"),
    "mlp": Network(MLP, "2 hidden layers, for features", "any"),
    "tiny-staged": Network(TinyStaged, "4 stages of one convolution"),
}
