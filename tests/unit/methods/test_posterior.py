from __future__ import annotations

import numpy as np
import pytest
import torch

from vista.core.posterior import compute_log_probs, compute_posterior, fit_noise
from vista.core.vista import Vista
from vista.methods import choose
from vista.methods.base import EpochEnd, WrittenOnce
from vista.methods.posterior import NEUTRAL

SMALLEST = 2.0**-24


def make(task, network, spec="posterior", **options):
    chosen = choose(spec, options)
    return chosen.method(task, network, chosen.config)


def temper(q, temperature):
    powers = np.maximum(q, SMALLEST) ** (1 / temperature)
    return powers / powers.sum(1, keepdims=True)


def posterior_by_hand(q, labels, temperature, noise_rate):
    p, k = temper(q.astype(np.float64), temperature), q.shape[1]
    for row, label in zip(p, labels):
        if label >= 0:
            row *= [1 - noise_rate if j == label else noise_rate / (k - 1) for j in range(k)]
    return p / p.sum(1, keepdims=True)


def log_likelihood(q, labels, temperature, noise_rate):
    right = temper(q.astype(np.float64), temperature)[np.arange(len(q)), labels]
    return np.log((1 - noise_rate) * right + noise_rate * (1 - right) / (q.shape[1] - 1)).sum()


def draw(samples, classes, noise_rate, sharpness, seed=0):
    """Calibrated probabilities with true labels drawn from them, and given labels of which a share is wrong."""
    rng = np.random.default_rng(seed)
    logits = sharpness * rng.standard_normal((samples, classes))
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    true = np.array([rng.choice(classes, p=row) for row in p])
    wrong = rng.random(samples) < noise_rate
    return p, np.where(wrong, (true + rng.integers(1, classes, samples)) % classes, true)


# ---------------------------------------------------------------- the posterior


@pytest.mark.parametrize(("temperature", "noise_rate"), [(1.0, 0.4), (0.5, 0.1), (3.0, 0.85), (0.05, 0.4)])
def test_posterior_is_bayes_rule(temperature: float, noise_rate: float) -> None:
    q, labels = draw(50, 6, 0.3, 2.0)
    labels[::7] = -1
    found = compute_posterior(torch.from_numpy(q).float(), torch.from_numpy(labels), temperature, noise_rate)
    np.testing.assert_allclose(
        found.numpy(), posterior_by_hand(q, labels, temperature, noise_rate), rtol=2e-3, atol=1e-6
    )
    np.testing.assert_allclose(found.sum(1).numpy(), 1.0, rtol=1e-6)


def test_clean_labels_are_the_target_even_if_the_teacher_rules_them_out() -> None:
    q = torch.tensor([[0.0, 1.0, 0.0], [0.2, 0.3, 0.5]])
    labels = torch.tensor([0, 1])
    assert torch.equal(compute_posterior(q, labels, 0.5, 0.0), torch.eye(3)[labels])


def test_weak_teacher_gives_smoothed_labels() -> None:
    found = compute_posterior(torch.full((1, 5), 0.2), torch.tensor([3]), 0.7, 0.4)
    np.testing.assert_allclose(found.numpy(), [[0.1, 0.1, 0.1, 0.6, 0.1]], rtol=1e-6)


def test_confident_teacher_overrules_noisy_labels() -> None:
    found = compute_posterior(torch.tensor([[0.001, 0.998, 0.001]]), torch.tensor([0]), 0.5, 0.6)
    assert found.argmax() == 1
    assert found[0, 1] > 0.99


def test_missing_label_gives_the_tempered_teacher() -> None:
    q = torch.tensor([[0.1, 0.3, 0.6]])
    found = compute_posterior(q, torch.tensor([-1]), 0.5, 0.4)
    torch.testing.assert_close(found, q**2 / (q**2).sum())
    torch.testing.assert_close(compute_log_probs(q, 0.5).exp(), found)


def test_arguments_stay_unchanged() -> None:
    q, labels = torch.tensor([[0.0, 1.0]]), torch.tensor([0])
    compute_posterior(q, labels, 2.0, 0.1)
    fit_noise(q, labels)
    assert q.tolist() == [[0.0, 1.0]]


# ---------------------------------------------------------------- the fit


@pytest.mark.parametrize(("temperature", "noise_rate"), [(1.0, 0.4), (0.4, 0.2), (2.5, 0.0), (1.0, 0.7)])
def test_fit_recovers_temperature_and_noise_rate(temperature: float, noise_rate: float) -> None:
    p, labels = draw(20_000, 10, noise_rate, 3.0)
    found = fit_noise(torch.from_numpy(temper(p, 1 / temperature)), torch.from_numpy(labels))
    assert found[0] == pytest.approx(temperature, rel=0.08)
    assert found[1] == pytest.approx(noise_rate, abs=0.015)


