"""``Posterior`` in a training loop, the noise matrix of confident predictions, and the excess of memorised labels."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from vista import Posterior, Vista
from vista.core.noise_fit import confident_matrix, confident_rate, count_confident, fit_concentration
from vista.core.posterior import Fit, compute_posterior, fit_excess, fit_noise, given_log_odds

N, M, K, E = 60, 40, 4, 6
LABELS, VAL_LABELS = torch.arange(N) % K, torch.arange(M) % K


def make(**options: Any) -> Posterior:
    given: dict[str, Any] = {"labels": LABELS, "num_classes": K, "epochs": E, "val_labels": VAL_LABELS, "ramp": 0.0}
    return Posterior(**{**given, **options})


def drawn(rows: int, seed: int) -> Tensor:
    """Logits that favour the label of most samples."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, K, generator=generator) + 2.0 * torch.eye(K)[torch.arange(rows) % K]


def train(posterior: Posterior, epochs: int, start: int = 0) -> list[Any]:
    found = []
    for epoch in range(start, start + epochs):
        for index in torch.arange(N).split(20):
            posterior.loss(drawn(N, epoch)[index], index)
        found.append(posterior.end_epoch(drawn(M, 100 + epoch)))
    return found


# ---------------------------------------------------------------- the class


def test_it_has_the_anchors_of_vista_and_the_targets_of_bayes_rule() -> None:
    posterior, plain = make(), Vista(LABELS, num_classes=K, epochs=E, val_labels=VAL_LABELS, tau=0.01)
    for epoch, summary in enumerate(train(posterior, 3)):
        plain.loss(drawn(N, epoch), torch.arange(N))
        assert plain.end_epoch(drawn(M, 100 + epoch)).anchors == summary.anchors
    assert torch.equal(posterior.teacher(), plain.teacher())
    expected = compute_posterior(plain.teacher(), LABELS, summary.temperature, summary.noise_rate)
    assert torch.equal(posterior.targets(torch.arange(N)), expected)
    assert torch.equal(posterior.posterior(), expected)


@pytest.mark.parametrize("options", [{}, {"noise_model": "structured"}, {"noise_rate": 0.4, "matched": True}])
def test_a_saved_state_continues_exactly(options: dict[str, Any]) -> None:
    posterior, other = make(**options), make(**options)
    train(posterior, 2)
    file = io.BytesIO()
    torch.save(posterior.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other.targets(torch.arange(N)), posterior.targets(torch.arange(N)))
    assert train(other, 2, 2) == train(posterior, 2, 2)


def test_a_state_of_other_options_or_of_vista_changes_nothing() -> None:
    posterior, plain = make(), Vista(LABELS, num_classes=K, epochs=E, val_labels=VAL_LABELS)
    train(posterior, 2)
    before = posterior.targets(torch.arange(N))
    with pytest.raises(ValueError, match="lacks val_predictions, temperature"):
        posterior.load_state_dict(plain.state_dict())
    with pytest.raises(ValueError, match="made with targets='posterior', but this Vista has targets=None"):
        Vista(LABELS, num_classes=K, epochs=E, val_labels=VAL_LABELS, tau=0.01).load_state_dict(posterior.state_dict())
    other = make(matched=True)
    train(other, 1)
    with pytest.raises(ValueError, match="made with matched=True"):
        posterior.load_state_dict(other.state_dict())
    damaged = posterior.state_dict()
    damaged["val_predictions"] = {s: rows[:3] for s, rows in damaged["val_predictions"].items()}
    with pytest.raises(ValueError, match="invalid val_predictions"):
        posterior.load_state_dict(damaged)
    assert torch.equal(posterior.targets(torch.arange(N)), before)


def test_rows_of_the_validation_set_may_come_in_any_order() -> None:
    ordered, shuffled = make(), make()
    order = torch.randperm(M, generator=torch.Generator().manual_seed(0))
    for posterior in (ordered, shuffled):
        posterior.loss(drawn(N, 0), torch.arange(N))
    one = ordered.end_epoch(drawn(M, 100))
    other = shuffled.end_epoch(drawn(M, 100)[order], val_index=order)
    assert one == other


