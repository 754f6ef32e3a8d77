"""Meta-Weight-Net: a small network weights samples and is trained on validation samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from by_hand import softmax

from vista.methods import choose
from vista.methods.meta_weight_net import NEUTRAL, WEIGHER, MetaWeightNet, compute_sample_weights, compute_weighted_mean
from vista.models import build


@pytest.fixture
def batch(FakeBatch):
    x, val = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0))
    return FakeBatch(x, [0, 1, 2, 3], validation=(val, torch.tensor([3, 2, 1, 0])))


def make(task, network, **options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        method = MetaWeightNet(task, network, MetaWeightNet.Config(**options))
    method.learning_rate = 0.1
    return method


def numpy_weights(losses, weigher):
    hidden = np.maximum(losses[:, None] * weigher["hidden_weight"] + weigher["hidden_bias"], 0)
    return 1 / (1 + np.exp(-(hidden @ weigher["output_weight"] + weigher["output_bias"])))


def numpy_meta_loss(weigher, network, x, labels, val, val_labels, lr):
    """Validation loss of a linear network after the virtual step, in plain numpy."""
    w, b = (p.detach().double().numpy() for p in (network.weight, network.bias))
    p, n = softmax(x @ w.T + b), np.arange(len(x))
    error = p - np.eye(5)[labels]
    weighted = error * numpy_weights(-np.log(p[n, labels]), weigher)[:, None] / len(x)
    w, b = w - lr * weighted.T @ x, b - lr * weighted.sum(axis=0)
    return -np.log(softmax(val @ w.T + b)[n, val_labels]).mean()


def test_weights_match_formula():
    rng = np.random.default_rng(0)
    weigher = {name: rng.normal(size=6 if name != "output_bias" else 1).astype(np.float32) for name in WEIGHER}
    losses = rng.uniform(0, 5, size=4).astype(np.float32)
    given = compute_sample_weights(torch.from_numpy(losses), {k: torch.from_numpy(v) for k, v in weigher.items()})
    np.testing.assert_allclose(given.numpy(), numpy_weights(losses, weigher), rtol=1e-5)


def test_first_meta_step_follows_numeric_gradient(make_task, Linear5, batch):
    network = Linear5()
    method = make(make_task(), network, hidden=8, meta_weight_decay=0.0, virtual_lr=0.7)
    weigher = {name: t.double().numpy().copy() for name, t in method.weigher().items()}
    x, (val, val_labels) = batch.x.double().numpy(), batch.validation()
    given = (network, x, np.arange(4), val.double().numpy(), val_labels.numpy(), 0.7)
    method.loss(network, batch)
    for name in WEIGHER:
        expected = np.zeros_like(weigher[name])
        for place in range(len(expected)):
            shifted = [{**weigher, name: weigher[name].copy()} for _ in range(2)]
            shifted[0][name][place] += 1e-5
            shifted[1][name][place] -= 1e-5
            expected[place] = (numpy_meta_loss(shifted[0], *given) - numpy_meta_loss(shifted[1], *given)) / 2e-5
        # Adam's first moment after one step is a tenth of the gradient; the step has size meta_lr.
        np.testing.assert_allclose(method.get_buffer(f"{name}_mean").numpy(), 0.1 * expected, atol=2e-6)
        moved = method.get_buffer(name).numpy() - weigher[name]
        clear = np.abs(expected) > 1e-5
        np.testing.assert_allclose(moved[clear], -1e-3 * np.sign(expected[clear]), rtol=2e-2)
    assert np.abs(method.get_buffer("hidden_weight_mean").numpy()).max() > 1e-5


def test_virtual_step_follows_learning_rate_unless_given(make_task, Linear5, batch):
    def moment(rate, **options):
        network = Linear5()
        method = make(make_task(), network, hidden=8, meta_weight_decay=0.0, **options)
        method.learning_rate = rate
        method.loss(network, batch)
        return method.hidden_weight_mean.clone()

    torch.testing.assert_close(moment(0.05), moment(0.5, virtual_lr=0.05))
    assert not torch.allclose(moment(0.05), moment(0.5))


def test_weigher_is_updated_by_adam_with_weight_decay(make_task, Linear5):
    method = make(make_task(), Linear5(), hidden=4, meta_lr=0.01, meta_weight_decay=0.1)
    value = method.hidden_weight.double().numpy().copy()
    mean, square = np.zeros(4), np.zeros(4)
    for step, given in enumerate(np.random.default_rng(0).normal(size=(5, 4)), 1):
        method._adam({"hidden_weight": torch.from_numpy(given).float()})
        gradient = given + 0.1 * value
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        value -= 0.01 * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    np.testing.assert_allclose(method.hidden_weight.numpy(), value, rtol=1e-4, atol=1e-6)


def test_real_loss_uses_updated_weights(make_task, Linear5, batch):
    network = Linear5()
    method = make(make_task(), network)
    loss = method.loss(network, batch)
    losses = F.cross_entropy(network(batch.x), torch.arange(4), reduction="none")
    weights = compute_sample_weights(losses, method.weigher())
    torch.testing.assert_close(loss, (weights * losses).mean())
    loss.backward()
    gradient = network.weight.grad.clone()
    network.zero_grad()
    (weights.detach() * losses).mean().backward()
    torch.testing.assert_close(network.weight.grad, gradient)


def test_unit_weights_give_plain_cross_entropy(make_task, Linear5, batch):
    assert NEUTRAL is None
    network = Linear5()
    method = make(make_task(), network)
    method.output_bias.fill_(1e4)
    loss = method.loss(network, batch)
    loss.backward()
    gradient = network.weight.grad.clone()
    network.zero_grad()
    plain = F.cross_entropy(network(batch.x), torch.arange(4))
    plain.backward()
    torch.testing.assert_close(loss, plain)
    torch.testing.assert_close(network.weight.grad, gradient)


def test_validation_images_do_not_change_batchnorm(make_task, FakeBatch):
    network, plain = (build("tiny-staged", num_classes=5, in_channels=1, image_size=8) for _ in range(2))
    x, val = torch.randn(2, 4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    batch = FakeBatch(x, [0, 1, 2, 3], validation=(val * 5, torch.arange(4)))
    make(make_task(), network).loss(network, batch).backward()
    plain(x)
    for name, buffer in plain.named_buffers():
        assert torch.equal(dict(network.named_buffers())[name], buffer), name
    assert all(p.grad is not None for p in network.parameters())


def test_attention_can_be_differentiated_twice(make_task, FakeBatch):
    network = build("vit-tiny", num_classes=5, in_channels=1, image_size=8)
    x, val = torch.randn(2, 2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    method = make(make_task(), network)
    method.loss(network, FakeBatch(x, [0, 1], validation=(val, torch.arange(2)))).backward()
    assert int(method.meta_steps) == 1


def test_unlabelled_samples_are_ignored(make_task, Linear5, FakeBatch, batch):
    labels = make_task().labels.clone()
    labels[2:] = -1
    network = Linear5()
    task = make_task(labels=labels)
    losses = [
        make(task, network).loss(network, FakeBatch(batch.x[:n], range(n), validation=batch.validation()))
        for n in (2, 4)
    ]
    torch.testing.assert_close(*losses)
    assert compute_weighted_mean(torch.ones(4), torch.ones(4), torch.tensor(2)) == 2


def test_state_survives_and_optimizer_does_not_train_it(make_task, Linear5, batch):
    network = Linear5()
    one, other = make(make_task(), network), make(make_task(), network)
    for _ in range(3):
        one.loss(network, batch)
    other.load_state_dict(one.state_dict())
    torch.testing.assert_close(one.loss(network, batch), other.loss(network, batch), rtol=0, atol=0)
    assert all(torch.equal(a, b) for a, b in zip(one.buffers(), other.buffers()))
    assert not list(one.parameters())


def test_is_not_captured():
    assert not MetaWeightNet.capturable


@pytest.mark.parametrize("option", ["hidden=0", "meta_lr=0.0", "virtual_lr=0.0", "meta_weight_decay=-1.0"])
def test_bad_options_raise(option):
    with pytest.raises(ValueError, match=option.replace("=", " .*")):
        choose(f"meta-weight-net:{option}")
