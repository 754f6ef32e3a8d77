"""Argument validation: accepted values, and the error for each rejected one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from vista.core.validation import (
    as_float,
    as_int,
    as_integers,
    as_labels,
    as_logits,
    as_numbers,
    check_finite,
    check_index,
    check_logits,
    is_integral,
    not_negative,
    positive,
    unit_interval,
)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16])
def test_whole_numbers_of_any_width_become_int64(dtype: torch.dtype) -> None:
    values = torch.tensor([1, 2], dtype=dtype)
    assert is_integral(dtype)
    assert torch.equal(as_integers(values, "index"), torch.tensor([1, 2]))
    assert torch.equal(as_integers(values.numpy(), "index"), torch.tensor([1, 2]))


def test_no_numbers_at_all_are_whole_numbers() -> None:
    assert as_integers([], "index").dtype == torch.int64
    assert as_integers(torch.zeros(0), "index").tolist() == []


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        (torch.rand(2), TypeError, r"index must be whole numbers .*got torch.float32"),
        (np.array([1.0]), TypeError, r"index must be .*got torch.float64"),
        ([True, False], TypeError, r"index must be .*got torch.bool"),
        (torch.tensor([1j]), TypeError, r"index must be .*got torch.complex64"),
        (3, ValueError, r"index must hold one number per sample, got shape \(\)$"),
        ([[0, 1], [1, 0]], ValueError, r"index must hold one number per sample, got shape \(2, 2\)$"),
        (
            torch.zeros(1, 1, 1, dtype=torch.long),
            ValueError,
            r"index must hold one number per sample, got shape \(1, 1, 1\)$",
        ),
        (["a", "b"], TypeError, r"index must be .*got a list without plain numbers"),
        ([[1], [1, 2]], TypeError, r"index must be .*got a list without plain numbers"),
        (None, TypeError, r"index must be .*got a NoneType without plain numbers"),
    ],
)
def test_other_than_one_whole_number_a_sample_is_rejected(values, kind, message: str) -> None:
    with pytest.raises(kind, match="^" + message):
        as_integers(values, "index")


def test_labels_are_a_copy_and_absent_ones_become_minus_1() -> None:
    given = torch.tensor([0, -1, 2, 255])
    labels = as_labels(given, 3, "labels", missing=255)
    assert labels.tolist() == [0, -1, 2, -1]
    assert given.tolist() == [0, -1, 2, 255]
    labels[0] = 1
    assert given[0] == 0


@pytest.mark.parametrize(("labels", "place", "value"), [([0, 3, 9], 1, 3), ([0, -1], 1, -1), ([-5], 0, -5)])
def test_the_first_label_outside_the_classes_is_named(labels: list[int], place: int, value: int) -> None:
    with pytest.raises(ValueError, match=rf"^y\[{place}\] must be 0 to 2, got {value}$"):
        as_labels(labels, 3, "y")
    with pytest.raises(ValueError, match=r"^y\[0\] must be 0 to 2, or -1 for no label, got 7$"):
        as_labels([7], 3, "y", missing=-1)


@pytest.mark.parametrize("dtype", [np.int64, ">i8", np.uint8, np.int16])
def test_any_array_of_whole_numbers_will_do(dtype: Any) -> None:
    array = np.array([0, 1, 2], dtype)
    backwards, every_other, fixed = array[::-1], np.arange(6).astype(dtype)[::2], np.broadcast_to(array[1], 3)
    assert as_integers(backwards, "index").tolist() == [2, 1, 0]
    assert as_integers(every_other, "index").tolist() == [0, 2, 4]
    assert as_integers(fixed, "index").tolist() == [1, 1, 1]


def test_a_number_beyond_int64_is_no_missing_label() -> None:
    with pytest.raises(ValueError, match=r"labels must be below 2\*\*63, got 18446744073709551615"):
        as_labels(np.array([0, 2**64 - 1], np.uint64), 3, "labels", missing=-1)
    assert as_labels(np.array([0, 1, 1], np.uint64), 2, "labels").tolist() == [0, 1, 1]


def test_who_has_no_index_hears_where_to_get_one() -> None:
    with pytest.raises(
        TypeError, match=r"index must be whole numbers \(vista.indexed\(dataset\) returns .* got a NoneType"
    ):
        check_index(None, 5)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [3, np.int64(3), torch.tensor(3)])
def test_whole_numbers_of_any_library_become_plain(given: Any) -> None:
    assert type(as_int(given, "epochs")) is int
    assert type(as_float(given, "tau")) is float


@pytest.mark.parametrize("given", ["3", None, 2.5, float("nan")])
def test_what_is_no_whole_number_is_named(given: Any) -> None:
    with pytest.raises(TypeError, match=rf"epochs must be a whole number, got {given!r}"):
        as_int(given, "epochs")


@pytest.mark.parametrize("given", ["0.1", None, [1.0]])
def test_what_is_no_number_is_named(given: Any) -> None:
    with pytest.raises(TypeError, match="tau must be a number, got "):
        as_float(given, "tau")


@pytest.mark.parametrize("given", [None, "text", 3.0, [1.0, 2.0], torch.tensor(1.0)])
def test_logits_are_rows(given: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"val_logits must be rows of logits \[n, K\], got "):
        as_logits(given, "val_logits")
    assert as_logits(np.zeros((2, 3))[::-1], "val_logits").shape == (2, 3)


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_weights_and_temperatures_are_finite(bad: float) -> None:
    with pytest.raises(ValueError, match=f"weight must be at least 0 and finite, got {bad}"):
        not_negative(bad, "weight")
    with pytest.raises(ValueError, match=rf"temperature must be greater than 0 and finite \(4 is usual\), got {bad}"):
        positive(bad, "temperature", usual=4)
    assert not_negative(0, "weight") == 0.0


def test_the_first_index_outside_the_samples_is_named() -> None:
    assert check_index([0, 4], 5).tolist() == [0, 4]
    with pytest.raises(IndexError, match=r"^rows\[2\] must be 0 to 4, got 5"):
        check_index([0, 4, 5, -1], 5, "rows")


def test_logits_are_checked_for_shape_and_type() -> None:
    check_logits(torch.zeros(2, 3), 2, 3)
    with pytest.raises(ValueError, match=r"^out must have shape \(2, 3\) .*got \(3, 2\)"):
        check_logits(torch.zeros(3, 2), 2, 3, "out")
    with pytest.raises(TypeError, match=r"^out must be a tensor, got a list"):
        check_logits([[0.0]], 1, 1, "out")  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_every_value_that_is_not_finite_is_found(dtype: torch.dtype, value: float) -> None:
    for row in range(3):
        for column in range(4):
            logits = torch.zeros(3, 4, dtype=dtype)
            logits[row, column] = value
            with pytest.raises(FloatingPointError, match=rf"in epoch 6 for samples {row + 10};"):
                check_finite(logits, torch.tensor([10, 11, 12]), 6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_values_whose_sum_overflows_are_finite(dtype: torch.dtype) -> None:
    check_finite(torch.full((64, 64), torch.finfo(dtype).max, dtype=dtype), torch.arange(64), 1)


def test_infinities_that_cancel_are_found() -> None:
    with pytest.raises(FloatingPointError, match="samples 0, 1;"):
        check_finite(torch.tensor([[math.inf, 0.0], [-math.inf, 0.0]]), torch.arange(2), 1)


def test_a_weight_has_one_number_each() -> None:
    like = torch.zeros(2, dtype=torch.float64)
    given = torch.ones(3)
    assert as_numbers(given, like, (3,), "w") is given
    for other in ([1, 1, 1], np.ones(3, np.float32)[::-1], np.ones(3, ">f4")):
        assert torch.equal(as_numbers(other, like, (3,), "w"), torch.ones(3, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"^w must have shape \(3,\), got \(3, 1\)"):
        as_numbers(torch.ones(3, 1), like, (3,), "w")
    with pytest.raises(TypeError, match=r"w must be .*got a str without plain numbers"):
        as_numbers("text", like, (3,), "w")


def test_the_unit_interval_includes_its_ends() -> None:
    assert [unit_interval(v, "a") for v in (0, 0.5, 1)] == [0.0, 0.5, 1.0]
    for value in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match=rf"^a must be between 0 and 1, got {value}"):
            unit_interval(value, "a")
