"""The training step: batch, forward, loss, backward, SGD and the method's memory, as a function of tensors alone.

The step counter, the order, the draws and the learning rates are tensors read inside the step, so on CUDA the whole of
it is captured once into a graph and replayed without host work; the short last batch has a graph of its own. Anywhere
else the same function runs as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vista import exchange
from vista.data.loader import Loader
from vista.methods import Method

WARM_UP_STEPS = 3
UNSET = -1


class Engine:
    """Steps of one training."""

    def __init__(
        self,
        network: nn.Module,
        method: Method,
        loader: Loader,
        optimizer: torch.optim.SGD,
        *,
        device: torch.device,
        precision: str,
        compile_network: bool,
        capture: bool,
    ) -> None:
        self.network, self.method, self.loader, self.optimizer = network, method, loader, optimizer
        self.device, self.precision = device, precision
        self.counter = torch.zeros(1, dtype=torch.long, device=device)
        self.loss_sum = torch.zeros(1, dtype=torch.float64, device=device)
        self.bad_step = torch.full((1,), UNSET, dtype=torch.long, device=device)
        self.rates = torch.zeros(loader.steps, dtype=torch.float32, device=device)
        self.host_rates: list[float] = []
        self.steps_done = 0
        self.captures = capture and device.type == "cuda" and method.capturable and loader.is_fully_on_device
        self.captures = self.captures and exchange.world_size() == 1
        self._compiled: Any = torch.compile(network, dynamic=False) if compile_network and self.captures else network
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    # ------------------------------------------------------------ an epoch

    def begin_epoch(self, rates: list[float], steps_done: int = 0) -> None:
        """Set the learning rates of an epoch's steps, and how many of these are already done."""
        self.host_rates, self.steps_done = rates, steps_done
        self.rates.copy_(torch.tensor(rates))
        self.counter.fill_(steps_done)
        if steps_done == 0:
            self.loss_sum.zero_()

    def advance(self, steps: int) -> None:
        """Do, or on CUDA enqueue, so many steps."""
        for _ in range(steps):
            size = self.loader.size(self.steps_done)
            if self.captures:
                self._graphs[size].replay()
            else:
                self._set_rate(self.host_rates[self.steps_done])
                self._step(size, self.network)
            self.steps_done += 1

    def mean_loss(self) -> float:
        """Mean training loss of the epoch so far, over all processes."""
        total = self.loss_sum.cpu()
        if exchange.active():
            total = exchange.total(total)
        seen = min(self.steps_done * self.loader.batch_size, len(self.loader.inputs))
        return float(total) / max(seen, 1)

    def check(self) -> None:
        """Raise if a loss was not finite. The host waits here, so it is called now and then."""
        step = int(self.bad_step)
        if step != UNSET:
            start = step * self.loader.batch_size
            samples = self.loader.order[start : start + self.loader.size(step)].tolist()
            raise NotFinite(step + 1, samples)
        self.method.check()

    # ------------------------------------------------------------ one step

    def _step(self, size: int, network: nn.Module) -> None:
        batch = self.loader.batch(self.counter, size)
        self.optimizer.zero_grad(set_to_none=True)
        share = 1.0
        if len(batch.index):
            with self.autocast():
                loss = self.method.loss(network, batch)
            share = len(batch.index) / size
            (loss * share).backward()
            self._note(loss.detach(), len(batch.index))
        if exchange.world_size() > 1:
            exchange.sum_gradients(self._parameters())
        self.optimizer.step()
        self.method.after_step(self.network)
        self.counter += 1

    def _note(self, loss: Tensor, samples: int) -> None:
        self.loss_sum += loss * samples
        if self.device.type != "cuda":
            if not bool(torch.isfinite(loss)):
                self.bad_step.copy_(self.counter)
                self.check()
            return
        bad = torch.where((self.bad_step == UNSET) & ~torch.isfinite(loss), self.counter, self.bad_step)
        self.bad_step.copy_(bad)

    def _parameters(self) -> list[nn.Parameter]:
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def autocast(self) -> Any:
        """bf16 where asked for; without autocast's weight cache, which a captured graph must not fill."""
        return torch.autocast(
            self.device.type, torch.bfloat16, enabled=self.precision == "bf16", cache_enabled=not self.captures
        )

    def _set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    # ------------------------------------------------------------ capture

    def capture(self, keep: Callable[[], Any], restore: Callable[[Any], None]) -> None:
        """Record the graphs. ``keep`` and ``restore`` save and bring back all state that the warm-up steps change."""
        if not self.captures or self._graphs:
            return
        before = keep()
        sizes = {self.loader.size(0): self._compiled}
        if self.loader.short and self.loader.full_steps:
            sizes[self.loader.short] = self.network  # one step an epoch: not worth a compilation
        for size, network in sizes.items():
            for _ in range(WARM_UP_STEPS):
                self.counter.zero_()
                self._captured_step(size, network)
        torch.cuda.synchronize(self.device)
        for size, network in sizes.items():
            graph = torch.cuda.CUDAGraph()
            graph.register_generator_state(self.method.task.generator)
            with torch.cuda.graph(graph, stream=self.stream):
                self._captured_step(size, network)
            self._graphs[size] = graph
        self.optimizer.zero_grad(set_to_none=True)
        restore(before)

    def _captured_step(self, size: int, network: nn.Module) -> None:
        for group in self.optimizer.param_groups:
            group["lr"].copy_(self.rates.index_select(0, self.counter).view(()))
        self._step(size, network)


class NotFinite(FloatingPointError):
    """The loss became NaN or infinite; the message gains the epoch where it is known."""

    def __init__(self, step: int, samples: list[int], epoch: int | None = None) -> None:
        self.step, self.samples = step, samples
        where = f"epoch {epoch}, step {step}" if epoch else f"step {step}"
        shown = ", ".join(map(str, samples[:8])) + (" ..." if len(samples) > 8 else "")
        super().__init__(f"the loss is not finite in {where}, on the training samples {shown}")


def make_optimizer(
    parameters: list[nn.Parameter], *, momentum: float, weight_decay: float, nesterov: bool, device: torch.device
) -> torch.optim.SGD:
    """SGD whose momentum buffers exist from the start, so that its state has one shape throughout."""
    on_cuda = device.type == "cuda"
    rate: Any = torch.zeros((), device=device) if on_cuda else 0.0
    optimizer = torch.optim.SGD(
        parameters, lr=rate, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov, fused=on_cuda
    )
    if momentum:
        for parameter in parameters:
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer
