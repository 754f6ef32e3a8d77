"""Dropout: rates, scale, eval mode, and a separate random stream for each run."""

import copy

import pytest
import torch
from torch import nn

from vista import models
from vista.models.dropout import Dropout, set_generator


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def with_dropout(p: float = 0.5, seed: int = 0) -> nn.Sequential:
    network = nn.Sequential(nn.Identity(), nn.Sequential(Dropout(p)))
    set_generator(network, generator(seed))
    return network


def test_zeroes_a_share_p_and_keeps_the_mean():
    out = with_dropout(p=0.2)(torch.ones(200, 500))
    assert set(out.unique().tolist()) == {0.0, 1.25}
    assert (out == 0).double().mean().item() == pytest.approx(0.2, abs=0.01)
    assert out.double().mean().item() == pytest.approx(1.0, abs=0.01)


def test_eval_mode_and_p_0_are_the_identity():
    x = torch.randn(3, 4, generator=generator())
    assert torch.equal(with_dropout().eval()(x), x)
    assert torch.equal(with_dropout(p=0.0)(x), x)


def test_masks_come_from_the_generator_and_no_other_stream():
    x = torch.ones(4, 64)
    before = torch.get_rng_state()
    first, other = with_dropout(seed=1), with_dropout(seed=1)
    masks = [first(x), first(x)]
    other_masks = []
    for _ in range(2):
        other_masks.append(other(x))
        with_dropout(seed=2)(x)
    assert all(torch.equal(a, b) for a, b in zip(masks, other_masks))
    assert not torch.equal(masks[0], masks[1])
    assert torch.equal(torch.get_rng_state(), before)


def test_without_a_generator_the_default_one_is_used():
    network, x = nn.Sequential(Dropout(0.5)), torch.ones(4, 64)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        first = network(x)
        torch.manual_seed(3)
        assert torch.equal(network(x), first)


def test_the_gradient_passes_where_the_mask_keeps():
    x = torch.ones(4, 64, requires_grad=True)
    out = with_dropout()(x)
    out.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, out.detach())


def test_set_generator_reaches_every_dropout_and_adds_no_state():
    network = models.build("vgg16-fc", num_classes=3)
    own = generator()
    set_generator(network, own)
    found = [module for module in network.modules() if isinstance(module, Dropout)]
    assert len(found) == 2
    assert all(module.generator is own and module.p == 0.5 for module in found)
    assert not any(isinstance(module, nn.Dropout) for module in network.modules())
    assert not any("generator" in key for key in network.state_dict())


def test_a_copy_continues_from_the_same_position_of_the_stream():
    network, x = with_dropout(), torch.ones(4, 64)
    network(x)
    twin = copy.deepcopy(network)
    assert torch.equal(twin(x), network(x))


def test_compiled_dropout_draws_the_same_masks():
    torch.compiler.reset()
    x = torch.ones(4, 64)
    assert torch.equal(torch.compile(with_dropout(), backend="eager")(x), with_dropout()(x))


@pytest.mark.parametrize("p", [-0.1, 1.0, float("nan")])
def test_p_must_be_a_probability_below_1(p):
    with pytest.raises(ValueError, match=r"p must be at least 0 and less than 1, got "):
        Dropout(p)
