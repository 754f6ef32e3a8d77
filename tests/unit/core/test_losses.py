"""The shared losses against PyTorch's own, and against mathematics."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from vista.core.losses import (
    at_least_float32,
    cross_entropy_and_probs,
    distillation_kl,
    one_hot,
    reduce,
    rows_with_target,
    soft_cross_entropy,
)


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype) * 3


@pytest.fixture
def logits() -> Tensor:
    return drawn(6, 5)


@pytest.fixture
def targets() -> Tensor:
    return drawn(6, 5, seed=1).softmax(1)


def test_one_hot_has_a_row_of_zeros_for_no_label() -> None:
    assert one_hot(torch.tensor([2, -1, 0]), 3).tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]
    assert one_hot(torch.tensor([1]), 2).dtype == torch.float32


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_hard_targets_give_cross_entropy(logits: Tensor, reduction) -> None:
    labels = torch.tensor([0, 1, 2, 3, 4, 0])
    ours = soft_cross_entropy(logits, one_hot(labels, 5, torch.float64), reduction)
    torch.testing.assert_close(ours, F.cross_entropy(logits, labels, reduction=reduction), rtol=1e-12, atol=0)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_soft_targets_give_cross_entropy_with_probabilities(logits: Tensor, targets: Tensor, reduction) -> None:
    ours = soft_cross_entropy(logits, targets, reduction)
    torch.testing.assert_close(ours, F.cross_entropy(logits, targets, reduction=reduction), rtol=1e-12, atol=0)


def test_less_the_entropy_it_is_the_divergence(logits: Tensor, targets: Tensor) -> None:
    entropy = -(targets * targets.log()).sum(1)
    divergence = soft_cross_entropy(logits, targets, "none") - entropy
    expected = F.kl_div(logits.log_softmax(1), targets, reduction="none").sum(1)
    torch.testing.assert_close(divergence, expected, rtol=1e-10, atol=1e-12)
    assert (divergence >= 0).all()
    at_itself = soft_cross_entropy(targets.log(), targets, "none") - entropy
    torch.testing.assert_close(at_itself, torch.zeros(6, dtype=torch.float64), rtol=0, atol=1e-12)


def test_the_gradient_is_prediction_less_target_over_batch(logits: Tensor, targets: Tensor) -> None:
    logits.requires_grad_()
    soft_cross_entropy(logits, targets).backward()
    torch.testing.assert_close(logits.grad, (logits.detach().softmax(1) - targets) / 6, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_gradient_is_that_of_finite_differences(logits: Tensor, targets: Tensor, reduction) -> None:
    """Rows that do not sum to one (class weights, no target) and weighted rows included."""
    targets[2] = 0
    class_weight, sample_weight = drawn(5, seed=2).abs(), drawn(6, seed=3).abs()

    def loss(values: Tensor) -> Tensor:
        return soft_cross_entropy(values, targets, reduction, sample_weight, class_weight)

    assert torch.autograd.gradcheck(loss, (logits.requires_grad_(),))


@pytest.mark.parametrize("sum_to_one", [False, True])
def test_the_gradient_has_a_gradient(logits: Tensor, targets: Tensor, sum_to_one: bool) -> None:
    """A penalty on gradients differentiates twice."""

    def ours(z: Tensor) -> Tensor:
        return cross_entropy_and_probs(z, targets, sum_to_one=sum_to_one)[0]

    z = logits.requires_grad_()
    assert torch.autograd.gradgradcheck(ours, z)
    (first,) = torch.autograd.grad(ours(z).sum(), z, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), z)
    (theirs,) = torch.autograd.grad(F.cross_entropy(z, targets, reduction="sum"), z, create_graph=True)
    torch.testing.assert_close(second, torch.autograd.grad(theirs.square().sum(), z)[0])


@pytest.mark.parametrize("sum_to_one", [False, True])
def test_the_mean_is_that_of_the_losses_with_its_gradients(logits: Tensor, targets: Tensor, sum_to_one: bool) -> None:
    z = logits.requires_grad_()
    mean = cross_entropy_and_probs(z, targets, sum_to_one=sum_to_one, mean=True)[0]
    expected = F.cross_entropy(z, targets)
    torch.testing.assert_close(mean, expected)
    torch.testing.assert_close(*(torch.autograd.grad(loss, z, retain_graph=True) for loss in (mean, expected)))
    seconds = []
    for loss in (mean, expected):
        (first,) = torch.autograd.grad(loss, z, create_graph=True)
        seconds.append(torch.autograd.grad(first.square().sum(), z))
    torch.testing.assert_close(*seconds)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_penalty_on_gradients_may_be_added_to_the_loss(logits: Tensor, targets: Tensor, weighted: bool) -> None:
    """Loss and gradient are then differentiated in one pass; with class weights rows do not sum to one."""
    z, class_weight = logits.requires_grad_(), drawn(5, seed=2).abs() if weighted else None
    gradients = []
    for loss in (
        soft_cross_entropy(z, targets, "sum", class_weight=class_weight),
        F.cross_entropy(z, targets, class_weight, reduction="sum"),
    ):
        (first,) = torch.autograd.grad(loss, z, create_graph=True)
        gradients += torch.autograd.grad(loss + first.square().sum(), z)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("sum_to_one", [False, True])
def test_the_gradients_gradient_has_one_too(logits: Tensor, targets: Tensor, sum_to_one: bool) -> None:
    z = logits.requires_grad_()
    ours = cross_entropy_and_probs(z, targets, sum_to_one=sum_to_one)[0].sum()
    theirs = F.cross_entropy(z, targets, reduction="sum")
    for _ in range(3):
        (our_gradient,) = torch.autograd.grad(ours, z, create_graph=True)
        (their_gradient,) = torch.autograd.grad(theirs, z, create_graph=True)
        torch.testing.assert_close(our_gradient, their_gradient)
        ours, theirs = our_gradient.square().sum(), their_gradient.square().sum()


@pytest.mark.parametrize("sum_to_one", [False, True])
def test_logits_may_be_changed_in_place_once_the_loss_is_there(
    logits: Tensor, targets: Tensor, sum_to_one: bool
) -> None:
    """As after torch's own cross-entropy."""
    inputs = logits.requires_grad_()
    z = inputs * 1.0
    loss = cross_entropy_and_probs(z, targets, sum_to_one=sum_to_one)[0].sum()
    z.detach().sub_(1)
    (gradient,) = torch.autograd.grad(loss, inputs, create_graph=True)
    torch.testing.assert_close(gradient, inputs.detach().softmax(1) - targets)
    (second,) = torch.autograd.grad(gradient.square().sum(), inputs)
    (theirs,) = torch.autograd.grad(F.cross_entropy(inputs, targets, reduction="sum"), inputs, create_graph=True)
    torch.testing.assert_close(second, torch.autograd.grad(theirs.square().sum(), inputs)[0])


