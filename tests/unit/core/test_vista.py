"""``Vista``: what each call does to the state of the method, and what it rejects."""

from __future__ import annotations

import io
import itertools
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from vista import Vista
from vista.core import store
from vista.core.losses import one_hot
from vista.core.vista import _check_device
from vista.functional import beta

N, M, K, E = 8, 6, 3, 5
LABELS = torch.arange(N) % K
VAL_LABELS = torch.arange(M) % K
ALL = torch.arange(N)


def make(**options: Any) -> Vista:
    defaults: dict[str, Any] = {"labels": LABELS, "num_classes": K, "epochs": E, "val_labels": VAL_LABELS}
    return Vista(**{**defaults, **options})


def drawn(rows: int, seed: int, classes: int = K, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(rows, classes, generator=torch.Generator().manual_seed(seed), dtype=dtype) * 2


def right(*samples: int) -> Tensor:
    """Validation logits that get exactly ``samples`` right."""
    hit = torch.tensor([i in samples for i in range(M)])
    return one_hot(torch.where(hit, VAL_LABELS, (VAL_LABELS + 1) % K), K)


def train(vista: Vista, logits: Tensor, index: Tensor = ALL) -> Tensor:
    return vista.loss(logits.clone().requires_grad_(), index)


def stored(logits: Tensor) -> Tensor:
    """Probabilities as the store keeps them."""
    return logits.float().softmax(1).half().float()


def assert_same(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    else:
        assert one == other


def in_the_middle(**options: Any) -> Vista:
    """Two epochs have ended and the third has begun."""
    vista = make(**options)
    for epoch, covered in ((1, (0, 1, 2)), (2, (2, 3, 4, 5))):
        train(vista, drawn(N, epoch))
        vista.record(drawn(N, epoch), ALL)
        vista.end_epoch(right(*covered))
    vista.record(drawn(3, 9), torch.tensor([1, 5, 7]))
    return vista


# ---------------------------------------------------------------- the five lines


def test_the_loop_of_the_readme() -> None:
    vista = make()
    seen = []
    for epoch in vista.epochs():
        for index in ALL.split(3):
            loss = vista.loss(drawn(len(index), epoch).requires_grad_(), index)
            loss.backward()
        summary = vista.end_epoch(right(epoch % M))
        assert summary.epoch == epoch
        assert summary.accuracy == 1 / M
        assert summary.beta == beta(epoch, E)
        assert summary.unrecorded == 0
        assert summary.event is None
        seen.append(epoch)
    assert seen == [1, 2, 3, 4, 5]
    assert summary.anchors == dict.fromkeys(range(1, 6), 0.2)
    assert list(vista.epochs()) == []


def test_everything_works_without_epochs() -> None:
    vista = make()
    for _ in range(E):
        train(vista, drawn(N, 0))
        vista.end_epoch(right(0))
    assert vista.epoch == E


def test_an_epoch_that_was_not_ended_is_noticed() -> None:
    with pytest.raises(RuntimeError, match=r"epoch 1 was not ended: call end_epoch\(val_logits\)"):
        for _ in make().epochs():
            pass


def test_an_epoch_that_was_ended_twice_is_noticed() -> None:
    vista = make()
    epochs = vista.epochs()
    next(epochs)
    for _ in range(2):
        train(vista, drawn(N, 0))
        vista.end_epoch(right(0))
    with pytest.raises(RuntimeError, match=r"epoch 1 was ended 2 times: call end_epoch\(val_logits\) once, at its end"):
        next(epochs)


def test_a_state_may_be_loaded_within_the_loop() -> None:
    ahead, vista, seen = make(), make(), []
    for _ in range(3):
        train(ahead, drawn(N, 0))
        ahead.end_epoch(right(0))
    for epoch in vista.epochs():
        if epoch == 1:
            vista.load_state_dict(ahead.state_dict())
        train(vista, drawn(N, 0))
        vista.end_epoch(right(0))
        seen.append(vista.epoch)
    assert seen == list(range(4, E + 1))


def test_no_more_epochs_end_than_were_planned() -> None:
    vista = make(epochs=2)
    for _ in range(2):
        train(vista, drawn(N, 0))
        vista.end_epoch(right(0))
    before = vista.state_dict()
    with pytest.raises(RuntimeError, match=r"all 2 epochs have ended: use epochs=3 or more"):
        vista.end_epoch(right(0))
    assert_same(vista.state_dict(), before)


# ---------------------------------------------------------------- what is recorded


def current(vista: Vista) -> Tensor:
    return vista.state_dict()["current"].float()


def test_loss_remembers_the_softmax_of_the_training_pass() -> None:
    vista = make()
    logits = drawn(4, 0)
    train(vista, logits, torch.tensor([6, 0, 3, 2]))
    assert torch.equal(current(vista)[[6, 0, 3, 2]], stored(logits))
    assert torch.equal(current(vista)[[1, 4, 5, 7]], one_hot(LABELS[[1, 4, 5, 7]], K)), "the others are untouched"
    assert vista.state_dict()["seen"].tolist() == [True, False, True, True, False, False, True, False]


def test_of_a_sample_that_comes_twice_the_last_write_stands() -> None:
    vista = make()
    train(vista, drawn(2, 0), torch.tensor([4, 1]))
    twice = drawn(5, 1)
    train(vista, twice, torch.tensor([4, 1, 4, 2, 4]))
    assert torch.equal(current(vista)[[1, 2, 4]], stored(twice)[[1, 3, 4]])


def test_given_targets_record_nothing() -> None:
    vista = make()
    before = vista.state_dict()
    vista.loss(drawn(N, 0).requires_grad_(), ALL, targets=vista.targets(ALL))
    assert_same(vista.state_dict(), before)


def test_without_gradients_nothing_is_recorded() -> None:
    vista = make()
    before = vista.state_dict()
    with torch.no_grad():
        vista.loss(drawn(N, 0), ALL)
    assert_same(vista.state_dict(), before)


def test_eval_records_nothing_in_loss_and_asks_for_a_clean_pass() -> None:
    vista = make(record="eval")
    before = vista.state_dict()
    train(vista, drawn(N, 0))
    assert_same(vista.state_dict(), before)
    with pytest.raises(
        ValueError,
        match=r"epoch 1 has no recorded predictions: .* pass train_logits \[N, K\] to end_epoch, or call record",
    ):
        vista.end_epoch(right(0))
    assert_same(vista.state_dict(), before)


def test_eval_takes_record_or_train_logits_alike() -> None:
    by_calls, at_once, as_numpy = make(record="eval"), make(record="eval"), make(record="eval")
    logits = drawn(N, 0)
    for index in ALL.split(3):
        by_calls.record(logits[index], index)
    by_calls.end_epoch(right(0, 1))
    at_once.end_epoch(right(0, 1), train_logits=logits)
    as_numpy.end_epoch(right(0, 1).numpy(), train_logits=logits.numpy())
    assert torch.equal(at_once.teacher(), stored(logits) / stored(logits).sum(1, keepdim=True))
    assert_same(by_calls.state_dict(), at_once.state_dict())
    assert_same(as_numpy.state_dict(), at_once.state_dict())


def test_train_logits_do_not_belong_to_train_recording() -> None:
    vista = in_the_middle()
    before = vista.state_dict()
    with pytest.raises(ValueError, match=r"train_logits must be None with record='train'"):
        vista.end_epoch(right(0), train_logits=drawn(N, 0))
    assert_same(vista.state_dict(), before)


def test_where_targets_of_ones_own_left_nothing_remembered_the_warning_says_so() -> None:
    vista = make(tau=0.5)
    vista.loss(drawn(N, 0).requires_grad_(), ALL, targets=0.9 * vista.targets(ALL) + 0.1 / K)
    with pytest.warns(UserWarning, match=r"8 of 8 .* loss\(\) with custom targets stores nothing: call record"):
        summary = vista.end_epoch(right(0))
    assert summary.event is not None
    assert "8 of 8 training samples were not recorded" in summary.event
    assert summary.event.endswith("the next targets are the labels"), "one does not hide the other"


def test_a_sample_that_was_not_seen_is_reported_and_carries_its_last_prediction() -> None:
    vista = make()
    first, second = drawn(N, 0), drawn(3, 1)
    train(vista, first[:6], ALL[:6])
    with pytest.warns(UserWarning, match=r"2 of 8 training samples were not recorded in epoch 1") as caught:
        summary = vista.end_epoch(right(0, 1, 2))
    assert caught[0].filename == __file__, "the warning points at the call"
    assert summary.unrecorded == 2
    assert summary.event is not None
    assert summary.event.startswith("2 of 8")
    expected = torch.cat([stored(first[:6]), one_hot(LABELS[6:], K)])  # never seen: its one-hot
    torch.testing.assert_close(vista.teacher(), expected, atol=1e-3, rtol=0)
    train(vista, second, ALL[:3])
    with pytest.warns(UserWarning, match="5 of 8"):
        vista.end_epoch(right(3, 4, 5, 0))
    state = vista.state_dict()["predictions"]["2"].float()
    assert torch.equal(state, torch.cat([stored(second), expected[3:6].half().float(), one_hot(LABELS[6:], K)]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_logits_of_any_precision(dtype: torch.dtype) -> None:
    vista = make()
    logits = drawn(N, 0).to(dtype).requires_grad_()
    loss = vista.loss(logits, ALL)
    loss.backward()
    assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert logits.grad is not None
    assert logits.grad.dtype == dtype
    wide = logits.detach().double() if dtype == torch.float64 else logits.detach().float()
    assert torch.equal(current(vista), wide.softmax(1).half().float())
    vista.end_epoch(right(0).to(dtype))
    assert vista.targets(ALL).dtype == torch.float32


def test_indices_and_labels_may_be_tensors_arrays_or_lists() -> None:
    rows = vista_rows = None
    for kind in (
        lambda t: t,
        lambda t: t.numpy(),
        lambda t: t.tolist(),
        lambda t: t.int(),
        lambda t: t.to(torch.uint8),
    ):
        vista = make(labels=kind(LABELS), val_labels=kind(VAL_LABELS))
        vista.loss(drawn(N, 0).requires_grad_(), kind(ALL))
        vista.end_epoch(right(0), val_index=kind(torch.arange(M)))
        vista_rows = vista.targets(kind(ALL))
        assert rows is None or torch.equal(rows, vista_rows)
        rows = vista_rows


# ---------------------------------------------------------------- the loss


def test_at_beta_0_the_loss_is_cross_entropy() -> None:
    logits = drawn(N, 0, dtype=torch.float64)
    for reduction in ("mean", "sum", "none"):
        ours = make().loss(logits, ALL, reduction=reduction)  # type: ignore[arg-type]
        torch.testing.assert_close(ours, F.cross_entropy(logits, LABELS, reduction=reduction), rtol=1e-12, atol=0)


def test_the_gradient_is_prediction_less_target_over_batch() -> None:
    vista = in_the_middle()
    logits = drawn(4, 3, dtype=torch.float64).requires_grad_()
    index = torch.tensor([7, 2, 2, 0])
    targets = vista.targets(index)
    assert ((targets > 0) & (targets < 1)).any()
    vista.loss(logits, index).backward()
    expected = (logits.detach().softmax(1) - targets.double()) / 4
    torch.testing.assert_close(logits.grad, expected, rtol=0, atol=1e-7)


def test_no_gradient_reaches_the_store() -> None:
    vista = in_the_middle()
    train(vista, drawn(N, 0)).backward()
    state = vista.state_dict()
    tensors = [state["current"], vista.targets(ALL), vista.teacher(), *state["predictions"].values()]
    assert not any(tensor.requires_grad for tensor in tensors)


def test_less_the_entropy_the_loss_is_the_divergence_from_the_target() -> None:
    vista = in_the_middle(schedule="fixed", value=0.5)
    logits = drawn(N, 3, dtype=torch.float64)
    targets = vista.targets(ALL).double()
    divergence = vista.loss(logits, ALL, reduction="none") + (targets * targets.log()).sum(1)
    torch.testing.assert_close(divergence, F.kl_div(logits.log_softmax(1), targets, reduction="none").sum(1))
    assert (divergence > 0).all()


def test_weights_of_samples_and_classes() -> None:
    vista = in_the_middle()
    logits, targets = drawn(N, 3), vista.targets(ALL)
    of_samples, of_classes = torch.arange(1.0, N + 1), torch.tensor([0.5, 1.0, 3.0])
    by_hand = -(of_classes * targets * logits.log_softmax(1)).sum(1) * of_samples
    for reduction, expected in (("none", by_hand), ("sum", by_hand.sum()), ("mean", by_hand.mean())):
        ours = vista.loss(logits, ALL, reduction=reduction, sample_weight=of_samples, class_weight=of_classes)  # type: ignore[arg-type]
        torch.testing.assert_close(ours, expected)


def test_given_targets_are_those_of_the_loss() -> None:
    logits, targets = drawn(N, 3), drawn(N, 4).softmax(1)
    torch.testing.assert_close(make().loss(logits, ALL, targets=targets), F.cross_entropy(logits, targets))


def test_given_targets_need_not_sum_to_one() -> None:
    logits, targets = drawn(N, 3).requires_grad_(), drawn(N, 4).abs()
    (ours,) = torch.autograd.grad(make().loss(logits, ALL, targets=targets), logits)
    (theirs,) = torch.autograd.grad(-(targets * logits.log_softmax(1)).sum(1).mean(), logits)
    torch.testing.assert_close(ours, theirs)


# ---------------------------------------------------------------- samples without a label


@pytest.mark.parametrize(("sign", "options"), [(-1, {}), (-100, {"ignore_index": -100}), (99, {"ignore_index": 99})])
def test_a_missing_label_takes_no_part_until_there_is_a_teacher(sign: int, options: dict[str, Any]) -> None:
    labels = LABELS.clone()
    labels[[2, 5]] = sign
    vista = make(labels=labels, schedule="fixed", value=0.4, **options)
    logits, labelled = drawn(N, 0), [0, 1, 3, 4, 6, 7]
    assert vista.targets(torch.tensor([2, 5])).tolist() == [[0.0] * K] * 2
    torch.testing.assert_close(train(vista, logits), F.cross_entropy(logits[labelled], LABELS[labelled]))
    vista.end_epoch(right(0, 1))
    teacher = vista.teacher()
    assert torch.equal(vista.targets(torch.tensor([2, 5])), teacher[[2, 5]]), "the teacher alone, whatever beta is"
    torch.testing.assert_close(vista.targets(ALL)[0], 0.4 * teacher[0] + 0.6 * one_hot(LABELS, K)[0])
    torch.testing.assert_close(train(vista, logits), F.cross_entropy(logits, vista.targets(ALL)))


def test_a_batch_without_any_label_has_a_loss_of_zero() -> None:
    vista = make(labels=torch.full((N,), -1))
    logits = drawn(N, 0).requires_grad_()
    loss = vista.loss(logits, ALL)
    loss.backward()
    assert loss == 0
    assert logits.grad is not None
    assert not logits.grad.any()


def test_a_missing_label_that_was_never_seen_counts_as_uniform() -> None:
    vista = make(labels=torch.full((N,), -1))
    train(vista, drawn(1, 0), torch.tensor([0]))
    with pytest.warns(UserWarning, match="7 of 8"):
        vista.end_epoch(right(0))
    torch.testing.assert_close(vista.teacher()[1:], torch.full((N - 1, K), 1 / K))
    train(vista, drawn(N, 1))
    vista.end_epoch(right(1))  # one sample each: both states weigh the same
    torch.testing.assert_close(vista.teacher()[1:], (1 / K + stored(drawn(N, 1))[1:]) / 2, rtol=1e-3, atol=1e-4)


# ---------------------------------------------------------------- the ablations, by hand


def past(**options: Any) -> tuple[Vista, list[Tensor], Any]:
    """Four epochs, with coverage of 3, 2, 3 and 1 samples; the states' predictions and the last summary."""
    vista = make(**options)
    states = []
    for epoch, covered in enumerate([(0, 1, 2), (2, 3), (3, 4, 0), (5,)], 1):
        train(vista, drawn(N, epoch))
        states.append(stored(drawn(N, epoch)))
        summary = vista.end_epoch(right(*covered))
    return vista, states, summary


def mean_of(states: list[Tensor], weights: list[float]) -> Tensor:
    total = sum(w * s for w, s in zip(weights, states))
    assert isinstance(total, Tensor)
    return total / total.sum(1, keepdim=True)


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ({}, [3 / 6, 0, 2 / 6, 1 / 6]),
        ({"order": "newest"}, [1 / 6, 1 / 6, 3 / 6, 1 / 6]),
        ({"weights": "accuracy"}, [3 / 9, 2 / 9, 3 / 9, 1 / 9]),
        ({"weights": "uniform"}, [1 / 4] * 4),
        ({"tau": 0.2}, [3 / 5, 0, 2 / 5, 0]),
    ],
)
def test_weights_by_hand(options: dict[str, Any], weights: list[float]) -> None:
    vista, states, summary = past(**options)
    assert summary.anchors == {s: w for s, w in enumerate(weights, 1) if w}
    torch.testing.assert_close(vista.teacher(), mean_of(states, weights), atol=1e-6, rtol=0)
    b = beta(4, E)
    torch.testing.assert_close(
        vista.targets(ALL), (1 - b) * one_hot(LABELS, K) + b * mean_of(states, weights), atol=1e-6, rtol=0
    )


@pytest.mark.parametrize(("options", "weights"), [({}, [3, 0, 2, 1]), ({"weights": "uniform"}, [1, 1, 1, 1])])
def test_smoothing_is_the_weighted_mean_of_averaged_predictions(options: dict[str, Any], weights: list[float]) -> None:
    vista, states, summary = past(smoothing=3, **options)
    averaged = [
        torch.stack(states[0:2]).mean(0),
        torch.stack(states[0:3]).mean(0),
        torch.stack(states[1:4]).mean(0),
        torch.stack(states[2:4]).mean(0),
    ]
    torch.testing.assert_close(vista.teacher(), mean_of(averaged, weights), atol=1e-6, rtol=0)
    assert summary.anchors == {s: w / sum(weights) for s, w in enumerate(weights, 1) if w}


def test_a_fixed_schedule_starts_on_the_labels() -> None:
    vista = make(schedule="fixed", value=0.7)
    assert torch.equal(vista.targets(ALL), one_hot(LABELS, K))
    train(vista, drawn(N, 0))
    assert vista.end_epoch(right(0)).beta == 0.7
    torch.testing.assert_close(vista.targets(ALL), 0.3 * one_hot(LABELS, K) + 0.7 * vista.teacher())


def test_a_fixed_schedule_may_start_on_a_uniform_teacher() -> None:
    vista = make(schedule="fixed", value=0.6, start="uniform")
    torch.testing.assert_close(vista.targets(ALL), 0.4 * one_hot(LABELS, K) + 0.6 / K)
    train(vista, drawn(N, 0))
    vista.end_epoch(right(0))
    torch.testing.assert_close(vista.targets(ALL), 0.4 * one_hot(LABELS, K) + 0.6 * vista.teacher())


@pytest.mark.parametrize("start", ["hard", "uniform"])
def test_without_an_anchor_the_next_targets_are_the_labels_and_the_event_is_reported(start: str) -> None:
    vista = make(schedule="fixed", value=1.0, tau=0.5, start=start)
    train(vista, drawn(N, 0))
    assert vista.end_epoch(right(0, 1, 2, 3)).event is None
    assert not torch.equal(vista.targets(ALL), one_hot(LABELS, K))
    vista = make(schedule="fixed", value=1.0, tau=0.5, start=start)
    train(vista, drawn(N, 0))
    summary = vista.end_epoch(right(0, 1, 2))  # three of six: not above one half
    assert summary.anchors == {}
    assert summary.event == "no state covers more than 0.5 of the validation set: the next targets are the labels"
    assert torch.equal(vista.targets(ALL), one_hot(LABELS, K))
    assert torch.equal(vista.teacher(), one_hot(LABELS, K))
    assert vista.state_dict()["predictions"] == {}


def test_validation_rows_are_matched_by_index() -> None:
    straight, shuffled = make(), make()
    order = torch.tensor([4, 0, 5, 2, 1, 3])
    for vista, logits, index in ((straight, right(0, 4), None), (shuffled, right(0, 4)[order], order)):
        train(vista, drawn(N, 0))
        vista.end_epoch(logits, val_index=index)
    assert_same(straight.state_dict(), shuffled.state_dict())


def test_a_validation_sample_that_comes_twice_counts_once_with_its_first_row() -> None:
    vista = make()
    train(vista, drawn(N, 0))
    logits = torch.cat([right(0, 1), right(2, 3, 4)])  # padded: each sample again, with another prediction
    summary = vista.end_epoch(logits, val_index=torch.arange(M).repeat(2))
    assert summary.accuracy == 2 / M
    assert vista.state_dict()["counts"] == [2]


# ---------------------------------------------------------------- state


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


def test_known_correctness_is_accepted_in_the_place_of_logits() -> None:
    """The training loop finds out once which validation samples are right, for its record and for the method."""
    by_logits, by_bits = make(), make()
    for vista in (by_logits, by_bits):
        train(vista, drawn(N, 0))
    correct = right(0, 2).argmax(dim=1) == VAL_LABELS
    assert by_logits.end_epoch(right(0, 2)) == by_bits.end_epoch(correct)
    assert_same(by_logits.state_dict(), by_bits.state_dict())
    with pytest.raises(ValueError, match=r"^val_logits must be logits \[6, K\] or bool \[6\], got shape \(5,\)"):
        by_bits.end_epoch(correct[:5].numpy())


def test_epochs_yields_the_epoch_of_a_loaded_state_again_with_its_rows_kept() -> None:
    fresh = make()
    fresh.load_state_dict(through_a_file(in_the_middle().state_dict()))
    assert fresh.state_dict()["seen"].nonzero().flatten().tolist() == [1, 5, 7]
    epochs = []
    for epoch in fresh.epochs():
        epochs.append(epoch)
        others = [i for i in range(N) if i not in (1, 5, 7)] if epoch == 3 else list(range(N))
        train(fresh, drawn(len(others), 0), torch.tensor(others))
        assert fresh.end_epoch(right(0)).unrecorded == 0
    assert epochs == [3, 4, 5]


def test_a_state_is_a_copy_of_its_moment() -> None:
    vista = in_the_middle()
    state = vista.state_dict()
    kept = through_a_file(state)
    train(vista, drawn(N, 5))
    vista.end_epoch(right(0, 1, 2, 3, 4, 5))
    assert_same(state, kept)


def test_a_loaded_state_and_its_source_do_not_share_a_fate() -> None:
    vista, fresh = in_the_middle(), make()
    fresh.load_state_dict(vista.state_dict())
    before = through_a_file(vista.state_dict())
    train(fresh, drawn(N, 5))
    fresh.end_epoch(right(0))
    assert_same(vista.state_dict(), before)


def test_a_state_of_more_samples_than_a_half_can_count_loads() -> None:
    labels = torch.arange(70_000) % 2
    vista = Vista(labels, num_classes=2, epochs=2, val_labels=[0, 1])
    vista.record(one_hot(labels, 2), torch.arange(len(labels)))
    vista.end_epoch(torch.eye(2))
    again = Vista(labels, num_classes=2, epochs=2, val_labels=[0, 1])
    again.load_state_dict(vista.state_dict())
    assert_same(again.state_dict(), vista.state_dict())


OTHER: list[tuple[dict[str, Any], str]] = [
    ({"labels": LABELS.flip(0)}, "labels="),
    ({"labels": LABELS[:-1]}, r"samples=8, but this Vista has samples=7"),
    ({"val_labels": VAL_LABELS.flip(0)}, "val_labels="),
    ({"val_labels": VAL_LABELS[:-1]}, "validation_samples=6, .*validation_samples=5"),
    ({"num_classes": 4}, "num_classes=3, .*num_classes=4"),
    ({"epochs": 6}, "epochs=5, but this Vista has epochs=6"),
    ({"tau": 0.01}, "tau=0.0, but this Vista has tau=0.01"),
    ({"record": "eval"}, "record='train', .*record='eval'"),
    ({"schedule": "linear"}, "schedule='exp', .*schedule='linear'"),
    ({"k": 3.0}, "k=2.0, .*k=3.0"),
    ({"order": "newest"}, "order='accuracy', .*order='newest'"),
    ({"weights": "uniform"}, "weights='coverage', .*weights='uniform'"),
    ({"smoothing": 3}, "smoothing=1, .*smoothing=3"),
]


@pytest.mark.parametrize(("options", "message"), OTHER, ids=[next(iter(options)) for options, _ in OTHER])
def test_a_state_of_another_training_is_rejected_by_name(options: dict[str, Any], message: str) -> None:
    vista = make(**options)
    before = vista.state_dict()
    with pytest.raises(ValueError, match="^the state was made with " + message):
        vista.load_state_dict(in_the_middle().state_dict())
    assert_same(vista.state_dict(), before)


@pytest.mark.parametrize("version", [0, 3, None, "1"])
def test_a_state_of_another_format_is_rejected(version: Any) -> None:
    vista = make()
    before = vista.state_dict()
    with pytest.raises(ValueError, match=rf"the state must have format 1 or 2, got {version!r}"):
        vista.load_state_dict({**in_the_middle().state_dict(), "format": version})
    assert_same(vista.state_dict(), before)


@pytest.mark.parametrize("state", [None, [1], "state.pt"])
def test_what_is_no_state_is_rejected(state: Any) -> None:
    with pytest.raises(TypeError, match=rf"state must be the result of state_dict\(\), got a {type(state).__name__}"):
        make().load_state_dict(state)


@pytest.mark.parametrize("part", ["epoch", "states", "counts", "coverage", "current", "seen", "predictions"])
def test_a_state_that_lacks_a_part_changes_nothing(part: str) -> None:
    vista, state = make(), in_the_middle().state_dict()
    before, targets = vista.state_dict(), vista.targets(ALL)
    del state[part]
    with pytest.raises(ValueError, match=rf"the state is damaged: it lacks {part}"):
        vista.load_state_dict(state)
    assert_same(vista.state_dict(), before)
    assert torch.equal(vista.targets(ALL), targets)


@pytest.mark.parametrize(("part", "value"), [("epoch", 1.7), ("epoch", "2"), ("states", [1.5]), ("counts", [None])])
def test_numbers_of_a_state_are_whole(part: str, value: Any) -> None:
    vista, state = make(), in_the_middle().state_dict()
    with pytest.raises(TypeError, match=rf"the state's {part} must be a whole number, got"):
        vista.load_state_dict({**state, part: value})


@pytest.mark.parametrize(
    ("part", "value", "kind"),
    [
        ("identity", [], "list"),
        ("predictions", [1], "list"),
        ("predictions", {"1": 5}, "int"),
        ("predictions", {"one": torch.zeros(N, K)}, "Tensor"),
        ("states", 1, "int"),
        ("counts", "1", "str"),
        ("coverage", [[0]], "list"),
        ("current", None, "NoneType"),
        ("seen", {}, "dict"),
    ],
)
def test_a_part_of_another_kind_is_named(part: str, value: Any, kind: str) -> None:
    vista, state = make(), in_the_middle().state_dict()
    before = vista.state_dict()
    with pytest.raises(ValueError, match=rf"the state is damaged: {part} must be a .*got .*{kind}"):
        vista.load_state_dict({**state, part: value})
    assert_same(vista.state_dict(), before)


@pytest.mark.parametrize("options", [{}, {"tau": 0.2}, {"weights": "accuracy"}, {"order": "newest"}])
def test_every_state_of_a_training_loads_and_none_whose_counts_are_not_those_of_its_bits(
    options: dict[str, Any],
) -> None:
    vista = make(**options)
    for epoch, samples in enumerate([(0, 1), (1, 2, 3), (0, 2, 3), (4,), (1, 2, 3, 5)]):
        train(vista, drawn(N, epoch))
        vista.end_epoch(right(*samples))
        state = vista.state_dict()
        make(**options).load_state_dict(state)
        for wrong in ([99] * len(state["counts"]), [-1] * len(state["counts"])):
            with pytest.raises(ValueError, match=f"the state of epoch {epoch + 1} is damaged: invalid counts"):
                make(**options).load_state_dict({**state, "counts": wrong})


def test_inside_a_transform_of_torch_func_the_loss_is_that_of_targets_given_and_nothing_is_recorded() -> None:
    vista, logits = make(), drawn(N, 0)
    with pytest.raises(RuntimeError, match=r"cannot store predictions inside torch\.func: pass targets="):
        torch.func.grad(lambda z: vista.loss(z, ALL))(logits)
    assert not vista.state_dict()["seen"].any()
    found = torch.func.grad(lambda z: vista.loss(z, ALL, targets=vista.targets(ALL)))(logits)
    torch.testing.assert_close(found, torch.func.grad(lambda z: F.cross_entropy(z, LABELS))(logits))
    evaluated = make(record="eval")
    torch.testing.assert_close(torch.func.grad(lambda z: evaluated.loss(z, ALL))(logits), found)


def test_an_ignored_label_is_a_whole_number() -> None:
    with pytest.raises(TypeError, match="ignore_index must be a whole number, got 'x'"):
        make(ignore_index="x")


@pytest.mark.parametrize(
    ("part", "damage"),
    [
        ("current", lambda part: part[:2]),
        ("current", lambda part: part[:, :1]),
        ("seen", lambda part: part[:1]),
        ("predictions", lambda _part: {}),
        ("predictions", lambda part: {s: rows[:3] for s, rows in part.items()}),
        ("coverage", lambda part: torch.cat([part, part])),
        ("counts", lambda part: [*part, 1]),
        ("counts", lambda part: [99] * len(part)),
        ("counts", lambda part: [0] * len(part)),
        ("coverage", lambda part: part[:, :5]),
        ("coverage", lambda part: part.float()),
        ("coverage", lambda part: part[0]),
        ("coverage", lambda part: part * 0),
        ("states", lambda part: part[::-1]),
        ("epoch", lambda _part: 99),
        ("epoch", lambda _part: 0),
        ("predictions", lambda part: {s: rows / 0 for s, rows in part.items()}),
        ("current", lambda part: part * float("nan")),
        ("current", lambda part: part.float()),
        ("current", lambda part: part.bfloat16()),
        ("current", lambda part: part * 2),
        ("current", lambda part: -part),
        ("current", lambda part: part * 0),
        ("seen", lambda part: part.float()),
        ("predictions", lambda part: {s: rows.float() for s, rows in part.items()}),
        ("predictions", lambda part: {s: 1 - rows for s, rows in part.items()}),
        ("predictions", lambda part: {s: rows * 1.01 for s, rows in part.items()}),
        ("counts", lambda part: [2**70] * len(part)),
    ],
)
def test_a_damaged_state_changes_nothing(part: str, damage: Callable[[Any], Any]) -> None:
    vista, state = make(), in_the_middle().state_dict()
    before, targets = vista.state_dict(), vista.targets(ALL)
    state[part] = damage(state[part])
    with pytest.raises(ValueError, match=r"^the state of epoch \d+ is damaged: invalid "):
        vista.load_state_dict(state)
    assert_same(vista.state_dict(), before)
    assert torch.equal(vista.targets(ALL), targets)


@pytest.mark.parametrize("part", ["current", "predictions"])
def test_a_flipped_high_bit_of_a_prediction_is_noticed(part: str) -> None:
    """The sign and the two highest exponent bits of every stored value; a low mantissa bit is within rounding."""
    vista, before = make(), make().state_dict()
    for sample, column, bit in itertools.product(range(N), range(K), (13, 14, 15)):
        state = through_a_file(in_the_middle().state_dict())
        rows = state[part] if part == "current" else next(iter(state[part].values()))
        raw = rows.view(torch.int16).numpy()
        raw[sample, column] ^= np.array(1 << bit, np.uint16).view(np.int16)
        if rows[sample, column] == 0 or (bit == 13 and rows[sample, column] < 2**-7):
            continue  # minus zero, or a change within the tolerance
        with pytest.raises(ValueError, match=f"is damaged: invalid {part}"):
            vista.load_state_dict(state)
    assert_same(vista.state_dict(), before)


@pytest.mark.parametrize("classes", [2, 1000, 70_000])
def test_predictions_rounded_to_float16_load(classes: int) -> None:
    """Also those of a uniform teacher over so many classes that they are subnormal."""
    vista, again = (Vista([0, -1, 1], num_classes=classes, epochs=2, val_labels=[0]) for _ in range(2))
    logits = torch.randn(3, classes, generator=torch.Generator().manual_seed(0))
    vista.record(torch.stack([logits[0], 1e4 * logits[1], 0 * logits[2]])[:2], [0, 1])
    again.load_state_dict(through_a_file(vista.state_dict()))
    assert_same(again.state_dict(), vista.state_dict())


def test_a_state_made_with_numbers_of_numpy_loads_without_pickle(tmp_path: Path) -> None:
    labels = np.arange(6) % 3
    vista = Vista(
        labels, num_classes=labels.max() + 1, epochs=np.int64(3), val_labels=labels, tau=np.float32(0.0),
        smoothing=np.int64(3), order=np.str_("newest"),
    )  # fmt: skip
    torch.save(vista.state_dict(), tmp_path / "state.pt")
    vista.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))


