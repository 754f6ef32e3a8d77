"""DKS: all heads teach each other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from by_hand import log_softmax

from vista.methods import choose
from vista.methods.dks import NEUTRAL, Block, Branch, Dks, compute_dks_terms
from vista.models import build


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_terms_match_formula(temperature):
    rng = np.random.default_rng(0)
    logits = [rng.normal(size=(4, 3)) for _ in range(3)]
    targets = np.eye(3)[[0, 2, 1, 1]]
    hard = [-(targets * log_softmax(z)).sum(axis=1).mean() for z in logits]
    soft = 0.0
    for student, teacher in itertools.permutations(logits, 2):
        log_p, log_q = log_softmax(student / temperature), log_softmax(teacher / temperature)
        soft += (np.exp(log_q) * (log_q - log_p)).sum(axis=1).mean() * temperature**2
    terms = compute_dks_terms(
        [torch.from_numpy(z) for z in logits], torch.from_numpy(targets), alpha=0.5, temperature=temperature
    )
    np.testing.assert_allclose([float(term) for term in terms], [hard[0], sum(hard[1:]), 0.5 * soft], rtol=1e-10)


def test_permuting_heads_keeps_loss():
    logits = list(torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    targets = torch.eye(5, dtype=torch.float64)[[0, 1, 2, 3]]
    totals = [
        float(sum(compute_dks_terms(order, targets, alpha=1.0, temperature=2.0)))
        for order in itertools.permutations(logits)
    ]
    np.testing.assert_allclose(totals, totals[0], rtol=1e-12)


def test_teacher_side_gets_no_gradient():
    student, teacher = (torch.randn(4, 3, generator=torch.Generator().manual_seed(s)).requires_grad_() for s in (1, 2))
    compute_dks_terms([student, teacher], torch.zeros(4, 3), alpha=1.0, temperature=1.0).synergy.backward()
    # With T=1 the student's gradient is (p - q) / B, and no other gradient exists.
    torch.testing.assert_close(student.grad, (student.softmax(1) - teacher.softmax(1)).detach() / 4)


def test_neutral_main_head_is_plain_cross_entropy(make_task, network, batch):
    method = Dks(make_task(), network, Dks.Config(**NEUTRAL))
    terms = method.terms(network, batch)
    expected = F.cross_entropy(network(batch.x), make_task().labels[batch.index])
    torch.testing.assert_close(terms.main, expected, rtol=0, atol=1e-6)
    assert terms.synergy.item() == 0.0
    torch.testing.assert_close(method.loss(network, batch), terms.main + terms.branches)


def test_two_branches_start_before_last_stage_and_train(make_task, network, batch):
    method = Dks(make_task(), network, Dks.Config())
    assert [len(branch.blocks) for branch in method.branches] == [3, 2]
    method.loss(network, batch).backward()
    assert all(p.grad is not None for p in [*method.parameters(), *network.parameters()])


def test_branch_repeats_stages_with_two_blocks_for_the_last():
    branch, shapes = Branch((2, 3, 4), num_classes=7), []
    for block in branch.blocks:
        block.register_forward_hook(lambda _block, _given, made: shapes.append(tuple(made.shape)))
    assert branch(torch.rand(2, 2, 8, 8)).shape == (2, 7)
    assert shapes == [(2, 3, 4, 4), (2, 4, 2, 2), (2, 4, 2, 2)]


def test_block_with_stride_1_adds_its_input():
    block, x = Block(3, 3, stride=1), torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    torch.nn.init.zeros_(block.residual[-1].weight)
    assert torch.equal(block(x), F.relu(x))


def test_two_stage_network_has_one_branch(make_task):
    network = build("small-cnn", num_classes=5, in_channels=1, image_size=8)
    assert len(Dks(make_task(), network, Dks.Config()).branches) == 1


def test_unlabelled_samples_are_excluded_from_mean(make_task, network, batch):
    labels = make_task().labels.clone()
    labels[batch.index[:3]] = -1
    method = Dks(make_task(labels=labels), network, Dks.Config())
    expected = F.cross_entropy(network(batch.x)[3:], labels[batch.index[3:]])
    torch.testing.assert_close(method.terms(network, batch).main, expected)


def test_network_without_stages_is_rejected(make_task):
    with pytest.raises(ValueError, match="dks needs the feature maps of at least two stages, but MLP has none"):
        Dks(make_task(), build("mlp", num_classes=5, in_channels=3, image_size=1), Dks.Config())


@pytest.mark.parametrize("option", ["alpha=-1", "temperature=0"])
def test_bad_options_raise(option):
    name, value = option.split("=")
    with pytest.raises(ValueError, match=f"{name} .*{float(value)}"):
        choose(f"dks:{option}")