@pytest.mark.parametrize("weighted", [False, True])
def test_the_transforms_of_torch_func_differentiate_it_like_anything_else(
    logits: Tensor, targets: Tensor, weighted: bool
) -> None:
    class_weight = drawn(5, seed=2).abs() if weighted else None

    def ours(z: Tensor, soft: Tensor = targets) -> Tensor:
        return soft_cross_entropy(z, soft, "sum", class_weight=class_weight)

    def theirs(z: Tensor) -> Tensor:
        return F.cross_entropy(z, targets, class_weight, reduction="sum")

    torch.testing.assert_close(torch.func.grad(ours)(logits), torch.func.grad(theirs)(logits))
    second = torch.func.jacrev(torch.func.grad(ours))(logits)
    torch.testing.assert_close(second, torch.func.jacrev(torch.func.grad(theirs))(logits))
    alone = torch.func.vmap(torch.func.grad(lambda z, soft: ours(z[None], soft[None])))(logits, targets)
    torch.testing.assert_close(alone, torch.func.grad(theirs)(logits))


@pytest.mark.parametrize("learned", ["logits", "targets", "class_weight", "sample_weight", "all"])
def test_whoever_learns_targets_or_weights_has_their_gradient(logits: Tensor, targets: Tensor, learned: str) -> None:
    values = {"logits": logits, "targets": targets, "class_weight": drawn(5, seed=2).abs(),
              "sample_weight": drawn(6, seed=3).abs()}  # fmt: skip
    names = list(values) if learned == "all" else [learned]

    def loss(*given: Tensor) -> Tensor:
        return soft_cross_entropy(**{**values, **dict(zip(names, given, strict=True))})

    assert torch.autograd.gradcheck(loss, tuple(values[name].requires_grad_() for name in names))
    probs = cross_entropy_and_probs(values["logits"], values["targets"])[1]
    assert not probs.requires_grad
    torch.testing.assert_close(probs, logits.detach().softmax(1))


