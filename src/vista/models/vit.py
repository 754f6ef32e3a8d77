"""Vision transformers with 4x4 patches for small images (Dosovitskiy et al. 2021): learned positions, no dropout."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vista.models.staged import Network, Staged

PATCH = 4
DEPTH = 12


class Layer(nn.Module):
    """Pre-norm self-attention and an MLP four times as wide on tokens ``[B, L, D]``, each with a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def attend(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.queries_keys_values(x).view(batch, length, 3, self.heads, width // self.heads)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(queries, keys, values)
        merged: Tensor = self.merge(mixed.transpose(1, 2).reshape(batch, length, width))
        return merged

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.norm1(x))
        added: Tensor = x + self.perceptron(self.norm2(x))
        return added


class ViT(Staged):
    """Its only stage is the normalised tokens ``[B, 1 + patches, D]``; the first, the class token, is the features."""

    def __init__(self, width: int, heads: int, *, num_classes: int, in_channels: int, image_size: int) -> None:
        super().__init__()
        if image_size % PATCH:
            raise ValueError(f"image_size must be a multiple of the patch size {PATCH}, got {image_size}")
        self.num_features = width
        self.patches = nn.Conv2d(in_channels, width, PATCH, stride=PATCH)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, 1 + (image_size // PATCH) ** 2, width))
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(DEPTH)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_classes)
        for parameter in (self.class_token, self.positions):
            nn.init.trunc_normal_(parameter, std=0.02)
        self.apply(_initialise)

    def stages(self, x: Tensor) -> list[Tensor]:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        first = self.class_token.expand(len(tokens), -1, -1)
        tokens = torch.cat([first, tokens], dim=1) + self.positions
        return [self.norm(self.layers(tokens))]

    def embed(self, last_map: Tensor) -> Tensor:
        return last_map[:, 0]

    def classify(self, features: Tensor) -> Tensor:
        logits: Tensor = self.head(features)
        return logits


def _initialise(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Conv2d)):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


NETWORKS = {
    "vit-tiny": Network(partial(ViT, 192, 3), "vision transformer, width 192", "multiple of 4"),
    "vit-small": Network(partial(ViT, 384, 6), "vision transformer, width 384", "multiple of 4"),
}
