"""The training step with custom kernels: when it is used, and on a GPU that it equals autograd.

On a machine without a GPU that has Triton and NumPy below 2.4, each operation can be tested in Triton's interpreter:
``TRITON_INTERPRET=1 pytest -m cuda -k "operation" tests/unit/training/test_fused.py``.
"""

from __future__ import annotations

import copy
import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from vista import models
from vista.runs.config import TrainConfig
from vista.runs.folder import RunFolder
from vista.training import fused
from vista.training.build import build_training
from vista.training.events import Interrupted, Stop
from vista.training.flat import adopt
from vista.training.fused import OLDEST_CAPABILITY, Calls, FusedNetwork, fits
from vista.training.loop import train
from vista.training.resolve import resolve
from vista.training.scheduler import Job, deterministic, run_jobs
from vista.training.state import Training

CLASSES = 10


def build(name: str, pixels: int = 32, device: str = "cpu") -> nn.Module:
    network = models.build(name, num_classes=CLASSES, in_channels=3, image_size=pixels, seed=0).to(device)
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def make_sgd(network: nn.Module, **options: Any) -> torch.optim.Optimizer:
    device = next(network.parameters()).device
    settings = {"momentum": 0.9, "weight_decay": 5e-4, **options}
    optimizer = torch.optim.SGD(network.parameters(), lr=torch.full((), 0.1, device=device), **settings)
    optimizer.param_groups[0]["scale"] = 1.0
    for parameter in network.parameters():
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


# ---------------------------------------------------------------- when it is used


def test_adopted_tensors_keep_their_values_and_share_memory() -> None:
    layers = nn.Conv2d(2, 3, 3), nn.Conv2d(2, 3, 1), nn.Linear(4, 5)
    network = nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    before = copy.deepcopy(network.state_dict())
    strides = [parameter.stride() for parameter in network.parameters()]
    flat = adopt(list(network.parameters()))
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert [parameter.stride() for parameter in network.parameters()] == strides  # operations on lists need equal ones
    flat.mul_(2)
    network.load_state_dict(network.state_dict())
    assert all(torch.equal(value, 2 * before[name]) for name, value in network.state_dict().items())


STEPS: dict[str, tuple[Callable[[Any, Tensor], Any], bool]] = {
    "once": (lambda network, x: network(x).sum(), True),
    "twice": (lambda network, x: network(x).sum() + network(x.flip(3)).sum(), False),
    "stages": (lambda network, x: network.stages(x)[-1].sum(), False),
    "head again": (lambda network, x: (network(x) + network.head(torch.ones(1, 512))).sum(), False),
    "no gradient": (lambda network, x: network(x).detach(), True),
    "of the images": (lambda network, x: network(x.requires_grad_()).sum(), False),
}


@pytest.mark.parametrize("name", STEPS)
def test_only_one_call_of_the_whole_network_is_fused(name: str) -> None:
    network, (step, expected) = build("resnet18"), STEPS[name]
    calls = Calls()
    with calls.counted(network):
        step(network, torch.zeros(16, 3, 32, 32))
    assert fits(network, make_sgd(network), calls, 16) is expected
    assert not network._forward_pre_hooks


def test_a_call_without_gradients_is_not_fused() -> None:
    network, calls = build("resnet18"), Calls()
    with calls.counted(network), torch.no_grad():
        network(torch.zeros(16, 3, 32, 32))
    assert not calls.is_one


@pytest.mark.parametrize(
    ("network", "pixels", "batch", "options", "expected"),
    [
        ("resnet34", 64, 16, {"nesterov": True}, True),
        ("resnet50", 32, 16, {}, False),
        ("small-cnn", 32, 16, {}, False),
        ("resnet18", 48, 16, {}, False),
        ("resnet18", 128, 16, {}, False),
        ("resnet18", 32, 10, {}, False),
        ("resnet18", 32, 16, {"momentum": 0.0}, False),
    ],
)
def test_which_trainings_are_fused(network: str, pixels: int, batch: int, options: Any, expected: bool) -> None:
    built, calls = build(network, pixels), Calls()
    calls.shapes, calls.stem, calls.head = [(batch, 3, pixels, pixels)], 1, 1
    assert fits(built, make_sgd(built, **options), calls, batch) is expected


