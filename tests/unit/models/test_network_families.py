"""Every network: size, image sizes, precisions, memory formats, gradients, compilation."""

import copy

import pytest
import torch
from torch import nn

from vista import models

PARAMETERS = {
    "resnet18": 11_220_132,
    "resnet34": 21_328_292,
    "resnet50": 23_705_252,
    "resnet101": 42_697_380,
    "preact-resnet18": 11_217_444,
    "densenet121": 7_048_548,
    "vgg16": 14_774_436,
    "vgg16-fc": 34_015_396,
    "vgg19": 20_086_692,
    "vgg19-fc": 39_327_652,
    "vit-tiny": 5_380_132,
    "vit-small": 21_376_996,
    "small-cnn": 91_460,
    "mlp": 422_756,
    "tiny-staged": 15_196,
}
# The smallest of each family: the others differ from it only in depth or width.
ONE_PER_FAMILY = ("resnet18", "preact-resnet18", "densenet121", "vgg16", "vit-tiny", "small-cnn", "mlp", "tiny-staged")


def images(batch: int = 2, size: int = 32, channels: int = 3, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    drawn = torch.randn(batch, channels, size, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return drawn.to(dtype)


@pytest.fixture(scope="module", params=models.names())
def network(request: pytest.FixtureRequest) -> tuple[str, nn.Module]:
    return request.param, models.build(request.param, num_classes=100).eval()


@pytest.fixture(scope="module", params=ONE_PER_FAMILY)
def family(request: pytest.FixtureRequest) -> nn.Module:
    return models.build(request.param, num_classes=10).eval()


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_parameter_count_at_100_classes_and_32_pixels(network):
    name, built = network
    assert sum(parameter.numel() for parameter in built.parameters()) == PARAMETERS[name]
    assert models.count_parameters(name) == PARAMETERS[name]


@pytest.mark.parametrize("size", [32, 64])
def test_32_and_64_pixels(network, size):
    name, built = network
    if size != 32 and name.startswith(("vit", "mlp")):  # these depend on the image size
        built = models.build(name, num_classes=100, image_size=size).eval()
    with torch.inference_mode():
        logits = built(images(1, size))
    assert logits.shape == (1, 100)
    assert logits.isfinite().all()


@pytest.mark.parametrize("name", ["small-cnn", "tiny-staged", "resnet18", "mlp", "vit-tiny"])
def test_digits(name):
    built = models.build(name, num_classes=10, in_channels=1, image_size=8).eval()
    assert built(images(3, 8, 1)).shape == (3, 10)


def test_mlp_takes_flat_features():
    built = models.build("mlp", num_classes=4, in_channels=7, image_size=1)
    assert built(torch.zeros(5, 7)).shape == (5, 4)


@torch.inference_mode()
def test_bfloat16_autocast_is_close_to_float32(family):
    plain = family(images())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = family(images())
    assert half.dtype == torch.bfloat16
    assert (half - plain).norm() < 0.1 * plain.norm()


@torch.inference_mode()
def test_channels_last_changes_nothing_in_float64(family):
    x, double = images(dtype=torch.float64), copy.deepcopy(family).double()
    plain = double(x)
    assert plain.dtype == torch.float64
    other = double.to(memory_format=torch.channels_last)(x.to(memory_format=torch.channels_last))
    torch.testing.assert_close(other, plain, rtol=1e-9, atol=1e-9)


def test_a_training_step_reaches_every_parameter(family):
    trained = copy.deepcopy(family).train()
    trained(images(4)).square().sum().backward()
    missing = [key for key, parameter in trained.named_parameters() if parameter.grad is None]
    assert missing == []


@pytest.mark.parametrize("name", ["resnet18", "small-cnn"])
def test_compiles_without_a_graph_break(name):
    torch.compiler.reset()
    built = build(name)
    compiled = torch.compile(built, backend="eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(images()), built(images()), rtol=1e-4, atol=1e-4)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ONE_PER_FAMILY)
def test_forward_and_backward_are_captured_and_deterministic(name, monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    built = models.build(name, num_classes=10).cuda().to(memory_format=torch.channels_last).eval()
    x = images(8).cuda().contiguous(memory_format=torch.channels_last)
    parameters = list(built.parameters())

    def gradients() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(built(x).square().sum(), parameters)

    torch.use_deterministic_algorithms(True)
    try:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                gradients()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = gradients()
        graph.replay()
        first = [gradient.clone() for gradient in captured]
        graph.replay()
        torch.cuda.synchronize()
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(a, b) for a, b in zip(first, captured))


def build(name: str) -> nn.Module:
    return models.build(name, num_classes=10).eval()


class TestReferenceShape:
    """Details in which the networks of the literature differ from common variants."""

    def test_preact_shortcut_is_one_bare_convolution_of_the_activated_input(self):
        block = build("preact-resnet18").groups[1][0].double().eval()
        nn.init.zeros_(block.conv2.weight)
        x = torch.randn(2, 64, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        expected = nn.functional.conv2d(block.norm1(x).relu(), block.shortcut.weight, stride=2)
        torch.testing.assert_close(block(x), expected)

    def test_preact_has_no_activation_after_the_last_block(self):
        assert (build("preact-resnet18").stages(images())[-1] < 0).any()

    def test_preact_stem_is_activated(self):
        assert (build("preact-resnet18").stem(images()) >= 0).all()

    def test_densenet_transition_keeps_the_relu(self):
        transition = build("densenet121").transitions[1]
        assert [type(part).__name__ for part in transition.modules() if not isinstance(part, nn.Sequential)] == [
            "BatchNorm2d", "ReLU", "Conv2d", "AvgPool2d",
        ]  # fmt: skip

    def test_resnet_shortcut_has_batchnorm_and_convolutions_have_no_bias(self):
        built = build("resnet18")
        assert isinstance(built.groups[1].blocks[0].shortcut[1], nn.BatchNorm2d)
        assert all(part.bias is None for part in built.modules() if isinstance(part, nn.Conv2d))

    def test_small_cnn_averages_like_adaptive_pooling(self):
        for size in (4, 5, 7, 8, 9):
            x = images(2, size, 64, torch.float64)
            expected = nn.functional.adaptive_avg_pool2d(x, 2).flatten(1)
            torch.testing.assert_close(build("small-cnn").embed(x), expected)

    def test_vit_starts_from_small_truncated_normals(self):
        built = build("vit-tiny")
        for values in (built.positions, built.class_token, built.head.weight, built.patches.weight):
            assert 0.015 < values.detach().std() < 0.025
        assert not built.head.bias.any()

    def test_vit_features_are_its_class_token(self):
        built, tokens = build("vit-tiny"), torch.randn(2, 65, 192, generator=torch.Generator().manual_seed(0))
        assert torch.equal(built.embed(tokens), tokens[:, 0])
        assert built.stages(images())[-1].shape == tokens.shape
