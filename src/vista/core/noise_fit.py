r"""Maximum likelihood of a temperature and of label noise, on labels that may be wrong.

With the probabilities :math:`p = \mathrm{softmax}(z / T)` of the true class and a noise matrix
:math:`M_{kj} = P(\text{given label } j \mid \text{true class } k)`, the given label y has the probability
:math:`q = (p M)_y`. With symmetric noise of rate :math:`\eta` over K classes this is

.. math:: q = (1 - \eta)\, p_y + \frac{\eta}{K - 1} (1 - p_y).

From predictions and labels alone, structured noise cannot be told from ambiguous samples: a network trained on such
labels predicts both classes, and "no noise" explains the labels as well. The most confident predictions can tell,
because they are right under every kind of noise (:func:`confident_matrix`).

All functions take float64 tensors and stay on their device.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

COLDEST, HOTTEST = 0.05, 20.0  # temperatures
POINTS, ROUNDS = 17, 6  # each round searches a range of log T that is 8 times narrower, to 2e-5 at last
BISECTIONS = 40
LEAST = 1e-300  # probability whose logarithm is taken instead of that of 0
CONFIDENT = 0.25  # share of the predictions of each class that are taken as right
SURE, FEWEST = 0.1, 100  # share and number of predictions whose labels tell the noise rate
CONCENTRATIONS = 13  # of the Dirichlet distribution of wrong labels, from 1/64 to 64
LEAST_GAIN = 0.2  # in log-likelihood per wrong label, from which on noise is structured
PSEUDO = 2.0  # samples per class that the prior of a noise matrix counts for
TURNS, STEPS = 2, 30  # of the search for a noise matrix


def fit_symmetric(
    scores: Tensor,
    labels: Tensor,
    *,
    temperature: float | None = None,
    noise_rate: float | None = None,
    most: float = 1.0,
    prior: float = 0.0,
    rounds: int = ROUNDS,
) -> tuple[Tensor, Tensor]:
    r"""Fit temperature and noise rate of symmetric noise together.

    Maximises :math:`\sum_i \log q_i - c (\log T)^2 / 2` for T in [0.05, 20] and :math:`\eta` from 0 to a share of
    1 - 1/K, at which labels carry no information. For each T the likelihood is concave in :math:`\eta`, which is found
    by bisection; T by a search on a grid of log T that is refined around its best point.

    Args:
        scores: Logits or log-probabilities of samples that were not trained on, float64 ``[m, K]``.
        labels: Their given labels, int64 ``[m]``.
        temperature: A known temperature; then only the noise rate is fitted.
        noise_rate: A known noise rate; then only the temperature is fitted.
        most: The highest noise rate, as a share of 1 - 1/K.
        prior: The c of the prior around T = 1.
        rounds: Refinements of the grid.

    Returns:
        Temperature and noise rate, float64 scalars.

    >>> scores = torch.tensor([[0.7, 0.2, 0.1]]).double().log().expand(10, 3)
    >>> temperature, _ = fit_symmetric(scores, torch.tensor([0] * 7 + [1] * 2 + [2]), noise_rate=0.0)
    >>> round(float(temperature), 3)
    1.0
    """
    classes = scores.shape[1]
    highest = most * (1.0 - 1.0 / classes)

    def rates_at(grid: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        right = label_probability(scores, labels, grid)
        wrong = (1.0 - right) / (classes - 1)  # both [G, m]: P(y) for each T if the label is right, or wrong
        rates = _fit_rates(right, wrong, highest) if noise_rate is None else torch.full_like(grid, noise_rate)
        return rates, right, wrong

    def likelihood(grid: Tensor) -> Tensor:
        rates, right, wrong = rates_at(grid)
        return log_likelihood(torch.lerp(right, wrong, rates.unsqueeze(1)))

    if temperature is None:
        log_t = search_temperature(likelihood, scores, prior, rounds)
    else:
        log_t = _known(temperature, scores)
    return log_t.exp().squeeze(0), rates_at(log_t)[0].squeeze(0)


def fit_temperature(scores: Tensor, labels: Tensor, matrix: Tensor, *, prior: float, rounds: int = ROUNDS) -> Tensor:
    """Fit the temperature alone, for a known noise matrix ``[K, K]``: a float64 scalar."""
    weights = matrix.t()[labels]  # P(given label | class k), [m, K]

    def likelihood(grid: Tensor) -> Tensor:
        probs = torch.stack([((scores / t).softmax(dim=1) * weights).sum(dim=1) for t in grid.exp()])
        return log_likelihood(probs)

    return search_temperature(likelihood, scores, prior, rounds).exp().squeeze(0)


def fit_matrix(
    scores: Tensor,
    labels: Tensor,
    *,
    temperature: float | None = None,
    prior: float = 0.0,
    rounds: int = ROUNDS,
    common: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Fit a noise matrix by expectation-maximisation from the confident joint, in turn with the temperature.

    The prior of each row is symmetric noise of the rate that the matrix has so far, counted as :data:`PSEUDO` samples.
    The confident joint alone counts uncertain predictions as noise: it has a rate of 0.38 where 0.30 is true.

    Args:
        scores: Logits, float64 ``[m, K]``.
        labels: Given labels, int64 ``[m]``.
        temperature: A known temperature.
        prior: As in :func:`fit_symmetric`.
        rounds: Refinements of the grid of temperatures.
        common: Another estimate of the noise rate, such as :func:`confident_rate`. All classes then share one rate, the
            mean of it and of the one found here, and differ only in which wrong labels they have.

    Returns:
        Temperature, a float64 scalar, and the matrix ``P(given label | true class)``, ``[K, K]``.
    """
    given = F.one_hot(labels, scores.shape[1]).to(scores.dtype)
    found, _ = fit_symmetric(scores, labels, temperature=temperature, prior=prior, rounds=rounds)
    matrix = shrink_joint(confident_joint((scores / found).softmax(dim=1), labels), common)
    for _ in range(TURNS if temperature is None else 1):
        probs = (scores / found).softmax(dim=1)
        for _ in range(STEPS):
            expected = probs * matrix.t()[labels]  # of true classes given label and prediction, [m, K]
            expected /= expected.sum(dim=1, keepdim=True).clamp(min=LEAST)
            matrix = shrink_joint(expected.t() @ given, common)
        if temperature is None:
            found = fit_temperature(scores, labels, matrix, prior=prior, rounds=rounds)
    return found, matrix