def test_extra_parameters_and_frozen_ones_are_not_fused() -> None:
    network, calls = build("resnet18"), Calls()
    calls.shapes, calls.stem, calls.head = [(16, 3, 32, 32)], 1, 1
    more = make_sgd(network)
    more.param_groups[0]["params"].append(nn.Parameter(torch.zeros(3)))
    assert not fits(network, more, calls, 16)
    fewer = make_sgd(network)
    fewer.param_groups[0]["params"].pop()
    assert not fits(network, fewer, calls, 16)


class RecordedStep:
    """Logits that are the first pixels; keeps their gradient."""

    def forward(self, images: Tensor) -> tuple[Tensor, int]:
        return images.flatten(1)[:, :CLASSES].clone(), len(images)

    def backward(self, dlogits: Tensor, kept: int) -> None:
        self.dlogits, self.kept = dlogits, kept


def test_the_losss_gradient_reaches_the_kernels_and_other_attributes_the_network() -> None:
    network, step = build("resnet18"), RecordedStep()
    together: Any = FusedNetwork(network, step)  # type: ignore[arg-type]
    images, labels = torch.randn(4, 3, 32, 32), torch.arange(4)
    loss = F.cross_entropy(together(images), labels)
    loss.backward()
    logits = images.flatten(1)[:, :CLASSES].requires_grad_()
    F.cross_entropy(logits, labels).backward()
    assert logits.grad is not None
    assert torch.equal(step.dlogits, logits.grad)
    assert step.kept == 4
    assert together.num_features == 512
    assert together.head is network.head


# ---------------------------------------------------------------- what it computes


def no_chip() -> str:
    if not torch.cuda.is_available():
        return "there is no CUDA device"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    return "" if torch.cuda.get_device_capability() >= OLDEST_CAPABILITY else "the GPU is older than Hopper"


on_chip = [
    pytest.mark.cuda,
    pytest.mark.skipif(bool(no_chip()), reason=no_chip() or "-"),
    pytest.mark.filterwarnings("ignore"),
]


def on_gpu(test: Any) -> Any:
    for mark in on_chip:
        test = mark(test)
    return test


INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton") is not None
DEVICE = "cpu" if INTERPRETED else "cuda"


def on_gpu_or_interpreted(test: Any) -> Any:
    return pytest.mark.cuda(pytest.mark.filterwarnings("ignore")(test)) if INTERPRETED else on_gpu(test)


def make_step(pixels: int, batch: int, overlap: bool = True) -> Any:
    from vista.training.kernels.resnet import ResNetStep

    torch.manual_seed(0)
    network: Any = build("resnet18", pixels, DEVICE)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):  # otherwise all ones and zeros
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
    return ResNetStep(network, make_sgd(network), batch_size=batch, pixels=pixels, overlap=overlap)


@pytest.fixture
def first_tiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compile only the first tile of each operation; the trainings below choose theirs by time."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    if INTERPRETED:  # it cannot multiply bf16
        from vista.training.kernels import resnet

        monkeypatch.setattr(resnet, "BF16", torch.float32)
    with deterministic(True):
        yield


def gradient(x: Tensor) -> Tensor:
    assert x.grad is not None
    return x.grad


def channels_first(x: Tensor) -> Tensor:
    return x.detach().permute(0, 3, 1, 2).double()


def weight_of(layer: Any, flat: Tensor) -> Tensor:
    """``[outputs, inputs, size, size]`` of a layer's weights or their gradient."""
    return flat.view(layer.outputs, layer.size, layer.size, layer.inputs).permute(0, 3, 1, 2).double()


