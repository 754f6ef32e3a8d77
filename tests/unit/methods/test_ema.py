from __future__ import annotations

import numpy as np
import pytest
import torch

from vista.methods import choose
from vista.methods.ema import NEUTRAL, compute_rate, move_towards
from vista.models import build


def make(make_task, network, **options):
    chosen = choose("ema", options)
    return chosen.method(make_task(), network, chosen.config)


def step(network, seed):
    """Replace an optimizer step: new weights and new BatchNorm statistics."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in [*network.parameters(), *network.buffers()]:
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(tensor.shape, generator=generator))
            else:
                tensor.add_(1)


def test_average_moves_by_rate():
    average, current = torch.tensor([1.0, 2.0]), torch.tensor([3.0, -2.0])
    move_towards([average], [current], torch.tensor(0.25))
    torch.testing.assert_close(average, torch.tensor([1.5, 1.0]))


def test_rate_decreases_to_one_minus_decay():
    steps = torch.tensor([0.0, 10.0, 1e6])
    np.testing.assert_allclose(compute_rate(steps, 0.999).numpy(), [0.9, 9 / 20, 0.001], rtol=1e-4)


def test_parameters_and_statistics_follow_the_recurrence(make_task):
    network = build("tiny-staged", num_classes=5, in_channels=1, image_size=8)
    method = make(make_task, network, decay=0.5)
    expected = {name: tensor.numpy().astype(float) for name, tensor in network.state_dict().items()}
    for n in range(12):
        step(network, seed=n)
        method.after_step(network)
        kept = min(0.5, (1 + n) / (10 + n))
        for name, tensor in network.state_dict().items():
            if tensor.is_floating_point():
                expected[name] = kept * expected[name] + (1 - kept) * tensor.numpy()
            else:
                expected[name] = tensor.numpy()
    for name, tensor in method.evaluated(network).state_dict().items():
        np.testing.assert_allclose(tensor.numpy(), expected[name], rtol=1e-5, err_msg=name)


def test_decay_0_is_the_network_itself(make_task, Linear5):
    network = Linear5()
    method = make(make_task, network, **NEUTRAL)
    step(network, seed=3)
    method.after_step(network)
    torch.testing.assert_close(method.evaluated(network).weight, network.weight)


def test_loss_is_cross_entropy_of_trained_network(make_task, FakeBatch, Linear5):
    network, x = Linear5(), torch.randn(4, 3, generator=torch.Generator().manual_seed(1))
    method = make(make_task, network)
    expected = torch.nn.functional.cross_entropy(network(x), torch.tensor([0, 1, 2, 3]))
    torch.testing.assert_close(method.loss(network, FakeBatch(x, [0, 1, 2, 3])), expected)


def test_average_is_saved_but_not_trained(make_task, Linear5):
    network = Linear5()
    method = make(make_task, network, decay=0.9)
    assert not any(p.requires_grad for p in method.parameters())
    step(network, seed=1)
    method.after_step(network)
    other = make(make_task, Linear5(seed=5), decay=0.9)
    other.load_state_dict(method.state_dict())
    step(network, seed=2)
    method.after_step(network)
    other.after_step(network)
    assert torch.equal(method.average.weight, other.average.weight)


@pytest.mark.parametrize("decay", [-0.1, 1.0, float("nan")])
def test_decay_out_of_range_raises(decay):
    with pytest.raises(ValueError, match=r"decay must be at least 0 and less than 1, got"):
        choose("ema", {"decay": decay})
