"""The staged protocol: feature maps, features, logits, and dense logits."""

from itertools import pairwise

import pytest
import torch

from vista import models
from vista.models import Staged


def images(size: int = 32, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0), dtype=dtype)


def build(name: str, image_size: int = 32) -> Staged:
    network = models.build(name, num_classes=10, image_size=image_size).eval()
    assert isinstance(network, Staged)
    return network


@pytest.fixture(scope="module", params=["resnet18", "preact-resnet18", "densenet121", "vgg16", "tiny-staged"])
def network(request: pytest.FixtureRequest) -> Staged:
    """A network with four feature maps and a linear head."""
    return build(request.param)


@torch.inference_mode()
def test_four_maps_halve_and_have_the_declared_channels(network):
    maps = network.stages(images())
    assert tuple(map_.shape[1] for map_ in maps) == network.stage_channels
    assert len(maps) == 4
    sizes = [tuple(map_.shape[2:]) for map_ in maps]
    assert all(deep == (shallow[0] // 2, shallow[1] // 2) for shallow, deep in pairwise(sizes))


def test_tiny_staged_has_four_maps_of_an_8x8_image():
    maps = build("tiny-staged", 8).stages(images(8))
    assert [tuple(map_.shape[1:]) for map_ in maps] == [(8, 8, 8), (16, 4, 4), (24, 2, 2), (32, 1, 1)]


@torch.inference_mode()
def test_dense_logits_are_the_head_at_each_position_and_average_to_the_logits(network):
    size = network.stage_channels[-1], 3, 2
    last = torch.randn(2, *size, generator=torch.Generator().manual_seed(0))
    dense = network.dense_logits(last)
    assert dense is not None
    assert dense.shape == (2, 10, 3, 2)
    torch.testing.assert_close(dense[:, :, 2, 1], network.classify(last[:, :, 2, 1]))
    torch.testing.assert_close(dense.mean(dim=(2, 3)), network.classify(network.embed(last)))


@torch.inference_mode()
def assert_forward_is_the_chain(network: Staged) -> None:
    features = network.embed(network.stages(images())[-1])
    assert features.shape == (2, network.num_features)
    torch.testing.assert_close(network.classify(features), network(images()), rtol=0, atol=0)


def test_forward_is_the_chain_of_its_parts(network):
    assert_forward_is_the_chain(network)


@pytest.mark.parametrize(
    ("name", "channels"),
    [("vgg16-fc", (128, 256, 512, 512)), ("small-cnn", (32, 64)), ("mlp", ()), ("vit-tiny", ())],
)
@torch.inference_mode()
def test_networks_whose_head_is_more_than_linear_on_a_pooled_map(name, channels):
    other = build(name)
    assert other.stage_channels == channels
    assert other.dense_logits(other.stages(images())[-1]) is None
    assert_forward_is_the_chain(other)