@pytest.mark.parametrize("seed", range(5))
def test_fit_is_at_least_as_likely_as_every_point_of_a_fine_grid(seed: int) -> None:
    q, labels = draw(60, 4, 0.3, 1.0, seed)
    temperature, noise_rate, _ = fit_noise(torch.from_numpy(q), torch.from_numpy(labels))
    found = log_likelihood(q, labels, temperature, noise_rate)
    best = max(log_likelihood(q, labels, t, e) for t in np.geomspace(0.05, 20, 200) for e in np.linspace(0, 0.75, 151))
    assert found > best - 1e-6
    assert 0.05 <= temperature <= 20.0
    assert 0.0 <= noise_rate <= 0.75


def test_known_noise_rate_leaves_the_temperature_to_fit() -> None:
    p, labels = draw(5_000, 10, 0.3, 3.0)
    temperature, noise_rate, _ = fit_noise(torch.from_numpy(p), torch.from_numpy(labels), noise_rate=0.3)
    assert noise_rate == 0.3
    assert temperature == pytest.approx(1.0, rel=0.1)


def test_uninformative_teacher_has_noise_rate_0() -> None:
    """Every rate is equally likely then, and 0 keeps the labels as targets."""
    labels = torch.arange(40) % 4
    assert fit_noise(torch.full((40, 4), 0.25), labels)[1] == pytest.approx(0.0, abs=1e-9)


def test_stored_zeros_stay_finite() -> None:
    q = torch.eye(3)[torch.tensor([0, 1, 2, 0])].half()
    temperature, noise_rate, _ = fit_noise(q, torch.tensor([1, 1, 2, 0]))
    assert np.isfinite([temperature, noise_rate]).all()
    assert noise_rate == pytest.approx(0.25, abs=0.01)


def flip(labels: np.ndarray, classes: int, noise_rate: float) -> np.ndarray:
    """A share of the labels, moved to the next class."""
    wrong = np.random.default_rng(7).random(len(labels)) < noise_rate
    return np.where(wrong, (labels + 1) % classes, labels)


def test_structured_noise_is_found_class_by_class() -> None:
    p, true = draw(20_000, 5, 0.0, 4.0)
    labels = flip(true, 5, 0.3)
    found = fit_noise(torch.from_numpy(temper(p, 2.0)), torch.from_numpy(labels), "structured")
    expected = 0.7 * np.eye(5) + 0.3 * np.roll(np.eye(5), 1, axis=1)
    np.testing.assert_allclose(found.matrix, expected, atol=0.03)
    assert found.noise_rate == pytest.approx(0.3, abs=0.02)
    assert found.temperature == pytest.approx(0.5, rel=0.1)


def test_a_matrix_gives_the_posterior_of_its_column() -> None:
    matrix = torch.tensor([[0.6, 0.4, 0.0], [0.0, 0.6, 0.4], [0.4, 0.0, 0.6]], dtype=torch.float64)
    found = compute_posterior(torch.tensor([[0.5, 0.3, 0.2]] * 2), torch.tensor([1, -1]), 1.0, matrix)
    torch.testing.assert_close(found[0], torch.tensor([0.2, 0.18, 0.0]) / 0.38)
    torch.testing.assert_close(found[1], torch.tensor([0.5, 0.3, 0.2]))


def test_a_known_temperature_leaves_the_noise_to_fit() -> None:
    p, labels = draw(5_000, 10, 0.3, 3.0)
    found = fit_noise(torch.from_numpy(p), torch.from_numpy(labels), temperature=0.5)
    assert found.temperature == pytest.approx(0.5)
    free = fit_noise(torch.from_numpy(p), torch.from_numpy(labels))
    assert found.noise_rate != pytest.approx(free.noise_rate, abs=0.01)


def test_prior_keeps_the_temperature_near_1_where_any_low_one_fits() -> None:
    q, labels = torch.eye(3).repeat(20, 1) * 0.9 + 0.1 / 3, torch.arange(60) % 3
    assert fit_noise(q, labels).temperature == pytest.approx(0.05, rel=1e-3)
    assert fit_noise(q, labels, prior=1.0).temperature > 0.2