def confident_joint(probs: Tensor, labels: Tensor) -> Tensor:
    """Number of samples by confident class and given label, ``[K, K]`` (Northcutt et al., 2021).

    A sample is confidently of class k if :math:`p_k` is at least the mean of :math:`p_k` over the samples labelled k;
    of several such classes the most probable one counts. Columns are scaled to the number of samples with that label.
    """
    given = F.one_hot(labels, probs.shape[1]).to(probs.dtype)
    counts = given.sum(dim=0)
    thresholds = torch.where(counts > 0, (probs * given).sum(dim=0) / counts.clamp(min=1), math.inf)
    confidence, chosen = torch.where(probs >= thresholds, probs, -1.0).max(dim=1)
    confident = F.one_hot(chosen, probs.shape[1]).to(probs.dtype) * (confidence >= 0).unsqueeze(1)
    joint = confident.t() @ given
    return joint * (counts / joint.sum(dim=0).clamp(min=1))


def confident_matrix(probs: Tensor, labels: Tensor) -> Tensor | None:
    r"""Noise matrix by the labels of the most confident predictions, if they show more than symmetric noise.

    Of the samples predicted as each class, the most confident quarter is taken as right, and their labels are counted.
    Under symmetric noise every wrong label is equally likely; under structured noise the shares of the wrong labels of
    a class are drawn from a Dirichlet distribution, whose concentration :math:`\alpha` is fitted.

    Args:
        probs: Predicted probabilities of samples that were not trained on, float64 ``[m, K]``.
        labels: Their given labels, int64 ``[m]``.

    Returns:
        ``P(given label | true class)``, ``[K, K]``; ``None`` if structured noise explains the wrong labels hardly
        better than symmetric noise.
    """
    counts = count_confident(probs, labels)
    wrong = counts - counts.diagonal().diag()
    alpha, gain = fit_concentration(wrong)
    if not bool(gain > LEAST_GAIN * wrong.sum()):
        return None
    classes, rate = len(counts), wrong.sum() / counts.sum()
    rates = (wrong.sum(dim=1) + PSEUDO * rate) / (counts.sum(dim=1) + PSEUDO)
    uniform = (1.0 - torch.eye(classes, dtype=counts.dtype, device=counts.device)) / (classes - 1)
    shares = (wrong + alpha * uniform) / (wrong.sum(dim=1, keepdim=True) + alpha)
    return rates.unsqueeze(1) * shares + (1.0 - rates).diag()


def confident_rate(probs: Tensor, labels: Tensor) -> Tensor:
    """Share of wrong labels if the most confident predictions are right: a float64 scalar.

    These are a share of :data:`SURE` of the predictions, at least :data:`FEWEST`, and half of fewer than twice as many.
    """
    confidence, predicted = probs.max(dim=1)
    count = round(max(SURE * len(labels), min(FEWEST, len(labels) / 2)))
    chosen = confidence.argsort(descending=True, stable=True)[:count]
    return (predicted[chosen] != labels[chosen]).to(probs.dtype).mean()


