"""FRSKD: a feature pyramid over the stages teaches the network."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from by_hand import log_softmax

from vista.methods import choose
from vista.methods.frskd import NEUTRAL, Frskd, Pyramid, WeightedFusion, compute_frskd_terms
from vista.models import build


def compute_attention(features):
    strength = (np.maximum(features, 0) ** 2).mean(axis=1).reshape(len(features), -1)
    return strength / np.sqrt((strength**2).sum(axis=1, keepdims=True))


def test_terms_match_formula():
    rng = np.random.default_rng(0)
    logits, teacher = rng.normal(size=(2, 4, 3))
    maps = [rng.normal(size=(4, 2, 4, 4)), rng.normal(size=(4, 3, 2, 2))]
    refined = [rng.normal(size=(4, 5, 4, 4)), rng.normal(size=(4, 6, 2, 2))]
    targets = np.eye(3)[[0, 2, 1, 1]]
    temperature = 4.0
    log_p, log_q = log_softmax(logits / temperature), log_softmax(teacher / temperature)
    expected = [
        -(targets * log_softmax(logits)).sum(axis=1).mean(),
        -(targets * log_softmax(teacher)).sum(axis=1).mean(),
        2.0 * (np.exp(log_q) * (log_q - log_p)).sum(axis=1).mean() * temperature**2,
        100.0 * sum(((compute_attention(f) - compute_attention(t)) ** 2).mean() for f, t in zip(maps, refined)),
    ]
    terms = compute_frskd_terms(
        torch.from_numpy(logits),
        torch.from_numpy(teacher),
        [torch.from_numpy(m) for m in maps],
        [torch.from_numpy(m) for m in refined],
        torch.from_numpy(targets),
        alpha=2.0,
        beta=100.0,
        temperature=temperature,
    )
    np.testing.assert_allclose([float(term) for term in terms], expected, rtol=1e-10)


def test_pyramid_learns_from_labels_only_and_trains_stages(make_task, network, batch):
    method = Frskd(make_task(), network, Frskd.Config())
    terms = method.terms(network, batch)
    (terms.distillation + terms.attention).backward(retain_graph=True)
    assert all(p.grad is None for p in method.parameters())
    network.zero_grad()
    terms.teacher.backward()
    assert network.head.weight.grad is None
    assert all(p.grad is not None for p in [*method.parameters(), *network.groups.parameters()])


def test_neutral_main_head_is_plain_cross_entropy(make_task, network, batch):
    method = Frskd(make_task(), network, Frskd.Config(**NEUTRAL))
    terms = method.terms(network, batch)
    expected = F.cross_entropy(network(batch.x), make_task().labels[batch.index])
    torch.testing.assert_close(terms.main, expected, rtol=0, atol=1e-6)
    assert terms.distillation.item() == terms.attention.item() == 0.0
    torch.testing.assert_close(method.loss(network, batch), terms.main + terms.teacher)


@pytest.mark.parametrize("sizes", [(8, 4, 2, 1), (9, 5, 3, 2), (9, 4, 2, 1), (6, 3)])
def test_refined_maps_keep_input_size(sizes):
    channels = (2, 3, 4, 5)[: len(sizes)]
    maps = [torch.rand(2, c, s, s) for c, s in zip(channels, sizes)]
    logits, refined = Pyramid(channels, 7, width=2, depth=2)(maps)
    assert logits.shape == (2, 7)
    assert [tuple(m.shape) for m in refined] == [(2, 2 * c, s, s) for c, s in zip(channels, sizes)]


def test_maps_are_averaged_with_positive_weights():
    fuse = WeightedFusion(3, channels=2, depth=1)
    fuse.refine = torch.nn.Identity()
    with torch.no_grad():
        fuse.weights.copy_(torch.tensor([3.0, -2.0, 1.0]))
    first, second, third = torch.randn(3, 2, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(fuse(first, second, third), 0.75 * first.relu() + 0.25 * third.relu(), rtol=0, atol=1e-5)


def test_every_pyramid_node_has_one_weight_per_input_map():
    pyramid, met = Pyramid((2, 3, 4, 5), 7, width=2, depth=2), []
    nodes = [module for module in pyramid.modules() if isinstance(module, WeightedFusion)]
    for node in nodes:
        node.register_forward_pre_hook(lambda fuse, maps: met.append((len(fuse.weights), len(maps))))
    pyramid([torch.rand(2, c, s, s) for c, s in zip((2, 3, 4, 5), (8, 4, 2, 1))])
    assert len(met) == len(nodes)
    assert all(weights == maps for weights, maps in met)


def test_unlabelled_samples_are_excluded_from_mean(make_task, network, batch):
    labels = make_task().labels.clone()
    labels[batch.index[:3]] = -1
    method = Frskd(make_task(labels=labels), network, Frskd.Config())
    expected = F.cross_entropy(network(batch.x)[3:], labels[batch.index[3:]])
    torch.testing.assert_close(method.terms(network, batch).main, expected)


def test_network_without_stages_is_rejected(make_task):
    with pytest.raises(ValueError, match="frskd needs the feature maps of at least two stages, but MLP has none"):
        Frskd(make_task(), build("mlp", num_classes=5, in_channels=3, image_size=1), Frskd.Config())


@pytest.mark.parametrize("option", ["alpha=-1.0", "beta=-1.0", "temperature=0.0", "width=0", "depth=0"])
def test_bad_options_raise(option):
    with pytest.raises(ValueError, match=option.replace("=", " .*")):
        choose(f"frskd:{option}")
