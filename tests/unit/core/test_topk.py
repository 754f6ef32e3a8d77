"""Top-k predictions: what is kept, what is lost, and that a run with them resumes and merges to the same bytes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from vista import Vista
from vista.core.topk import are_packed, pack, unpack


def rows(seed: int, count: int, classes: int, spread: float = 2.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(count, classes, generator=generator) * spread).softmax(dim=1)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), classes=st.integers(2, 40), data=st.data())
def test_total_variation_is_at_most_the_dropped_mass(seed: int, classes: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, classes))
    dense = rows(seed, 5, classes).half().float()
    found = unpack(pack(dense, k), classes)
    dropped = 1 - dense.topk(k).values.sum(dim=1)
    assert (0.5 * (found - dense).abs().sum(dim=1) <= dropped.clamp(min=0) + 1e-3).all()
    assert torch.allclose(found.sum(dim=1), torch.ones(5), atol=2e-3)
    assert are_packed(pack(dense, k), torch.Size([5, k]), classes)


def test_of_equal_probabilities_the_lower_classes_are_kept() -> None:
    packed = pack(torch.tensor([[0.25, 0.25, 0.25, 0.25]]), 2)
    assert (packed & 0xFFFF).tolist() == [[0, 1]]
    assert unpack(packed, 4).tolist() == [[0.25] * 4]


def test_a_one_hot_row_has_no_remainder() -> None:
    one_hot = torch.eye(5)
    assert torch.equal(unpack(pack(one_hot, 1), 5), one_hot)


def test_all_but_one_class_restores_the_last_one() -> None:
    dense = torch.tensor([[0.5, 0.125, 0.25, 0.125]])
    assert torch.equal(unpack(pack(dense, 3), 4), dense)


def test_all_classes_equal_the_dense_row() -> None:
    dense = rows(0, 20, 7).half().float()
    assert torch.equal(unpack(pack(dense, 7), 7), dense)


def test_class_numbers_use_all_16_bits() -> None:
    dense = torch.zeros(1, 2**16)
    dense[0, -1] = 1.0
    assert torch.equal(unpack(pack(dense, 1), 2**16), dense)


def trained(topk: int | None, stop: int = 4, classes: int = 6) -> Vista:
    """A Vista after ``stop`` of 4 epochs on random logits that become more certain."""
    labels = torch.arange(30) % classes
    vista = Vista(labels, num_classes=classes, epochs=4, val_labels=labels[:12], topk=topk)
    for epoch in range(1, stop + 1):
        advance(vista, epoch, classes)
    return vista


def advance(vista: Vista, epoch: int, classes: int = 6) -> None:
    generator = torch.Generator().manual_seed(epoch)
    logits = torch.randn(30, classes, generator=generator) * epoch
    for index in torch.arange(30).split(10):
        vista.loss(logits[index].requires_grad_(), index)
    vista.end_epoch(torch.randn(12, classes, generator=generator))


def test_the_teacher_is_the_weighted_mean_of_unpacked_states() -> None:
    vista = trained(2)
    anchors = vista.state_dict()["predictions"]
    weights = vista._teacher_weights()
    expected = sum(weights[int(s)] * unpack(packed, 6) for s, packed in anchors.items() if int(s) in weights)
    assert isinstance(expected, Tensor)
    assert torch.allclose(vista.teacher(), expected / expected.sum(dim=1, keepdim=True), atol=1e-6)
    assert all(packed.shape == (30, 2) and packed.dtype == torch.int32 for packed in anchors.values())


def test_few_of_many_classes_are_another_teacher() -> None:
    assert not torch.allclose(trained(1).teacher(), trained(None).teacher(), atol=0.05)


def test_a_loaded_state_continues_to_the_same_targets() -> None:
    whole, half, resumed = trained(2), trained(2, stop=2), trained(2, stop=0)
    resumed.load_state_dict(half.state_dict())
    for epoch in (3, 4):
        advance(resumed, epoch)
    assert torch.equal(resumed.targets(range(30)), whole.targets(range(30)))


@pytest.mark.parametrize("bad", [5 << 16 | 7, 0x7E00 << 16, 0xBC00 << 16])
def test_a_damaged_state_is_rejected(bad: int) -> None:
    state = trained(2).state_dict()
    state["current"][0, 0] = bad - 2**32 if bad >= 2**31 else bad
    with pytest.raises(ValueError, match="invalid current"):
        trained(2, stop=0).load_state_dict(state)


def test_a_state_belongs_to_its_topk() -> None:
    with pytest.raises(ValueError, match=r"made with topk=2, but this Vista has topk=3"):
        trained(3, stop=0).load_state_dict(trained(2).state_dict())


@pytest.mark.parametrize(("topk", "classes", "message"), [
    (0, 4, "topk must be at least 1, got 0"),
    (4, 4, "topk must be 1 to 3 with 4 classes, got 4"),
    (5, 70_000, "num_classes must be at most 65,536 with topk, got 70,000"),
])  # fmt: skip
def test_a_topk_that_cannot_be_kept_is_rejected(topk: int, classes: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Vista([0, 1], num_classes=classes, epochs=2, val_labels=[0], topk=topk)
