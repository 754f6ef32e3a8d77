"""With its neutral options a method equals plain cross-entropy at every step of a training run.

The constant ``NEUTRAL`` of its file names these options. The network runs in eval mode here, so that BatchNorm treats
each image independently and additional views change nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vista.methods import Batch, Method, available
from vista.training.loop import train

STEPS = 10  # per epoch
# Methods whose cross-entropy includes further samples from the second step on.
MORE_THAN_THE_BATCH = {"dlb": "the samples of the last batch are repeated"}


def neutral_options(method: str) -> dict[str, Any] | None:
    options: dict[str, Any] | None = sys.modules[available()[method].__module__].NEUTRAL
    return options


NEUTRAL = {method: neutral_options(method) for method in available()}
CASES = [
    pytest.param(method, cutmix, id=f"{method}{'+cutmix' * (cutmix > 0)}")
    for method, options in NEUTRAL.items()
    for cutmix in (0.0, 0.5)
    if options is not None and (available()[method].composes_with_cutmix or not cutmix)
]
Pair = tuple[float, float]


def plain_cross_entropy(method: Method, network: nn.Module, batch: Batch) -> Tensor:
    def hard(index: Tensor) -> Tensor:
        return F.one_hot(method.task.labels[index], method.task.num_classes).float()

    targets = hard(batch.index)
    if batch.partner is not None and batch.share is not None:
        targets = batch.share * targets + (1 - batch.share) * hard(batch.partner)
    with torch.no_grad():
        return F.cross_entropy(network(batch.x), targets)


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch, make_config, tmp_path: Path) -> Callable[..., list[Pair]]:
    """``compare(method, options, epochs)``: the method's loss and plain cross-entropy at every step.

    For a loss with several terms the first is used, the cross-entropy of the main head.
    """

    def run(method: str, options: dict[str, Any], epochs: int, cutmix: float = 0.0) -> list[Pair]:
        chosen, pairs = available()[method], []
        part = "terms" if hasattr(chosen, "terms") else "loss"
        original = getattr(chosen, part)

        def observe(self: Method, network: nn.Module, batch: Batch) -> Any:
            network.eval()
            plain = plain_cross_entropy(self, network, batch)
            given = original(self, network, batch)
            pairs.append((float((given[0] if part == "terms" else given).detach()), float(plain)))
            return given

        monkeypatch.setattr(chosen, part, observe)
        for _ in train(make_config(method, options=options, epochs=epochs, cutmix=cutmix), tmp_path / "run"):
            pass
        return pairs

    return run


@pytest.mark.filterwarnings("ignore:CutMix is on, so record becomes")
@pytest.mark.parametrize(("method", "cutmix"), CASES)
def test_neutral_loss_is_plain_cross_entropy(compare, method: str, cutmix: float) -> None:
    options = NEUTRAL[method]
    assert options is not None
    epochs = 2 if cutmix else 3
    pairs = compare(method, options, epochs, cutmix)
    assert len(pairs) == STEPS * epochs
    checked = pairs[:1] if method in MORE_THAN_THE_BATCH else pairs
    assert [ours for ours, _ in checked] == pytest.approx([plain for _, plain in checked], rel=1e-5)
    if method in MORE_THAN_THE_BATCH:
        assert pairs[-1][0] != pytest.approx(pairs[-1][1], rel=1e-3), "the exemption is not needed"


@pytest.mark.parametrize("method", [method for method, options in NEUTRAL.items() if options is None])
def test_without_neutral_options_loss_is_never_plain(compare, method: str) -> None:
    for ours, plain in compare(method, {}, epochs=2):
        assert ours != pytest.approx(plain, rel=1e-3)


@pytest.mark.parametrize("method", [m for m in NEUTRAL if NEUTRAL[m]])
def test_neutral_options_are_not_the_default(method: str) -> None:
    config = available()[method].Config(**available()[method].variants.get(method, {}))
    options = NEUTRAL[method] or {}
    assert set(options) <= {field.name for field in fields(config)}
    assert {name: getattr(config, name) for name in options} != options
