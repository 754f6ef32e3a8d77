"""FRSKD (feature refinement via self-knowledge distillation): a feature pyramid over the stages teaches the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vista.core.losses import distillation_kl, soft_cross_entropy, wide
from vista.core.validation import not_negative, positive
from vista.methods.base import Batch, Method, Task
from vista.models.staged import Staged

NEUTRAL: dict[str, Any] = {"alpha": 0.0, "beta": 0.0}


class Terms(NamedTuple):
    """The parts of the loss, scalars that include their weights; ``main`` is the network's cross-entropy."""

    main: Tensor
    teacher: Tensor
    distillation: Tensor
    attention: Tensor


def compute_attention(features: Tensor) -> Tensor:
    """Attention map ``[B, h * w]`` of length 1: the squared ReLU of ``[B, C, h, w]``, averaged over channels."""
    return F.normalize(F.relu(wide(features)).square().mean(dim=1).flatten(1), dim=1)


def compute_frskd_terms(
    logits: Tensor,
    teacher_logits: Tensor,
    maps: Sequence[Tensor],
    teacher_maps: Sequence[Tensor],
    targets: Tensor,
    *,
    alpha: float,
    beta: float,
    temperature: float,
    rows: Tensor | None = None,
) -> Terms:
    r""":math:`\mathrm{CE}(p, y) + \mathrm{CE}(q, y) + \alpha T^2\, \mathrm{KL}(\bar q \| p)
    + \beta \sum_l \mathrm{mean}\,(A(f_l) - \bar A(t_l))^2`.

    :math:`A` is :func:`compute_attention` and the bar stops the gradient; :math:`p, f` are the network's prediction
    and maps, :math:`q, t` the pyramid's.
    """
    gaps = [
        (compute_attention(own) - compute_attention(refined.detach())).square().mean()
        for own, refined in zip(maps, teacher_maps)
    ]
    return Terms(
        soft_cross_entropy(logits, targets, rows=rows),
        soft_cross_entropy(teacher_logits, targets, rows=rows),
        alpha * distillation_kl(logits, teacher_logits.detach(), temperature),
        beta * torch.stack(gaps).sum(),
    )


def make_projection(inputs: int, outputs: int) -> nn.Sequential:
    """A 1x1 convolution and BatchNorm."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs))


def make_refinement(channels: int, depth: int) -> nn.Sequential:
    """``depth`` times ReLU, depthwise 3x3 convolution, pointwise convolution, BatchNorm."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        layers += [nn.ReLU(), depthwise, *make_projection(channels, channels)]
    return nn.Sequential(*layers)


class WeightedFusion(nn.Module):
    """Average maps of one size with learned positive weights that sum to one, then refine the result."""

    def __init__(self, inputs: int, channels: int, depth: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.ones(inputs))
        self.refine = make_refinement(channels, depth)

    def forward(self, *maps: Tensor) -> Tensor:
        weights = F.relu(self.weights)
        weights = weights / (weights.sum() + 1e-4)
        fused: Tensor = self.refine(torch.stack([w * m for w, m in zip(weights.unbind(), maps)]).sum(dim=0))
        return fused


class Pyramid(nn.Module):
    """A BiFPN whose channels vary by stage: a top-down and a bottom-up path; the last map is classified."""

    def __init__(self, channels: Sequence[int], num_classes: int, width: int, depth: int) -> None:
        super().__init__()
        sizes = [width * c for c in channels]
        steps = list(pairwise(sizes))
        self.lateral = nn.ModuleList(make_projection(c, size) for c, size in zip(channels, sizes))
        self.up = nn.ModuleList(make_projection(deep, shallow) for shallow, deep in steps)
        self.down = nn.ModuleList(make_projection(shallow, deep) for shallow, deep in steps)
        self.fuse_up = nn.ModuleList(WeightedFusion(2, shallow, depth) for shallow, _ in steps)
        # The deepest stage enters the bottom-up path through its lateral map only, the others also top-down.
        inputs = [3] * (len(steps) - 1) + [2]
        self.fuse_down = nn.ModuleList(WeightedFusion(n, deep, depth) for n, (_, deep) in zip(inputs, steps))
        self.head = nn.Linear(sizes[-1], num_classes)

    def forward(self, maps: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Return logits ``[B, K]`` and the refined maps, shallow to deep, each of the size of its input map."""
        lateral = [layer(F.relu(features)) for layer, features in zip(self.lateral, maps)]
        top_down = [lateral[-1]]
        for stage in reversed(range(len(lateral) - 1)):
            deeper = F.interpolate(self.up[stage](top_down[0]), size=lateral[stage].shape[2:], mode="nearest")
            top_down.insert(0, self.fuse_up[stage](lateral[stage], deeper))
        refined = [top_down[0]]
        for stage in range(1, len(lateral)):
            height, width = lateral[stage].shape[2:]
            halved = F.max_pool2d(refined[-1], 2, ceil_mode=True)[..., :height, :width]
            own = [lateral[stage]] if stage == len(lateral) - 1 else [lateral[stage], top_down[stage]]
            refined.append(self.fuse_down[stage - 1](*own, self.down[stage - 1](halved)))
        return self.head(F.relu(refined[-1]).mean(dim=(2, 3))), refined


class Frskd(Method):
    name = "frskd"
    family = "current epoch"
    summary = "A feature pyramid over the stages refines their maps and teaches the network"
    cost = "1 forward, 1 backward, and the pyramid"
    keeps = "nothing"
    source = "Ji et al., Refine Myself by Teaching Myself, CVPR 2021"
    needs_stages = True

    @dataclass(frozen=True)
    class Config:
        alpha: float = 2.0
        """Weight of the distillation from the pyramid's prediction."""
        beta: float = 100.0
        """Weight of the distance to the pyramid's attention maps."""
        temperature: float = 4.0
        """Temperature of both sides of the distillation."""
        width: int = 2
        """Channels of the pyramid as a multiple of the network's."""
        depth: int = 2
        """Number of convolutions at each node of the pyramid."""

        def __post_init__(self) -> None:
            for name in ("alpha", "beta"):
                not_negative(getattr(self, name), name)
            positive(self.temperature, "temperature", usual=4)
            for name in ("width", "depth"):
                if getattr(self, name) < 1:
                    raise ValueError(f"{name} must be at least 1 (the source uses 2), got {getattr(self, name)}")

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        self.pyramid = Pyramid(cast(Staged, network).stage_channels, task.num_classes, config.width, config.depth).to(
            task.device
        )

    def terms(self, network: nn.Module, batch: Batch) -> Terms:
        """Return the parts of the loss; the pyramid's cross-entropy also trains the network's stages."""
        staged = cast(Staged, network)
        maps = staged.stages(batch.x)
        logits = self.observe(batch, staged.classify(staged.embed(maps[-1])))
        teacher_logits, teacher_maps = self.pyramid(maps)
        targets = self.mix_targets(batch, self.targets)
        config = self.config
        return compute_frskd_terms(
            logits,
            teacher_logits,
            maps,
            teacher_maps,
            self.weigh_targets(targets),
            alpha=config.alpha,
            beta=config.beta,
            temperature=config.temperature,
            rows=self.count_rows(targets),
        )

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        return torch.stack(self.terms(network, batch)).sum()
