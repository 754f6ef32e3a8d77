"""The training step: batch, forward, loss, backward, optimiser and the method's state, as a function of tensors.

The step counter, the sample order, the augmentation draws and the learning rates are tensors read inside the step. On
CUDA the step is therefore captured once into a graph and replayed without host work; the short last batch has its own
graph. On other devices the same function runs eagerly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vista.core import collectives
from vista.core.triton_support import triton_works
from vista.core.validation import first_few
from vista.data.loader import Loader
from vista.methods import Method, WholeBatch
from vista.training.fused import Calls, FusedNetwork, fuse
from vista.training.optimization import clip_gradients
from vista.training.weight_average import WeightAverage

WARM_UP_STEPS = 3


@dataclass(frozen=True)
class LossSnapshot:
    """A copy of the losses after a portion of steps; the transfer to the host is complete at ``arrived``."""

    losses: Tensor
    arrived: torch.cuda.Event


class Engine:
    """Executes the steps of one training, and captures them on CUDA."""

    def __init__(
        self,
        network: nn.Module,
        method: Method,
        loader: Loader,
        optimizer: torch.optim.Optimizer,
        *,
        average: WeightAverage | None = None,
        clip_grad: float = 0.0,
        accumulate: int = 1,
        device: torch.device,
        precision: str,
        compile_network: bool,
        capture: bool,
    ) -> None:
        self.network, self.method, self.loader, self.optimizer = network, method, loader, optimizer
        self.average, self.clip_grad, self.accumulate = average, clip_grad, accumulate
        self.device, self.precision = device, precision
        self.counter = torch.zeros(1, dtype=torch.long, device=device)
        self.losses = torch.zeros(loader.steps, dtype=torch.float32, device=device)  # of this process, by step
        self.rates = torch.zeros(loader.steps, dtype=torch.float32, device=device)
        self.shares = self._shares_of_groups()
        self.host_rates: list[float] = []
        self.steps_done = 0
        self.captures = capture and device.type == "cuda" and method.capturable and loader.is_fully_on_device
        self.captures = self.captures and collectives.world_size() == 1
        self.compiles = compile_network and self.captures and triton_works(device)
        self._compiled: Any = torch.compile(network, dynamic=False) if self.compiles else network
        self.fused: FusedNetwork | None = None  # the same network with custom kernels, for full batches
        self._graphs: dict[tuple[int, bool], torch.cuda.CUDAGraph] = {}  # by size and whether the optimiser steps
        self._batches_per_step: list[int] = []
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    # ------------------------------------------------------------ an epoch

    def begin_epoch(self, rates: list[float], steps_done: int = 0) -> None:
        """Set the learning rates of an epoch's steps, of which ``steps_done`` have been executed before."""
        if self.captures and not self.method.capturable:  # its state has moved to the host
            self._graphs.clear()
            self.captures = False
        self.host_rates, self.steps_done = rates, steps_done
        self.rates.copy_(torch.tensor(rates))
        self.counter.fill_(steps_done)
        self.losses[steps_done:] = 0
        if self.fused is not None:  # the weights may come from a checkpoint, or a method may have changed them
            self.fused.step.refresh()

    def advance(self, steps: int) -> None:
        """Execute, or on CUDA enqueue, this number of steps."""
        for _ in range(steps):
            size, ends = self.loader.size(self.steps_done), self._ends_group(self.steps_done)
            if self.captures:
                self._graphs[size, ends].replay()
            else:
                self._set_rate(self.host_rates[self.steps_done])
                self.method.expect(self.loader.samples(self.steps_done), self.loader.samples(self.steps_done + 1))
                self.loader.prepare(self.steps_done)
                self._step(size, ends, self.network)
            self.steps_done += 1
        if self.captures:
            self._count_batches(steps)

    @contextmanager
    def settled(self) -> Iterator[None]:
        """Synchronise on exit, also after an error: a running step would write to memory that was freed."""
        try:
            yield
        finally:
            if self.stream is not None:
                self.stream.synchronize()

    def mean_loss(self) -> float:
        """Mean training loss of the epoch so far, over all processes."""
        sizes = torch.tensor([self.loader.size(step) for step in range(self.loader.steps)], dtype=torch.float64)
        return float(collectives.total((self.losses.cpu().double() * sizes).sum()) / sizes.sum())

    def snapshot_losses(self) -> LossSnapshot:
        """Enqueue a copy of the losses after the steps enqueued so far, without waiting."""
        losses = torch.empty_like(self.losses, device="cpu", pin_memory=True)
        losses.copy_(self.losses, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()
        return LossSnapshot(losses, arrived)

    def check_losses(self, snapshot: LossSnapshot | None = None) -> None:
        """Raise if a loss is not finite: in a snapshot that has arrived, or after waiting for all steps."""
        bad = ~torch.isfinite(self.losses.cpu() if snapshot is None else snapshot.losses)
        if bool(bad.any()):
            raise NotFinite(int(bad.nonzero()[0]))

    # ------------------------------------------------------------ memory, for a run that ends with an error

    def free_memory(self) -> None:
        """Release graphs and gradients, and what the allocator keeps: afterwards only :meth:`peak_bytes` works."""
        self._graphs.clear()
        self.optimizer.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()

    def peak_bytes(self, size: int) -> int:
        """GPU memory that a step with this number of samples needs beyond what is allocated before it."""
        self.free_memory()
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        self.counter.zero_()
        self._step(size, False, self.network)
        torch.cuda.synchronize(self.device)
        return torch.cuda.max_memory_allocated(self.device) - before

    # ------------------------------------------------------------ one step

    def _ends_group(self, step: int) -> bool:
        """Whether the optimiser steps after this batch: after ``accumulate`` of them, and at the end of an epoch."""
        return (step + 1) % self.accumulate == 0 or step + 1 == self.loader.steps

    def _shares_of_groups(self) -> Tensor:
        """Each batch's share of the samples of its group, ``[steps]``: the weight of its loss."""
        sizes = torch.tensor([self.loader.size(step) for step in range(self.loader.steps)], dtype=torch.float32)
        groups = sizes.split(self.accumulate)
        return torch.cat([group / group.sum() for group in groups]).to(self.device)

    def _step(self, size: int, ends_group: bool, network: nn.Module) -> None:
        batch = self.loader.batch(self.counter, size)
        if self.accumulate == 1:
            self.optimizer.zero_grad(set_to_none=True)
        if self.loader.world_size > 1:
            self.method.whole_batch = WholeBatch(*self.loader.global_batch(self.counter, size))
        self.method.learning_rate = self.optimizer.param_groups[0]["lr"]
        if len(batch.index):  # a short batch may leave a process without samples
            with self.autocast():
                loss = self.method.loss(network, batch)
            if self.loader.world_size > 1:
                loss = loss * (len(batch.index) / size)
            if self.accumulate == 1:
                loss.backward()
            else:
                (loss * self.shares.index_select(0, self.counter).view(())).backward()
            self.losses.index_copy_(0, self.counter, loss.detach().float().view(1))
            if self.device.type != "cuda" and not bool(torch.isfinite(loss)):
                raise NotFinite(self.steps_done)
            if self.fused is not None and network is not self.fused:  # the short last batch
                self.fused.step.take_gradients()
        if ends_group:
            self._update_weights()
        self.counter += 1

    def _update_weights(self) -> None:
        if self.fused is not None:
            self.fused.step.update()
            self.method.after_step(self.network)
            return
        if collectives.active():
            collectives.sum_gradients(self._parameters())
        if self.clip_grad:
            clip_gradients(self._parameters(), self.clip_grad)
        self.optimizer.step()
        if self.accumulate > 1:  # a captured step adds to the same gradients, so these are kept and set to zero
            self.optimizer.zero_grad(set_to_none=not self.captures)
        self.method.after_step(self.network)
        if self.average is not None:
            self.average.update(self.network)

    def _parameters(self) -> list[nn.Parameter]:
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def autocast(self) -> Any:
        """bf16 if configured; without autocast's weight cache, which must not be filled inside a captured graph."""
        return torch.autocast(
            self.device.type, torch.bfloat16, enabled=self.precision == "bf16", cache_enabled=not self.captures
        )

    def _set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * group["scale"])
            else:
                group["lr"] = rate * group["scale"]

    # ------------------------------------------------------------ capture

    def capture(self, keep: Callable[[], Any], restore: Callable[[Any], None]) -> None:
        """Record the graphs. ``keep`` and ``restore`` save and restore all state that the warm-up steps change."""
        if not self.captures or self._graphs:
            return
        before = keep()
        calls = self._learn_batches_per_step()
        if self._can_fuse():
            self.fused = fuse(self.network, self.optimizer, self.average, calls, self.loader.size(0))
        with self._without_batch_counters():
            self._record_graphs()
        self.optimizer.zero_grad(set_to_none=self.accumulate == 1)
        restore(before)

    def _can_fuse(self) -> bool:
        """Whether this is a plain step, apart from network and optimiser."""
        return self.compiles and self.precision == "bf16" and self.accumulate == 1 and not self.clip_grad

    def _record_graphs(self) -> None:
        sizes = {self.loader.size(0): self._compiled if self.fused is None else self.fused}
        if self.loader.short and self.loader.full_steps:
            sizes[self.loader.short] = self.network  # one step per epoch is not worth a compilation
        kinds = {
            (self.loader.size(step), self._ends_group(step)): sizes[self.loader.size(step)]
            for step in range(self.loader.steps)
        }
        for (size, ends), network in kinds.items():
            for _ in range(WARM_UP_STEPS):
                self.counter.zero_()
                self._captured_step(size, ends, network)
        torch.cuda.synchronize(self.device)
        for (size, ends), network in kinds.items():
            graph = torch.cuda.CUDAGraph()
            graph.register_generator_state(self.method.task.generator)
            # "thread_local": another thread may copy a checkpoint of another run to the host meanwhile.
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                self._captured_step(size, ends, network)
            self._graphs[size, ends] = graph

    def _captured_step(self, size: int, ends_group: bool, network: nn.Module) -> None:
        for group in self.optimizer.param_groups:
            rate = self.rates.index_select(0, self.counter).view(())
            group["lr"].copy_(rate if group["scale"] == 1.0 else rate * group["scale"])
        self._step(size, ends_group, network)

    def _counters(self) -> list[tuple[nn.Module, Tensor]]:
        """BatchNorm's batch counters: nothing reads them, but they are part of a state dict."""
        averaged = [] if self.average is None else self.average.modules()
        modules = [*self.network.modules(), *self.method.modules(), *averaged]
        counts = [
            (m, m._buffers.get("num_batches_tracked")) for m in modules if isinstance(m, nn.modules.batchnorm._NormBase)
        ]
        return [(module, count) for module, count in counts if count is not None]

    @contextmanager
    def _without_batch_counters(self) -> Iterator[None]:
        """Leave the counters out of the graph: each is a separate kernel, 20 per step in a ResNet-18."""
        counters = self._counters()
        for module, _ in counters:
            module._buffers["num_batches_tracked"] = None
        try:
            yield
        finally:
            for module, count in counters:
                module._buffers["num_batches_tracked"] = count

    def _learn_batches_per_step(self) -> Calls:
        """Count how often a step calls the network and each BatchNorm: some methods run several batches per step."""
        counts = [count for _, count in self._counters()]
        at_first = [int(count) for count in counts]
        self.counter.zero_()
        calls = Calls()
        with calls.counted(self.network):
            self._captured_step(self.loader.size(0), True, self.network)
        self._batches_per_step = [int(count) - first for count, first in zip(counts, at_first, strict=True)]
        return calls

    def _count_batches(self, steps: int) -> None:
        for (_, count), per_step in zip(self._counters(), self._batches_per_step, strict=True):
            count += steps * per_step


class NotFinite(FloatingPointError):
    """The loss became NaN or infinite. The loop adds the epoch and the samples."""

    def __init__(self, step: int, epoch: int | None = None, samples: Sequence[int] = ()) -> None:
        """``step`` counts from 0; ``samples`` are positions in the original data."""
        self.step, self.epoch, self.samples = step, epoch, list(samples)
        super().__init__(
            f"the loss is not finite in epoch {epoch}, step {step + 1}, on the training samples {first_few(samples)}: "
            "try a smaller --lr; earlier checkpoints are kept"
        )

    def __reduce__(self) -> tuple[type[NotFinite], tuple[int, int | None, list[int]]]:
        return NotFinite, (self.step, self.epoch, self.samples)
