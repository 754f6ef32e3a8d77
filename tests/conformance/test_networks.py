"""Every method takes one step on every network family at 32 and 64 pixels, or rejects the network clearly.

One size per family is enough: ResNet-34 and -101, VGG-19 and ViT-small share the code of the networks used here.
Variants take the same step as their method, except TF-KD with an earlier network.
"""

from __future__ import annotations

import copy
import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from vista import models
from vista.data.augment import Augmentation
from vista.data.loader import Inputs, Loader
from vista.methods import Task, available, choose
from vista.models import Staged, dropout
from vista.runs.config import TrainConfig
from vista.training.engine import Engine
from vista.training.optimization import make_optimizer

pytestmark = pytest.mark.faults

METHODS = [name for name, method in available().items() if name == method.name or name == "tf-kd-self"]
NETWORKS = ["resnet18", "preact-resnet18", "densenet121", "vgg16", "vgg16-fc", "vit-tiny", "small-cnn", "mlp"]
PIXELS = [32, 64]
SAMPLES, BATCH, CLASSES = 8, 2, 4
LEARNING_RATE = 1e-5  # BatchNorm over two images and a map of one pixel gives gradients of 10^4
CPU = torch.device("cpu")


@functools.lru_cache(maxsize=1)
def build_network(network: str, pixels: int) -> nn.Module:
    return models.build(network, num_classes=CLASSES, image_size=pixels)


@functools.cache
def make_images(pixels: int) -> Inputs:
    values = np.random.default_rng(0).integers(0, 256, (SAMPLES, pixels, pixels, 3), dtype=np.uint8)
    return Inputs(values, (0.5,) * 3, (0.25,) * 3, CPU, torch.float32)


def make_loader(pixels: int, labels: torch.Tensor) -> Loader:
    inputs = make_images(pixels)
    return Loader(
        inputs, labels, (inputs, labels), batch_size=BATCH, augmentation=Augmentation(padding=4), cutmix=None, seed=0
    )


def make_task(labels: torch.Tensor, network: nn.Module) -> Task:
    return Task(
        labels=labels,
        val_labels=labels,
        num_classes=CLASSES,
        epochs=4,
        steps_per_epoch=SAMPLES // BATCH,
        batch_size=BATCH,
        device=CPU,
        generator=torch.Generator().manual_seed(0),
        earlier={"teacher": copy.deepcopy(network).eval()},
    )


def take_step(method: str, network: nn.Module, pixels: int) -> tuple[Engine, Any]:
    """Return the engine after its first step, and the method."""
    labels, chosen = torch.arange(SAMPLES) % CLASSES, choose(method)
    task, loader = make_task(labels, network), make_loader(pixels, labels)
    made = chosen.method(task, network, chosen.config)
    for module in (network, made):
        dropout.set_generator(module, task.generator)
    optimizer = make_optimizer(TrainConfig(), network, [p for p in made.parameters() if p.requires_grad], CPU)
    engine = Engine(
        network, made, loader, optimizer, device=CPU, precision="fp32", compile_network=False, capture=False
    )
    loader.begin_epoch(1)
    made.begin_epoch(1)
    engine.begin_epoch([LEARNING_RATE] * loader.steps)
    network.train()
    engine.advance(1)
    engine.check_losses()
    return engine, made


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("pixels", PIXELS)
@pytest.mark.parametrize("network", NETWORKS)
def test_one_step(network: str, pixels: int, method: str) -> None:
    net = copy.deepcopy(build_network(network, pixels))
    assert isinstance(net, Staged)
    if available()[method].needs_stages and len(net.stage_channels) < 2:
        with pytest.raises(ValueError, match=rf"needs the feature maps .* but {type(net).__name__} has none; use a"):
            take_step(method, net, pixels)
        return
    before = net.state_dict()["head.weight"].clone()
    engine, made = take_step(method, net, pixels)
    assert engine.losses[0] > 0
    assert not torch.equal(net.state_dict()["head.weight"], before)
    assert [name for name, parameter in net.named_parameters() if parameter.grad is None] == []
    with torch.no_grad():
        logits = made.evaluated(net).eval()(make_images(pixels).clean(torch.arange(2)))
    assert logits.shape == (2, CLASSES)
    assert torch.isfinite(logits).all()
