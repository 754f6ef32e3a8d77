"""The losses that all methods share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Reduction = Literal["mean", "sum", "none"]


def one_hot(labels: Tensor, num_classes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Encode labels ``[B]`` as rows ``[B, K]`` with a one at the label; -1 (no label) gives zeros. No host sync."""
    classes = torch.arange(num_classes, device=labels.device)
    return (labels.unsqueeze(-1) == classes).to(dtype)


def at_least_float32(logits: Tensor) -> Tensor:
    """Convert float16 and bfloat16 to float32; float32 and float64 are returned unchanged."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def smooth_targets(targets: Tensor, smoothing: float) -> Tensor:
    r""":math:`(1 - \epsilon)\,\tilde y_i + \epsilon\,m_i / K`, with the row sums :math:`m_i`, as in torch.

    >>> smooth_targets(torch.tensor([[1.0, 0.0]]), 0.2)
    tensor([[0.9000, 0.1000]])
    """
    uniform = targets.sum(dim=-1, keepdim=True) * (smoothing / targets.shape[-1])
    return targets * (1.0 - smoothing) + uniform


def soft_cross_entropy(
    logits: Tensor,
    targets: Tensor,
    reduction: Reduction = "mean",
    sample_weight: Tensor | None = None,
    class_weight: Tensor | None = None,
    rows: Tensor | None = None,
) -> Tensor:
    r""":math:`-\sum_k c_k\,\tilde y_{ik} \log p_{ik}` for logits and targets ``[B, K]``, each row times its weight.

    ``mean`` divides by the number of rows, whatever their weights, or by ``rows`` if some have no target.
    """
    losses, _ = cross_entropy_and_probs(logits, targets, class_weight)
    return reduce(losses, reduction, sample_weight, rows)


def cross_entropy_and_probs(
    logits: Tensor, targets: Tensor, class_weight: Tensor | None = None, sum_to_one: bool = False, mean: bool = False
) -> tuple[Tensor, Tensor]:
    """Return losses ``[B]`` and the detached softmax ``[B, K]``, which the gradient and the store both need.

    ``sum_to_one`` asserts that every row of ``targets`` is a distribution, which saves the gradient two passes; with
    ``mean`` the losses are their mean, a scalar, which saves autograd a node.
    """
    weighted = targets if class_weight is None else targets * class_weight
    learned = weighted.requires_grad and torch.is_grad_enabled()
    if learned or in_torch_func():  # plain operations: these support every gradient and every transform
        log_p = at_least_float32(logits).log_softmax(dim=-1)
        losses = -(log_p * weighted).sum(dim=-1)
        return losses.mean() if mean else losses, log_p.detach().exp()
    sum_to_one = sum_to_one and class_weight is None
    losses, probs = _SoftCrossEntropy.apply(at_least_float32(logits), weighted, sum_to_one, mean)
    return losses, probs.detach()


# Whether a transform such as torch.func.grad or vmap is active. Supporting them in the Function below would make torch
# inspect its signature in every step.
in_torch_func: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)


class _SoftCrossEntropy(torch.autograd.Function):
    r"""Soft cross-entropy with the gradient :math:`m_i p_i - \tilde y_i`, :math:`m_i = \sum_k \tilde y_{ik}`.

    The loss, the gradient and the store share one softmax; composed operations would make three more passes over
    ``[B, K]``. The softmax output has the gradient :math:`p_i \odot (g_i - \sum_k p_{ik} g_{ik})`, used by double
    backward. The logits are not saved and may be changed in place after the loss.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, sum_to_one: bool, mean: bool) -> tuple[Tensor, Tensor]:
        ctx.sum_to_one, ctx.mean = sum_to_one, mean
        log_p = logits.log_softmax(dim=-1)
        losses = (log_p * targets).sum(dim=-1).neg_()
        losses = losses.mean() if mean else losses  # in this order: a resumed run of any version has the same bits
        probs = log_p.exp_()
        ctx.save_for_backward(probs, targets)
        ctx.set_materialize_grads(False)
        return losses, probs

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_probs: Tensor | None) -> tuple[Tensor | None, None, None, None]:
        probs, targets = ctx.saved_tensors
        if grad is not None:
            grad = grad / len(probs) if ctx.mean else grad.unsqueeze(-1)
        if torch.is_grad_enabled() or grad is None or grad_probs is not None:
            return _composed_gradient(probs, targets, grad, grad_probs), None, None, None
        if ctx.sum_to_one:
            return (probs - targets).mul_(grad), None, None, None
        gradient = probs * targets.sum(dim=-1, keepdim=True)
        return gradient.sub_(targets).mul_(grad), None, None, None


def _composed_gradient(probs: Tensor, targets: Tensor, grad: Tensor | None, grad_probs: Tensor | None) -> Tensor | None:
    """Gradient of the logits from plain operations, for double backward; ``grad`` is a scalar or ``[B, 1]``."""
    gradient = None
    if grad is not None:
        gradient = (probs * targets.sum(dim=-1, keepdim=True) - targets) * grad
    if grad_probs is not None:
        through_probs = probs * (grad_probs - (probs * grad_probs).sum(dim=-1, keepdim=True))
        gradient = through_probs if gradient is None else gradient + through_probs
    return gradient


def rows_with_target(targets: Tensor) -> Tensor:
    """Count the rows of ``targets`` ``[B, K]`` that are not all zero, at least 1, as a tensor. No host sync."""
    return (targets.sum(dim=-1) > 0).sum().clamp(min=1)


def reduce(losses: Tensor, reduction: Reduction, sample_weight: Tensor | None, rows: Tensor | None = None) -> Tensor:
    """Weight losses ``[B]`` and reduce them; ``mean`` divides by ``rows`` if given."""
    if sample_weight is not None:
        losses = losses * sample_weight
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    if reduction == "mean":
        return losses.mean() if rows is None else losses.sum() / rows
    raise ValueError(f"reduction must be one of mean, sum, none, got {reduction!r}")


def distillation_kl(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    r""":math:`T^2 \cdot \frac1B \sum_i \mathrm{KL}(\sigma(\text{teacher}_i / T) \,\|\, \sigma(\text{student}_i / T))`.

    Both are logits ``[B, K]``. The mean is over the batch, not over classes, and the factor :math:`T^2` is included:
    methods convert published weights that assume another reduction.
    """
    log_student = (at_least_float32(student) / temperature).log_softmax(dim=-1)
    log_teacher = (at_least_float32(teacher) / temperature).log_softmax(dim=-1)
    return F.kl_div(log_student, log_teacher, reduction="batchmean", log_target=True) * temperature**2
