"""BYOT: auxiliary heads on the shallower stages learn from the deepest head."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from by_hand import log_softmax

from vista.methods import choose
from vista.methods.byot import NEUTRAL, Byot, compute_byot_terms, compute_feature_gap, make_bottleneck
from vista.models import build


def test_terms_match_formula():
    rng = np.random.default_rng(0)
    logits = [rng.normal(size=(4, 3)) for _ in range(3)]
    features = [rng.normal(size=(4, 2)) for _ in range(3)]
    targets = np.eye(3)[[0, 2, 1, 1]]
    alpha, beta, temperature = 0.3, 0.7, 3.0
    hard = [-(targets * log_softmax(z)).sum(axis=1).mean() for z in logits]
    log_teacher = log_softmax(logits[-1] / temperature)
    soft = [
        (np.exp(log_teacher) * (log_teacher - log_softmax(z / temperature))).sum(axis=1).mean() * temperature**2
        for z in logits[:-1]
    ]
    deep = features[-1]
    gaps = [((f - deep) ** 2 * ((f > 0) | (deep > 0))).mean() for f in features[:-1]]
    terms = compute_byot_terms(
        [torch.from_numpy(z) for z in logits],
        [torch.from_numpy(f) for f in features],
        torch.from_numpy(targets),
        alpha=alpha,
        beta=beta,
        temperature=temperature,
    )
    expected = [hard[-1], 0.7 * sum(hard[:-1]), alpha * sum(soft), beta * sum(gaps)]
    np.testing.assert_allclose([float(term) for term in terms], expected, rtol=1e-10)


def test_journal_form_has_no_squared_temperature_and_l2_distances(make_task, network, batch):
    method = choose("byot-journal").method(make_task(), network, choose("byot-journal").config)
    assert len(method.adaptations) == 2, "none for the head next to the deepest"
    features = [neck(each).mean(dim=(2, 3)) for neck, each in zip(method.necks, network.stages(batch.x))]
    deep = network.stages(batch.x)[-1].mean(dim=(2, 3))
    distances = [(layer(f) - deep).square().sum().sqrt() for layer, f in zip(method.adaptations, features)]
    terms = method.terms(network, batch)
    torch.testing.assert_close(terms.features, 0.03 * sum(distances))
    teacher = (network(batch.x) / 3).softmax(dim=1)
    kl = [
        F.kl_div((h(f) / 3).log_softmax(dim=1), teacher, reduction="batchmean") for h, f in zip(method.heads, features)
    ]
    torch.testing.assert_close(terms.distillation, 0.3 * sum(kl))
    method.loss(network, batch).backward()
    assert all(p.grad is not None for p in method.parameters())


def test_deepest_head_gets_no_distillation_gradient():
    logits = [torch.randn(4, 3, generator=torch.Generator().manual_seed(s)).requires_grad_() for s in (1, 2)]
    features = [torch.rand(4, 2, generator=torch.Generator().manual_seed(s)).requires_grad_() for s in (3, 4)]
    terms = compute_byot_terms(logits, features, torch.eye(3)[[0, 1, 2, 0]], alpha=0.5, beta=1.0, temperature=3.0)
    (terms.distillation + terms.features).backward()
    assert logits[0].grad is not None
    assert logits[1].grad is None
    assert features[0].grad is not None
    assert features[1].grad is None


def test_feature_term_equals_that_of_the_reference_implementation(make_task, network, batch):
    """The reference uses 1e-6 times a sum over a batch of 128 and 512 pooled features."""
    assert Byot.Config().beta == pytest.approx(1e-6 * 128 * 512, rel=1e-3)
    method = Byot(make_task(), network, Byot.Config(beta=1.0))
    maps = network.stages(batch.x)
    deep = maps[-1].mean(dim=(2, 3))
    gaps = [compute_feature_gap(neck(shallow).mean(dim=(2, 3)), deep) for neck, shallow in zip(method.necks, maps)]
    torch.testing.assert_close(method.terms(network, batch).features, sum(gaps))


@pytest.mark.parametrize(("inputs", "inner"), [(16, 4), (3, 1)])
def test_bottleneck_halves_map_size(inputs, inner):
    neck = make_bottleneck(inputs, 6)
    assert neck(torch.rand(2, inputs, 8, 5)).shape == (2, 6, 4, 3)
    convolutions = [tuple(layer.weight.shape) for layer in neck if isinstance(layer, torch.nn.Conv2d)]
    assert convolutions == [(inner, inputs, 1, 1), (inner, inner, 3, 3), (6, inner, 1, 1)]


def test_neutral_main_head_is_plain_cross_entropy(make_task, network, batch):
    method = Byot(make_task(), network, Byot.Config(**NEUTRAL))
    labels = make_task().labels[batch.index]
    terms = method.terms(network, batch)
    torch.testing.assert_close(terms.main, F.cross_entropy(network(batch.x), labels), rtol=0, atol=1e-6)
    assert terms.distillation.item() == terms.features.item() == 0.0
    assert terms.heads.item() > 0


def test_every_stage_but_the_last_has_a_trained_head(make_task, network, batch):
    method = Byot(make_task(), network, Byot.Config())
    assert len(method.heads) == 3
    method.loss(network, batch).backward()
    assert all(p.grad is not None for p in [*method.parameters(), *network.parameters()])


def test_cutmix_targets_are_mixed(make_task, network, FakeBatch, batch):
    method = Byot(make_task(), network, Byot.Config(**NEUTRAL))
    mixed = FakeBatch(batch.x, batch.index, partner=[1, 2, 3, 4], share=0.25)
    labels = make_task().labels
    logits = network(batch.x)
    expected = 0.25 * F.cross_entropy(logits, labels[batch.index]) + 0.75 * F.cross_entropy(
        logits, labels[[1, 2, 3, 4]]
    )
    torch.testing.assert_close(method.terms(network, mixed).main, expected)


def test_unlabelled_samples_are_excluded_from_mean(make_task, network, batch):
    labels = make_task().labels.clone()
    labels[batch.index[:3]] = -1
    method = Byot(make_task(labels=labels), network, Byot.Config(**NEUTRAL))
    expected = F.cross_entropy(network(batch.x)[3:], labels[batch.index[3:]])
    torch.testing.assert_close(method.terms(network, batch).main, expected)


def test_network_without_stages_is_rejected(make_task, Linear5):
    with pytest.raises(
        ValueError, match="byot needs the feature maps of at least two stages, but Linear5 has none; use a resnet"
    ):
        Byot(make_task(), type("Linear5", (Linear5,), {})(), Byot.Config())
    with pytest.raises(ValueError, match="MLP"):
        Byot(make_task(), build("mlp", num_classes=5, in_channels=3, image_size=1), Byot.Config())


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("alpha=1.5", "alpha .*1.5"),
        ("temperature=0", "temperature .*0.0"),
        ("beta=-1", "beta .*-1.0"),
    ],
)
def test_bad_options_raise(option, message):
    with pytest.raises(ValueError, match=message):
        choose(f"byot:{option}")