def test_the_first_row_of_a_repeated_validation_sample_counts() -> None:
    """As in Vista: a padded sampler repeats samples, and their logits may differ."""
    once, repeated = make(), make()
    for posterior in (once, repeated):
        posterior.loss(drawn(N, 0), torch.arange(N))
    rows = drawn(M, 100)
    padded = torch.cat([rows, -rows[:7]]), torch.cat([torch.arange(M), torch.arange(7)])
    assert repeated.end_epoch(padded[0], val_index=padded[1]) == once.end_epoch(rows)
    assert torch.equal(repeated._estimate.val[1], once._estimate.val[1])
    with pytest.raises(IndexError, match=r"^val_index\[3\] must be 0 to 39, got 40"):
        once.end_epoch(rows[:4], val_index=torch.tensor([0, 1, 2, M]))


def test_a_mixed_batch_is_not_recorded() -> None:
    posterior, logits = make(), drawn(N, 0)
    posterior.expects_every_sample = False
    for index, share in zip(torch.arange(N).split(20), (1.0, 0.7, 1.0), strict=True):
        posterior.loss(logits[index], index, targets=posterior.targets(index))
        posterior.record_unmixed(logits[index], index, torch.tensor([share]))
    assert posterior.end_epoch(drawn(M, 100)).unrecorded == 20
    expected = logits.softmax(dim=1)
    expected[20:40] = torch.eye(K)[LABELS[20:40]]
    torch.testing.assert_close(posterior.teacher(), expected, atol=1e-3, rtol=0)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("options", [{}, {"noise_model": "structured"}, {"noise_rate": 0.4, "matched": True}])
def test_it_moves_between_devices(options: dict[str, Any]) -> None:
    posterior, other = make(**options), make(**options)
    for epoch, device in enumerate(("cuda", "cpu", "cuda")):
        posterior.to(device)
        posterior.loss(drawn(N, epoch).to(device), torch.arange(N))
        summary = posterior.end_epoch(drawn(M, 100 + epoch).to("cpu" if epoch else "cuda"))
        other.loss(drawn(N, epoch), torch.arange(N))
        expected = other.end_epoch(drawn(M, 100 + epoch))
        assert summary.anchors == expected.anchors
        assert summary.temperature == pytest.approx(expected.temperature, rel=1e-2)
        assert summary.noise_rate == pytest.approx(expected.noise_rate, abs=1e-2)
        assert posterior.targets(torch.arange(N)).device.type == device
    torch.testing.assert_close(posterior.posterior().cpu(), other.posterior(), atol=1e-2, rtol=0)
    resumed = make(**options)
    resumed.load_state_dict(posterior.state_dict())
    assert resumed.targets(torch.arange(N)).device.type == "cpu"
    resumed.loss(drawn(N, 3).cuda(), torch.arange(N))  # it follows the first logits
    posterior.loss(drawn(N, 3).cuda(), torch.arange(N))
    assert resumed.end_epoch(drawn(M, 103)) == posterior.end_epoch(drawn(M, 103))
    assert torch.equal(resumed.targets(torch.arange(N)), posterior.targets(torch.arange(N)))


def test_it_needs_logits() -> None:
    posterior = make()
    posterior.loss(drawn(N, 0), torch.arange(N))
    with pytest.raises(ValueError, match="val_logits must be rows of logits"):
        posterior.end_epoch(torch.ones(M, dtype=torch.bool))
    assert posterior.end_epoch(drawn(M, 100)).epoch == 1


# ---------------------------------------------------------------- memorised labels


