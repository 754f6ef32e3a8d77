"""Meta-Weight-Net: a small network maps each sample's loss to its weight and is trained on validation samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from vista.core.losses import at_least_float32, one_hot, rows_with_target
from vista.core.validation import not_negative, positive
from vista.methods.base import Batch, Method, Task

NEUTRAL = None  # the weight is a sigmoid, which no option sets to one
WEIGHER = ("hidden_weight", "hidden_bias", "output_weight", "output_bias")
DECAY_MEAN, DECAY_SQUARE, EPSILON = 0.9, 0.999, 1e-8  # Adam's defaults


def compute_sample_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of each row ``[B]``, twice differentiable."""
    return -(at_least_float32(logits).log_softmax(dim=-1) * targets).sum(dim=-1)


def compute_sample_weights(losses: Tensor, weigher: Mapping[str, Tensor]) -> Tensor:
    r""":math:`w_i = \sigma(v^\top \mathrm{relu}(u\,\ell_i + a) + c)`, ``[B]``; losses ``[B]`` receive no gradient."""
    given = losses.detach().float().unsqueeze(1)
    hidden = (given * weigher["hidden_weight"] + weigher["hidden_bias"]).relu()
    return ((hidden * weigher["output_weight"]).sum(dim=1) + weigher["output_bias"]).sigmoid()


def compute_weighted_mean(losses: Tensor, weights: Tensor, rows: Tensor | None = None) -> Tensor:
    r""":math:`\frac1B \sum_i w_i \ell_i`, with unnormalised weights; ``rows`` replaces ``B`` as the divisor."""
    total = (losses * weights).sum()
    return total / (len(losses) if rows is None else rows)


def take_virtual_step(network: nn.Module, loss: Tensor, lr: Tensor | float) -> dict[str, Tensor]:
    """Return the parameters after one gradient step on ``loss``, differentiable with respect to its inputs."""
    parameters = {name: p for name, p in network.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad(loss, list(parameters.values()), create_graph=True, allow_unused=True)
    return {name: p if g is None else p - lr * g for (name, p), g in zip(parameters.items(), gradients)}


class MetaWeightNet(Method):
    """The weighing network and Adam's moments are buffers, so that the run's optimizer does not train them."""

    name = "meta-weight-net"
    family = "noise-robust"
    summary = "A small network weights each sample by its loss and is trained on validation samples"
    cost = "2 forward, 3 backward, one of them second-order"
    keeps = "a perceptron with 301 weights and its optimizer's moments"
    source = "Shu et al., Meta-Weight-Net, NeurIPS 2019"
    weighs_targets = False
    capturable = False  # second-order gradients
    version = 2  # the virtual step of version 1 had a constant learning rate

    meta_steps: Tensor

    @dataclass(frozen=True)
    class Config:
        hidden: int = 100
        """Number of hidden units of the weighing network."""
        meta_lr: float = 1e-3
        """Adam's learning rate for the weighing network."""
        meta_weight_decay: float = 1e-4
        """Weight decay of the weighing network."""
        virtual_lr: float | None = None
        """Learning rate of the virtual step, which is evaluated on validation samples; by default that of the real
        step, as in the source."""

        def __post_init__(self) -> None:
            if self.hidden < 1:
                raise ValueError(f"hidden must be at least 1 (the source uses 100), got {self.hidden}")
            positive(self.meta_lr, "meta_lr")
            if self.virtual_lr is not None:
                positive(self.virtual_lr, "virtual_lr")
            not_negative(self.meta_weight_decay, "meta_weight_decay")

    def __init__(self, task: Task, network: nn.Module, config: Config) -> None:
        super().__init__(task, network, config)
        hidden, output = nn.Linear(1, config.hidden), nn.Linear(config.hidden, 1)
        initial = (hidden.weight.flatten(), hidden.bias, output.weight.flatten(), output.bias)
        for name, tensor in zip(WEIGHER, initial):
            value = tensor.detach().to(task.device, torch.float32, copy=True)
            self.register_buffer(name, value)
            self.register_buffer(f"{name}_mean", torch.zeros_like(value))
            self.register_buffer(f"{name}_square", torch.zeros_like(value))
        self.register_buffer("meta_steps", torch.zeros(1, device=task.device))

    def weigher(self) -> dict[str, Tensor]:
        """Return the parameters of the weighing network."""
        return {name: self.get_buffer(name) for name in WEIGHER}

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        targets = self.mix_targets(batch, self.targets)
        rows = self.count_rows(targets)
        with sdpa_kernel(SDPBackend.MATH):  # attention's fused kernels have no second derivative
            losses = compute_sample_losses(self.observe(batch, network(batch.x)), targets)
            self._update_weigher(network, batch, losses, rows)
        return compute_weighted_mean(losses, compute_sample_weights(losses, self.weigher()), rows)

    def _update_weigher(self, network: nn.Module, batch: Batch, losses: Tensor, rows: Tensor | None) -> None:
        """Update the weighing network to lower the validation loss after a virtual step of the network.

        The real step uses the same weights and images as the virtual one, so both share ``losses``.
        """
        weigher = {name: tensor.clone().requires_grad_() for name, tensor in self.weigher().items()}
        virtual_loss = compute_weighted_mean(losses, compute_sample_weights(losses, weigher), rows)
        lr = self.learning_rate if self.config.virtual_lr is None else self.config.virtual_lr
        virtual = take_virtual_step(network, virtual_loss, lr)
        # The virtual network gets copies of the buffers: validation samples must not change BatchNorm's statistics.
        copies = {name: buffer.clone() for name, buffer in network.named_buffers()}
        images, labels = batch.validation()
        targets = one_hot(labels, self.task.num_classes)
        logits = functional_call(network, {**virtual, **copies}, (images,))
        meta_loss = -(at_least_float32(logits).log_softmax(dim=-1) * targets).sum() / rows_with_target(targets)
        gradients = torch.autograd.grad(meta_loss, list(weigher.values()), retain_graph=True)
        self._adam(dict(zip(weigher, gradients)))

    @torch.no_grad()
    def _adam(self, gradients: Mapping[str, Tensor]) -> None:
        """Take one step of Adam on the weighing network."""
        self.meta_steps.add_(1)
        for name, gradient in gradients.items():
            value, mean, square = (self.get_buffer(name + part) for part in ("", "_mean", "_square"))
            gradient = gradient + self.config.meta_weight_decay * value
            mean.lerp_(gradient, 1 - DECAY_MEAN)
            square.lerp_(gradient.square(), 1 - DECAY_SQUARE)
            unbiased = mean / (1 - DECAY_MEAN**self.meta_steps)
            spread = (square / (1 - DECAY_SQUARE**self.meta_steps)).sqrt() + EPSILON
            value.sub_(self.config.meta_lr * unbiased / spread)
