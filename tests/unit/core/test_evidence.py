"""Predictions of the training pass: classes per epoch and mean probabilities, equal to what the network predicted."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vista.core import evidence as evidence_module
from vista.core.evidence import Evidence

CPU = torch.device("cpu")


def logits_of(epoch: int, samples: int = 7, classes: int = 3) -> torch.Tensor:
    return torch.randn(samples, classes, generator=torch.Generator().manual_seed(epoch))


def recorded(epochs: int) -> Evidence:
    evidence = Evidence(7, 3, CPU)
    for epoch in range(epochs):
        order = torch.randperm(7, generator=torch.Generator().manual_seed(100 + epoch))
        for index in order.split(3):
            evidence.record(logits_of(epoch)[index], index)
        evidence.end_epoch()
    return evidence


def test_classes_and_mean_equal_a_recomputation() -> None:
    evidence = recorded(5)
    everything = torch.stack([logits_of(epoch) for epoch in range(5)])
    np.testing.assert_array_equal(evidence.classes(), everything.argmax(dim=2).numpy())
    np.testing.assert_allclose(evidence.mean(), everything.softmax(dim=2).mean(dim=0).numpy(), atol=1e-3)
    assert evidence.classes().dtype == np.int8


def test_a_sample_without_prediction_is_missing() -> None:
    evidence = Evidence(4, 2, CPU)
    evidence.record(torch.tensor([[0.0, 1.0]]), torch.tensor([2]))
    evidence.end_epoch()
    assert evidence.classes().tolist() == [[-1, -1, 1, -1]]
    assert evidence.mean()[0].tolist() == [0, 0]


def test_state_survives_the_middle_of_an_epoch() -> None:
    one, other = recorded(2), Evidence(7, 3, CPU)
    one.record(logits_of(2)[:3], torch.arange(3))
    other.load({name: value.copy() if isinstance(value, np.ndarray) else value.clone()
                for name, value in one.state().items()}, 2)  # fmt: skip
    for evidence in (one, other):
        evidence.record(logits_of(2)[3:], torch.arange(3, 7))
        evidence.end_epoch()
    np.testing.assert_array_equal(one.classes(), other.classes())
    np.testing.assert_array_equal(one.mean(), other.mean())
    assert sum(np.asarray(part).nbytes for part in one.state().values()) <= one.nbytes(3)


def test_a_checkpoint_of_an_older_version_leaves_its_epochs_missing() -> None:
    evidence = Evidence(2, 2, CPU)
    evidence.load(None, 3)
    evidence.record(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.arange(2))
    evidence.end_epoch()
    assert evidence.classes().tolist() == [[-1, -1]] * 3 + [[0, 1]]


@pytest.mark.parametrize(("classes", "kind"), [(128, np.int8), (129, np.int16), (40_000, np.int32)])
def test_classes_are_stored_in_the_smallest_type(classes: int, kind: type) -> None:
    assert Evidence(1, classes, CPU).dtype is kind


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("classes", [2, 100, 1000])
def test_one_kernel_records_what_torch_records(
    classes: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator, device = torch.Generator("cuda").manual_seed(0), torch.device("cuda")
    plain, fused = Evidence(500, classes, device), Evidence(500, classes, device)
    for _ in range(3):
        index = torch.randperm(500, generator=generator, device=device)[:64]
        logits = torch.randn(64, classes, generator=generator, device=device).to(dtype)
        monkeypatch.setattr(evidence_module, "triton_works", lambda _device: True)
        fused.record(logits, index)
        monkeypatch.setattr(evidence_module, "triton_works", lambda _device: False)
        plain.record(logits, index)
    assert torch.equal(fused.current, plain.current)
    assert torch.equal(fused.count, plain.count)
    torch.testing.assert_close(fused.total, plain.total, atol=1e-6, rtol=1e-5)
