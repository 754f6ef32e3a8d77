"""Common mistakes of training loops are reported."""

import warnings

import pytest
import torch
from torch import nn

from vista import Vista
from vista.core.misuse import are_probabilities

CLASSES, TRAIN, VAL = 4, 200, 120


def task():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(CLASSES, (TRAIN + VAL,), generator=generator)
    x = nn.functional.one_hot(labels, CLASSES) + 0.1 * torch.randn(TRAIN + VAL, CLASSES, generator=generator)
    return x, labels


def train(order=None, softmax=False, epochs=3, val_index=None, **options):
    """Train on separable classes; ``order`` permutes the validation rows."""
    x, labels = task()
    vista = Vista(labels[:TRAIN], num_classes=CLASSES, epochs=epochs, val_labels=labels[TRAIN:], **options)
    layers = [nn.Linear(CLASSES, CLASSES), *([nn.Softmax(dim=1)] if softmax else [])]
    model = nn.Sequential(*layers)
    with torch.no_grad():
        model[0].weight.copy_(9 * torch.eye(CLASSES))
    for _ in vista.epochs():
        for batch in torch.arange(TRAIN).split(50):
            vista.loss(model(x[batch]), batch).backward()
        logits = model(x[TRAIN:]).detach()
        vista.end_epoch(logits if order is None else logits[order], val_index=val_index)
    return vista


def test_a_shuffled_validation_loader_is_reported_once():
    order = torch.randperm(VAL, generator=torch.Generator().manual_seed(1))
    with pytest.warns(UserWarning, match="validation accuracy is at chance in epoch 2, .* must not shuffle") as found:
        train(order)
    assert len(found) == 1
    with pytest.warns(UserWarning, match="must not shuffle"):
        train(order, topk=2)


def test_nothing_is_reported_of_a_correct_loop():
    train()
    train(topk=2)
    order = torch.randperm(VAL, generator=torch.Generator().manual_seed(1))
    train(order, val_index=order)


def test_labels_that_cannot_be_predicted_are_no_shuffled_loader():
    _, labels = task()
    vista = Vista(labels[:TRAIN], num_classes=CLASSES, epochs=4, val_labels=labels[TRAIN:])
    generator = torch.Generator().manual_seed(2)
    for _ in vista.epochs():
        vista.loss(torch.randn(TRAIN, CLASSES, generator=generator, requires_grad=True), torch.arange(TRAIN))
        vista.end_epoch(torch.randn(VAL, CLASSES, generator=generator))


def test_probabilities_instead_of_logits_are_reported_at_the_first_batch():
    with pytest.warns(UserWarning, match="the model returns probabilities: .* remove it from the model") as found:
        train(softmax=True)
    assert len(found) == 1
    vista = Vista([0, 1], num_classes=2, epochs=2, val_labels=[0], checks=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vista.loss(torch.tensor([[0.5, 0.5]], requires_grad=True), torch.tensor([0]))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_on_a_gpu_probabilities_are_reported_when_the_epoch_ends():
    vista = Vista([0, 1], num_classes=2, epochs=2, val_labels=[0, 1], device="cuda")
    logits = torch.tensor([[0.2, 0.8], [0.5, 0.5]], device="cuda", requires_grad=True)
    try:
        torch.cuda.set_sync_debug_mode("error")
        vista.loss(logits, torch.arange(2, device="cuda"))
        vista.loss(logits, torch.arange(2, device="cuda"))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    with pytest.warns(UserWarning, match="the model returns probabilities"):
        vista.end_epoch(torch.eye(2))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_rounding_of_probabilities_is_tolerated(dtype):
    logits = torch.randn(8, 1000, generator=torch.Generator().manual_seed(0))
    assert are_probabilities(logits.softmax(dim=1).to(dtype))
    assert not are_probabilities(logits.to(dtype))
    assert not are_probabilities(logits.log_softmax(dim=1).to(dtype)), "a log-softmax is a valid logit"
    assert not are_probabilities(torch.eye(4, dtype=dtype))
