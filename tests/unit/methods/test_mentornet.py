from __future__ import annotations

import numpy as np
import pytest
import torch
from by_hand import softmax

from vista.methods import choose
from vista.methods.mentornet import NEUTRAL, compute_percentile, keep_random_share, weigh_by_curriculum

ALL = {"early_dropout": 0.0, "dropout": 0.0}


def make(task, network, **options):
    chosen = choose("mentornet", options)
    return chosen.method(task, network, chosen.config)


def inputs(rows=4, seed=1):
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed))


def test_percentile_is_numpys_nearest_over_labelled_rows():
    losses = torch.rand(11, generator=torch.Generator().manual_seed(3))
    labelled = torch.ones(11, dtype=torch.bool)
    for share in (0.0, 0.3, 0.75, 1.0):
        expected = np.percentile(losses.numpy(), share * 100, method="nearest")
        assert compute_percentile(losses, share, labelled).item() == pytest.approx(expected)
    labelled[::2] = False
    expected = np.percentile(losses[1::2].numpy(), 75, method="nearest")
    assert compute_percentile(losses, 0.75, labelled).item() == pytest.approx(expected)


def test_curriculum_phases():
    losses, threshold, yes, no = (
        torch.tensor([0.5, 1.0, 1.4, 3.0]),
        torch.tensor(1.0),
        torch.tensor(True),
        torch.tensor(False),
    )
    assert weigh_by_curriculum(losses, threshold, 1.0, yes, no).tolist() == [1, 1, 1, 1]
    assert weigh_by_curriculum(losses, threshold, 1.0, no, no).tolist() == [1, 1, 0, 0]
    np.testing.assert_allclose(weigh_by_curriculum(losses, threshold, 2.0, no, yes).numpy(), [1, 1, 0.8, 0], rtol=1e-6)


def test_dropout_drops_fixed_number():
    draws = torch.rand(20, generator=torch.Generator().manual_seed(1))
    kept = keep_random_share(draws, torch.tensor(1 - 0.05, dtype=torch.float64))
    assert kept.sum() == 19
    assert not kept[draws.argmax()]
    assert keep_random_share(draws, torch.tensor(1.0)).all()
    assert keep_random_share(draws[:15], torch.tensor(0.9)).sum() == 13, "of 13.5 the half goes"


def test_single_sample_batch_keeps_its_sample():
    assert keep_random_share(torch.rand(1), torch.tensor(1 - 0.05)).tolist() == [True]


def test_phases_begin_as_in_source(make_task, Linear5):
    method = make(make_task(epochs=100), Linear5())
    phases = []
    for epoch in range(1, 101):
        method.begin_epoch(epoch)
        phases.append((bool(method.everything), bool(method.gradual), round(method.kept.item(), 6)))
    assert phases[:17] == [(True, False, 0.5)] * 17
    assert phases[17:19] == [(True, False, 0.95)] * 2
    assert phases[19:90] == [(False, False, 0.95)] * 71
    assert phases[90:] == [(False, True, 0.95)] * 10


def test_steps_of_all_three_phases_against_numpy(make_task, FakeBatch, Linear5):
    network, index, y = Linear5(), [0, 1, 2, 3], [0, 1, 2, 3]
    method = make(make_task(epochs=10), network, width=2.0, **ALL)
    threshold, partial = 0.0, 0
    for seed, epoch in enumerate((1, 2, 3, 5, 10, 10, 10), start=1):
        method.begin_epoch(epoch)
        x = inputs(seed=seed)
        loss = method.loss(network, FakeBatch(x, index))
        losses = -np.log(softmax(network(x).detach().numpy().astype(float))[range(4), y])
        threshold = 0.5 * threshold + 0.5 * np.percentile(losses, 75, method="nearest")
        d = losses - threshold
        v = np.ones(4) if epoch <= 2 else (d <= 0) * 1.0 if epoch < 10 else (1 - d / 2).clip(0, 1)
        partial += ((v > 0) & (v < 1)).sum() + (v == 0).sum()
        assert loss.item() == pytest.approx((v * losses).mean(), rel=1e-4)
    assert partial, "the case must leave something out"
    assert method.threshold.item() == pytest.approx(threshold, rel=1e-5)


def test_random_draws_use_task_generator(make_task, FakeBatch, Linear5):
    network, batch = Linear5(), FakeBatch(inputs(), [0, 1, 2, 3])
    results = []
    for seed in (1, 1, 2, 3, 4):
        task = make_task(generator=torch.Generator().manual_seed(seed))
        method = make(task, network)
        method.begin_epoch(1)
        results.append(method.loss(network, batch).item())
    assert results[0] == results[1]
    assert len(set(results)) > 1


def test_full_burn_in_without_dropout_is_cross_entropy_exactly(make_task, FakeBatch, Linear5):
    network, task = Linear5(), make_task()
    method, plain = make(task, network, **NEUTRAL), choose("ce").method(task, network, None)
    for epoch in (1, 10):
        method.begin_epoch(epoch)
        batch = FakeBatch(inputs(seed=epoch), [1, 5, 9, 2])
        assert torch.equal(method.loss(network, batch), plain.loss(network, batch))


def test_unlabelled_samples_affect_neither_loss_nor_threshold(make_task, FakeBatch, Linear5):
    network, x, labels = Linear5(), inputs(), torch.tensor([1, -1, 3, -1])
    with_missing = make(make_task(labels=labels), network, **ALL)
    without = make(make_task(labels=labels[[0, 2]]), network, **ALL)
    with_missing.begin_epoch(5)
    without.begin_epoch(5)
    expected = without.loss(network, FakeBatch(x[[0, 2]], [0, 1]))
    torch.testing.assert_close(with_missing.loss(network, FakeBatch(x, [0, 1, 2, 3])), expected)
    torch.testing.assert_close(with_missing.threshold, without.threshold)
    with_missing.loss(network, FakeBatch(x[:2], [1, 3]))
    torch.testing.assert_close(with_missing.threshold, without.threshold)


def test_state_survives_saving(make_task, FakeBatch, Linear5):
    network = Linear5()
    method, other = (make(make_task(), network, **ALL) for _ in range(2))
    method.begin_epoch(5)
    method.loss(network, FakeBatch(inputs(), [0, 1, 2, 3]))
    other.load_state_dict(method.state_dict())
    other.begin_epoch(5)
    batch = FakeBatch(inputs(seed=2), [0, 1, 2, 3])
    assert torch.equal(other.loss(network, batch), method.loss(network, batch))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"percentile": 75.0}, "percentile .*75.0"),
        ({"burn_in": 18}, "burn_in .*18.0"),
        ({"width": 0.0}, "width .*0.0"),
    ],
)
def test_bad_options_raise(options, message):
    with pytest.raises(ValueError, match=message):
        choose("mentornet", options)