def test_class_and_sample_weights_multiply_and_mean_divides_by_the_rows(logits: Tensor, targets: Tensor) -> None:
    class_weight, sample_weight = drawn(5, seed=2).abs(), drawn(6, seed=3).abs()
    by_hand = -(class_weight * targets * logits.log_softmax(1)).sum(1) * sample_weight
    torch.testing.assert_close(soft_cross_entropy(logits, targets, "none", sample_weight, class_weight), by_hand)
    torch.testing.assert_close(soft_cross_entropy(logits, targets, "sum", sample_weight, class_weight), by_hand.sum())
    torch.testing.assert_close(soft_cross_entropy(logits, targets, "mean", sample_weight, class_weight), by_hand.mean())
    rows = torch.tensor(4)
    torch.testing.assert_close(
        soft_cross_entropy(logits, targets, "mean", sample_weight, class_weight, rows), by_hand.sum() / 4
    )


def test_rows_without_a_target_are_not_counted() -> None:
    assert rows_with_target(torch.tensor([[0.0, 0.0], [0.5, 0.5], [1.0, 0.0]])) == 2
    assert rows_with_target(torch.tensor([[0.0, 0.0], [0.5, 0.5]])) == 1
    assert rows_with_target(torch.zeros(3, 2)) == 1, "never a division by zero"


@pytest.mark.parametrize("weighted", [False, True])
def test_targets_promised_to_sum_to_one_have_the_same_gradient(logits: Tensor, targets: Tensor, weighted: bool) -> None:
    """With class weights they sum to something else, whatever was promised."""
    weights = torch.linspace(0.5, 2.0, targets.shape[1], dtype=targets.dtype) if weighted else None
    gradients = []
    for promised in (False, True):
        leaf = logits.detach().clone().requires_grad_()
        value, _ = cross_entropy_and_probs(leaf, targets, weights, sum_to_one=promised)
        (gradient,) = torch.autograd.grad(value.sum(), leaf)
        gradients.append(gradient)
    assert torch.allclose(*gradients, atol=1e-6)


def test_the_softmax_beside_the_loss_is_detached(logits: Tensor, targets: Tensor) -> None:
    losses, probs = cross_entropy_and_probs(logits.requires_grad_(), targets)
    assert losses.requires_grad
    assert not probs.requires_grad
    torch.testing.assert_close(probs, logits.detach().softmax(1), rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened_before_the_softmax(dtype: torch.dtype) -> None:
    logits, targets = drawn(6, 5).to(dtype).requires_grad_(), drawn(6, 5, seed=1).float().softmax(1)
    loss = soft_cross_entropy(logits, targets)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, soft_cross_entropy(logits.float(), targets))
    loss.backward()
    assert logits.grad is not None
    assert logits.grad.dtype == dtype
    assert at_least_float32(torch.zeros(1, dtype=torch.float64)).dtype == torch.float64


def test_large_logits_do_not_overflow() -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    loss = soft_cross_entropy(logits, torch.tensor([[0.0, 1.0, 0.0]]))
    assert loss == 2e4
    loss.backward()
    assert torch.equal(logits.grad, torch.tensor([[1.0, -1.0, 0.0]]))


def test_an_unknown_reduction_is_rejected(logits: Tensor) -> None:
    with pytest.raises(ValueError, match=r"^reduction must be one of mean, sum, none, got 'average'"):
        reduce(logits[:, 0], "average", None)  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_distillation_is_a_batch_mean_times_the_squared_temperature(logits: Tensor, temperature: float) -> None:
    other = drawn(6, 5, seed=5)
    p, q = (other / temperature).softmax(1), (logits / temperature).softmax(1)
    by_hand = temperature**2 * (p * (p.log() - q.log())).sum(1).mean()
    torch.testing.assert_close(distillation_kl(logits, other, temperature), by_hand)
    assert distillation_kl(logits, logits, temperature).abs() < 1e-12
