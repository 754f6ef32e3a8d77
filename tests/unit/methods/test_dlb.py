"""DLB: each batch is repeated and learns from its predictions of the previous step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from by_hand import divergences, log_softmax

from vista.methods import choose
from vista.methods.dlb import NEUTRAL, Dlb, compute_dlb_terms


class Images:
    """Images by sample, and the views requested so far."""

    def __init__(self):
        self.values = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
        self.asked = []

    def __call__(self, number, index):
        self.asked.append((number, index.tolist()))
        return self.values[index] * 0.9


@pytest.fixture
def images():
    return Images()


@pytest.fixture
def step(FakeBatch, images):
    return lambda index: FakeBatch(images.values[index], index, views=images)


def test_terms_match_formula_over_valid_rows():
    rng = np.random.default_rng(0)
    logits, again, previous = rng.normal(size=(2, 3)), rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
    targets, again_targets = np.eye(3)[[0, 1]], np.eye(3)[[2, 1, 0, 0]]
    valid = np.array([True, True, True, False])
    hard = np.concatenate([(targets * log_softmax(logits)).sum(1), (again_targets * log_softmax(again)).sum(1)[valid]])
    soft = divergences(again, previous, 3.0)[valid].mean()
    given = (torch.from_numpy(a) for a in (logits, targets, again, again_targets, previous, valid))
    terms = compute_dlb_terms(*given, alpha=0.5, temperature=3.0)
    np.testing.assert_allclose([float(t) for t in terms], [-hard.mean(), 0.5 * soft], rtol=1e-10)


def test_samples_are_repeated_in_next_step(make_task, Linear5, images, step):
    network = Linear5()
    method = Dlb(make_task(), network, Dlb.Config())
    method.loss(network, step([3, 1, 2, 0]))
    said = network(images.values[[3, 1, 2, 0]]).detach()
    with torch.no_grad():
        network.bias.add_(0.5)
    loss = method.loss(network, step([7, 6, 5, 4]))
    assert images.asked[-1] == (1, [3, 1, 2, 0])
    now, again = network(images.values[[7, 6, 5, 4]]), network(images.values[[3, 1, 2, 0]] * 0.9)
    labels = make_task().labels[[7, 6, 5, 4, 3, 1, 2, 0]]
    hard = F.cross_entropy(torch.cat([now, again]), labels).item()
    soft = divergences(again.detach().double().numpy(), said.double().numpy(), 3.0).mean()
    assert loss.item() == pytest.approx(hard + soft, rel=1e-5)


def test_first_step_has_no_previous_batch(make_task, Linear5, step):
    network = Linear5()
    method = Dlb(make_task(), network, Dlb.Config())
    batch = step([0, 1, 2, 3])
    torch.testing.assert_close(method.loss(network, batch), F.cross_entropy(network(batch.x), torch.arange(4)))


def test_short_batch_repeats_full_batch_before_it(make_task, Linear5, images, step):
    network = Linear5()
    method = Dlb(make_task(), network, Dlb.Config())
    method.loss(network, step([0, 1, 2, 3]))
    method.loss(network, step([4, 5, 6]))
    assert [index for _, index in images.asked[-2:]] == [[0, 1, 2], [3]]  # in chunks of the batch size
    batch = step([7, 8, 9, 10])
    loss = method.loss(network, batch)
    again, said = network(images.values[4:7] * 0.9), network(images.values[4:7])
    labels = make_task().labels[[7, 8, 9, 10, 4, 5, 6]]
    hard = F.cross_entropy(torch.cat([network(batch.x), again]), labels).item()
    soft = divergences(again.detach().double().numpy(), said.detach().double().numpy(), 3.0).mean()
    assert loss.item() == pytest.approx(hard + soft, rel=1e-5)


def test_neutral_is_plain_cross_entropy_on_both_batches(make_task, Linear5, images, step):
    network = Linear5()
    method = Dlb(make_task(), network, Dlb.Config(**NEUTRAL))
    method.loss(network, step([0, 1, 2, 3]))
    batch = step([4, 5, 6, 7])
    logits = torch.cat([network(batch.x), network(images.values[:4] * 0.9)])
    expected = F.cross_entropy(logits, make_task().labels[[4, 5, 6, 7, 0, 1, 2, 3]])
    torch.testing.assert_close(method.loss(network, batch), expected)


def test_previous_logits_get_no_gradient(make_task, Linear5, step):
    network = Linear5()
    method = Dlb(make_task(), network, Dlb.Config())
    method.loss(network, step([0, 1, 2, 3]))
    method.loss(network, step([4, 5, 6, 7])).backward()  # although the buffers changed after the forward pass
    assert torch.isfinite(network.weight.grad).all()
    assert not method.last_logits.requires_grad


def test_unlabelled_samples_count_in_distillation_only(make_task, Linear5, images, step):
    labels = make_task().labels.clone()
    labels[:2] = -1
    network = Linear5()
    method = Dlb(make_task(labels=labels), network, Dlb.Config(alpha=0.0))
    method.loss(network, step([0, 1, 2, 3]))
    batch = step([4, 5, 6, 7])
    logits = torch.cat([network(batch.x), network(images.values[2:4] * 0.9)])
    expected = F.cross_entropy(logits, labels[[4, 5, 6, 7, 2, 3]])
    torch.testing.assert_close(method.loss(network, batch), expected)


def test_state_survives_saving(make_task, Linear5, step):
    network = Linear5()
    one, other = (Dlb(make_task(), network, Dlb.Config()) for _ in range(2))
    one.loss(network, step([3, 1, 2]))
    other.load_state_dict(one.state_dict())
    torch.testing.assert_close(one.loss(network, step([4, 5])), other.loss(network, step([4, 5])))


def test_does_not_compose_with_cutmix():
    assert not Dlb.composes_with_cutmix


@pytest.mark.parametrize("option", ["alpha=-1.0", "temperature=0.0"])
def test_bad_options_raise(option):
    with pytest.raises(ValueError, match=option.replace("=", " .*")):
        choose(f"dlb:{option}")
