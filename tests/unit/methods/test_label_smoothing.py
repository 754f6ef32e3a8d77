from __future__ import annotations

import numpy as np
import pytest
import torch

from vista.methods import choose
from vista.methods.label_smoothing import NEUTRAL, smooth_labels


def make(task, network, **options):
    chosen = choose("label-smoothing", options)
    return chosen.method(task, network, chosen.config)


def test_share_is_spread_over_other_classes():
    hard = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    expected = [[0.05, 0.9, 0.05], [0.0, 0.0, 0.0]]
    np.testing.assert_allclose(smooth_labels(hard, 0.1).numpy(), expected, atol=1e-7)


def test_loss_against_numpy(make_task, FakeBatch, Linear5):
    network, x = Linear5(), torch.randn(3, 3, generator=torch.Generator().manual_seed(1))
    loss = make(make_task(), network, epsilon=0.2).loss(network, FakeBatch(x, [1, 5, 9]))
    z = network(x).detach().numpy().astype(float)
    log_p = z - np.log(np.exp(z).sum(1, keepdims=True))
    target = np.full((3, 5), 0.2 / 4)
    target[[0, 1, 2], [1, 0, 4]] = 0.8
    assert loss.item() == pytest.approx(-(target * log_p).sum(1).mean(), rel=1e-5)


def test_epsilon_0_is_cross_entropy_exactly(make_task, FakeBatch, Linear5):
    network, x, task = Linear5(), torch.randn(4, 3, generator=torch.Generator().manual_seed(1)), make_task()
    plain = choose("ce").method(task, network, None)
    batch = FakeBatch(x, [0, 1, 2, 3])
    assert torch.equal(make(task, network, **NEUTRAL).loss(network, batch), plain.loss(network, batch))


def test_cutmix_mixes_smoothed_targets_by_area(make_task, FakeBatch, Linear5):
    network, x = Linear5(), torch.randn(1, 3, generator=torch.Generator().manual_seed(1))
    method = make(make_task(), network, epsilon=0.1)
    alone = [method.loss(network, FakeBatch(x, [i])).item() for i in (0, 1)]
    both = method.loss(network, FakeBatch(x, [0], partner=[1], share=0.3)).item()
    assert both == pytest.approx(0.3 * alone[0] + 0.7 * alone[1], rel=1e-5)


def test_epsilon_out_of_range_raises():
    with pytest.raises(ValueError, match=r"epsilon .*1.5"):
        choose("label-smoothing", {"epsilon": 1.5})
