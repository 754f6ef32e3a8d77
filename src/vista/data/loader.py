"""Training batches made on the device: images stay in its memory, and each step gathers its batch.

Everything random in an epoch (order, shifts, flips, boxes, partners) is drawn at its start from ``(seed, epoch)`` into
preallocated tensors. A batch is then a function of a step counter, itself a tensor, so that the same code runs eagerly
and inside a captured CUDA graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vista.core.triton_support import triton_works
from vista.data import augment
from vista.data.augment import Augmentation, CutMix
from vista.data.balance import balanced_order, check_balance
from vista.data.read_ahead import read_ahead
from vista.data.streamed_photos import StreamedPhotos

ORDER, VIEWS, BOXES, PARTNERS, CLASSMATES, VALIDATION = range(6)  # keys of the random streams
NUM_VIEWS = 3
MAX_MEMORY_SHARE = 0.6  # of the free device memory that images may use
_CHUNK = 4096  # samples copied to a GPU at a time


class Inputs:
    """Samples on the device in their stored type: uint8 images ``[N, H, W, C]``, float features ``[N, ...]``, or int32
    token ids ``[N, L]``.

    ``rows`` selects some of ``values``. Values too large for GPU memory stay on the host, and on the CPU a memory map
    stays on disk: threads then read the rows of the next batches while a batch is used. Photos are stored as squares
    larger than ``image_size``, the side of what the network receives: the centre, or a random resized crop.
    """

    def __init__(
        self,
        values: NDArray[Any] | StreamedPhotos,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        device: torch.device,
        dtype: torch.dtype,
        rows: NDArray[np.int64] | None = None,
        image_size: int | None = None,
    ) -> None:
        self.image_size = image_size
        self.is_image = values.dtype == np.uint8
        self.device = device
        self.dtype = dtype
        rows = np.arange(len(values)) if rows is None else rows
        size = values.nbytes // max(len(values), 1) * len(rows)
        on_disk = isinstance(values, np.memmap | StreamedPhotos)
        self.streams = on_disk if device.type == "cpu" else not fits(size, device)
        self._source: Any = values if self.streams else values[:0]
        self._host_rows = rows if self.streams else rows[:0]
        self._shape = (len(rows), *values.shape[1:])
        self._values = None if self.streams else _on_device(values, rows, device)
        self._held: tuple[Tensor, Tensor] | None = None  # an index and its samples, read ahead of time
        if self.is_image:
            scale = 1.0 / (255.0 * torch.tensor(std, dtype=torch.float64))
            shift = -torch.tensor(mean, dtype=torch.float64) / torch.tensor(std, dtype=torch.float64)
            self._scale, self._shift = scale.to(device, dtype), shift.to(device, dtype)

    def __len__(self) -> int:
        return int(self._shape[0])

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one network input: ``[C, H, W]`` or that of the features."""
        shape = self._shape[1:]
        if self.image_size is not None:
            return (shape[2], self.image_size, self.image_size)
        return (shape[2], shape[0], shape[1]) if self.is_image else shape

    def clean(self, index: Tensor) -> Tensor:
        """Return the samples at ``index`` without augmentation."""
        values, rows = self._rows(index)
        selected = values.index_select(0, rows)
        if self.image_size is not None:
            top, left = ((side - self.image_size) // 2 for side in selected.shape[1:3])
            selected = selected[:, top : top + self.image_size, left : left + self.image_size]
        if self.is_image:
            return self.normalise(selected)
        return selected.to(self.dtype) if selected.is_floating_point() else selected  # token ids stay integers

    def augmented(self, index: Tensor, draws: Tensor, augmentation: Augmentation) -> Tensor:
        """Return the images at ``index``, augmented by ``draws`` of :func:`vista.data.augment.draw`."""
        values, rows = self._rows(index)
        geometry, colors, trivial = augmentation.split(draws)
        rotates = augmentation.rotation > 0
        if self.image_size is None:
            only_shifts = not rotates and colors is None and trivial is None
            if values.is_cuda and only_shifts and triton_works(values.device):
                from vista.data import batch_kernel

                return batch_kernel.shifted(values, rows, geometry, self._scale, self._shift).permute(0, 3, 1, 2)
            images = augment.gather(values, rows, geometry, rotates, trivial)
        else:
            photos = values.index_select(0, rows).permute(0, 3, 1, 2).to(self.dtype)
            crops = augment.resample(photos, geometry, self.image_size, rotates, trivial)
            images = crops.permute(0, 2, 3, 1).contiguous()
        if colors is not None:
            images = augment.jitter_colors(images.to(self.dtype), colors)
        if trivial is not None:
            images = augment.change_colors(images, trivial)
        return self.normalise(images)

    def normalise(self, images: Tensor) -> Tensor:
        """Normalise pixel values from 0 to 255, ``[B, H, W, C]``, to ``[B, C, H, W]``, channels-last in memory."""
        return (images.to(self.dtype) * self._scale + self._shift).permute(0, 3, 1, 2)

    def _rows(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return values on the device and the samples' rows in them; streamed samples are copied from the host."""
        if self._values is not None:
            return self._values, index
        if self._held is not None and self._held[0] is index:
            copied = self._held[1]
        else:
            copied = self.read(index.cpu().numpy()).to(self.device)
        return copied, torch.arange(len(index), device=self.device)

    def read(self, index: NDArray[np.int64]) -> Tensor:
        """Read streamed samples, for a GPU into pinned memory; several threads may call this at the same time."""
        copied = torch.from_numpy(np.asarray(self._source[self._host_rows[index]]))
        return copied.pin_memory() if self.device.type == "cuda" else copied

    def hold(self, index: Tensor, samples: Tensor) -> None:
        """Keep the result of :meth:`read` for the next calls with this very ``index``."""
        self._held = index, samples.to(self.device, non_blocking=True)

    def in_batches(self, batches: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield each index with its samples without augmentation; streamed ones are read ahead of time."""
        if not self.streams:
            for index in batches:
                yield index, self.clean(index)
            return
        for index, samples in zip(batches, read_ahead(self.read, (b.cpu().numpy() for b in batches)), strict=True):
            self.hold(index, samples)
            yield index, self.clean(index)
        self._held = None


def _on_device(values: NDArray[Any] | StreamedPhotos, rows: NDArray[np.int64], device: torch.device) -> Tensor:
    """Copy rows to the device, to a GPU in chunks: the host may have less memory."""
    if device.type == "cpu":
        return torch.from_numpy(values[rows])
    copied = torch.empty((len(rows), *values.shape[1:]), dtype=torch.from_numpy(values[rows[:1]]).dtype, device=device)
    for start in range(0, len(rows), _CHUNK):
        copied[start : start + _CHUNK] = torch.from_numpy(np.asarray(values[rows[start : start + _CHUNK]])).to(device)
    return copied


def fits(size: int, device: torch.device) -> bool:
    """Return whether ``size`` bytes of images may be kept in GPU memory."""
    free, _ = torch.cuda.mem_get_info(device)
    return size <= MAX_MEMORY_SHARE * free


class Loader:
    """The training samples in batches, in a new order each epoch, each sample once unless ``balanced``."""

    def __init__(
        self,
        inputs: Inputs,
        labels: Tensor,
        validation: tuple[Inputs, Tensor],
        *,
        batch_size: int,
        augmentation: Augmentation,
        cutmix: CutMix | None,
        seed: int,
        balanced: bool = False,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.inputs, self.validation = inputs, validation
        self.augmentation, self.cutmix = augmentation, cutmix
        self.batch_size, self.seed = batch_size, seed
        self.rank, self.world_size = rank, world_size
        n, device = len(inputs), inputs.device
        self.full_steps, self.short = divmod(n, batch_size)
        self.steps = self.full_steps + bool(self.short)
        padded = self.steps * batch_size
        self.order = torch.zeros(padded, dtype=torch.long, device=device)
        self.draws = torch.zeros(NUM_VIEWS, augmentation.num_draws, padded, device=device)
        self.boxes = torch.zeros(self.steps, 5, device=device)
        self.partners = torch.zeros(padded, dtype=torch.long, device=device)  # positions in the epoch's order
        self.chances = torch.zeros(2, padded, device=device)  # choose the classmate and the validation sample
        self._host_order = self.order[:n].cpu()
        self._reading: tuple[int, Iterator[Tensor]] | None = None  # the next step, and the samples from it on
        self._ready: Tensor | None = None  # samples of the next batch
        self._balanced = labels.cpu() if balanced else None
        if balanced:
            check_balance(labels.cpu(), batch_size)
        self.members, self.first, self.count = classmates(labels)

    @property
    def is_fully_on_device(self) -> bool:
        return not (self.inputs.streams or self.validation[0].streams)

    def begin_epoch(self, epoch: int) -> None:
        """Draw the order and augmentation of an epoch into the existing tensors."""
        n, padded = len(self.inputs), len(self.order)
        source = augment.generator(self.seed, epoch, ORDER)
        order = (
            torch.randperm(n, generator=source) if self._balanced is None else balanced_order(self._balanced, source)
        )
        self._host_order, self._reading, self._ready = order, None, None
        self._fill(self.order[:n], order)
        views = augment.generator(self.seed, epoch, VIEWS)
        self._fill(self.draws, torch.stack([augment.draw(self.augmentation, padded, views) for _ in range(NUM_VIEWS)]))
        chances = [
            torch.rand(padded, generator=augment.generator(self.seed, epoch, s)) for s in (CLASSMATES, VALIDATION)
        ]
        self._fill(self.chances, torch.stack(chances))
        if self.cutmix is not None:
            boxes = augment.generator(self.seed, epoch, BOXES)
            height, width = self.inputs.sample_shape[1:]
            self._fill(self.boxes, augment.draw_boxes(self.cutmix, self.steps, height, width, boxes))
            self._fill(self.partners, self._draw_partners(augment.generator(self.seed, epoch, PARTNERS)))

    def _draw_partners(self, source: torch.Generator) -> Tensor:
        """Draw a permutation of each batch, the short one included, as positions in the epoch's order."""
        chance = torch.rand(self.steps, self.batch_size, generator=source)
        if self.short:
            chance[-1, self.short :] = 2.0  # positions beyond the last sample stay at the end
        start = torch.arange(self.steps).view(-1, 1) * self.batch_size
        return (chance.argsort(dim=1) + start).flatten()

    def _fill(self, target: Tensor, values: Tensor) -> None:
        if target.is_cuda:
            values = values.pin_memory()
        target.copy_(values, non_blocking=True)

    def size(self, step: int) -> int:
        """Return the number of samples of a step, over all processes."""
        return self.short if step >= self.full_steps else self.batch_size

    def samples(self, step: int) -> Tensor:
        """Return this process's samples of a step on the CPU; none after the last step of the epoch."""
        first = step * self.batch_size
        return self._host_order[first + self.rank : first + self.size(step) : self.world_size]

    def prepare(self, step: int) -> None:
        """Wait for the streamed samples of a step, which :meth:`batch` then uses, and read those of later steps."""
        if not self.inputs.streams:
            return
        if self._reading is None or self._reading[0] != step:
            later = (self.samples(following).numpy() for following in range(step, self.steps))
            self._reading = step, read_ahead(self.inputs.read, later)
        self._ready = next(self._reading[1])
        self._reading = step + 1, self._reading[1]

    def samples_of_rank(self) -> Tensor:
        """Return a mask, bool ``[N]``, of the samples that this process trains on in the current epoch."""
        n = len(self.inputs)
        position = torch.arange(n, device=self.order.device) % self.batch_size
        mine = torch.zeros(n, dtype=torch.bool, device=self.order.device)
        mine[self.order[:n][position % self.world_size == self.rank]] = True
        return mine

    def global_batch(self, step: Tensor, size: int) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return a step's samples over all processes and, with CutMix, their partners and the share kept."""
        positions = torch.arange(size, device=step.device) + step * self.batch_size
        index = self.order.index_select(0, positions)
        if self.cutmix is None:
            return index, None, None
        partner = self.order.index_select(0, self.partners.index_select(0, positions))
        return index, partner, self.boxes.index_select(0, step).view(-1)[4:]

    def batch(self, step: Tensor, size: int) -> LoadedBatch:
        """Return this process's part of ``step`` (int64 ``[1]``): every ``world_size``-th sample."""
        positions = torch.arange(self.rank, size, self.world_size, device=step.device) + step * self.batch_size
        return LoadedBatch(self, step, positions)


class LoadedBatch:
    """The samples of one step; :class:`vista.methods.base.Batch` documents the attributes."""

    def __init__(self, loader: Loader, step: Tensor, positions: Tensor) -> None:
        self._loader, self._positions = loader, positions
        self.index = loader.order.index_select(0, positions)
        if loader._ready is not None:
            loader.inputs.hold(self.index, loader._ready)
            loader._ready = None
        self.partner: Tensor | None = None
        self.share: Tensor | None = None
        self.x = self.view(0)
        if loader.cutmix is not None:
            box = loader.boxes.index_select(0, step).view(-1)
            partners = loader.partners.index_select(0, positions)
            self.partner = loader.order.index_select(0, partners)
            other = loader.inputs.augmented(
                self.partner, loader.draws[0].index_select(1, partners), loader.augmentation
            )
            self.x = augment.cut_and_mix(self.x, other, box)
            self.share = box[4:]

    def view(self, number: int = 1, index: Tensor | None = None) -> Tensor:
        samples = self.index if index is None else index
        if not self._loader.inputs.is_image:
            return self._loader.inputs.clean(samples)
        draws = self._loader.draws[number].index_select(1, self._positions[: len(samples)])
        return self._loader.inputs.augmented(samples, draws, self._loader.augmentation)

    def same_class(self) -> Tensor:
        loader = self._loader
        chance = loader.chances[0].index_select(0, self._positions)
        first, count = loader.first.index_select(0, self.index), loader.count.index_select(0, self.index)
        return loader.members.index_select(0, first + (chance * count).long().clamp(max=count - 1))

    def validation(self) -> tuple[Tensor, Tensor]:
        inputs, labels = self._loader.validation
        chance = self._loader.chances[1].index_select(0, self._positions)
        chosen = (chance * len(inputs)).long().clamp(max=len(inputs) - 1)
        return inputs.clean(chosen), labels.index_select(0, chosen)


def classmates(labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Group samples by label.

    Returns:
        The samples sorted by label, and for each sample the start and the size of its class in that order, all
        ``[N]``. An unlabelled sample is its own class.
    """
    members = torch.argsort(labels, stable=True)
    shifted = labels + 1
    counts = torch.bincount(shifted)
    starts = counts.cumsum(0) - counts
    first, count = starts[shifted], counts[shifted]
    unlabelled = labels < 0
    position = torch.empty_like(members)
    position[members] = torch.arange(len(members), device=labels.device)
    return members, torch.where(unlabelled, position, first), torch.where(unlabelled, 1, count)
