"""Measure variants of the loss on one CPU core: `python benchmarks/loss_variants.py --out results/loss-variants.json`.

Times forward and backward of `Vista.loss` on logits [512, 100], as it is, with parts left out, and with parts computed
in another way, each alternately with `F.cross_entropy`; the record holds the ratios. Most of the other ways round
differently and are not used, because runs of earlier versions must resume to the same bytes.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from core import alternating
from torch import Tensor

from vista import Vista
from vista.core import losses
from vista.core.store import PredictionStore
from vista.runs.environment import environment

SAMPLES, CLASSES, BATCH = 45_000, 100, 512


def exp2_(log_p: Tensor) -> Tensor:
    return log_p.mul_(1 / math.log(2)).exp2_()


def numpy_exp_(log_p: Tensor) -> Tensor:
    np.exp(log_p.numpy(), out=log_p.numpy())
    return log_p


def loss_with(exp_: Callable[[Tensor], Tensor], one_sum: bool = False) -> AbstractContextManager[Any]:
    """Replace ``exp`` in the loss; ``one_sum`` sums all losses at once instead of by rows."""

    class Variant(losses._SoftCrossEntropy):
        @staticmethod
        def forward(ctx: Any, logits: Tensor, targets: Tensor, sum_to_one: bool, mean: bool) -> tuple[Tensor, Tensor]:
            ctx.sum_to_one, ctx.mean = sum_to_one, mean
            log_p = logits.log_softmax(dim=-1)
            product = log_p * targets
            loss = product.sum() / -len(logits) if one_sum else product.sum(dim=-1).neg_().mean()
            probs = exp_(log_p)
            ctx.save_for_backward(probs, targets)
            ctx.set_materialize_grads(False)
            return loss, probs

    return mock.patch.object(losses, "_SoftCrossEntropy", Variant)


class GradientInForward(torch.autograd.Function):
    """The gradient as far as it is known in the forward pass; it has none itself."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, sum_to_one: bool, mean: bool) -> tuple[Tensor, Tensor]:
        log_p = logits.log_softmax(dim=-1)
        loss = (log_p * targets).sum(dim=-1).neg_().mean()
        probs = log_p.exp_()
        ctx.gradient = probs - targets
        ctx.mark_non_differentiable(probs)
        ctx.set_materialize_grads(False)
        return loss, probs

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: None) -> tuple[Tensor, None, None, None]:
        return ctx.gradient * (grad / len(ctx.gradient)), None, None, None


def store_nothing(store: PredictionStore, index: Tensor, probs: Tensor, unique: bool = False) -> None:
    pass


def always() -> bool:
    return True


VARIANTS: dict[str, AbstractContextManager[Any]] = {
    "as it is": nullcontext(),
    "without the record": mock.patch.object(PredictionStore, "write", store_nothing),
    "gradient in the forward pass": mock.patch.object(losses, "_SoftCrossEntropy", GradientInForward),
    "plain operations instead of a Function": mock.patch.object(losses, "in_torch_func", always),
    "numpy's exp": loss_with(numpy_exp_),
    "exp2": loss_with(exp2_),
    "exp2 and one sum": loss_with(exp2_, one_sum=True),
}


def ratio(checks: bool = True) -> float:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, CLASSES, (SAMPLES,), generator=generator)
    vista = Vista(labels, num_classes=CLASSES, epochs=200, val_labels=labels[:100], tau=0.01, checks=checks)
    logits = torch.randn(BATCH, CLASSES, generator=generator).requires_grad_()
    index = torch.randperm(SAMPLES, generator=generator)[:BATCH]
    hard = labels[index]
    times = alternating(
        2000, ce=lambda: F.cross_entropy(logits, hard).backward(), loss=lambda: vista.loss(logits, index).backward()
    )
    return times["loss"] / times["ce"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="file of the record")
    options = parser.parse_args()
    torch.set_num_threads(1)
    result = {}
    for name, variant in VARIANTS.items():
        with variant:
            result[name] = ratio()
    result["without checks"] = ratio(checks=False)
    for name, value in result.items():
        print(f"{name:40} {value:.2f}")
    if options.out:
        record = {"what": "loss variants", "environment": environment(torch.device("cpu")), "result": result}
        options.out.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
