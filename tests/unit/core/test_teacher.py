"""From counts to weights, from weights and predictions to the teacher."""

from __future__ import annotations

import re
import sys
from contextlib import nullcontext
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor

import vista.core
from vista import functional
from vista.core import teacher as teacher_module
from vista.core.teacher import blend, normalise, smooth, teacher
from vista.core.triton_support import triton_works


def predictions(states: int, rows: int, classes: int, seed: int = 0) -> dict[int, Tensor]:
    source = torch.Generator().manual_seed(seed)
    return {s: torch.randn(rows, classes, generator=source).softmax(1).half() for s in range(1, states + 1)}


def test_weights_are_shares_and_states_at_zero_drop_out() -> None:
    assert normalise({3: 1, 1: 3, 2: 0}) == {1: 0.75, 3: 0.25}
    assert list(normalise({3: 1, 1: 3})) == [1, 3], "oldest first"
    assert normalise({1: 0, 2: 0}) == {}
    assert normalise({}) == {}


def test_a_teacher_is_the_weighted_mean_of_its_states() -> None:
    states = predictions(3, 50, 7)
    weights = {1: 0.5, 3: 0.5}
    by_hand = (states[1].double() + states[3].double()) / 2
    by_hand /= by_hand.sum(1, keepdim=True)
    torch.testing.assert_close(teacher(states, weights), by_hand.float(), atol=1e-7, rtol=0)


def test_a_teacher_is_summed_in_float32_in_the_order_of_the_epochs_and_renormalised() -> None:
    states = predictions(5, 20, 4)
    weights = {4: 0.1, 2: 0.6, 5: 0.3}
    total = torch.zeros(20, 4)
    for s in (2, 4, 5):
        total.add_(states[s].float(), alpha=weights[s])
    assert torch.equal(teacher(states, weights), total / total.sum(1, keepdim=True))


def test_one_state_alone_is_its_own_teacher() -> None:
    states = predictions(1, 30, 5)
    torch.testing.assert_close(teacher(states, {1: 1.0}), states[1].float(), atol=1e-3, rtol=0)


def test_rows_sum_to_one_and_lie_between_the_states_predictions() -> None:
    states = predictions(6, 400, 10)
    result = teacher(states, normalise({s: s for s in states}))
    torch.testing.assert_close(result.sum(1), torch.ones(400), atol=1e-6, rtol=0)
    stacked = torch.stack(list(states.values())).float()
    assert (result >= stacked.amin(0) - 1e-3).all()
    assert (result <= stacked.amax(0) + 1e-3).all()


def test_rows_are_summed_in_portions_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    states, weights = predictions(3, 101, 4), {1: 0.2, 2: 0.3, 3: 0.5}
    whole = teacher(states, weights)
    monkeypatch.setattr(teacher_module, "ROWS_PER_CPU_THREAD", 7)
    assert torch.equal(teacher(states, weights), whole)


def test_a_teacher_can_be_made_in_place() -> None:
    states = predictions(2, 9, 4)
    room = torch.full((9, 4), 5.0)
    result = teacher(states, {1: 0.5, 2: 0.5}, out=room)
    assert result is room
    assert torch.equal(room, teacher(states, {1: 0.5, 2: 0.5}))


def test_smoothing_of_weights_equals_averaging_of_predictions() -> None:
    """Each state's prediction is replaced by the mean over its neighbours, cut at the first and the last epoch."""
    last, width, classes = 6, 3, 4
    rng = np.random.default_rng(0)
    states = {s: rng.random((5, classes)) for s in range(1, last + 1)}
    weights = {1: 0.2, 3: 0.5, 6: 0.3}
    averaged = {s: np.mean([states[r] for r in range(max(1, s - 1), min(last, s + 1) + 1)], axis=0) for s in weights}
    by_hand = sum(weights[s] * averaged[s] for s in weights)
    spread = smooth(weights, last, width)
    np.testing.assert_allclose(sum(w * states[r] for r, w in spread.items()), by_hand, atol=1e-15)
    assert spread == {
        r: pytest.approx(w) for r, w in {1: 0.1, 2: 0.1 + 0.5 / 3, 3: 0.5 / 3, 4: 0.5 / 3, 5: 0.15, 6: 0.15}.items()
    }
    assert sum(spread.values()) == pytest.approx(1)


def test_a_window_of_5_reaches_two_epochs_to_either_side() -> None:
    assert smooth({4: 1.0}, 7, 5) == {r: pytest.approx(1 / 5) for r in (2, 3, 4, 5, 6)}
    assert smooth({2: 1.0}, 3, 5) == {r: pytest.approx(1 / 3) for r in (1, 2, 3)}, "cut at the first and the last"


