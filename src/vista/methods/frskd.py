"""FRSKD (feature refinement via self-knowledge distillation): a feature pyramid over the stages teaches the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vista.core.losses import at_least_float32, distillation_kl, soft_cross_entropy
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
    return F.normalize(F.relu(at_least_float32(features)).square().mean(dim=1).flatten(1), dim=1)


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


EPSILON = 1e-6  # added to the sum of a node's weights, as in the source


def make_projection(inputs: int, outputs: int) -> nn.Sequential:
    """A 1x1 convolution, BatchNorm and ReLU."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


def make_refinement(channels: int, depth: int) -> nn.Sequential:
    """``depth`` times a depthwise 3x3 and a pointwise convolution with BatchNorm, a ReLU between them."""
    layers: list[nn.Module] = []
    for number in range(depth):
        depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        pointwise = nn.Conv2d(channels, channels, 1, bias=False)
        layers += [*([nn.ReLU()] if number else []), depthwise, pointwise, nn.BatchNorm2d(channels)]
    return nn.Sequential(*layers)


def halve(maps: Tensor, size: tuple[int, ...]) -> Tensor:
    """Maximum over 3x3 windows with stride 2 of maps ``[B, C, h, w]`` without negative values, to a given size.

    As in the source, an even side is padded with zeros on the right or at the bottom only.
    """
    padding = [side for n in reversed(maps.shape[2:]) for side in ((0, 1) if n % 2 == 0 else (1, 1))]
    return F.max_pool2d(F.pad(maps, padding), 3, stride=2)[..., : size[0], : size[1]]


class WeightedFusion(nn.Module):
    """Average maps of one size after a ReLU, with learned positive weights that sum to one; refine the result."""

    def __init__(self, inputs: int, channels: int, depth: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.ones(inputs))
        self.refine = make_refinement(channels, depth)

    def forward(self, *maps: Tensor) -> Tensor:
        weights = F.relu(self.weights)
        weights = weights / (weights.sum() + EPSILON)
        fused: Tensor = self.refine(torch.stack([w * F.relu(m) for w, m in zip(weights.unbind(), maps)]).sum(dim=0))
        return fused


class Pyramid(nn.Module):
    """A BiFPN whose channels vary by stage: a top-down and a bottom-up path; the last map is classified."""

    def __init__(self, channels: Sequence[int], num_classes: int, width: int, depth: int) -> None:
        super().__init__()
        sizes = [width * c for c in channels]
        steps = list(pairwise(sizes))
        self.lateral = nn.ModuleList(make_projection(c, size) for c, size in zip(channels, sizes))
        # The bottom-up path has laterals of its own; its first map is the end of the top-down path.
        self.lateral_down = nn.ModuleList(make_projection(c, size) for c, size in zip(channels[1:], sizes[1:]))
        self.up = nn.ModuleList(make_projection(deep, shallow) for shallow, deep in steps)
        self.down = nn.ModuleList(make_projection(shallow, deep) for shallow, deep in steps)
        self.fuse_up = nn.ModuleList(WeightedFusion(2, shallow, depth) for shallow, _ in steps)
        # The deepest stage enters the bottom-up path through its lateral map only, the others also top-down.
        inputs = [3] * (len(steps) - 1) + [2]
        self.fuse_down = nn.ModuleList(WeightedFusion(n, deep, depth) for n, (_, deep) in zip(inputs, steps))
        self.head = nn.Linear(sizes[-1], num_classes)

    def forward(self, maps: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Return logits ``[B, K]`` and the refined maps, shallow to deep, each of the size of its input map."""
        positive = [F.relu(features) for features in maps]
        lateral = [layer(features) for layer, features in zip(self.lateral, positive)]
        top_down = [lateral[-1]]
        for stage in reversed(range(len(lateral) - 1)):
            # The source enlarges before the 1x1 convolution; the result is the same, and this is four times cheaper.
            deeper = self.up[stage](F.relu(top_down[0]))
            deeper = F.interpolate(deeper, size=lateral[stage].shape[2:], mode="nearest")
            top_down.insert(0, self.fuse_up[stage](lateral[stage], deeper))
        refined = [top_down[0]]
        for stage in range(1, len(lateral)):
            own = [self.lateral_down[stage - 1](positive[stage])]
            own += [top_down[stage]] if stage < len(lateral) - 1 else []
            halved = halve(F.relu(refined[-1]), maps[stage].shape[2:])
            refined.append(self.fuse_down[stage - 1](*own, self.down[stage - 1](halved)))
        refined = [F.relu(each) for each in refined]
        return self.head(refined[-1].mean(dim=(2, 3))), refined


class Frskd(Method):
    name = "frskd"
    family = "current epoch"
    summary = "A feature pyramid over the stages refines their maps and teaches the network"
    cost = "1 forward, 1 backward, and the pyramid"
    keeps = "nothing"
    source = "Ji et al., Refine Myself by Teaching Myself, CVPR 2021"
    needs_stages = True
    version = 2  # the pyramid of version 1 had no second laterals and no ReLU before each resize convolution

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