def test_the_excess_makes_the_mean_what_is_expected() -> None:
    odds = 4.0 * torch.randn(1000, generator=torch.Generator().manual_seed(0)).double()
    for expected in (0.05, 0.3):
        excess = fit_excess(odds, torch.tensor(expected, dtype=torch.float64))
        assert float(torch.sigmoid(odds - excess).mean()) == pytest.approx(expected, abs=1e-9)
    assert float(fit_excess(odds, torch.tensor(0.9).double())) == 0.0
    assert float(fit_excess(torch.full((5,), 300.0).double(), torch.tensor(0.5).double())) == pytest.approx(300.0)


def test_log_odds_are_those_of_the_posterior() -> None:
    q, labels = torch.rand(20, 4, generator=torch.Generator().manual_seed(0)).softmax(1), torch.arange(20) % 4
    own = compute_posterior(q, labels, 0.7, 0.3).gather(1, labels.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(given_log_odds(q, labels, 0.7, 0.3).float(), own.logit(), atol=1e-5, rtol=1e-5)


def test_memorised_labels_lose_odds_until_they_agree_with_validation_samples() -> None:
    matched, plain = make(matched=True, noise_rate=0.3), make(noise_rate=0.3)
    for posterior in (matched, plain):
        posterior.loss(20.0 * torch.eye(K)[LABELS], torch.arange(N))
        posterior.end_epoch(drawn(M, 100))
    summary = matched._estimate
    own = compute_posterior(summary.val[1].float(), VAL_LABELS, summary.fit.temperature, 0.3)
    expected = own[torch.arange(M), VAL_LABELS].mean()
    rows = torch.arange(N)
    assert float(plain.targets(rows)[rows, LABELS].mean()) > 0.999
    assert float(matched.targets(rows)[rows, LABELS].mean()) == pytest.approx(float(expected), abs=1e-4)


def test_the_excess_lowers_the_log_odds_of_the_given_label() -> None:
    q, labels = torch.tensor([[0.2, 0.5, 0.3], [0.2, 0.5, 0.3]]), torch.tensor([1, -1])
    plain, less = (compute_posterior(q, labels, 1.0, 0.2, excess) for excess in (0.0, 1.5))
    assert float(plain[0, 1].logit() - less[0, 1].logit()) == pytest.approx(1.5, abs=1e-5)
    torch.testing.assert_close(less[0, 0] / less[0, 2], plain[0, 0] / plain[0, 2])
    assert torch.equal(less[1], plain[1])


# ---------------------------------------------------------------- the kind of noise


def draw_noisy(kind: str, rate: float, samples: int = 5000, classes: int = 20, learned: float = 0.0) -> tuple[Any, Any]:
    """Predictions and noisy labels; ``learned`` is how much the predictions are those of the noisy label."""
    rng = np.random.default_rng(0)
    logits = 5.0 * rng.standard_normal((samples, classes))
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    true = (p.cumsum(1) > rng.random((samples, 1))).argmax(1)
    other = np.full((classes, classes), 1 / (classes - 1)) if kind == "symmetric" else np.roll(np.eye(classes), 1, 1)
    matrix = (1 - rate) * np.eye(classes) + rate * (other - np.diag(np.diag(other)))
    given = (matrix[true].cumsum(1) > rng.random((samples, 1))).argmax(1)
    return torch.from_numpy(learned * p @ matrix + (1 - learned) * p), torch.from_numpy(given)


@pytest.mark.parametrize("learned", [0.0, 1.0])
@pytest.mark.parametrize(("kind", "rate"), [("symmetric", 0.4), ("pairs", 0.4), ("pairs", 0.2), ("symmetric", 0.0)])
def test_confident_predictions_tell_structured_from_symmetric_noise(kind: str, rate: float, learned: float) -> None:
    """Also where the network has learned the noise, and no likelihood can tell it from ambiguous samples."""
    matrix = confident_matrix(*draw_noisy(kind, rate, learned=learned))
    if kind == "symmetric":
        assert matrix is None
        return
    assert matrix is not None
    torch.testing.assert_close(matrix.sum(1), torch.ones(20).double())
    next_class = matrix[torch.arange(20), (torch.arange(20) + 1) % 20]
    assert float(next_class.mean()) == pytest.approx(rate, abs=0.06)
    assert float(matrix.diagonal().mean()) == pytest.approx(1 - rate, abs=0.12)


def test_auto_fits_one_rate_where_confident_predictions_show_no_structure() -> None:
    probs, labels = draw_noisy("symmetric", 0.4)
    assert fit_noise(probs, labels, "auto") == fit_noise(probs, labels)
    probs, labels = draw_noisy("pairs", 0.4)
    found = fit_noise(probs, labels, "auto")
    assert found.matrix is not None
    assert fit_noise(probs, labels, "auto", temperature=0.5).temperature == 0.5


@pytest.mark.parametrize("learned", [0.0, 0.5])
def test_pooled_noise_has_one_rate_even_for_classes_that_the_network_confuses(learned: float) -> None:
    """A network that takes class 3 for class 4 would otherwise turn nearly all labels 4 into wrong ones, for good."""
    probs, labels = draw_noisy("pairs", 0.4, learned=learned)
    probs = probs[:, [0, 1, 2, 4, 3, *range(5, 20)]]
    separate, pooled = (fit_noise(probs, labels, noise).matrix for noise in ("structured", "pooled"))
    assert separate is not None
    assert pooled is not None
    assert float(separate.diagonal()[3:5].min()) < 0.4
    torch.testing.assert_close(pooled.diagonal(), pooled.diagonal().mean().expand(20))
    assert float(pooled[0, 0]) == pytest.approx(0.6, abs=0.13)
    torch.testing.assert_close(pooled.sum(dim=1), torch.ones(20).double())


def test_pooled_is_symmetric_where_confident_predictions_show_no_structure() -> None:
    probs, labels = draw_noisy("symmetric", 0.4)
    assert fit_noise(probs, labels, "pooled") == fit_noise(probs, labels)


def test_pooled_noise_is_matched_while_it_is_symmetric(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for matrix in (None, torch.full((K, K), 0.2).double().fill_diagonal_(0.6)):
        monkeypatch.setattr("vista.core.posterior.fit_noise", lambda *_, m=matrix, **__: Fit(1.0, 0.4, m))
        posterior = make(matched=True, noise_model="pooled")
        posterior.loss(20.0 * torch.eye(K)[LABELS], torch.arange(N))
        found.append(posterior.end_epoch(drawn(M, 100)).excess)
    assert found[0] > 0
    assert found[1] == 0


def test_a_confident_tenth_tells_the_rate() -> None:
    confidence, right = torch.linspace(0.6, 0.9, 2000).double(), torch.arange(2000) >= 1950
    probs = torch.stack([confidence, 1.0 - confidence], dim=1)
    assert float(confident_rate(probs, (~right).long())) == 0.75
    assert float(confident_rate(probs[-400:], (~right[-400:]).long())) == 0.5, "at least 100"
    assert float(confident_rate(probs[-120:], (~right[-120:]).long())) == pytest.approx(10 / 60), "half of few"


def test_the_confident_quarter_of_each_class_is_counted() -> None:
    probs = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4], [0.55, 0.45], [0.3, 0.7]]).double()
    labels = torch.tensor([1, 0, 0, 0, 0, 1])
    assert count_confident(probs, labels).tolist() == [[1.0, 1.0], [0.0, 1.0]]


def test_the_concentration_is_low_where_wrong_labels_go_to_one_class() -> None:
    even = 5.0 * (1.0 - torch.eye(8).double())
    pairs = 35.0 * torch.roll(torch.eye(8).double(), 1, 1)
    assert fit_concentration(even)[1] < 0 < fit_concentration(pairs)[1]
    assert fit_concentration(pairs)[0] < fit_concentration(even)[0] == 64
    assert float(fit_concentration(torch.zeros(8, 8).double())[1]) == pytest.approx(0.0)
