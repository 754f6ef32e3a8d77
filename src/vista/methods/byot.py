"""BYOT (be your own teacher): auxiliary classifiers on the shallower stages learn from the deepest classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple, cast, get_args

import torch
from torch import Tensor, nn

from vista.core.losses import at_least_float32, distillation_kl, soft_cross_entropy
from vista.core.validation import not_negative, positive, unit_interval
from vista.methods.base import Batch, Method, Task
from vista.models.staged import Staged

NEUTRAL: dict[str, Any] = {"alpha": 0.0, "beta": 0.0}
Form = Literal["conference", "journal"]


class Terms(NamedTuple):
    """The parts of the loss, scalars that include their weights; ``main`` is the deepest head's cross-entropy."""

    main: Tensor
    heads: Tensor
    distillation: Tensor
    features: Tensor


def compute_feature_gap(shallow: Tensor, deep: Tensor) -> Tensor:
    r"""Mean of :math:`(s - d)^2` over features ``[B, C]``, with zero where neither is positive."""
    shallow, deep = at_least_float32(shallow), at_least_float32(deep)
    active = (shallow > 0) | (deep > 0)
    return ((shallow - deep).square() * active).mean()


def compute_byot_terms(
    logits: Sequence[Tensor],
    features: Sequence[Tensor],
    targets: Tensor,
    *,
    alpha: float,
    beta: float,
    temperature: float,
    form: Form = "conference",
    rows: Tensor | None = None,
) -> Terms:
    r""":math:`\mathrm{CE}_S + \sum_{i<S} [(1-\alpha) \mathrm{CE}_i + \alpha s\, \mathrm{KL}(p_S \| p_i) + \beta g_i]`.

    ``logits`` ``[B, K]`` and ``features`` ``[B, C]`` are those of the ``S`` heads, the deepest last. No gradient
    reaches the deepest head from KL and :math:`g_i`. In the form ``conference``, :math:`s = T^2` and :math:`g_i` is
    :func:`compute_feature_gap`. In the form ``journal``, :math:`s = 1` and :math:`g_i` is the L2 distance over the
    whole batch, which the authors' code leaves out for the head next to the deepest.
    """
    losses = [(1.0 - alpha) * soft_cross_entropy(head, targets, rows=rows) for head in logits[:-1]]
    teacher, deep = logits[-1].detach(), features[-1].detach()
    scale = alpha if form == "conference" else alpha / temperature**2
    distillation = [scale * distillation_kl(head, teacher, temperature) for head in logits[:-1]]
    if form == "conference":
        gaps = [compute_feature_gap(shallow, deep) for shallow in features[:-1]]
    else:
        gaps = [torch.dist(at_least_float32(shallow), at_least_float32(deep)) for shallow in features[:-2]]
    return Terms(
        soft_cross_entropy(logits[-1], targets, rows=rows),
        torch.stack(losses).sum(),
        torch.stack(distillation).sum(),
        beta * torch.stack(gaps).sum() if gaps else deep.new_zeros(()),
    )


def make_bottleneck(inputs: int, outputs: int) -> nn.Sequential:
    """A bottleneck that halves height and width and maps ``inputs`` channels to ``outputs``."""
    inner = max(1, inputs // 4)
    return nn.Sequential(
        nn.Conv2d(inputs, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
        nn.Conv2d(inner, inner, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
        nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
    )  # fmt: skip


class Byot(Method):
    name = "byot"
    family = "current epoch"
    summary = "Auxiliary classifiers on the shallower stages learn from the deepest classifier"
    cost = "1 forward, 1 backward, and an auxiliary head for each stage but the last"
    keeps = "nothing"
    source = "Zhang et al., Be Your Own Teacher, ICCV 2019"
    needs_stages = True
    version = 2  # in version 1 the deepest head's cross-entropy had the weight 1 - alpha
    variants = {"byot-journal": {"form": "journal", "alpha": 0.3, "beta": 0.03}}  # noqa: RUF012

    @dataclass(frozen=True)
    class Config:
        alpha: float = 0.1
        """Weight of the distillation from the deepest head; the other heads' cross-entropy has weight 1 - alpha."""
        temperature: float = 3.0
        """Temperature of both sides of the distillation."""
        beta: float = 0.0655
        """Weight of the gap between the heads' pooled maps and the deepest pooled map."""
        form: Form = "conference"
        """conference: factor T^2, mean squared gap of active features; journal: no factor, L2 distance through a
        linear adaptation layer per head."""

        def __post_init__(self) -> None:
            if self.form not in get_args(Form):
                raise ValueError(f"form must be one of {', '.join(get_args(Form))}, got {self.form!r}")
            unit_interval(self.alpha, "alpha")
            positive(self.temperature, "temperature", usual=3)
            not_negative(self.beta, "beta")

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        channels = cast(Staged, network).stage_channels
        self.necks = nn.ModuleList(
            nn.Sequential(*(make_bottleneck(*pair) for pair in pairwise(channels[stage:])))
            for stage in range(len(channels) - 1)
        ).to(task.device)
        self.heads = nn.ModuleList(nn.Linear(channels[-1], task.num_classes) for _ in self.necks).to(task.device)
        adapted = len(self.necks) - 1 if config.form == "journal" else 0  # not the head next to the deepest
        self.adaptations = nn.ModuleList(nn.Linear(channels[-1], channels[-1]) for _ in range(adapted)).to(task.device)

    def terms(self, network: nn.Module, batch: Batch) -> Terms:
        """Return the parts of the loss for this batch."""
        staged = cast(Staged, network)
        maps = staged.stages(batch.x)
        features = [neck(each).mean(dim=(2, 3)) for neck, each in zip(self.necks, maps)]
        logits = [head(shallow) for head, shallow in zip(self.heads, features)]
        logits.append(self.observe(batch, staged.classify(staged.embed(maps[-1]))))
        for number, adaptation in enumerate(self.adaptations):
            features[number] = adaptation(features[number])
        targets = self.mix_targets(batch, self.targets)
        config = self.config
        return compute_byot_terms(
            logits,
            [*features, maps[-1].mean(dim=(2, 3))],
            self.weigh_targets(targets),
            alpha=config.alpha,
            beta=config.beta,
            temperature=config.temperature,
            form=config.form,
            rows=self.count_rows(targets),
        )

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        return torch.stack(self.terms(network, batch)).sum()
