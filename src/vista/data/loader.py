"""Training batches, made where the network is: pictures rest on the device, and a step picks its own.

Everything random in an epoch (order, shifts, mirrors, boxes, partners) is drawn at its start from ``(seed, epoch)``
into tensors that stay in place. A batch then is a function of a step counter, which is itself a tensor: the same code
runs eagerly and inside a captured CUDA graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vista.data import augment
from vista.data.augment import Augmentation, CutMix

ORDER, VIEWS, BOXES, PARTNERS, CLASSMATES, VALIDATION = range(6)  # streams of randomness
NUM_VIEWS = 3
ROOM_FOR_PICTURES = 0.6  # share of the free device memory that pictures may take


class Inputs:
    """Samples on the device, as they were stored: uint8 pictures ``[N, H, W, C]`` or float features ``[N, ...]``.

    ``rows`` picks some of ``values``. A memory map that would not fit on the device stays on disk, and so does any on
    the CPU: a batch then reads the rows it needs.
    """

    def __init__(
        self,
        values: NDArray[Any],
        mean: tuple[float, ...],
        std: tuple[float, ...],
        device: torch.device,
        dtype: torch.dtype,
        rows: NDArray[np.int64] | None = None,
    ) -> None:
        self.is_image = values.dtype == np.uint8
        self.device = device
        self.dtype = dtype
        rows = np.arange(len(values)) if rows is None else rows
        size = values.nbytes // max(len(values), 1) * len(rows)
        self.streams = isinstance(values, np.memmap) if device.type == "cpu" else not fits(size, device)
        self._source, self._rows_there = (values, rows) if self.streams else (values[:0], rows[:0])
        self._shape = (len(rows), *values.shape[1:])
        self._values = None if self.streams else torch.from_numpy(values[rows]).to(device)
        if self.is_image:
            scale = 1.0 / (255.0 * torch.tensor(std, dtype=torch.float64))
            shift = -torch.tensor(mean, dtype=torch.float64) / torch.tensor(std, dtype=torch.float64)
            self._scale, self._shift = scale.to(device, dtype), shift.to(device, dtype)

    def __len__(self) -> int:
        return int(self._shape[0])

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample as a network sees it: ``[C, H, W]`` or that of the features."""
        shape = self._shape[1:]
        return (shape[2], shape[0], shape[1]) if self.is_image else shape

    def clean(self, index: Tensor) -> Tensor:
        """The samples as they are."""
        values, rows = self._rows(index)
        picked = values.index_select(0, rows)
        return self.normalise(picked) if self.is_image else picked.to(self.dtype)

    def augmented(self, index: Tensor, draws: Tensor, rotates: bool) -> Tensor:
        values, rows = self._rows(index)
        return self.normalise(augment.gather(values, rows, draws, rotates))

    def normalise(self, pictures: Tensor) -> Tensor:
        """uint8 ``[B, H, W, C]`` to normalised ``[B, C, H, W]``, channels last in memory."""
        return (pictures.to(self.dtype) * self._scale + self._shift).permute(0, 3, 1, 2)

    def _rows(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Where to find the samples: in place, or, for what does not fit on the device, brought over from the host."""
        if self._values is not None:
            return self._values, index
        brought = torch.from_numpy(np.asarray(self._source[self._rows_there[index.cpu().numpy()]]))
        return brought.to(self.device), torch.arange(len(index), device=self.device)


def fits(size: int, device: torch.device) -> bool:
    """Whether pictures of so many bytes may rest on a card."""
    free, _ = torch.cuda.mem_get_info(device)
    return size <= ROOM_FOR_PICTURES * free


class Loader:
    """The training samples in batches, in a new order each epoch, every sample once."""

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
        self.draws = torch.zeros(NUM_VIEWS, 4, padded, device=device)
        self.boxes = torch.zeros(self.steps, 5, device=device)
        self.partners = torch.zeros(padded, dtype=torch.long, device=device)  # positions in the epoch's order
        self.chances = torch.zeros(2, padded, device=device)  # which classmate, which validation sample
        self.members, self.first, self.count = classmates(labels)

    @property
    def is_fully_on_device(self) -> bool:
        return not (self.inputs.streams or self.validation[0].streams)

    def begin_epoch(self, epoch: int) -> None:
        """Draw the epoch, in place."""
        n, padded = len(self.inputs), len(self.order)
        order = torch.randperm(n, generator=augment.generator(self.seed, epoch, ORDER))
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
        """For each position another one of the same batch: a permutation of every batch, the short one included."""
        chance = torch.rand(self.steps, self.batch_size, generator=source)
        if self.short:
            chance[-1, self.short :] = 2.0  # the places beyond the last sample stay at the end
        start = torch.arange(self.steps).view(-1, 1) * self.batch_size
        return (chance.argsort(dim=1) + start).flatten()

    def _fill(self, place: Tensor, values: Tensor) -> None:
        if place.is_cuda:
            values = values.pin_memory()
        place.copy_(values, non_blocking=True)

    def size(self, step: int) -> int:
        """Samples of a step, over all processes."""
        return self.short if step >= self.full_steps else self.batch_size

    def samples_of_rank(self) -> Tensor:
        """Which samples this process trains on in the running epoch, bool ``[N]``."""
        n = len(self.inputs)
        place = torch.arange(n, device=self.order.device) % self.batch_size
        mine = torch.zeros(n, dtype=torch.bool, device=self.order.device)
        mine[self.order[:n][place % self.world_size == self.rank]] = True
        return mine

    def of_all_processes(self, step: Tensor, size: int) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The samples of ``step`` over all processes and, under CutMix, those mixed in and the share of the first."""
        places = torch.arange(size, device=step.device) + step * self.batch_size
        index = self.order.index_select(0, places)
        if self.cutmix is None:
            return index, None, None
        partner = self.order.index_select(0, self.partners.index_select(0, places))
        return index, partner, self.boxes.index_select(0, step).view(-1)[4:]

    def batch(self, step: Tensor, size: int) -> LoadedBatch:
        """The batch of ``step`` (int64 ``[1]``), of which this process takes every ``world_size``-th sample."""
        places = torch.arange(self.rank, size, self.world_size, device=step.device) + step * self.batch_size
        return LoadedBatch(self, step, places)


class LoadedBatch:
    """One step's samples; see :class:`vista.methods.base.Batch` for what each part means."""

    def __init__(self, loader: Loader, step: Tensor, places: Tensor) -> None:
        self._loader, self._places = loader, places
        self.index = loader.order.index_select(0, places)
        self.partner: Tensor | None = None
        self.share: Tensor | None = None
        self.x = self.view(0)
        if loader.cutmix is not None:
            box = loader.boxes.index_select(0, step).view(-1)
            partners = loader.partners.index_select(0, places)
            self.partner = loader.order.index_select(0, partners)
            other = loader.inputs.augmented(self.partner, loader.draws[0].index_select(1, partners), self._rotates)
            self.x = augment.cut_and_mix(self.x, other, box)
            self.share = box[4:]

    @property
    def _rotates(self) -> bool:
        return self._loader.augmentation.rotation > 0

    def view(self, number: int = 1, index: Tensor | None = None) -> Tensor:
        samples = self.index if index is None else index
        if not self._loader.inputs.is_image:
            return self._loader.inputs.clean(samples)
        draws = self._loader.draws[number].index_select(1, self._places[: len(samples)])
        return self._loader.inputs.augmented(samples, draws, self._rotates)

    def same_class(self) -> Tensor:
        loader = self._loader
        chance = loader.chances[0].index_select(0, self._places)
        first, count = loader.first.index_select(0, self.index), loader.count.index_select(0, self.index)
        return loader.members.index_select(0, first + (chance * count).long().clamp(max=count - 1))

    def validation(self) -> tuple[Tensor, Tensor]:
        inputs, labels = self._loader.validation
        chance = self._loader.chances[1].index_select(0, self._places)
        picked = (chance * len(inputs)).long().clamp(max=len(inputs) - 1)
        return inputs.clean(picked), labels.index_select(0, picked)


def classmates(labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Samples sorted by label, and for each sample where its class begins there and how many it has, all ``[N]``.

    A sample without a label has itself alone.
    """
    members = torch.argsort(labels, stable=True)
    shifted = labels + 1
    counts = torch.bincount(shifted)
    starts = counts.cumsum(0) - counts
    first, count = starts[shifted], counts[shifted]
    unlabelled = labels < 0
    place = torch.empty_like(members)
    place[members] = torch.arange(len(members), device=labels.device)
    return members, torch.where(unlabelled, place, first), torch.where(unlabelled, 1, count)
