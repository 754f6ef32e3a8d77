from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from by_hand import softmax

from vista.methods import choose
from vista.methods.tf_kd import NEUTRAL, make_virtual_teacher


def make(task, network, name="tf-kd", **options):
    chosen = choose(name, options)
    return chosen.method(task, network, chosen.config)


def inputs(rows=3, seed=1):
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed))


def test_reg_against_numpy(make_task, FakeBatch, Linear5):
    network, x = Linear5(), inputs()
    loss = make(make_task(), network, alpha=0.3, temperature=2.0).loss(network, FakeBatch(x, [1, 5, 9]))
    p, y = softmax(network(x).detach().numpy().astype(float)), [1, 0, 4]
    u = np.full((3, 5), 0.01 / 4)
    u[range(3), y] = 0.99
    q = softmax(u / 2.0)
    ce, kl = -np.log(p[range(3), y]).mean(), (q * np.log(q / p)).sum(1).mean()
    assert loss.item() == pytest.approx(0.7 * ce + 0.3 * kl, rel=1e-5)


def test_self_against_numpy(make_task, FakeBatch, Linear5):
    network, teacher, x = Linear5(), Linear5(seed=9), inputs()
    method = make(make_task(earlier={"teacher": teacher}), network, "tf-kd-self")
    loss = method.loss(network, FakeBatch(x, [1, 5, 9]))
    z, v = (net(x).detach().numpy().astype(float) for net in (network, teacher))
    p, q, ce = softmax(z / 6), softmax(v / 6), -np.log(softmax(z)[range(3), [1, 0, 4]]).mean()
    kl = (q * np.log(q / p)).sum(1).mean()
    assert loss.item() == pytest.approx(0.05 * ce + 0.95 * 36 * 0.5 * kl, rel=1e-4)


def test_kl_averaged_over_classes_times_their_number_is_equal(make_task, FakeBatch, Linear5):
    network, x = Linear5(), inputs(4)
    loss = make(make_task(), network, alpha=1.0).loss(network, FakeBatch(x, [1, 5, 9, 2]))
    teacher = make_virtual_teacher(F.one_hot(torch.tensor([1, 0, 4, 2]), 5).float(), 20.0)
    published = 5 * F.kl_div(network(x).log_softmax(1), teacher, reduction="none").mean()
    torch.testing.assert_close(loss, published)


def test_cutmix_mixes_teachers_of_both_labels(make_task, FakeBatch, Linear5):
    network, x = Linear5(), inputs()
    batch = FakeBatch(x, [1, 5, 9])
    batch.partner, batch.share = torch.tensor([2, 1, 9]), torch.tensor([0.3])
    loss = make(make_task(), network, alpha=0.3, temperature=2.0).loss(network, batch)
    p, a, b = softmax(network(x).detach().numpy().astype(float)), np.eye(5)[[1, 0, 4]], np.eye(5)[[2, 1, 4]]
    q = 0.3 * softmax(np.where(a > 0, 0.99, 0.01 / 4) / 2.0) + 0.7 * softmax(np.where(b > 0, 0.99, 0.01 / 4) / 2.0)
    ce, kl = -((0.3 * a + 0.7 * b) * np.log(p)).sum(1).mean(), (q * np.log(q / p)).sum(1).mean()
    assert loss.item() == pytest.approx(0.7 * ce + 0.3 * kl, rel=1e-5)


def test_virtual_teacher_is_nearly_uniform_at_source_temperature():
    row = make_virtual_teacher(torch.eye(100)[:1], 20.0)[0]
    assert row[0].item() == pytest.approx(0.0105, abs=1e-4)
    assert row[1].item() == pytest.approx(0.00999, abs=1e-5)


def test_teacher_at_low_temperature_is_label(make_task, FakeBatch, Linear5):
    assert torch.equal(make_virtual_teacher(torch.eye(5)[:2], 1e-4), torch.eye(5)[:2])
    network = Linear5()
    assert torch.isfinite(make(make_task(), network, temperature=1e-4).loss(network, FakeBatch(inputs(), [1, 5, 9])))


@pytest.mark.parametrize("name", ["tf-kd", "tf-kd-self"])
def test_alpha_0_is_cross_entropy_exactly(make_task, FakeBatch, Linear5, name):
    network = Linear5()
    task = make_task(earlier={"teacher": Linear5(seed=9)})
    batch = FakeBatch(inputs(), [1, 5, 9])
    plain = choose("ce").method(task, network, None)
    assert torch.equal(make(task, network, name, **NEUTRAL).loss(network, batch), plain.loss(network, batch))


def test_unlabelled_rows_change_nothing(make_task, FakeBatch, Linear5):
    network, x = Linear5(), inputs(4)
    labels = torch.tensor([1, -1, 3, -1])
    with_missing = make(make_task(labels=labels), network).loss(network, FakeBatch(x, [0, 1, 2, 3]))
    without = make(make_task(labels=labels[[0, 2]]), network).loss(network, FakeBatch(x[[0, 2]], [0, 1]))
    torch.testing.assert_close(with_missing, without)


def test_only_self_needs_earlier_run(make_task, Linear5):
    method = choose("tf-kd").method
    assert method.earlier_runs(choose("tf-kd").config) == ()
    (run,) = method.earlier_runs(choose("tf-kd-self").config)
    assert (run.role, run.method) == ("teacher", "ce")
    with pytest.raises(ValueError, match=r"earlier run of ce as task.earlier\['teacher'\]"):
        make(make_task(), Linear5(), "tf-kd-self")


def test_earlier_network_is_neither_trained_nor_saved(make_task, FakeBatch, Linear5):
    network, teacher = Linear5(), Linear5(seed=9)
    method = make(make_task(earlier={"teacher": teacher}), network, "tf-kd-self")
    method.loss(network, FakeBatch(inputs(), [1, 5, 9])).backward()
    assert teacher.weight.grad is None
    assert not list(method.parameters())
    assert not method.state_dict()


def test_config_shows_defaults_of_each_mode():
    assert choose("tf-kd").options == {"mode": "reg", "alpha": 0.1, "temperature": 20.0, "weight": 1.0}
    assert choose("tf-kd:mode=self").options == {"mode": "self", "alpha": 0.95, "temperature": 6.0, "weight": 0.5}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 1.1}, "alpha .*1.1"),
        ({"temperature": 0.0}, "temperature .*0.0"),
        ({"weight": -1.0}, "weight .*-1.0"),
        ({"mode": "both"}, "mode .*'both'"),
    ],
)
def test_bad_options_raise(options, message):
    with pytest.raises(ValueError, match=message):
        choose("tf-kd", options)
