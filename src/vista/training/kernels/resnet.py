"""Forward pass, gradients and update of a ResNet-18 or -34 in bf16, in about 170 custom kernels.

Convolutions are implicit matrix products; the sums of BatchNorm come out of them, and one kernel applies it with ReLU
and shortcut. Weights exist in float32 and in bf16. The optimiser's kernel reads gradients in bf16, updates the float32
weights and their average, and writes the bf16 copies, so that no step casts weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
import triton
from torch import Tensor, nn
from triton.tools.tensor_descriptor import TensorDescriptor

from vista.models.resnet import Block, ResNet
from vista.training.flat import adopt, in_memory_order
from vista.training.kernels import functions

BF16 = torch.bfloat16
TAPS, COLUMNS = 27, 32  # inputs of the stem per output pixel, and the same padded to what the tensor cores need
PIXELS_OF_SMALLEST_TILE = 64
BLOCK = 2048  # weights per program of the optimiser
Tile = tuple[int, ...]
_chosen: dict[tuple[Any, ...], Tile] = {}  # by kernel and shape: every run of the process uses the same tiles


def choose_tile(key: tuple[Any, ...], candidates: Sequence[Tile], launch: Callable[[Tile], None]) -> Tile:
    """Return the fastest candidate, or with deterministic algorithms the first. Times are those of a captured graph."""
    key = (torch.are_deterministic_algorithms_enabled(), *key)
    if key not in _chosen:
        measures = torch.cuda.is_available() and not key[0] and len(candidates) > 1
        _chosen[key] = min(candidates, key=lambda tile: _microseconds(tile, launch)) if measures else candidates[0]
    return _chosen[key]


def _microseconds(tile: Tile, launch: Callable[[Tile], None]) -> float:
    try:
        launch(tile)
    except triton.runtime.errors.OutOfResources:  # the chip has less shared memory than this tile needs
        return float("inf")
    torch.cuda.synchronize()
    graph, took = torch.cuda.CUDAGraph(), list[float]()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # as in the engine
        for _ in range(10):
            launch(tile)
    for _ in range(3):
        began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        began.record()
        graph.replay()
        ended.record()
        ended.synchronize()
        took.append(began.elapsed_time(ended) * 100)
    return min(took)


class Group:
    """Parameters whose numbers are adjacent in memory, with their momentum, average, bf16 copy and gradient.

    The tensors of network, optimiser and average become views, so that everything else works on them as before.

    Args:
        parameters: The parameters.
        optimizer: Their SGD.
        averages: The same parameters of the network's average, or none.
        copies: Whether the step reads bf16 copies; gradients are then bf16 too.
        row: Numbers in a row of copy and gradient, and the same padded.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        optimizer: torch.optim.Optimizer,
        averages: Sequence[Tensor],
        copies: bool = True,
        row: tuple[int, int] = (1, 1),
    ) -> None:
        self.parameters, self.row = parameters, row
        self.value = adopt(parameters)
        self.velocity = adopt([optimizer.state[p]["momentum_buffer"] for p in parameters])
        self.average = adopt(averages) if averages else None
        padded = self.value.numel() // row[0] * row[1]
        self.gradient = torch.zeros(padded, device=self.value.device, dtype=BF16 if copies else torch.float32)
        self.copy = torch.zeros_like(self.gradient) if copies else None
        self.refresh()

    def refresh(self) -> None:
        """Write the bf16 copies of the weights."""
        if self.copy is not None:
            self.copy.view(-1, self.row[1])[:, : self.row[0]] = self.value.view(-1, self.row[0])

    def pieces(self, flat: Tensor) -> list[Tensor]:
        """The parts of ``gradient`` or ``copy`` that belong to each parameter, as matrices with a row per output."""
        sizes = [p.numel() // self.row[0] * self.row[1] for p in self.parameters]
        return [part.view(p.shape[0], -1) for p, part in zip(self.parameters, flat.split(sizes), strict=True)]

    def take_gradients(self) -> None:
        """Copy the gradients that autograd computed."""
        for parameter, piece in zip(self.parameters, self.pieces(self.gradient), strict=True):
            assert parameter.grad is not None
            used = in_memory_order(parameter.grad).reshape(len(piece), -1)
            piece[:, : used.shape[1]].copy_(used)

    def update(self, rate: Tensor, options: dict[str, Any], average_step: Tensor, average_decay: float) -> None:
        n, value = self.value.numel(), self.value
        functions.update_weights[(triton.cdiv(n, BLOCK),)](
            value, self.velocity, self.gradient, value if self.copy is None else self.copy,
            value if self.average is None else self.average, average_step, rate, float(options["weight_decay"]), n,
            float(options["momentum"]), average_decay, bool(options["nesterov"]), self.copy is not None,
            self.average is not None, *self.row, BLOCK, num_warps=8,
        )  # fmt: skip


@dataclass(frozen=True)
class Layer:
    """A convolution with BatchNorm: bf16 weights and gradient ``[outputs, taps * inputs]``, vectors in float32."""

    name: str
    inputs: int  # per tap
    outputs: int
    size: int  # of the kernel
    stride: int
    weight: Tensor
    gradient: Tensor
    gamma: Tensor
    beta: Tensor
    gamma_gradient: Tensor
    beta_gradient: Tensor
    running: Tensor  # mean and variance, [2 * outputs]
    momentum: float
    eps: float


@dataclass(frozen=True)
class KeptBlock:
    """What the backward pass of a block reads."""

    layers: tuple[Layer, Layer, Layer | None]
    x: Tensor
    y1: Tensor
    coef1: Tensor
    middle: Tensor
    y2: Tensor
    coef2: Tensor
    short_y: Tensor | None
    short_coef: Tensor | None
    out: Tensor


@dataclass(frozen=True)
class Kept:
    """What the backward pass reads."""

    columns: Tensor
    y: Tensor
    coef: Tensor
    z: Tensor
    blocks: list[KeptBlock]
    features: Tensor


class ResNetStep:
    """The training step of a :class:`vista.models.resnet.ResNet` without bottlenecks, on square images of 3 channels.

    Args:
        network: The network on its device.
        optimizer: Its SGD with momentum and one group of parameters.
        average: The network's average, if it is updated after every step.
        average_step: The number of updates of the average so far, float32 0-d.
        average_decay: Weight of the old average.
        batch_size: Images per step, a multiple of 16.
        pixels: Height and width of the images, 32 or 64.
        overlap: Compute the gradients of weights on a second stream.
    """

    def __init__(
        self,
        network: ResNet,
        optimizer: torch.optim.Optimizer,
        average: ResNet | None = None,
        average_step: Tensor | None = None,
        average_decay: float = 0.0,
        *,
        batch_size: int,
        pixels: int,
        overlap: bool = True,
    ) -> None:
        self.G, self.batch_size, self.pixels = 1, batch_size, pixels
        self.options = optimizer.param_groups[0]
        self.device = network.head.weight.device
        self.average_decay = average_decay
        self.average_step = torch.zeros((), device=self.device) if average_step is None else average_step
        self.num_classes = network.head.out_features
        self._adopt(network, optimizer, average)
        self.side = torch.cuda.Stream(self.device) if overlap and self.device.type == "cuda" else None
        self._in_use: list[Tensor] = []  # read by the second stream: memory must not be reused before it has finished

    # ------------------------------------------------------------ storage

    def _adopt(self, network: ResNet, optimizer: torch.optim.Optimizer, average: ResNet | None) -> None:
        pairs = conv_and_norm(network)
        averaged = [] if average is None else conv_and_norm(average)
        own, theirs = parts(network), ([], [], []) if average is None else parts(average)
        stem = Group(own[0], optimizer, theirs[0], row=(TAPS, COLUMNS))
        main = Group(own[1], optimizer, theirs[1])
        small = Group(own[2], optimizer, theirs[2], copies=False)
        self.groups = (stem, main, small)
        self.running = adopt(statistics(pairs))
        self.average_running = adopt(statistics(averaged)) if averaged else None
        assert stem.copy is not None
        assert main.copy is not None
        weights = stem.pieces(stem.copy) + main.pieces(main.copy)
        gradients = stem.pieces(stem.gradient) + main.pieces(main.gradient)
        vector_gradients = [piece.flatten() for piece in small.pieces(small.gradient)]
        running = self.running.split([2 * norm.num_features for _, norm in pairs])
        self.layers = [
            Layer(
                name=f"{i}", inputs=conv.in_channels if i else COLUMNS, outputs=conv.out_channels,
                size=conv.kernel_size[0] if i else 1, stride=conv.stride[0], weight=weights[i], gradient=gradients[i],
                gamma=norm.weight.detach(), beta=norm.bias.detach(), gamma_gradient=vector_gradients[2 * i],
                beta_gradient=vector_gradients[2 * i + 1], running=running[i], momentum=float(norm.momentum or 0.0),
                eps=norm.eps,
            )
            for i, (conv, norm) in enumerate(pairs)
        ]  # fmt: skip
        self.blocks, at = [], 1
        for block in blocks_of(network):
            has_shortcut = not isinstance(block.shortcut, nn.Identity)
            self.blocks.append((self.layers[at], self.layers[at + 1], self.layers[at + 2] if has_shortcut else None))
            at += 2 + has_shortcut
        self.head_weight, self.head_gradient = weights[-1], gradients[-1]
        self.head_bias, self.head_bias_gradient = network.head.bias.detach(), vector_gradients[-1]

    def refresh(self) -> None:
        """Write the bf16 copies, after the weights changed otherwise than by :meth:`update`."""
        for group in self.groups:
            group.refresh()

    def take_gradients(self) -> None:
        """Copy the gradients that autograd computed on the plain network."""
        for group in self.groups:
            group.take_gradients()

    def update(self) -> None:
        """The optimiser's step and that of the average."""
        for group in self.groups:
            group.update(self.options["lr"], self.options, self.average_step, self.average_decay)
        if self.average_running is not None:
            share = 1.0 - torch.clamp((1.0 + self.average_step) / (10.0 + self.average_step), max=self.average_decay)
            self.average_running.lerp_(self.running, share)
            self.average_step.add_(1.0)

    # ------------------------------------------------------------ network

    def forward(self, images: Tensor) -> tuple[Tensor, Kept]:
        """Logits bf16 ``[B, K]`` of images ``[B, 3, H, W]``; the running statistics move."""
        size = self.pixels
        x = self._empty(size, COLUMNS)
        n, c, h, w = images.stride()
        functions.columns[(len(images) * size,)](images, x, n, c, h, w, size)
        y, coef = self._convolve(self.layers[0], x)
        z = first = self._normalise(y, coef)
        kept = []
        for one, two, short in self.blocks:
            y1, coef1 = self._convolve(one, z)
            middle = self._normalise(y1, coef1)
            y2, coef2 = self._convolve(two, middle)
            short_y, short_coef = (None, None) if short is None else self._convolve(short, z)
            out = self._normalise(y2, coef2, z if short_y is None else short_y, short_coef)
            kept.append(KeptBlock((one, two, short), z, y1, coef1, middle, y2, coef2, short_y, short_coef, out))
            z = out
        features = z.flatten(1, 2).mean(1)
        logits = torch.addmm(self.head_bias.to(BF16), features, self.head_weight.t())
        return logits, Kept(x, y, coef, first, kept, features)

    def backward(self, dlogits: Tensor, kept: Kept) -> None:
        """Write the gradients of all weights from that of the logits."""
        dlogits = dlogits.to(BF16)
        torch.mm(dlogits.t(), kept.features, out=self.head_gradient)
        torch.sum(dlogits, 0, dtype=torch.float32, out=self.head_bias_gradient)
        last = kept.blocks[-1].out
        per_image = last.shape[1] * last.shape[2]
        da = (torch.mm(dlogits, self.head_weight) / per_image).unsqueeze(1).expand(-1, per_image, -1)
        da, db = da.contiguous().view_as(last), None
        for block in reversed(kept.blocks):
            (one, two, short), short_dy = block.layers, None
            shortcut = None
            if short is not None and block.short_y is not None and block.short_coef is not None:
                shortcut = (short, block.short_y, block.short_coef)
            dy2, short_dy, masked = self._normalise_back(two, da, db, block.out, block.y2, block.coef2, shortcut)
            self._weight_gradient(two, block.middle, dy2)
            dmiddle = self._input_gradient(two, dy2)
            dy1, _, _ = self._normalise_back(one, dmiddle, None, None, block.y1, block.coef1)
            self._weight_gradient(one, block.x, dy1)
            if short is not None:
                self._weight_gradient(short, block.x, short_dy)
            da = self._input_gradient(one, dy1, None if short is None else (short, short_dy))
            db = masked if short is None else None
        dy, _, _ = self._normalise_back(self.layers[0], da, db, None, kept.y, kept.coef)
        self._weight_gradient(self.layers[0], kept.columns, dy)
        if self.side is not None:
            torch.cuda.current_stream().wait_stream(self.side)
        self._in_use.clear()

    # ------------------------------------------------------------ layers

    def _empty(self, size: int, channels: int) -> Tensor:
        return torch.empty(self.G * self.batch_size, size, size, channels, device=self.device, dtype=BF16)

    def _floats(self, *shape: int) -> Tensor:
        return torch.empty(shape, device=self.device)

    def _tiles(self, outputs: int, size: int) -> list[Tile]:
        """Tiles of a convolution worth trying: channels, pixels, warps, stages."""
        pixels = self.batch_size * size * size
        tiles: list[Tile] = [(64, 256, 4, 4), (64, 256, 4, 2), (64, 128, 4, 4), (64, 64, 4, 6)]
        if outputs > 64:
            tiles += [(128, 256, 8, 4), (128, 128, 8, 3), (128, 128, 8, 6)]
        enough = [t for t in tiles if pixels % t[1] == 0 and self.G * pixels // t[1] * (outputs // t[0]) >= 60]
        return enough or [(64, PIXELS_OF_SMALLEST_TILE, 4, 3)]

    def _key(self, kind: str, layer: Layer, size: int) -> tuple[Any, ...]:
        return (kind, self.G, self.batch_size, layer.outputs, layer.inputs, size, layer.size, layer.stride)

    def _convolve(self, layer: Layer, x: Tensor) -> tuple[Tensor, Tensor]:
        """A convolution and the coefficients ``[G, 4, C]`` of its BatchNorm."""
        size, out, inputs = x.shape[1] // layer.stride, layer.outputs, min(64, layer.inputs)
        pixels, y = self.batch_size * size * size, self._empty(size, layer.outputs)
        sums = self._floats(self.G * pixels // PIXELS_OF_SMALLEST_TILE, 2, out)

        def launch(tile: Tile) -> None:
            channels, tile_pixels, warps, stages = tile
            images, rows = box(size, tile_pixels)
            x_tiles = (
                by_parity(x, [images, rows, 1, size, inputs])
                if layer.stride == 2
                else TensorDescriptor.from_tensor(x, [images, rows, size, inputs])
            )
            w_tiles = TensorDescriptor.from_tensor(layer.weight, [channels, inputs])
            y_tiles = TensorDescriptor.from_tensor(y.view(-1, out), [tile_pixels, channels])
            functions.convolve[(self.G * pixels // tile_pixels * (out // channels), 1)](
                x_tiles, w_tiles, y_tiles, y_tiles, w_tiles, sums, layer.inputs, out, size, size, self.batch_size,
                images, rows, channels, inputs, layer.size, layer.stride, False, True, False,
                num_warps=warps, num_stages=stages,
            )  # fmt: skip

        tile = choose_tile(self._key("forward", layer, size), self._tiles(out, size), launch)
        launch(tile)
        coef = self._floats(self.G, 4, out)
        functions.normalise_ready[(self.G, out // 16)](
            sums, pixels // tile[1], float(pixels), layer.gamma, layer.beta, layer.running, coef, layer.momentum,
            layer.eps, out, 128,
        )  # fmt: skip
        return y, coef

    def _normalise(self, y: Tensor, coef: Tensor, res: Tensor | None = None, res_coef: Tensor | None = None) -> Tensor:
        """ReLU of the normalised ``y``, plus ``res`` or with ``res_coef`` the normalised ``res``."""
        z, channels = torch.empty_like(y), y.shape[3]
        rows = max(1, min(8192 // channels, y.numel() // channels // self.G))
        functions.normalise[(y.numel() // (rows * channels),)](
            y, coef, y if res is None else res, coef if res_coef is None else res_coef, z,
            y.numel() // (self.G * rows * channels), channels, rows, 0 if res is None else 1 if res_coef is None else 2,
            num_warps=8,
        )  # fmt: skip
        return z

    def _normalise_back(
        self,
        layer: Layer,
        da: Tensor,
        db: Tensor | None,
        z: Tensor | None,
        y: Tensor,
        coef: Tensor,
        shortcut: tuple[Layer, Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of y and of the shortcut's y, and the masked gradient; ``z`` is given at the end of a block."""
        channels, per_model = y.shape[3], y.numel() // self.G
        rows = max(1, min(4096 // channels, per_model // channels))
        tiles = per_model // (rows * channels)
        programs = min(tiles, max(32, 256 // self.G))
        sums = self._floats(self.G * programs, 3, channels)
        masked = y if z is None else torch.empty_like(y)
        short, short_y, short_coef = shortcut or (layer, y, coef)
        functions.normalise_back_sums[(self.G * programs,)](
            da, da if db is None else db, y if z is None else z, y, coef, short_y, short_coef, masked, sums, tiles,
            programs, channels, rows, z is not None, db is not None, shortcut is not None, num_warps=8,
        )  # fmt: skip
        backs = []
        for which, norm, k in ((1, layer, coef), (2, short, short_coef))[: 1 if shortcut is None else 2]:
            backs.append(self._floats(self.G, 3, channels))
            functions.normalise_back_ready[(self.G, channels // 16)](
                sums, programs, float(per_model // channels), k, norm.gamma_gradient, norm.beta_gradient, backs[-1],
                which, channels, 128,
            )  # fmt: skip
        dy = torch.empty_like(y)
        short_dy = dy if shortcut is None else torch.empty_like(y)
        functions.normalise_back[(y.numel() // (rows * channels),)](
            da if z is None else masked, da if db is None else db, y, coef, backs[0], dy, short_y, backs[-1], short_dy,
            tiles, channels, rows, z is not None, z is None and db is not None, shortcut is not None, num_warps=8,
        )  # fmt: skip
        return dy, short_dy, masked

    def _weight_gradient(self, layer: Layer, x: Tensor, dy: Tensor) -> None:
        size, out, inputs, three = dy.shape[1], layer.outputs, layer.inputs, False
        pixels, numbers = self.batch_size * size * size, layer.gradient.numel() // self.G
        bm, bn, tile_pixels = min(128, out), min(128, inputs), min(64, pixels)
        three = layer.size == 3 and layer.stride == 1 and out == inputs == 64  # one load of dy serves a row of taps
        images, rows = box(size, tile_pixels)
        programs = (3 if three else layer.size**2) * (out // bm) * (inputs // bn) * self.G
        splits = [2**i for i in range(9) if pixels // tile_pixels % 2**i == 0]
        enough = next((i for i, n in enumerate(splits) if programs * n >= 128), len(splits) - 1)
        parts = self._floats(self.G * splits[enough] * numbers)

        def launch(tile: Tile) -> None:
            split, stages = tile
            result = layer.gradient if split == 1 else parts
            x_tiles = (
                by_parity(x, [images, rows, 1, size, bn])
                if layer.stride == 2
                else TensorDescriptor.from_tensor(x, [images, rows, size, bn])
            )
            functions.weight_gradient[(programs * split,)](
                x_tiles, TensorDescriptor.from_tensor(dy.view(-1, out), [tile_pixels, bm]), result, inputs, out, size,
                size, self.batch_size, images, rows, bm, bn, layer.size, layer.stride, split, three,
                num_warps=8 if bm * bn > 8192 else 4, num_stages=stages,
            )  # fmt: skip
            if split > 1:
                functions.add_splits[(numbers // 512, self.G)](parts, layer.gradient, numbers, split, 512)

        candidates = [(splits[i], stages) for i in sorted({enough, max(0, enough - 1)}) for stages in (3, 4)]
        tile = choose_tile(self._key("weights", layer, size), candidates, launch)
        if self.side is not None:
            self._in_use += [x, dy, parts]
            self.side.wait_stream(torch.cuda.current_stream())
        with nullcontext() if self.side is None else torch.cuda.stream(self.side):
            launch(tile)

    def _input_gradient(self, layer: Layer, dy: Tensor, shortcut: tuple[Layer, Tensor] | None = None) -> Tensor:
        size, inputs, out = dy.shape[1], layer.inputs, layer.outputs
        pixels, dx = self.batch_size * size * size, self._empty(size * layer.stride, layer.inputs)

        def launch(tile: Tile) -> None:
            channels, tile_pixels, warps, stages = tile
            images, rows = box(size, tile_pixels)
            dy_tiles = TensorDescriptor.from_tensor(dy, [images, rows, size, 64])
            w_tiles = TensorDescriptor.from_tensor(layer.weight, [64, channels])
            dx_tiles = (
                by_parity(dx, [images, rows, 1, size, channels])
                if layer.stride == 2
                else TensorDescriptor.from_tensor(dx.view(-1, inputs), [tile_pixels, channels])
            )
            short_tiles, short_w_tiles = dy_tiles, w_tiles
            if shortcut is not None:
                short_tiles = TensorDescriptor.from_tensor(shortcut[1], [images, rows, size, 64])
                short_w_tiles = TensorDescriptor.from_tensor(shortcut[0].weight, [64, channels])
            grid = (self.G * pixels // tile_pixels * (inputs // channels), 4 if layer.stride == 2 else 1)
            functions.convolve[grid](
                dy_tiles, w_tiles, dx_tiles, short_tiles, short_w_tiles, self.average_step, out, inputs, size, size,
                self.batch_size, images, rows, channels, 64, layer.size, layer.stride, True, False,
                shortcut is not None, num_warps=warps, num_stages=stages,
            )  # fmt: skip

        launch(choose_tile(self._key("inputs", layer, size), self._tiles(inputs, size), launch))
        return dx


def box(width: int, pixels: int) -> tuple[int, int]:
    """Images and rows of a tile."""
    return (1, pixels // width) if pixels < width * width else (pixels // (width * width), width)


def by_parity(x: Tensor, shape: list[int]) -> TensorDescriptor:
    """Tiles of ``x`` ``[N, H, W, C]`` in which the rows and columns of one parity are dimensions of their own."""
    n, height, width, channels = x.shape
    return TensorDescriptor.from_tensor(x.view(n, height // 2, 2, width // 2, 2 * channels), shape)


def blocks_of(network: ResNet) -> list[Block]:
    return [cast(Block, block) for stage in network.groups for block in cast(Any, stage).blocks]


def conv_and_norm(network: ResNet) -> list[tuple[nn.Conv2d, nn.BatchNorm2d]]:
    """Each convolution with its BatchNorm: the stem's, then two or three per block, the shortcut's last."""
    pairs: list[Any] = [network.stem[0]]
    for block in blocks_of(network):
        pairs += [block.residual[0], block.residual[2]]
        if not isinstance(block.shortcut, nn.Identity):
            pairs.append(block.shortcut)
    return [(pair[0], pair[1]) for pair in pairs]


def parts(network: ResNet) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """The weights of the stem, all other matrices, and all vectors."""
    pairs = conv_and_norm(network)
    convolutions: list[Tensor] = [conv.weight for conv, _ in pairs]
    vectors: list[Tensor] = [vector for _, norm in pairs for vector in (norm.weight, norm.bias)]
    return convolutions[:1], [*convolutions[1:], network.head.weight], [*vectors, network.head.bias]


def statistics(pairs: list[tuple[nn.Conv2d, nn.BatchNorm2d]]) -> list[Tensor]:
    return [cast(Tensor, values) for _, norm in pairs for values in (norm.running_mean, norm.running_var)]
