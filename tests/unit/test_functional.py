"""Pure functions accept tensors, arrays and lists, and return the kind they were given."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from vista import functional

CORRECT = np.array([[1, 1, 0, 0], [0, 1, 1, 1], [0, 1, 1, 0]], np.bool_)


@pytest.mark.parametrize("name", functional.__all__)
def test_every_name_is_there_and_described(name: str) -> None:
    assert inspect.getdoc(getattr(functional, name))


@pytest.mark.parametrize(
    ("function", "expected", "dtype"),
    [
        (functional.marginal_coverage, [1, 3, 0], np.int64),
        (lambda c: functional.marginal_coverage(c, 0.25), [0, 3, 0], np.int64),
        (lambda c: functional.marginal_coverage(c, order="newest"), [1, 1, 2], np.int64),
        (functional.lifespans, [3, 2, 0], np.int64),
        (lambda c: functional.lifespans(c, tau=0.25), [1, 2, 0], np.int64),
        (functional.deviation_gap, [0.25, 0.25, 0.0], np.float64),
    ],
)
def test_arrays_give_arrays_and_tensors_give_tensors(function, expected, dtype) -> None:
    array = function(CORRECT)
    assert isinstance(array, np.ndarray)
    assert array.dtype == dtype
    assert array.tolist() == expected
    tensor = function(torch.from_numpy(CORRECT))
    assert isinstance(tensor, torch.Tensor)
    assert torch.equal(tensor, torch.from_numpy(array))
    assert function(CORRECT.astype(np.float32)).tolist() == expected, "zeros and ones of any type are bools"


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("teacher", ["predictions", "weights"]),
        ("soft_cross_entropy", ["logits", "targets", "reduction", "sample_weight", "class_weight"]),
    ],
)
def test_what_a_training_step_hands_down_is_no_argument_here(name: str, parameters: list[str]) -> None:
    """Of an array ``out`` a copy was filled, and ``rows`` was not checked."""
    assert list(inspect.signature(getattr(functional, name)).parameters) == parameters
    with pytest.raises(TypeError, match="unexpected keyword argument 'out'"):
        functional.teacher({1: np.full((1, 2), 0.5)}, {1: 1.0}, out=np.zeros((1, 2)))
    with pytest.raises(TypeError, match="unexpected keyword argument 'rows'"):
        functional.soft_cross_entropy(LOGITS, SOFT, rows=torch.tensor(2))


def test_light_coverage_counts_epochs_from_1() -> None:
    expected = [{1: 2}, {1: 1, 2: 3}, {1: 1, 2: 3}]
    assert functional.light_coverage(CORRECT, 0.0) == expected
    assert functional.light_coverage(torch.from_numpy(CORRECT), 0.0) == expected
    assert functional.light_coverage(CORRECT, tau=0.25) == [{1: 2}, {2: 3}, {2: 3}]


@pytest.mark.parametrize(
    ("correct", "message"),
    [
        (np.ones(3, np.bool_), r"correct must be a matrix of states x samples, got shape \(3,\)"),
        (np.ones((0, 3), np.bool_), r"correct must be .*got shape \(0, 3\)"),
        (np.ones((3, 0), np.bool_), r"correct must be .*got shape \(3, 0\)"),
        (np.full((1, 2), 0.5), r"correct must be bools, .*of type float64"),
        (np.array([[0, 1, 2]]), r"correct must be bools, .*of type int64"),
    ],
)
def test_what_is_no_history_is_rejected(correct, message: str) -> None:
    for function in (functional.marginal_coverage, functional.lifespans, functional.deviation_gap):
        with pytest.raises(ValueError, match="^" + message):
            function(correct)


def test_metrics_take_arrays_and_tensors_alike() -> None:
    probs = np.array([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7], [0.8, 0.2]])
    labels = np.array([0, 1, 0, 0])
    for metric in (functional.aurc, functional.ece):
        value = metric(probs, labels)
        assert isinstance(value, float)
        assert metric(torch.from_numpy(probs), torch.from_numpy(labels)) == value
    # by confidence 0.9, 0.8, 0.7, 0.6 the third is wrong: (0 + 0 + 1/3 + 1/4) / 4
    assert functional.aurc(probs, labels) == pytest.approx((1 / 3 + 1 / 4) / 4)


def test_metrics_take_probabilities_that_have_a_gradient() -> None:
    probs, labels = torch.tensor([[0.9, 0.1], [0.4, 0.6]]), torch.tensor([0, 0])
    for metric in (functional.aurc, functional.ece):
        assert metric(probs.clone().requires_grad_(), labels) == metric(probs, labels)


def test_what_is_not_said_is_what_the_functions_below_take() -> None:
    probs, labels = np.array([[0.52, 0.48], [0.55, 0.45]]), np.array([0, 1])  # apart in fifteenths, not in those near
    assert functional.ece(probs, labels) == functional.ece(probs, labels, bins=15)
    assert functional.ece(probs, labels) not in [functional.ece(probs, labels, bins) for bins in (14, 16)]
    other = torch.eye(3)
    assert functional.distillation_kl(LOGITS, other) == functional.distillation_kl(LOGITS, other, temperature=1.0)


def test_what_comes_in_decides_what_goes_out() -> None:
    rng = np.random.default_rng(0)
    logits, other, labels = rng.normal(size=(4, 3)), rng.normal(size=(4, 3)), np.array([0, 2, 1, -1])
    states = {1: np.full((4, 3), 1 / 3, np.float32), 2: np.eye(4, 3, dtype=np.float32) * 0.5 + 1 / 6}
    hard = functional.one_hot(labels, 3)
    pairs = [
        (hard, functional.one_hot(torch.from_numpy(labels), 3)),
        (
            functional.soft_cross_entropy(logits, hard, reduction="none"),
            functional.soft_cross_entropy(torch.from_numpy(logits), torch.from_numpy(hard), reduction="none"),
        ),
        (
            functional.distillation_kl(logits, other, 2.0),
            functional.distillation_kl(torch.from_numpy(logits), torch.from_numpy(other), 2.0),
        ),
        (
            functional.teacher(states, {1: 0.5, 2: 0.5}),
            functional.teacher({s: torch.from_numpy(p) for s, p in states.items()}, {1: 0.5, 2: 0.5}),
        ),
        (
            functional.blend(hard, states[1], 0.3),
            functional.blend(torch.from_numpy(hard), torch.from_numpy(states[1]), 0.3),
        ),
    ]
    for array, tensor in pairs:
        assert isinstance(array, np.ndarray)
        assert np.array_equal(array, tensor.numpy())


def test_bfloat16_is_as_good_as_any() -> None:
    probs = torch.tensor([[0.75, 0.25], [0.5, 0.5]])
    labels = torch.tensor([0, 1])
    assert functional.aurc(probs.bfloat16(), labels) == functional.aurc(probs, labels)
    right = torch.tensor([[1, 0], [1, 1]])
    assert functional.marginal_coverage(right.bfloat16()).tolist() == functional.marginal_coverage(right).tolist()


@pytest.mark.parametrize("measure", [functional.aurc, functional.ece])
def test_probabilities_in_bfloat16_are_probabilities(measure: Callable[..., float]) -> None:
    generator = torch.Generator().manual_seed(0)
    probs = torch.randn(200, 100, generator=generator).softmax(dim=1)
    labels = torch.randint(0, 100, (200,), generator=generator)
    assert measure(probs.bfloat16(), labels) == pytest.approx(measure(probs, labels), abs=0.02)
    with pytest.raises(ValueError, match="probs"):
        measure(torch.randn(200, 100, generator=generator), labels)


def test_arrays_of_the_other_byte_order_are_read() -> None:
    labels = np.array([0, 2, 1], ">i8")
    assert functional.one_hot(labels, 3).tolist() == np.eye(3)[[0, 2, 1]].tolist()
    states = {1: np.array([[0.25, 0.75]], ">f4"), 2: np.array([[0.75, 0.25]], ">f4")}
    assert functional.teacher(states, {1: 0.5, 2: 0.5}).tolist() == [[0.5, 0.5]]


def test_beside_a_tensor_an_array_is_a_tensor_too() -> None:
    logits = torch.zeros(2, 2, requires_grad=True)
    loss = functional.soft_cross_entropy(logits, np.array([[1.0, 0.0], [0.5, 0.5]], np.float32))
    loss.mean().backward()
    torch.testing.assert_close(logits.grad, torch.tensor([[-0.25, 0.25], [0.0, 0.0]]))

    blended = [[0.75, 0.25], [0.25, 0.75]]
    for hard, soft in ((np.eye(2), torch.ones(2, 2) / 2), (torch.eye(2), np.ones((2, 2)) / 2)):
        target = functional.blend(hard, soft, 0.5)
        assert isinstance(target, torch.Tensor)
        assert target.tolist() == blended


def test_labels_in_whole_numbers_are_blended_as_exactly_as_the_rest() -> None:
    soft = np.full((2, 2), 0.5)
    ours = functional.blend(np.eye(2, dtype=int), soft, 0.3)
    assert ours.dtype == np.float64
    assert np.array_equal(ours, functional.blend(np.eye(2), soft, 0.3))


def test_lists_are_read_as_tensors() -> None:
    rows, soft = [[0.0, 1.0]], [[0.25, 0.75]]
    pairs = [
        (functional.soft_cross_entropy, (rows, soft, "mean", [2.0], [1.0, 3.0])),
        (functional.distillation_kl, (rows, soft)),
    ]
    for function, args in pairs:
        tensors = [torch.tensor(value, dtype=torch.float64) if isinstance(value, list) else value for value in args]
        assert torch.equal(function(*args), function(*tensors))
    assert functional.blend([[0, 1]], soft, 0.5).tolist() == [[0.125, 0.875]]
    assert functional.teacher({1: soft, 2: rows}, {1: 0.5, 2: 0.5}).tolist() == [[0.125, 0.875]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: functional.marginal_coverage(np.eye(2, dtype=bool), tau="0.1"), "tau must be a number, got '0.1'"),
        (lambda: functional.light_coverage(np.eye(2, dtype=bool), None), "tau must be a number, got None"),
        (lambda: functional.ece(np.eye(2), np.arange(2), bins=2.5), "bins must be a whole number, got 2.5"),
        (lambda: functional.ece(np.eye(2), np.arange(2), bins="3"), "bins must be a whole number, got '3'"),
    ],
)
def test_what_is_no_number_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


STATES = {1: torch.full((2, 3), 1 / 3), 3: torch.full((2, 3), 1 / 3)}
LOGITS, SOFT = torch.zeros(3, 3), torch.full((3, 3), 1 / 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: functional.soft_cross_entropy(LOGITS, torch.tensor([0, 1, 2])),
            r"targets must have shape \(3, 3\), got \(3,\)",
        ),
        (
            lambda: functional.soft_cross_entropy(LOGITS[0], SOFT[0]),
            r"logits must be rows of logits .*got shape \(3,\)",
        ),
        (
            lambda: functional.soft_cross_entropy(LOGITS, SOFT, sample_weight=torch.ones(3, 1)),
            r"sample_weight must have shape \(3,\), got \(3, 1\)",
        ),
        (
            lambda: functional.soft_cross_entropy(LOGITS, SOFT, class_weight=np.ones(1)),
            r"class_weight must have shape \(3,\), got \(1,\)",
        ),
        (lambda: functional.distillation_kl(LOGITS, SOFT[:1]), r"teacher must have shape \(3, 3\), got \(1, 3\)"),
        (lambda: functional.distillation_kl(LOGITS[0], SOFT[0]), r"student must be rows of logits .*got shape \(3,\)"),
        (
            lambda: functional.distillation_kl(LOGITS, SOFT, temperature=0),
            "temperature must be greater than 0 and finite, got 0.0",
        ),
        (
            lambda: functional.one_hot(torch.tensor([0, 3]), 3),
            r"labels\[1\] must be 0 to 2, or -1 for no label, got 3",
        ),
        (lambda: functional.one_hot(np.array([-2]), 3), r"labels\[0\] must be 0 to .*, got -2"),
        (lambda: functional.one_hot(SOFT.long(), 3), r"labels must hold one number per sample, got shape \(3, 3\)"),
        (lambda: functional.blend(LOGITS, SOFT, 1.5), "beta must be between 0 and 1, got 1.5"),
        (lambda: functional.blend(LOGITS.numpy(), SOFT[0].numpy(), 0.5), r"soft must have shape \(3, 3\), got \(3,\)"),
        (lambda: functional.teacher(STATES, {1: 0.0}), "weights must have a positive sum, got 0"),
        (lambda: functional.teacher(STATES, {}), "weights must name at least one state"),
        (
            lambda: functional.teacher(STATES, {1: -0.5, 3: 1.5}),
            r"weights\[1\] must be at least 0 and finite, got -0.5",
        ),
        (
            lambda: functional.teacher(STATES, {1: 0.5, 2: 0.5}),
            r"weights must name states of predictions \(1, 3\), got 2",
        ),
        (
            lambda: functional.teacher({**STATES, 4: SOFT}, {1: 0.5, 4: 0.5}),
            r"predictions\[4\] must have shape \(2, 3\), got \(3, 3\)",
        ),
        (
            lambda: functional.teacher({1: SOFT[0]}, {1: 1.0}),
            r"predictions\[1\] must be rows .*\[n, K\], got shape \(3,\)",
        ),
        (
            lambda: functional.teacher({1: np.array([[0.5, 0.5], [0.0, 0.0]])}, {1: 1.0}),
            "predictions must be probabilities, got row 1 with a sum of 0",
        ),
        (
            lambda: functional.teacher({1: [[0.5, math.nan]]}, {1: 1.0}),
            "predictions must be probabilities, got row 0 with a sum of nan",
        ),
    ],
)
def test_what_would_be_broadcast_or_give_no_number_is_rejected(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: functional.one_hot(torch.tensor([0.0, 1.0]), 3), "labels must be whole numbers .*got torch.float32"),
        (lambda: functional.one_hot(torch.tensor([0]), 3.0), r"num_classes must be a whole number, got 3\.0"),
        (lambda: functional.blend(LOGITS, SOFT, "0.5"), "beta must be a number, got '0.5'"),
        (lambda: functional.distillation_kl(LOGITS, SOFT, None), "temperature must be a number, got None"),
        (
            lambda: functional.soft_cross_entropy(np.zeros((3, 3), int), SOFT),
            "logits must be floating point, got torch.int64",
        ),
        (lambda: functional.soft_cross_entropy(LOGITS, "text"), "targets must be .*got a str without plain numbers"),
        (lambda: functional.soft_cross_entropy("text", SOFT), "logits must be rows of logits .*got a str"),
        (lambda: functional.distillation_kl(LOGITS.long(), SOFT), "student must be floating point, got torch.int64"),
        (lambda: functional.distillation_kl(LOGITS, SOFT.long()), "teacher must be floating point, got torch.int64"),
        (lambda: functional.blend(LOGITS, None, 0.5), "soft must be .*got a NoneType without plain numbers"),
        (lambda: functional.teacher([SOFT], {0: 1.0}), "predictions must be a mapping by epoch, .*got a list"),
        (lambda: functional.teacher({0: SOFT}, [1.0]), "weights must be a mapping by epoch, .*got a list"),
        (
            lambda: functional.teacher({1: "text"}, {1: 1.0}),
            r"predictions\[1\] must be .*got a str without plain numbers",
        ),
    ],
)
def test_what_is_of_another_kind_is_rejected(call: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=f"^{message}"):
        call()


def test_no_sample_gives_no_row() -> None:
    assert functional.one_hot(torch.zeros(0, dtype=torch.long), 3).shape == (0, 3)
    assert functional.soft_cross_entropy(LOGITS[:0], SOFT[:0], "sum") == 0


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")  # it says of itself that it is a prototype
def test_on_a_card_what_a_step_may_call_does_not_wait() -> None:
    logits, labels = torch.zeros(4, 3, device="cuda"), torch.tensor([0, 2, 1, -1], device="cuda")
    soft = logits.softmax(dim=1)
    torch.cuda.synchronize()
    try:
        torch.cuda.set_sync_debug_mode("error")
        functional.soft_cross_entropy(logits, functional.blend(functional.one_hot(labels, 3), soft, 0.5))
        functional.distillation_kl(logits, soft, 2.0)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_beta_is_double_whatever_k_is() -> None:
    assert functional.beta(3, 7, k=np.float32(2)) == functional.beta(3, 7, k=2.0)