# ---------------------------------------------------------------- the method


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise_model": "human"}, "noise_model must be one of symmetric, structured, auto, pooled, got 'human'"),
        (
            {"noise_model": "structured", "noise_rate": 0.4},
            "noise_rate must be None with noise_model='structured', got 0.4",
        ),
        ({"temperature": 0.0}, "temperature must be between 0.05 and 20 .*, got 0.0"),
        ({"prior": -1.0}, "prior must be .*, got -1.0"),
        ({"topk": 0}, "topk must be at least 1, got 0"),
    ],
)
def test_bad_options_are_rejected(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose("posterior", options)


@pytest.mark.parametrize(
    "options",
    [
        {"noise_model": "structured"},
        {"temperature": 0.5},
        {"prior": 1.0},
        {"topk": 2},
        {"noise_rate": 0.3, "matched": True},
    ],
)
def test_options_change_the_targets_and_survive_a_resume(make_task, FakeBatch, Linear5, options: dict) -> None:
    task, network = make_task(), Linear5()
    method, other, plain = (make(task, network, ramp=0.0, **each) for each in (options, options, {}))
    for epoch, classes in enumerate(VAL[:2], 1):
        for one in (method, plain):
            train_epoch(one, network, FakeBatch, epoch, logits_for(classes))
    everything = torch.arange(12)
    assert not torch.equal(method.targets(everything), plain.targets(everything))
    torch.testing.assert_close(method.targets(everything).sum(1), torch.ones(12))
    other.set_extra_state(method.get_extra_state())
    assert torch.equal(other.targets(everything), method.targets(everything))


def logits_for(classes: list[int], confidence: float = 3.0) -> torch.Tensor:
    return confidence * torch.eye(5)[torch.tensor(classes)]


def end(epoch: int, val_logits: torch.Tensor) -> EpochEnd:
    correct = (val_logits.argmax(dim=1) == torch.arange(5)).numpy()
    return EpochEnd(epoch, torch.nn.Identity(), val_logits, torch.zeros(0, 5), iter, iter, correct)


def train_epoch(method, network, FakeBatch, epoch: int, val_logits: torch.Tensor) -> dict:
    """One epoch over all 12 samples in three batches; returns the line of the record."""
    generator = torch.Generator().manual_seed(epoch)
    method.begin_epoch(epoch)
    for index in torch.arange(12).split(4):
        method.loss(network, FakeBatch(torch.randn(4, 3, generator=generator), index)).backward()
    return method.end_epoch(end(epoch, val_logits))


VAL = [[0, 1, 2, 0, 0], [0, 1, 2, 3, 0], [1, 1, 2, 3, 4]]  # predicted classes of three epochs; labels are 0 to 4


@pytest.mark.parametrize("spec", ["posterior", "posterior-newest", "posterior-uniform"])
def test_targets_are_the_posterior_of_the_teacher_of_vista(make_task, FakeBatch, Linear5, spec: str) -> None:
    task, network = make_task(), Linear5()
    method, options = make(task, network, spec, ramp=0.0), choose(spec).options
    plain = Vista(
        task.labels, num_classes=5, epochs=10, val_labels=task.val_labels,
        tau=options["tau"], order=options["order"], weights=options["weights"],
    )  # fmt: skip
    assert torch.equal(method.targets(torch.arange(12)), torch.eye(5)[task.labels])
    for epoch, classes in enumerate(VAL, 1):
        generator = torch.Generator().manual_seed(epoch)
        for index in torch.arange(12).split(4):
            plain.loss(network(torch.randn(4, 3, generator=generator)), index)
        summary = plain.end_epoch(logits_for(classes))
        line = train_epoch(method, network, FakeBatch, epoch, logits_for(classes))
        assert line["anchor_weights"] == {str(s): w for s, w in summary.anchors.items()}
        val = np.zeros((5, 5))
        for s, weight in summary.anchors.items():
            val += weight * logits_for(VAL[s - 1]).softmax(1).half().double().numpy()
        expected = fit_noise(torch.from_numpy(val), task.val_labels)[:2]
        assert (line["temperature"], line["noise_rate"]) == pytest.approx(expected, rel=1e-3, abs=1e-4)
        by_hand = posterior_by_hand(
            plain.teacher().numpy(), task.labels.numpy(), line["temperature"], line["noise_rate"]
        )
        np.testing.assert_allclose(method.targets(torch.arange(12)).numpy(), by_hand, rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(method.final_teacher().numpy(), by_hand, rtol=1e-3, atol=1e-6)


def test_posterior_replaces_labels_over_the_ramp(make_task, FakeBatch, Linear5) -> None:
    task, network = make_task(), Linear5()
    method = make(task, network, ramp=0.3)
    shares, hard = [], torch.eye(5)[task.labels]
    for epoch, classes in enumerate([*VAL, VAL[-1]], 1):
        shares.append(train_epoch(method, network, FakeBatch, epoch, logits_for(classes))["beta"])
        blended = (1 - shares[-1]) * hard + shares[-1] * method.final_teacher()
        torch.testing.assert_close(method.targets(torch.arange(12)), blended)
    assert shares == pytest.approx([1 / 3, 2 / 3, 1, 1])


def test_without_anchors_targets_are_the_labels(make_task, FakeBatch, Linear5) -> None:
    task, network = make_task(), Linear5()
    method = make(task, network, ramp=0.0)
    line = train_epoch(method, network, FakeBatch, 1, logits_for([1, 2, 3, 4, 0]))
    assert (line["anchors"], line["temperature"], line["noise_rate"]) == (0, 1.0, 0.0)
    assert "no state covers" in line["event"]
    assert torch.equal(method.targets(torch.arange(12)), torch.eye(5)[task.labels])
    assert torch.equal(method.final_teacher(), torch.eye(5)[task.labels])


def test_missing_labels_learn_from_the_teacher_alone(make_task, FakeBatch, Linear5) -> None:
    labels = torch.arange(12) % 5
    labels[[2, 7]] = -1
    task, network = make_task(labels=labels), Linear5()
    method = make(task, network, ramp=1.0)
    assert method.targets(torch.tensor([2, 7])).sum() == 0
    line = train_epoch(method, network, FakeBatch, 1, logits_for(VAL[0]))
    rows = torch.tensor([2, 7])
    expected = compute_log_probs(method.posterior.teacher()[rows], line["temperature"]).exp()
    torch.testing.assert_close(method.targets(rows), expected)


def test_state_holds_predictions_once_and_restores_targets(make_task, FakeBatch, Linear5) -> None:
    task, network = make_task(), Linear5()
    method, other = (make(task, network, noise_rate=0.3, ramp=0.0) for _ in range(2))
    for epoch, classes in enumerate(VAL, 1):
        line = train_epoch(method, network, FakeBatch, epoch, logits_for(classes))
    assert line["temperature"] != 1.0
    state = method.get_extra_state()
    assert isinstance(state["val_predictions"], WrittenOnce)
    assert isinstance(state["predictions"], WrittenOnce)
    assert state["val_predictions"].keys() == state["predictions"].keys()
    assert {rows.dtype for rows in state["val_predictions"].values()} == {torch.float16}
    other.set_extra_state(state)
    everything = torch.arange(12)
    assert torch.equal(other.targets(everything), method.targets(everything))
    assert torch.equal(other.final_teacher(), method.final_teacher())
    lines = [train_epoch(one, network, FakeBatch, 4, logits_for(VAL[0])) for one in (method, other)]
    assert lines[0] == lines[1]


def test_batches_that_cutmix_mixes_are_not_recorded(make_task, FakeBatch, Linear5) -> None:
    task, network = make_task(cutmix=True), Linear5()
    method = make(task, network, ramp=0.0)
    method.begin_epoch(1)
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    for index, share in zip(torch.arange(12).split(4), (1.0, 0.6, 1.0), strict=True):
        batch = FakeBatch(x[index], index)
        batch.partner, batch.share = (index + 1) % 12, torch.tensor([share])
        mixed = share * torch.eye(5)[task.labels[index]] + (1 - share) * torch.eye(5)[task.labels[batch.partner]]
        expected = torch.nn.functional.cross_entropy(network(batch.x), mixed)
        torch.testing.assert_close(method.loss(network, batch), expected)
    assert method.end_epoch(end(1, logits_for(VAL[0])))["unrecorded"] == 4
    teacher = method.posterior.teacher()
    with torch.no_grad():
        torch.testing.assert_close(teacher[:4], network(x[:4]).softmax(1), atol=1e-3, rtol=1e-3)
    assert torch.equal(teacher[4:8], torch.eye(5)[task.labels[4:8]])


def test_declared_bytes_include_validation_predictions(make_task, Linear5) -> None:
    method = make(make_task(epochs=2), Linear5(), tau=0.0)
    assert method.bytes_written_once() == 2 * (12 + 5) * 5 * 2


def test_neutral_options_keep_one_hot_targets(make_task, FakeBatch, Linear5) -> None:
    task, network = make_task(), Linear5()
    method = make(task, network, **NEUTRAL)
    for epoch, classes in enumerate(VAL, 1):
        line = train_epoch(method, network, FakeBatch, epoch, logits_for(classes))
        assert line["noise_rate"] == 0.0
        assert torch.equal(method.targets(torch.arange(12)), torch.eye(5)[task.labels])


def test_options_that_cannot_be_combined_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"tau must be 0 with weights='uniform', .*, got 0\.01"):
        choose("posterior", {"weights": "uniform"})
    with pytest.raises(ValueError, match=r"noise_rate must be at least 0 and less than 1, got 1\.0"):
        choose("posterior", {"noise_rate": 1.0})
