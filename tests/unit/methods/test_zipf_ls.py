from __future__ import annotations

import numpy as np
import pytest
import torch
from by_hand import softmax

from vista.methods import choose
from vista.methods.zipf_ls import NEUTRAL, compute_zipf_mass, compute_zipf_term, count_votes, drop_target
from vista.models import build


def make(task, network, **options):
    chosen = choose("zipf-ls", options)
    return chosen.method(task, network, chosen.config)


def normal(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def staged(image_size=8):
    return build("tiny-staged", num_classes=5, in_channels=1, image_size=image_size).eval()


def zipf_by_hand(scores, label):
    """The Zipf distribution over the non-target classes (the target has a rank too), in plain Python."""
    mass = [1 / (1 + sum(other > s for other in scores)) for k, s in enumerate(scores) if k != label]
    return np.array(mass) / sum(mass)


def term_by_hand(logits, scores, labels):
    total = 0.0
    for z, s, y in zip(logits, scores, labels):
        q, expected = softmax(np.delete(z, y)[None])[0], zipf_by_hand(s, y)
        total += (expected * np.log(expected / q)).sum()
    return total / len(labels)


def test_target_column_is_dropped():
    values = torch.arange(10.0).view(2, 5)
    assert drop_target(values, torch.tensor([0, 3])).tolist() == [[1, 2, 3, 4], [5, 6, 7, 9]]


def test_ties_share_best_rank_and_masses_sum_to_one():
    mass = compute_zipf_mass(torch.tensor([[9.0, 0.0, 4.0, 0.0]]))
    np.testing.assert_allclose(mass.numpy(), [np.array([1, 1 / 3, 1 / 2, 1 / 3]) / (1 + 1 / 2 + 2 / 3)], rtol=1e-6)
    np.testing.assert_allclose(compute_zipf_mass(torch.zeros(2, 4)).numpy(), 0.25)
    np.testing.assert_allclose(compute_zipf_mass(normal(6, 9)).sum(1).numpy(), 1.0, rtol=1e-6)


@pytest.mark.parametrize(("level", "won"), [(1.0, 12.0), (2.5, 8.0)])
def test_votes_count_won_positions_of_upsampled_map(level, won):
    dense = torch.zeros(1, 3, 2, 2)
    dense[0, 0], dense[0, 2, 0, 0], dense[0, 2, 0, 1] = level, 9.0, 9.0
    # Class 2 has 9 in the upper row; upsampled to four rows: 9, 6.75, 2.25 and 0, against the level of class 0.
    assert count_votes(dense)[0].tolist() == [16.0 - won, 0.0, won]


def test_term_against_numpy():
    logits, scores, labels = (
        normal(4, 5),
        torch.randint(0, 3, (4, 5), generator=torch.Generator().manual_seed(2)),
        [0, 3, 4, 2],
    )
    expected = term_by_hand(logits.numpy().astype(float), scores.numpy(), labels)
    assert compute_zipf_term(logits, scores.float(), torch.tensor(labels)).item() == pytest.approx(expected, rel=1e-5)


def test_term_is_invariant_to_logit_offset():
    logits, labels = normal(4, 5), torch.tensor([0, 3, 4, 2])
    torch.testing.assert_close(
        compute_zipf_term(logits + 7.0, logits + 7.0, labels), compute_zipf_term(logits, logits, labels)
    )


def test_staged_network_ranks_by_votes(make_task, FakeBatch):
    network, x = staged(16), normal(3, 1, 16, 16)
    loss = make(make_task(), network, weight=0.7).loss(network, FakeBatch(x, [1, 5, 9]))
    last = network.stages(x)[-1]
    logits = network(x).detach().numpy().astype(float)
    scores = count_votes(network.dense_logits(last)).detach().numpy()
    assert len(np.unique(scores)) > 1
    p, y = softmax(logits), [1, 0, 4]
    expected = -np.log(p[range(3), y]).mean() + 0.7 * term_by_hand(logits, scores, y)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("case", ["no stages", "head of two layers", "map of one position"])
def test_without_map_logits_are_ranked(make_task, FakeBatch, Linear5, case):
    network, x = Linear5(), normal(3, 3)
    if case == "head of two layers":
        network, x = build("small-cnn", num_classes=5, in_channels=1, image_size=8).eval(), normal(3, 1, 8, 8)
    elif case == "map of one position":
        network, x = staged(8), normal(3, 1, 8, 8)
    loss = make(make_task(), network, weight=0.7).loss(network, FakeBatch(x, [1, 5, 9]))
    logits = network(x).detach().numpy().astype(float)
    expected = -np.log(softmax(logits)[range(3), [1, 0, 4]]).mean() + 0.7 * term_by_hand(logits, logits, [1, 0, 4])
    assert loss.item() == pytest.approx(expected, rel=1e-4)


def test_weight_0_is_cross_entropy(make_task, FakeBatch):
    network, task = staged(), make_task()
    batch = FakeBatch(normal(3, 1, 8, 8), [1, 5, 9])
    plain = choose("ce").method(task, network, None)
    assert torch.equal(make(task, network, **NEUTRAL).loss(network, batch), plain.loss(network, batch))


def test_unlabelled_rows_change_nothing(make_task, FakeBatch, Linear5):
    network, x, labels = Linear5(), normal(4, 3), torch.tensor([1, -1, 3, -1])
    with_missing = make(make_task(labels=labels), network).loss(network, FakeBatch(x, [0, 1, 2, 3]))
    without = make(make_task(labels=labels[[0, 2]]), network).loss(network, FakeBatch(x[[0, 2]], [0, 1]))
    torch.testing.assert_close(with_missing, without)


def test_cutmix_mixes_terms_of_both_labels_by_area(make_task, FakeBatch, Linear5):
    network, x = Linear5(), normal(1, 3)
    method = make(make_task(), network, weight=0.7)
    alone = [method.loss(network, FakeBatch(x, [i])).item() for i in (0, 1)]
    both = method.loss(network, FakeBatch(x, [0], partner=[1], share=0.3))
    assert both.shape == ()
    assert both.item() == pytest.approx(0.3 * alone[0] + 0.7 * alone[1], rel=1e-5)


def test_ranks_get_no_gradient():
    logits = normal(4, 5).requires_grad_()
    compute_zipf_term(logits, logits * 1.0, torch.tensor([0, 3, 4, 2])).backward()
    with_scores_of_their_own = normal(4, 5).requires_grad_()
    compute_zipf_term(with_scores_of_their_own, normal(4, 5), torch.tensor([0, 3, 4, 2])).backward()
    assert torch.equal(logits.grad, with_scores_of_their_own.grad)


def test_negative_weight_raises():
    with pytest.raises(ValueError, match=r"weight .*-0.1"):
        choose("zipf-ls", {"weight": -0.1})