def test_smoothing_of_width_1_changes_nothing() -> None:
    assert smooth({2: 0.4, 5: 0.6}, 5, 1) == {2: 0.4, 5: 0.6}


def test_blend_goes_from_the_label_to_the_teacher() -> None:
    hard, soft = torch.eye(3), torch.full((3, 3), 1 / 3)
    assert torch.equal(blend(hard, soft, 0.0), hard)
    assert torch.equal(blend(hard, soft, 1.0), soft)
    torch.testing.assert_close(blend(hard, soft, 0.3)[0], torch.tensor([0.8, 0.1, 0.1]))


def test_a_teacher_of_nobody_is_rejected() -> None:
    with pytest.raises(ValueError, match="weights must name at least one state, got none"):
        teacher(predictions(2, 3, 4), {})


class CompilationError(Exception):
    """As of Triton, derived from nothing else."""


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (None, "ModuleNotFoundError: import of triton halted; None in sys.modules"),
        (CompilationError("no target\nmore"), "CompilationError: no target"),
        (2.0, "it computes wrong numbers"),
        (3.0, ""),
    ],
)
def test_triton_must_be_there_compile_and_be_right(
    found: float | Exception | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fused_sum(_states: object, _shares: object, out: torch.Tensor) -> None:
        if isinstance(found, Exception):
            raise found
        out.fill_(found)

    kernel, device = ModuleType("vista.core.teacher_kernel"), torch.device("cpu")
    vars(kernel)["fused_sum"] = fused_sum
    monkeypatch.delattr(vista.core, "teacher_kernel", raising=False)
    monkeypatch.delitem(sys.modules, "vista.core.teacher_kernel", raising=False)
    if found is None:
        monkeypatch.setitem(sys.modules, "triton", None)
    else:
        monkeypatch.setitem(sys.modules, "vista.core.teacher_kernel", kernel)
        monkeypatch.setattr(vista.core, "teacher_kernel", kernel, raising=False)
    with pytest.warns(UserWarning, match=re.escape(f"({reason}): torch's own")) if reason else nullcontext():
        assert triton_works.__wrapped__(device) is not bool(reason)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("states", [1, 2, 16, 37])
@pytest.mark.parametrize("rows", [1232, 1237])  # no multiple of what a program sums; one of what a thread reads
def test_on_a_card_one_kernel_gives_the_sum_of_one_state_after_another(
    rows: int, states: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator, shape = torch.Generator("cuda").manual_seed(states), (rows, 10)
    past = {s: torch.rand(shape, generator=generator, device="cuda").to(dtype) for s in range(states)}
    weights = normalise({s: s + 1.0 for s in past})
    assert triton_works(past[0].device)
    fused = teacher(past, weights)
    monkeypatch.setattr(teacher_module, "triton_works", lambda _device: False)
    torch.testing.assert_close(fused, teacher(past, weights), atol=1e-7, rtol=1e-6)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_on_a_card_states_that_lie_differently_are_summed_all_the_same() -> None:
    past = {1: torch.rand(50, 10, device="cuda").half(), 2: torch.rand(10, 50, device="cuda").half().t()}
    by_hand = 0.25 * past[1].double() + 0.75 * past[2].double()
    by_hand /= by_hand.sum(1, keepdim=True)
    torch.testing.assert_close(teacher(past, {1: 0.25, 2: 0.75}), by_hand.float(), atol=1e-6, rtol=0)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_on_a_card_states_that_begin_anywhere_are_summed_all_the_same() -> None:
    room = torch.rand(99, 16, device="cuda").half().view(-1)
    past = {s: room[s : s + 96 * 16].view(96, 16) for s in (1, 3)}  # 2 and 6 bytes into the room
    by_hand = 0.25 * past[1].double() + 0.75 * past[3].double()
    by_hand /= by_hand.sum(1, keepdim=True)
    torch.testing.assert_close(teacher(past, {1: 0.25, 3: 0.75}), by_hand.float(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("block", [1, 7, 2**20])
@pytest.mark.parametrize("beta", [0.0, 0.3, 0.7123456789, 1.0])
def test_labels_are_blended_in_place_by_the_public_formula(monkeypatch: pytest.MonkeyPatch, block, beta) -> None:
    monkeypatch.setattr(teacher_module, "BLEND_BLOCK", block)
    labels = torch.tensor([0, 2, -1, 1, 1])
    soft = torch.rand(5, 3, generator=torch.Generator().manual_seed(0)).softmax(1)
    expected = functional.blend(functional.one_hot(labels, 3), soft, beta)
    expected[2] = soft[2]  # without a label the teacher alone
    blended = soft.clone()
    teacher_module.blend_labels_(blended, labels, beta)
    assert torch.equal(blended, expected)
