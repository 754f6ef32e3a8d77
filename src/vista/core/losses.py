"""The losses that all methods share, written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Reduction = Literal["mean", "sum", "none"]


def one_hot(labels: Tensor, num_classes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Rows ``[B, K]`` with a one at the label; a label of -1 gives a row of zeros. No host sync."""
    classes = torch.arange(num_classes, device=labels.device)
    return (labels.unsqueeze(-1) == classes).to(dtype)


def wide(logits: Tensor) -> Tensor:
    """Half-precision logits as float32; float32 and float64 as they are."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def soft_cross_entropy(
    logits: Tensor,
    targets: Tensor,
    reduction: Reduction = "mean",
    sample_weight: Tensor | None = None,
    class_weight: Tensor | None = None,
    rows: Tensor | None = None,
) -> Tensor:
    r""":math:`-\sum_k c_k\,\tilde y_{ik} \log p_{ik}` for logits and targets ``[B, K]``, each row times its weight.

    ``mean`` divides by the number of rows whatever their weights, or by ``rows`` where some have no target.
    """
    losses, _ = cross_entropy_and_probs(logits, targets, class_weight)
    return reduce(losses, reduction, sample_weight, rows)


def cross_entropy_and_probs(
    logits: Tensor, targets: Tensor, class_weight: Tensor | None = None, sum_to_one: bool = False
) -> tuple[Tensor, Tensor]:
    """Losses ``[B]`` and, detached, the softmax ``[B, K]`` that both the gradient and a record of it need.

    ``sum_to_one`` promises that every row of ``targets`` is a distribution, which spares the gradient two passes.
    """
    weighted = targets if class_weight is None else targets * class_weight
    learned = weighted.requires_grad and torch.is_grad_enabled()
    if learned or transformed():  # composed, everything has its gradient, and every transform knows its way
        log_p = wide(logits).log_softmax(dim=-1)
        return -(log_p * weighted).sum(dim=-1), log_p.detach().exp()
    losses, probs = _SoftCrossEntropy.apply(wide(logits), weighted, sum_to_one and class_weight is None)
    return losses, probs.detach()


# Whether torch.func.grad, vmap or the like is at work. A Function that these know would cost every step the time in
# which torch looks at its signature.
transformed: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)


class _SoftCrossEntropy(torch.autograd.Function):
    r"""The gradient is :math:`m_i p_i - \tilde y_i` with :math:`m_i = \sum_k \tilde y_{ik}`: one softmax serves the
    loss, the gradient and the record, where composed operations would pass over ``[B, K]`` three times more.

    The softmax has a gradient of its own, :math:`p_i \odot (g_i - \sum_k p_{ik} g_{ik})`, by which the first one is
    differentiated. So the logits are not kept, and may be changed in place once the loss is there.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, sum_to_one: bool) -> tuple[Tensor, Tensor]:
        ctx.sum_to_one = sum_to_one
        log_p = logits.log_softmax(dim=-1)
        losses = (log_p * targets).sum(dim=-1).neg_()
        probs = log_p.exp_()
        ctx.save_for_backward(probs, targets)
        ctx.set_materialize_grads(False)
        return losses, probs

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_probs: Tensor | None) -> tuple[Tensor | None, None, None]:
        probs, targets = ctx.saved_tensors
        if torch.is_grad_enabled() or grad is None or grad_probs is not None:
            return _composed_gradient(probs, targets, grad, grad_probs), None, None
        if ctx.sum_to_one:
            return (probs - targets).mul_(grad.unsqueeze(-1)), None, None
        gradient = probs * targets.sum(dim=-1, keepdim=True)
        return gradient.sub_(targets).mul_(grad.unsqueeze(-1)), None, None


def _composed_gradient(probs: Tensor, targets: Tensor, grad: Tensor | None, grad_probs: Tensor | None) -> Tensor | None:
    """That of the logits, from those of the losses and of the softmax: somebody differentiates the gradient."""
    gradient = None
    if grad is not None:
        gradient = (probs * targets.sum(dim=-1, keepdim=True) - targets) * grad.unsqueeze(-1)
    if grad_probs is not None:
        through_probs = probs * (grad_probs - (probs * grad_probs).sum(dim=-1, keepdim=True))
        gradient = through_probs if gradient is None else gradient + through_probs
    return gradient


def rows_with_target(targets: Tensor) -> Tensor:
    """How many rows of ``targets`` ``[B, K]`` are not all zero, at least 1: what ``mean`` divides by. No host sync."""
    return (targets.sum(dim=-1) > 0).sum().clamp(min=1)


def reduce(losses: Tensor, reduction: Reduction, sample_weight: Tensor | None, rows: Tensor | None = None) -> Tensor:
    """Losses ``[B]`` to what was asked for."""
    if sample_weight is not None:
        losses = losses * sample_weight
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    if reduction == "mean":
        return losses.mean() if rows is None else losses.sum() / rows
    raise ValueError(f"reduction is {reduction!r}, but it must be one of mean, sum, none")


def distillation_kl(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    r""":math:`T^2 \cdot \frac1B \sum_i \mathrm{KL}(\sigma(\text{teacher}_i / T) \,\|\, \sigma(\text{student}_i / T))`.

    Both are logits ``[B, K]``. The mean is over the batch, never over classes, and the :math:`T^2` is in here: a
    published weight that was made for another reduction is converted where it is used.
    """
    log_student = (wide(student) / temperature).log_softmax(dim=-1)
    log_teacher = (wide(teacher) / temperature).log_softmax(dim=-1)
    return F.kl_div(log_student, log_teacher, reduction="batchmean", log_target=True) * temperature**2