def convolved(layer: Any, x: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(x, weight, stride=layer.stride, padding=layer.size // 2)


def random_activations(step: Any, size: int, channels: int) -> Tensor:
    return torch.randn_like(step._empty(size, channels)).to(step.groups[1].copy.dtype)


SIZES = [(32, 64), (64, 16)]  # pixels and batch size
LAYERS = {"stem": (0, 1), "first": (1, 1), "halves": (5, 1), "second": (6, 2), "shortcut": (7, 1), "last": (16, 8)}
CLOSE = 0.01  # bf16 rounds by up to 1/256


@on_gpu_or_interpreted
@pytest.mark.usefixtures("first_tiles")
@pytest.mark.parametrize(("pixels", "batch"), [(32, 16)] if INTERPRETED else SIZES)
@pytest.mark.parametrize("where", LAYERS)
def test_operation_convolution_is_that_of_torch(where: str, pixels: int, batch: int) -> None:
    step, (index, reduction) = make_step(pixels, batch), LAYERS[where]
    layer, size = step.layers[index], pixels // reduction
    x, weight = random_activations(step, size, layer.inputs), weight_of(layer, layer.weight)
    before = layer.running.clone().view(2, -1)
    with torch.no_grad():
        y, coef = step._convolve(layer, x)
        dy = torch.randn_like(y)
        step._weight_gradient(layer, x, dy)
        if step.side is not None:
            torch.cuda.current_stream().wait_stream(step.side)
    wanted_x, wanted_weight = channels_first(x).requires_grad_(), weight.clone().requires_grad_()
    wanted = convolved(layer, wanted_x, wanted_weight)
    assert distance(channels_first(y), wanted) < CLOSE
    wanted.backward(channels_first(dy))
    assert distance(weight_of(layer, layer.gradient), gradient(wanted_weight)) < CLOSE
    values = channels_first(y)
    mean, variance = values.mean((0, 2, 3)), values.var((0, 2, 3))
    rstd = (values.var((0, 2, 3), unbiased=False) + layer.eps).rsqrt()
    scale = layer.gamma.double() * rstd
    expected = torch.stack([scale, layer.beta.double() - mean * scale, mean, rstd])
    assert distance(coef[0], expected) < 1e-3
    assert distance(layer.running.view(2, -1), torch.lerp(before.double(), torch.stack([mean, variance]), 0.1)) < 1e-3
    if where not in ("stem", "shortcut"):
        short, short_dy = step.layers[7], torch.randn_like(dy)
        with torch.no_grad():
            dx = step._input_gradient(layer, dy, (short, short_dy) if where == "halves" else None)
        expected_dx = gradient(wanted_x)
        if where == "halves":
            other = channels_first(x).requires_grad_()
            convolved(short, other, weight_of(short, short.weight)).backward(channels_first(short_dy))
            expected_dx = expected_dx + gradient(other)
        assert distance(channels_first(dx), expected_dx) < CLOSE


@on_gpu_or_interpreted
@pytest.mark.usefixtures("first_tiles")
@pytest.mark.parametrize("where", ["stem", "inside", "end", "end with two gradients", "end with shortcut"])
def test_operation_normalisation_is_that_of_torch(where: str) -> None:
    """The gradient of ReLU and BatchNorm, and of what is added between them at the end of a block."""
    step = make_step(32, 16)
    ends, two, has_shortcut = where.startswith("end"), where in ("stem", "end with two gradients"), "short" in where
    size, layer, short = (16, step.layers[6], step.layers[7]) if has_shortcut else (32, step.layers[2], step.layers[0])
    y, res, da, db = (random_activations(step, size, layer.outputs) for _ in range(4))
    coefs, leaves, normal = [], [], []
    for norm, values in ((layer, y), (short, res)):
        leaf, gamma, beta = (v.double().requires_grad_() for v in (values, norm.gamma, norm.beta))
        flat = leaf.detach().flatten(0, 2)
        mean, rstd = flat.mean(0), (flat.var(0, unbiased=False) + norm.eps).rsqrt()
        coefs.append(torch.stack([gamma * rstd, beta - mean * gamma * rstd, mean, rstd]).detach().float()[None])
        leaves.append((leaf, gamma, beta))
        normal.append(F.batch_norm(leaf.permute(0, 3, 1, 2), None, None, gamma, beta, True).permute(0, 2, 3, 1))
    with torch.no_grad():
        z = step._normalise(y, coefs[0], res if ends else None, coefs[1] if has_shortcut else None)
        dy, short_dy, masked = step._normalise_back(
            layer, da, db if two else None, z if ends else None, y, coefs[0],
            (short, res, coefs[1]) if has_shortcut else None,
        )  # fmt: skip
    added = normal[0] + (normal[1] if has_shortcut else leaves[1][0] if ends else 0.0)
    wanted = torch.relu(added)
    assert distance(z, wanted) < CLOSE
    wanted.backward(da.double() + db.double() if two else da.double())
    leaf, gamma, beta = leaves[0]
    found = {"dy": (dy, leaf), "gamma": (layer.gamma_gradient, gamma), "beta": (layer.beta_gradient, beta)}
    if has_shortcut:
        leaf, gamma, beta = leaves[1]
        found |= {"short dy": (short_dy, leaf), "its gamma": (short.gamma_gradient, gamma)}
        found |= {"its beta": (short.beta_gradient, beta)}
    elif ends:
        found["what passes by the block"] = (masked, leaves[1][0])
    far = {name: distance(value, gradient(leaf)) for name, (value, leaf) in found.items()}
    assert not {name: error for name, error in far.items() if not error < CLOSE}


@on_gpu
@pytest.mark.usefixtures("first_tiles")
@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize(("pixels", "batch"), SIZES)
def test_weight_gradients_of_a_backward_pass_are_those_of_torch(pixels: int, batch: int, overlap: bool) -> None:
    """Also when freed memory is written again at once: the second stream may not have read it yet."""
    step, read = make_step(pixels, batch, overlap), []
    x, original = torch.randn(batch, 3, pixels, pixels, device="cuda"), step._weight_gradient

    def watched(layer: Any, x: Tensor, dy: Tensor) -> None:
        read.append((layer, x.clone(), dy.clone()))
        original(layer, x, dy)
        for _ in range(4):
            torch.full_like(dy, float("nan"))
            torch.full_like(x, float("nan"))

    step._weight_gradient = watched
    for _ in range(5):
        read.clear()
        with torch.no_grad():
            logits, kept = step.forward(x)
            step.backward(torch.randn_like(logits), kept)
            del kept
        for layer, columns, dy in read:
            weight = weight_of(layer, layer.weight).requires_grad_()
            convolved(layer, channels_first(columns), weight).backward(channels_first(dy))
            assert distance(weight_of(layer, layer.gradient), gradient(weight)) < CLOSE, layer.name


def gradients(network: nn.Module, x: Tensor, labels: Tensor, bf16: bool) -> dict[str, Tensor]:
    with torch.autocast("cuda", torch.bfloat16) if bf16 else nullcontext():
        loss = F.cross_entropy(network(x).float(), labels)
    loss.backward()
    return {"loss": loss.detach(), **{name: p.grad for name, p in network.named_parameters() if p.grad is not None}}


def fused_gradients(
    network: nn.Module, x: Tensor, labels: Tensor, overlap: bool = True
) -> tuple[dict[str, Tensor], FusedNetwork]:
    from vista.training.kernels.resnet import ResNetStep

    optimizer: Any = make_sgd(network)
    step = ResNetStep(network, optimizer, batch_size=len(x), pixels=x.shape[2], overlap=overlap)  # type: ignore[arg-type]
    with torch.no_grad():  # choose the tiles, and leave the running statistics as they were
        running = step.running.clone()
        logits, kept = step.forward(torch.zeros_like(x))
        step.backward(torch.zeros_like(logits), kept)
        step.running.copy_(running)
    together = FusedNetwork(network, step)  # type: ignore[arg-type]
    loss = F.cross_entropy(together(x).float(), labels)
    loss.backward()
    found = {"loss": loss.detach()}
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    for group in step.groups:
        for parameter, piece in zip(group.parameters, group.pieces(group.gradient), strict=True):
            outputs, *shape = parameter.shape
            if len(shape) == 3:  # [outputs, taps * inputs], the stem's padded
                channels, height, width = shape
                piece = piece[:, : channels * height * width].reshape(outputs, height, width, channels)
                piece = piece.permute(0, 3, 1, 2)
            found[names[id(parameter)]] = piece.reshape(parameter.shape).float()
    return found, together


def distance(one: Tensor, other: Tensor) -> float:
    return float((one.double() - other.double()).norm() / other.double().norm())


@on_gpu
@pytest.mark.usefixtures("first_tiles")
@pytest.mark.parametrize("bias", [0.0, 2.0])
@pytest.mark.parametrize(
    ("name", "pixels", "batch"), [("resnet18", 32, 64), ("resnet18", 64, 16), ("resnet34", 32, 32)]
)
def test_gradients_are_as_close_to_float32_as_those_of_autocast(
    name: str, pixels: int, batch: int, bias: float
) -> None:
    """With biases of 0 rounding flips many ReLUs and moves gradients of early layers by a third; with 2, few."""
    torch.manual_seed(0)
    exact, plain, ours = (build(name, pixels, "cuda") for _ in range(3))
    for module in (m for network in (exact, plain, ours) for m in network.modules()):
        if isinstance(module, nn.BatchNorm2d):
            nn.init.constant_(module.bias, bias)
    x = torch.randn(batch, 3, pixels, pixels, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, CLASSES, (batch,), device="cuda")
    expected = gradients(exact, x, labels, bf16=False)
    usual, (found, _) = gradients(plain, x, labels, bf16=True), fused_gradients(ours, x, labels)
    assert found.keys() == expected.keys()
    far = {k: (distance(found[k], expected[k]), distance(usual[k], expected[k])) for k in expected}
    allowed = {k: 1.3 * d[1] + 0.01 if expected[k].dim() > 1 else 2 * d[1] + 0.02 for k, d in far.items()}
    assert not {k: d for k, d in far.items() if not d[0] < allowed[k]}
    for (k, statistic), exactly in zip(ours.named_buffers(), exact.buffers(), strict=True):
        if statistic.is_floating_point():
            assert distance(statistic, exactly) < 0.01, k


@on_gpu
def test_a_second_stream_changes_no_bit() -> None:
    torch.manual_seed(0)
    x, labels = torch.randn(64, 3, 32, 32, device="cuda"), torch.randint(0, CLASSES, (64,), device="cuda")
    with deterministic(True):
        one, _ = fused_gradients(build("resnet18", device="cuda"), x, labels, overlap=True)
        other, _ = fused_gradients(build("resnet18", device="cuda"), x, labels, overlap=False)
    assert all(torch.equal(one[name], other[name]) for name in one)


@on_gpu
@pytest.mark.parametrize("nesterov", [False, True])
def test_the_update_is_that_of_torch(nesterov: bool) -> None:
    from vista.training.kernels.resnet import ResNetStep
    from vista.training.weight_average import WeightAverage

    torch.manual_seed(0)
    ours, plain = build("resnet18", device="cuda"), build("resnet18", device="cuda")
    steps = [make_sgd(network, nesterov=nesterov) for network in (ours, plain)]
    averages = [WeightAverage(network, 0.5) for network in (ours, plain)]
    averaged: Any = averages[0].network
    step = ResNetStep(ours, steps[0], averaged, averages[0].step, 0.5, batch_size=64, pixels=32)  # type: ignore[arg-type]
    for number in range(3):
        for p in plain.parameters():
            p.grad = torch.randn(p.shape, device="cuda").bfloat16().float()
        for p, q in zip(ours.parameters(), plain.parameters(), strict=True):
            p.grad = None if q.grad is None else q.grad.clone()
        step.running.fill_(float(number))
        for buffer in plain.buffers():
            if buffer.is_floating_point():
                buffer.fill_(float(number))
        step.take_gradients()
        step.update()
        steps[1].step()
        averages[1].update(plain)
    for one, other in ((ours, plain), (averages[0], averages[1])):
        for (name, value), expected in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
            assert torch.allclose(value, expected, atol=1e-6, rtol=1e-5), name
    for group in step.groups:
        if group.copy is not None:
            copies = group.copy.view(-1, group.row[1])[:, : group.row[0]]
            assert torch.equal(copies, group.value.view(-1, group.row[0]).bfloat16())


# ---------------------------------------------------------------- a training


def make_config(folder: Path) -> TrainConfig:
    rng, labels = np.random.default_rng(0), np.arange(700) % CLASSES
    of_class = rng.integers(0, 128, (CLASSES, 32, 32, 3))
    images = (rng.integers(0, 128, (700, 32, 32, 3)) + of_class[labels]).astype(np.uint8)
    path = folder / "images.npz"
    np.savez(path, x_train=images[:600], y_train=labels[:600], x_test=images[600:], y_test=labels[600:])
    return TrainConfig(
        data=f"npz:{path}", network="resnet18", epochs=3, batch_size=64, lr=0.01, device="cuda", precision="bf16",
        noise="symmetric:0.2", padding=0, flip=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> TrainConfig:
    return make_config(tmp_path_factory.mktemp("data"))


def prepare(config: TrainConfig, folder: Path) -> Training:
    training = build_training(resolve(config), RunFolder(folder), {})
    with training.context():
        training.begin_epoch()
        training.engine.capture(training.copy_state, training.load)
    return training


def losses_of(config: TrainConfig, folder: Path, epochs: int) -> tuple[list[float], Training]:
    training, found = prepare(config, folder), []
    for epoch in range(1, epochs + 1):
        with training.context():
            training.epoch = epoch
            training.begin_epoch()
            training.engine.advance(training.loader.steps)
            torch.cuda.synchronize()
            found += training.engine.losses.tolist()
    return found, training


@on_gpu
@pytest.mark.parametrize(("method", "ema"), [("ce", 0.0), ("vista-light", 0.9), ("ema", 0.0)])
def test_losses_are_those_of_the_plain_step(
    config: TrainConfig, method: str, ema: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine steps per epoch, the last of them short. Rounding to bf16 sends any two trainings apart: what counts is that
    ours stays as near to one in float32 as that with torch's kernels."""
    chosen = replace(config, method=method, ema=ema)
    monkeypatch.setattr(fused, "ENABLED", False)
    plain, before = losses_of(chosen, tmp_path / "plain", 2)
    _, exact = losses_of(replace(chosen, precision="fp32", compile=False), tmp_path / "exact", 2)
    monkeypatch.setattr(fused, "ENABLED", True)
    ours, after = losses_of(chosen, tmp_path / "fused", 2)
    assert before.engine.fused is None
    assert after.engine.fused is not None
    assert np.abs(np.array(ours) - plain).max() < 0.1
    start = build_training(resolve(chosen), RunFolder(tmp_path / "start"), {}).network.state_dict()
    usual, found = before.evaluated().state_dict(), after.evaluated().state_dict()
    for name, value in exact.evaluated().state_dict().items():
        if not value.is_floating_point():
            assert torch.equal(found[name], usual[name]), name
        elif name.endswith("weight") and value.dim() == 4:
            moved = float((value - start[name]).norm())
            far, allowed = (float((each[name] - value).norm()) / moved for each in (found, usual))
            assert far < 1.3 * allowed + 0.05, (name, far, allowed)


def run(config: TrainConfig, out: Path) -> dict[str, Tensor]:
    job = Job(config, out)
    run_jobs([job], lambda _job, _event: None)
    if job.error:
        raise job.error
    return load_file(out / "last.safetensors")


@on_gpu
def test_a_resumed_training_ends_with_the_bytes_of_an_uninterrupted_one(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "ENABLED", True)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    chosen = replace(config, deterministic=True, checkpoint_seconds=0.0, ema=0.9)
    unbroken = run(chosen, tmp_path / "unbroken")
    stop, events = Stop(), 0
    with deterministic(True), suppress(Interrupted):
        for _ in train(chosen, tmp_path / "broken", stop):
            events += 1
            if events == 4:
                stop.signal = 15
    assert not (tmp_path / "broken" / "metrics.json").exists()
    resumed = run(chosen, tmp_path / "broken")
    assert all(torch.equal(resumed[name], unbroken[name]) for name in unbroken)


@on_gpu
@pytest.mark.parametrize(
    "changes",
    [
        {"clip_grad": 1.0},
        {"accumulate": 2},
        {"optimizer": "adamw"},
        {"compile": False},
        {"precision": "fp32"},
        {"batch_size": 50},
        {"method": "dlb"},
        {"freeze": "backbone"},
        {"network": "small-cnn"},
    ],
)
def test_other_trainings_use_the_plain_step(
    config: TrainConfig, changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "ENABLED", True)
    monkeypatch.setattr(torch, "compile", lambda network, **_: network)  # quick: what counts is the choice
    assert prepare(replace(config, **changes), tmp_path / "run").engine.fused is None
