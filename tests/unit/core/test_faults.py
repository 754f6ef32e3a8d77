"""Bad rows on a device: redirected to the spare row at once, reported later, by the same code on any device."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from vista.core.validation import FirstFault

SIZE = 5


def logits(*bad: int, rows: int = 4, value: float = math.nan) -> Tensor:
    values = torch.zeros(rows, 3)
    for row in bad:
        values[row, 1] = value
    return values


@pytest.fixture
def fault() -> FirstFault:
    return FirstFault(torch.device("cpu"))


def test_good_rows_pass_and_nothing_is_raised(fault: FirstFault) -> None:
    index = torch.tensor([0, 4, 2, 2])
    assert torch.equal(fault.redirect(index, SIZE, logits()), index)
    assert torch.equal(fault.redirect(index, SIZE, None), index)
    fault.raise_if_any(1, SIZE)


def test_bad_rows_go_to_the_spare_row_and_good_ones_beside_them_stay(fault: FirstFault) -> None:
    assert fault.redirect(torch.tensor([0, -1, 5, 4]), SIZE, logits(3)).tolist() == [0, SIZE, SIZE, SIZE]
    assert fault.redirect(torch.tensor([-(2**62), 2**62, 1]), SIZE, None).tolist() == [SIZE, SIZE, 1]


@pytest.mark.parametrize(("place", "side"), [(-3, "below 0"), (5, "above 4"), (10**12, "above 4")])
def test_a_bad_index_is_reported_with_its_side_and_epoch(fault: FirstFault, place: int, side: str) -> None:
    fault.redirect(torch.tensor([1, place]), SIZE, None)
    with pytest.raises(IndexError, match=f"index must be 0 to 4, got a value {side} in epoch 7"):
        fault.raise_if_any(7, SIZE)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_bad_logits_are_reported_with_their_sample(fault: FirstFault, value: float) -> None:
    assert fault.redirect(torch.tensor([3, 0, 4, 1]), SIZE, logits(2, value=value)).tolist() == [3, 0, SIZE, 1]
    with pytest.raises(
        FloatingPointError, match="got NaN or infinity in epoch 2, first for sample 4; its prediction was not stored"
    ):
        fault.raise_if_any(2, SIZE)


def test_the_first_call_with_a_fault_is_the_one_that_is_reported(fault: FirstFault) -> None:
    fault.redirect(torch.tensor([0, 1, 2, 3]), SIZE, logits())
    fault.redirect(torch.tensor([0, 1, 2, 3]), SIZE, logits(3))
    fault.redirect(torch.tensor([0, 1, 2, 3]), SIZE, logits(0))
    fault.redirect(torch.tensor([-1]), SIZE, None)
    with pytest.raises(FloatingPointError, match="sample 3"):
        fault.raise_if_any(1, SIZE)


def test_in_one_call_a_bad_index_comes_before_bad_logits(fault: FirstFault) -> None:
    fault.redirect(torch.tensor([0, 1, 9, 3]), SIZE, logits(0))
    with pytest.raises(IndexError, match="above 4"):
        fault.raise_if_any(1, SIZE)


def test_a_bad_row_at_a_bad_index_is_a_bad_index(fault: FirstFault) -> None:
    fault.redirect(torch.tensor([9]), SIZE, logits(0, rows=1))
    with pytest.raises(IndexError):
        fault.raise_if_any(1, SIZE)


def test_what_was_reported_is_forgotten_and_the_next_fault_is_reported_again(fault: FirstFault) -> None:
    fault.redirect(torch.tensor([-1]), SIZE, None)
    with pytest.raises(IndexError):
        fault.raise_if_any(1, SIZE)
    fault.raise_if_any(1, SIZE)
    fault.redirect(torch.tensor([2]), SIZE, logits(0, rows=1))
    with pytest.raises(FloatingPointError, match="sample 2"):
        fault.raise_if_any(2, SIZE)


def test_an_empty_batch_has_no_fault_and_hides_none(fault: FirstFault) -> None:
    nothing = torch.zeros(0, dtype=torch.long)
    assert fault.redirect(nothing, SIZE, logits(rows=0)).tolist() == []
    fault.raise_if_any(1, SIZE)
    fault.redirect(torch.tensor([-1]), SIZE, None)
    fault.redirect(nothing, SIZE, None)
    with pytest.raises(IndexError):
        fault.raise_if_any(1, SIZE)


def test_the_fault_stays_in_the_tensor_it_began_in(fault: FirstFault) -> None:
    """A captured graph holds on to its tensors: they are changed in place, never replaced."""
    before = fault._code.data_ptr(), fault._calls.data_ptr()
    fault.redirect(torch.tensor([-1]), SIZE, None)
    assert (fault._code.data_ptr(), fault._calls.data_ptr()) == before
    assert fault.to(torch.device("cpu")) is fault