def test_targets_are_float32_whatever_torch_prefers() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        assert make().targets(ALL).dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


# ---------------------------------------------------------------- devices


def test_the_device_is_open_until_the_first_logits() -> None:
    vista = make()
    assert vista.device == torch.device("cpu")
    train(vista, drawn(N, 0))
    with pytest.raises(ValueError, match=r"logits must be on cpu, the device of this Vista, got meta"):
        vista.loss(drawn(N, 0).to("meta"), ALL)


def test_bad_first_logits_do_not_settle_the_device() -> None:
    vista = make()
    with pytest.raises(ValueError, match="logits must have shape"):
        vista.loss(drawn(N, 0)[:, :2].to("meta"), ALL)
    assert vista.device == torch.device("cpu")
    train(vista, drawn(N, 0))


def test_a_device_that_is_not_there_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for attempt in (lambda: make(device="cuda:1"), lambda: make().to("cuda:1")):
        with pytest.raises(ValueError, match=r"device must be 'cpu' without a CUDA device, got 'cuda:1'"):
            attempt()


def test_a_device_is_named_as_tensors_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """``cuda`` is ``cuda:0`` for the logits of a model."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "empty", lambda _, device: SimpleNamespace(device=torch.device(device.type, 0)))
    assert _check_device("cuda") == torch.device("cuda:0")


def test_a_given_device_is_not_left() -> None:
    vista = make(device="cpu")
    with pytest.raises(ValueError, match=r"logits must be on cpu, the device of this Vista, got meta"):
        vista.loss(drawn(N, 0).to("meta"), ALL)


# ---------------------------------------------------------------- bad input

BAD_OPTIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"labels": [0, 1, 3]}, ValueError, r"labels\[2\] must be 0 to .*, got 3"),
    ({"labels": [0, -2, 1]}, ValueError, r"labels\[1\] must be 0 to .*, got -2"),
    ({"labels": [0, -100, 1]}, ValueError, r"labels\[1\] must be 0 to 2, or -1 for no label, got -100"),
    ({"labels": []}, ValueError, r"labels must have at least one sample, got none"),
    (
        {"labels": torch.eye(3).long()},
        ValueError,
        r"labels must hold .*got shape \(3, 3\); multi-label targets are not supported",
    ),
    (
        {"labels": torch.tensor([0.5, 1.5, 0.0, 2.0])},
        TypeError,
        r"labels must be whole numbers .*got torch.float32",
    ),
    ({"labels": ["cat", "dog"]}, TypeError, r"labels must be .*got a list without plain numbers"),
    ({"labels": [[0], [1, 2]]}, TypeError, r"labels must be .*got a list without plain numbers"),
    ({"labels": None}, TypeError, r"labels must be .*got a NoneType without plain numbers"),
    ({"val_labels": []}, ValueError, r"val_labels must have at least one sample, got none"),
    ({"val_labels": [0, 3]}, ValueError, r"val_labels\[1\] must be 0 to .*, got 3"),
    ({"val_labels": [0, -1]}, ValueError, r"val_labels\[1\] must be 0 to 2, got -1"),
    ({"num_classes": 1}, ValueError, r"num_classes must be at least 2, got 1"),
    ({"epochs": 1}, ValueError, r"epochs must be at least 2, got 1"),
    ({"epochs": 0}, ValueError, r"epochs must be at least 2, got 0"),
    ({"tau": -0.1}, ValueError, r"tau must be .*0 <= tau < 1 .*got -0.1"),
    ({"tau": 1.0}, ValueError, r"tau must be .*0 <= tau < 1 .*got 1.0"),
    ({"tau": math.nan}, ValueError, r"tau must be .*got nan"),
    ({"record": "test"}, ValueError, r"record must be one of train, eval, got 'test'"),
    ({"schedule": "step"}, ValueError, r"schedule must be one of exp, linear, cosine, fixed, got 'step'"),
    ({"k": 0.0}, ValueError, r"k must be .*got 0.0"),
    ({"schedule": "fixed"}, ValueError, r"value must be .*got None"),
    ({"value": 0.5}, ValueError, r"value must be None for schedule='exp', got 0.5"),
    ({"order": "oldest"}, ValueError, r"order must be one of accuracy, newest, got 'oldest'"),
    ({"weights": "loss"}, ValueError, r"weights must be one of coverage, accuracy, uniform, got 'loss'"),
    ({"start": "soft"}, ValueError, r"start must be one of hard, uniform, got 'soft'"),
    ({"start": "uniform"}, ValueError, r"schedule must be 'fixed' with start='uniform', got 'exp'"),
    ({"smoothing": 2}, ValueError, r"smoothing must be odd .*got 2"),
    ({"smoothing": 0}, ValueError, r"smoothing must be .*got 0"),
    (
        {"smoothing": 3, "tau": 0.1},
        ValueError,
        r"tau must be 0 with smoothing=3, which needs every past state, got 0.1",
    ),
    ({"weights": "accuracy", "tau": 0.1}, ValueError, r"tau must be 0 with weights='accuracy'"),
    ({"weights": "uniform", "tau": 0.1}, ValueError, r"tau must be 0 with weights='uniform'"),
]


@pytest.mark.parametrize(("options", "kind", "message"), BAD_OPTIONS, ids=[str(o) for o, _, _ in BAD_OPTIONS])
def test_options_that_could_not_run_are_rejected_by_name(options, kind, message: str) -> None:
    with pytest.raises(kind, match="^" + message):
        make(**options)


def poisoned(rows: int, *places: int, value: float = math.nan) -> Tensor:
    logits = drawn(rows, 0)
    logits[list(places), 1] = value
    return logits


SEVEN = ALL[:7]
BAD_CALLS: dict[str, tuple[Callable[[Vista], Any], type[Exception], str]] = {
    "index too high": (
        lambda v: train(v, drawn(2, 0), torch.tensor([0, N])),
        IndexError,
        r"index\[1\] must be 0 to 7, got 8",
    ),
    "index below 0": (
        lambda v: train(v, drawn(2, 0), torch.tensor([-1, 0])),
        IndexError,
        r"index\[0\] must be 0 to 7, got -1",
    ),
    "index of floats": (
        lambda v: train(v, drawn(2, 0), torch.tensor([0.0, 1.0])),
        TypeError,
        r"index must be whole numbers .*got torch.float32",
    ),
    "index of bools": (
        lambda v: train(v, drawn(N, 0), torch.ones(N, dtype=torch.bool)),
        TypeError,
        r"index must be .*got torch.bool",
    ),
    "index of text": (lambda v: v.targets("abc"), TypeError, r"index must be .*got a str without plain numbers"),
    "index 2-d": (
        lambda v: train(v, drawn(2, 0), torch.tensor([[0, 1]])),
        ValueError,
        r"index must hold one number per sample, got shape \(1, 2\)",
    ),
    "index a number": (
        lambda v: v.targets(torch.tensor(3)),
        ValueError,
        r"index must hold one number per sample, got shape \(\)",
    ),
    "targets of a bad index": (lambda v: v.targets([N]), IndexError, r"index\[0\] must be 0 to 7, got 8"),
    "record at a bad index": (lambda v: v.record(drawn(1, 0), [N]), IndexError, r"index\[0\] must be 0 to 7, got 8"),
    "logits of other rows": (
        lambda v: train(v, drawn(3, 0), torch.tensor([0, 1])),
        ValueError,
        r"logits must have shape \(2, 3\) .*got \(3, 3\)",
    ),
    "logits of other classes": (
        lambda v: train(v, drawn(N, 0, classes=4)),
        ValueError,
        r"logits must have shape \(8, 3\) .*got \(8, 4\)",
    ),
    "logits 1-d": (lambda v: train(v, torch.zeros(N)), ValueError, r"logits must have shape .*got \(8,\)"),
    "logits of whole numbers": (
        lambda v: v.loss(torch.ones(N, K, dtype=torch.long), ALL),
        TypeError,
        r"logits must be floating point, got torch.int64",
    ),
    "logits no tensor": (
        lambda v: v.loss(np.zeros((N, K)), ALL),
        TypeError,
        r"logits must be a tensor, got a ndarray",
    ),
    "logits NaN": (
        lambda v: train(v, poisoned(N, 2, 5)),
        FloatingPointError,
        r"logits must be finite, got NaN or infinity in epoch 3 for samples 2, 5; nothing was stored",
    ),
    "logits infinite": (
        lambda v: train(v, poisoned(N, 6, value=math.inf)),
        FloatingPointError,
        r"logits must be finite, got NaN or infinity in epoch 3 for samples 6;",
    ),
    "logits half NaN": (
        lambda v: train(v, poisoned(N, 6).half()),
        FloatingPointError,
        r"logits must be finite, got NaN or infinity in epoch 3 for samples 6;",
    ),
    "logits all NaN": (
        lambda v: train(v, poisoned(7, *range(7)), SEVEN),
        FloatingPointError,
        r".*samples 0, 1, 2, 3, 4, 5, 6;",
    ),
    "record of NaN": (
        lambda v: v.record(poisoned(1, 0), [4]),
        FloatingPointError,
        r"logits must be finite, got NaN or infinity in epoch 3 for samples 4;",
    ),
    "targets of another shape": (
        lambda v: v.loss(drawn(N, 0), ALL, targets=torch.ones(N, 2)),
        ValueError,
        r"targets must have shape \(8, 3\), got \(8, 2\)",
    ),
    "unknown reduction": (
        lambda v: v.loss(drawn(N, 0), ALL, reduction="average"),
        ValueError,
        r"reduction must be .*got 'average'",
    ),
    "sample_weight as a column": (
        lambda v: v.loss(drawn(N, 0), ALL, sample_weight=torch.ones(N, 1)),
        ValueError,
        r"sample_weight must have shape \(8,\), got \(8, 1\)",
    ),
    "sample_weight too short": (
        lambda v: v.loss(drawn(N, 0), ALL, sample_weight=torch.ones(1)),
        ValueError,
        r"sample_weight must have shape \(8,\), got \(1,\)",
    ),
    "class_weight too long": (
        lambda v: v.loss(drawn(N, 0), ALL, class_weight=torch.ones(4)),
        ValueError,
        r"class_weight must have shape \(3,\), got \(4,\)",
    ),
    "val_logits of other rows": (
        lambda v: v.end_epoch(right(0)[:-1]),
        ValueError,
        r"val_logits must have 6 rows, .*got 5",
    ),
    "val_logits empty": (
        lambda v: v.end_epoch(torch.zeros(0, K)),
        ValueError,
        r"val_logits must have 6 rows, .*got 0",
    ),
    "val_logits of other classes": (
        lambda v: v.end_epoch(torch.zeros(M, 4)),
        ValueError,
        r"val_logits must have shape \(6, 3\) .*got \(6, 4\)",
    ),
    "val_logits NaN": (
        lambda v: v.end_epoch(poisoned(M, 3)),
        FloatingPointError,
        r"val_logits must be finite, got NaN or infinity in epoch 3 for samples 3;",
    ),
    "val_logits NaN by index": (
        lambda v: v.end_epoch(poisoned(M, 3), range(M - 1, -1, -1)),
        FloatingPointError,
        r"val_logits must be finite, got NaN or infinity in epoch 3 for samples 2;",
    ),
    "val_index out of range": (
        lambda v: v.end_epoch(right(0), range(1, M + 1)),
        IndexError,
        r"val_index\[5\] must be 0 to 5, got 6",
    ),
    "val_index of floats": (
        lambda v: v.end_epoch(right(0), torch.rand(M)),
        TypeError,
        r"val_index must be .*got torch.float32",
    ),
    "val_index incomplete": (
        lambda v: v.end_epoch(right(0), [0, 1, 2, 0, 1, 2]),
        ValueError,
        r"val_index must name all 6 validation samples, got 3; the first missing is 3",
    ),
    "val_index too short": (
        lambda v: v.end_epoch(right(0), [0, 1]),
        ValueError,
        r"val_logits must have shape \(2, .*got \(6, 3\)",
    ),
}


@pytest.mark.parametrize(("call", "kind", "message"), BAD_CALLS.values(), ids=BAD_CALLS.keys())
@pytest.mark.parametrize("record", ["train", "eval"])
def test_bad_input_is_rejected_by_name_and_nothing_changes(call, kind, message: str, record: str) -> None:
    vista = in_the_middle(record=record)
    before, targets = through_a_file(vista.state_dict()), vista.targets(ALL)
    with pytest.raises(kind, match="^" + message):
        call(vista)
    assert_same(vista.state_dict(), before)
    assert torch.equal(vista.targets(ALL), targets)


@pytest.mark.parametrize(
    ("logits", "kind", "message"),
    [
        (drawn(N - 1, 0), ValueError, r"train_logits must have shape \(8, 3\) .*got \(7, 3\)"),
        (drawn(N, 0, classes=4), ValueError, r"train_logits must have shape \(8, 3\) .*got \(8, 4\)"),
        (
            poisoned(N, 7),
            FloatingPointError,
            r"train_logits must be finite, got NaN or infinity in epoch 3 for samples 7;",
        ),
    ],
)
def test_bad_train_logits_are_rejected_by_name_and_nothing_changes(logits: Tensor, kind, message: str) -> None:
    vista = in_the_middle(record="eval")
    before = through_a_file(vista.state_dict())
    with pytest.raises(kind, match="^" + message):
        vista.end_epoch(right(0), train_logits=logits)
    assert_same(vista.state_dict(), before)


def test_large_finite_logits_are_no_fault() -> None:
    vista = make()
    train(vista, torch.full((N, K), 3e38))
    assert vista.state_dict()["seen"].all()


def test_an_empty_batch_is_no_fault() -> None:
    vista = make()
    assert vista.loss(torch.zeros(0, K), [], reduction="sum") == 0
    assert vista.targets([]).shape == (0, K)


# ---------------------------------------------------------------- memory


def test_no_room_is_said_before_the_run_starts_with_a_tau_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "bytes_available", lambda device: 5_000_000)
    big = {"labels": np.zeros(1000, np.int64), "num_classes": 100, "epochs": 200, "val_labels": [0], "store": "device"}
    message = (
        "tau=0 is likely to keep 200 states of 1000 x 100 float16 predictions, 41 MB with working memory, but cpu has "
        r"5 MB free; tau=0.053 would need 3.6 MB \(Vista with store='auto' moves what does not fit to files\)"
    )
    with pytest.raises(MemoryError, match=message):
        Vista(**big)
    Vista(**big, tau=0.053)
    Vista(**{**big, "store": "auto"})
    with pytest.raises(MemoryError, match="one state alone takes 200 KB: use fewer epochs or a device"):
        Vista(**big, weights="uniform")  # no tau helps what keeps every state
    Vista(**{**big, "epochs": 19}, weights="uniform")


def test_warnings_are_only_about_what_was_not_recorded() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vista = make()
        train(vista, drawn(N, 0))
        vista.end_epoch(right())


@pytest.mark.parametrize(("repeated", "rejected"), [(100, True), (10, False)])
def test_an_epoch_of_repeated_samples_is_rejected(repeated: int, rejected: bool) -> None:
    n, batch = 400, 10  # a loader may fill up its last batch
    vista = Vista([0, 1] * (n // 2), num_classes=2, epochs=2, val_labels=[0, 1])
    order = torch.arange(n)
    order[-repeated:] = order[:repeated]
    for index in order.split(batch):
        vista.loss(torch.zeros(batch, 2, requires_grad=True), index)
    if rejected:
        with pytest.raises(ValueError, match="100 of 400 sample numbers in epoch 1 were repeated: index must be the"):
            vista.end_epoch(torch.eye(2))
    else:
        with pytest.warns(UserWarning, match="10 of 400 training samples were not recorded"):
            vista.end_epoch(torch.eye(2))


def test_a_sampler_may_repeat_samples_on_purpose() -> None:
    vista = Vista([0, 1] * 50, num_classes=2, epochs=2, val_labels=[0, 1])
    vista.expects_every_sample = False
    for _ in range(20):
        vista.loss(torch.zeros(5, 2, requires_grad=True), torch.arange(5))
    assert vista.end_epoch(torch.eye(2)).unrecorded == 95