def count_confident(probs: Tensor, labels: Tensor) -> Tensor:
    """Labels of the most confident predictions of each class, a share of :data:`CONFIDENT`: counts ``[K, K]``."""
    confidence, predicted = probs.max(dim=1)
    order = confidence.argsort(descending=True, stable=True)
    order = order[predicted[order].argsort(stable=True)]  # by class, and within a class by confidence
    classes, sizes = predicted[order], torch.bincount(predicted, minlength=probs.shape[1])
    rank = torch.arange(len(order), device=probs.device) - (sizes.cumsum(0) - sizes)[classes]
    chosen = order[rank < (CONFIDENT * sizes).ceil()[classes]]
    taken = F.one_hot(predicted[chosen], probs.shape[1]).to(probs.dtype)
    return taken.t() @ F.one_hot(labels[chosen], probs.shape[1]).to(probs.dtype)


def fit_concentration(wrong: Tensor) -> tuple[Tensor, Tensor]:
    """Fit the Dirichlet concentration of wrong labels.

    Args:
        wrong: Number of samples by true class and wrong label, float64 ``[K, K]`` with a diagonal of zeros.

    Returns:
        The concentration and its gain in log-likelihood over equally likely labels, float64 scalars.
    """
    classes, totals = len(wrong), wrong.sum(dim=1)
    alphas = 2.0 ** torch.linspace(-6, 6, CONCENTRATIONS, dtype=wrong.dtype, device=wrong.device)
    cells = torch.stack([(torch.lgamma(wrong + a) - torch.lgamma(a)).sum() for a in alphas / (classes - 1)])
    rows = torch.stack([(torch.lgamma(a) - torch.lgamma(totals + a)).sum() for a in alphas])
    gains = cells + rows + totals.sum() * math.log(classes - 1)
    best = gains.argmax()
    return alphas[best], gains[best]


def shrink_joint(joint: Tensor, common: Tensor | None = None) -> Tensor:
    """Rows of a joint ``[K, K]`` as probabilities, with :data:`PSEUDO` samples of symmetric noise of its rate added.

    With ``common``, all rows have the same rate of wrong labels, the mean of this one and of the joint's.
    """
    rate = 1.0 - joint.trace() / joint.sum().clamp(min=LEAST)
    prior = PSEUDO * symmetric_matrix(rate, len(joint))
    rows = (joint + prior) / (joint.sum(dim=1, keepdim=True) + PSEUDO)
    if common is None:
        return rows
    wrong = rows.clamp(min=LEAST).fill_diagonal_(0.0)
    rate = (rate + common) / 2.0
    return wrong / wrong.sum(dim=1, keepdim=True) * rate + (1.0 - rate).expand(len(joint)).diag()


def symmetric_matrix(rate: Tensor, classes: int) -> Tensor:
    """The noise matrix ``[K, K]`` whose labels are wrong with this rate, every other class being equally likely."""
    right = torch.eye(classes, dtype=rate.dtype, device=rate.device)
    return right * (1.0 - rate) + (1.0 - right) * rate / (classes - 1)


def label_probability(scores: Tensor, labels: Tensor, log_t: Tensor) -> Tensor:
    """Probability of the class that is the given label, ``[G, m]``, for each log T of a grid ``[G]``."""
    rows = labels.unsqueeze(1)
    return torch.stack([(scores / t).log_softmax(dim=1).gather(1, rows).squeeze(1) for t in log_t.exp()]).exp()


def log_likelihood(probs: Tensor) -> Tensor:
    """Sum of the logarithms over the last dimension."""
    return probs.clamp(min=LEAST).log().sum(dim=-1)


def search_temperature(likelihood: Callable[[Tensor], Tensor], like: Tensor, prior: float, rounds: int) -> Tensor:
    """The log T ``[1]`` with the highest value of a function that maps a grid ``[G]`` to values ``[G]``."""
    low, high = (_known(t, like).squeeze(0) for t in (COLDEST, HOTTEST))
    steps = torch.linspace(0.0, 1.0, POINTS, dtype=like.dtype, device=like.device)
    for _ in range(rounds):
        grid = low + (high - low) * steps
        best = (likelihood(grid) - prior * grid.square() / 2.0).argmax().view(1)
        low, high = grid[(best - 1).clamp(min=0)], grid[(best + 1).clamp(max=POINTS - 1)]
    return grid[best]


def _known(temperature: float, like: Tensor) -> Tensor:
    return torch.tensor([math.log(temperature)], dtype=like.dtype, device=like.device)


def _fit_rates(right: Tensor, wrong: Tensor, highest: float) -> Tensor:
    """Return the noise rates ``[G]`` that maximise the likelihood of each row of ``right`` and ``wrong`` ``[G, m]``.

    If every rate is equally likely, the rate is 0.
    """
    low = torch.zeros_like(right[:, 0])
    high = torch.full_like(low, highest)
    slope = wrong - right
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        rises = (slope / torch.lerp(right, wrong, middle.unsqueeze(1)).clamp(min=LEAST)).sum(dim=1) > 0
        low, high = torch.where(rises, middle, low), torch.where(rises, high, middle)
    return low
