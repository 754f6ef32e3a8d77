"""``examples/vista_from_scratch.py`` and ``vista.Vista`` are the same method."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from vista import Vista

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "vista_from_scratch.py"))
EPOCHS, CLASSES = 12, EXAMPLE["CLASSES"]
both = pytest.mark.parametrize("tau", [0.0, 0.01])


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, CLASSES))


def batches(samples: int):
    """The example's batches, epoch by epoch."""
    shuffle = torch.Generator().manual_seed(0)
    for _ in range(EPOCHS):
        yield from torch.randperm(samples, generator=shuffle).split(32)


@both
def test_the_same_logits_give_the_same_targets_and_gradients(tau: float) -> None:
    """A ``Vista`` receives every batch and every validation of the example's own training."""
    train_set, val_set, _ = EXAMPLE["data"]()
    samples = len(train_set[0])
    vista = Vista(train_set[1], num_classes=CLASSES, epochs=EPOCHS, val_labels=val_set[1], tau=tau)
    order, summaries, steps = batches(samples), [], []

    def watch(module: nn.Module, inputs: tuple[Tensor], logits: Tensor) -> None:
        if not torch.is_grad_enabled():
            summaries.append(vista.end_epoch(logits))
            return
        alike = logits.detach().requires_grad_()
        vista.loss(alike, next(order)).backward()
        logits.register_hook(lambda gradient: steps.append((gradient - alike.grad).abs().max().item()))

    model = network()
    model.register_forward_hook(watch)
    kept, pruned = set(), set()
    for t, weights, beta, targets in EXAMPLE["train"](model, train_set, val_set, tau=tau, epochs=EPOCHS):
        assert (t, beta) == (summaries[-1].epoch, summaries[-1].beta)
        assert list(weights.items()) == list(summaries[-1].anchors.items())
        torch.testing.assert_close(targets, vista.targets(range(samples)), rtol=0, atol=1e-6)
        kept |= weights.keys()
        pruned |= kept - weights.keys()
    assert len(summaries) == EPOCHS
    assert len(steps) == EPOCHS * -(-samples // 32)
    assert max(steps) < 1e-7, "the gradients of the losses"
    assert len(kept) > 3, "several states were anchors"
    assert pruned, "and some of them were pruned again"


@both
def test_trained_apart_both_choose_the_same_anchors(tau: float) -> None:
    """In float64, so that only the rounding of targets and stored predictions can lead the two apart."""
    train_set, val_set = ((x.double(), y) for x, y in EXAMPLE["data"]()[:2])
    (x, labels), (val_x, val_labels) = train_set, val_set
    mine, theirs = network().double(), network().double()
    vista = Vista(labels, num_classes=CLASSES, epochs=EPOCHS, val_labels=val_labels, tau=tau)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.05, momentum=0.9)
    order = batches(len(x))
    for _, weights, _, targets in EXAMPLE["train"](mine, (x, labels), (val_x, val_labels), tau=tau, epochs=EPOCHS):
        for _ in range(-(-len(x) // 32)):
            index = next(order)
            optimizer.zero_grad()
            vista.loss(theirs(x[index]), index).backward()
            optimizer.step()
        with torch.no_grad():
            assert vista.end_epoch(theirs(val_x)).anchors == weights
        torch.testing.assert_close(targets, vista.targets(range(len(x))), rtol=0, atol=5e-4)  # a step of float16
    for one, other in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-3)


def test_no_anchor_leaves_the_labels() -> None:
    train_set, (val_x, val_labels), _ = EXAMPLE["data"]()
    wrong = torch.zeros_like(val_labels)
    silent = network()
    with torch.no_grad():
        silent[2].bias[0] = -1e3  # never predicts class 0, which is all that is asked
    for _, weights, _, targets in EXAMPLE["train"](silent, train_set, (val_x, wrong), tau=0.9, epochs=3):
        assert weights == {}
        assert torch.equal(targets, torch.eye(CLASSES)[train_set[1]])


def test_ties_go_to_the_older_state() -> None:
    older, newer = np.array([[1, 1, 0], [0, 1, 1]], dtype=bool)
    assert EXAMPLE["marginal_coverage"]({3: older, 5: newer}) == {3: 2, 5: 1}
