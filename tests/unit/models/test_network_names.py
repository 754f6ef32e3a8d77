"""build(): names, custom factories, and weights that depend on the seed alone."""

import socket
import subprocess
import sys

import pytest
import torch
from torch import nn

from vista import models
from vista.models.backbone import check_hub_resolves

FACTORIES = """
import torch
from torch import nn

def plain(num_classes):
    return nn.Linear(4, num_classes)

def sized(num_classes, in_channels, image_size=99):
    return nn.Linear(in_channels * image_size**2, num_classes)

def loose(num_classes, **kwargs):
    assert not kwargs
    return nn.Linear(4, num_classes)

class Group:
    @staticmethod
    def inner(num_classes):
        return nn.Linear(4, num_classes, dtype=torch.float64)

def number(num_classes):
    return 7

value = 7
"""


@pytest.fixture
def factories(tmp_path, monkeypatch):
    (tmp_path / "given_networks.py").write_text(FACTORIES)
    (tmp_path / "given_broken.py").write_text("import there_is_no_such_module")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("given_networks", "given_broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def weights(network: nn.Module) -> list[torch.Tensor]:
    return list(network.state_dict().values())


def test_names_of_all_networks():
    assert models.names() == (
        "densenet121", "mlp", "preact-resnet18", "resnet101", "resnet18", "resnet34", "resnet50", "small-cnn",
        "tiny-staged", "vgg16", "vgg16-fc", "vgg19", "vgg19-fc", "vit-small", "vit-tiny",
    )  # fmt: skip


def test_the_seed_alone_determines_the_weights():
    torch.manual_seed(1)
    first = models.build("small-cnn", num_classes=10, seed=5)
    torch.manual_seed(2)
    again = models.build("small-cnn", num_classes=10, seed=5)
    other = models.build("small-cnn", num_classes=10, seed=6)
    assert all(torch.equal(a, b) for a, b in zip(weights(first), weights(again)))
    assert not all(torch.equal(a, b) for a, b in zip(weights(first), weights(other)))


def test_default_dtype_and_device_do_not_affect_the_weights():
    plain = models.build("tiny-staged", num_classes=10)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            built = models.build("tiny-staged", num_classes=10)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert {value.device.type for value in weights(built)} == {"cpu"}
    assert all(torch.equal(a, b) for a, b in zip(weights(plain), weights(built)))


def test_building_leaves_the_global_random_state_alone():
    before = torch.get_rng_state()
    models.build("vit-tiny", num_classes=10)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_failing_factory_leaves_global_state_unchanged():
    before = torch.get_rng_state()
    with pytest.raises(ValueError, match="image_size must be a multiple of the patch size 4, got 30"):
        models.build("vit-tiny", num_classes=10, image_size=30)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize(
    ("given", "close"), [("resnet-18", "resnet18"), ("VGG16_FC", "vgg16-fc"), ("preact18", "preact-resnet18")]
)
def test_an_unknown_name_gets_a_close_suggestion(given, close):
    with pytest.raises(ValueError, match=f"network '{given}' is unknown; did you mean '{close}'"):
        models.build(given, num_classes=10)


@pytest.mark.parametrize("given", ["foo", ""])
def test_an_unknown_name_without_a_close_match_gets_the_list_only(given):
    with pytest.raises(ValueError, match=f"network '{given}' is unknown; known: densenet121, mlp, ") as error:
        models.build(given, num_classes=10)
    assert "did you mean" not in str(error.value)


def test_available_networks_are_described():
    assert tuple(sorted(models.available())) == models.names()
    for network in models.available().values():
        assert network.description
        assert network.image_sizes


def test_counting_parameters_draws_nothing_and_takes_the_sizes():
    before = torch.get_rng_state()
    assert models.count_parameters("mlp", num_classes=3, in_channels=5, image_size=1) == sum(
        parameter.numel() for parameter in models.build("mlp", num_classes=3, in_channels=5, image_size=1).parameters()
    )
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(ValueError, match="network 'resnet19' is unknown; did you mean 'resnet1"):
        models.count_parameters("resnet19")


@pytest.mark.parametrize("argument", ["num_classes", "in_channels", "image_size"])
def test_sizes_must_be_positive(argument):
    with pytest.raises(ValueError, match=f"{argument} must be at least 1, got 0"):
        models.build("mlp", **{"num_classes": 3, argument: 0})


@pytest.mark.parametrize(
    ("name", "size", "need"),
    [("vgg16", 16, 32), ("densenet121", 4, 8), ("small-cnn", 3, 4)],
)
def test_images_too_small_are_rejected(name, size, need):
    with pytest.raises(ValueError, match=f"image_size must be at least {need} for .*, got {size}"):
        models.build(name, num_classes=10, image_size=size)


@pytest.mark.usefixtures("factories")
class TestCustomFactory:
    def test_receives_the_sizes_that_it_names(self):
        assert models.build("given_networks:plain", num_classes=3).weight.shape == (3, 4)
        assert models.build("given_networks:sized", num_classes=3, in_channels=2, image_size=5).weight.shape == (3, 50)
        assert models.build("given_networks:loose", num_classes=3).weight.shape == (3, 4)

    def test_is_seeded_and_converted_to_float32(self):
        first, again = (models.build("given_networks:Group.inner", num_classes=3, seed=4) for _ in range(2))
        assert first.weight.dtype == torch.float32
        assert torch.equal(first.weight, again.weight)

    def test_must_return_a_module(self):
        with pytest.raises(ValueError, match=r"'given_networks:number' must return an nn\.Module, got int"):
            models.build("given_networks:number", num_classes=3)

    def test_must_be_callable(self):
        with pytest.raises(ValueError, match=r"must be a function that returns an nn\.Module, got int"):
            models.build("given_networks:value", num_classes=3)

    def test_its_exceptions_are_reported_with_the_call(self, tmp_path):
        (tmp_path / "broken_networks.py").write_text(
            "def few():\n    pass\ndef bad(num_classes):\n    return {}['k']\n"
        )
        (tmp_path / "no_python.py").write_text("def (:\n")
        with pytest.raises(
            ValueError, match=r"'broken_networks:few', called with num_classes=3, fails: TypeError: few"
        ):
            models.build("broken_networks:few", num_classes=3)
        with pytest.raises(ValueError, match=r"called with num_classes=3, fails: KeyError: 'k'"):
            models.build("broken_networks:bad", num_classes=3)
        with pytest.raises(ValueError, match=r"no_python cannot be imported: SyntaxError"):
            models.build("no_python:f", num_classes=3)

    def test_must_exist(self):
        with pytest.raises(ValueError, match="given_networks has no 'plian'"):
            models.build("given_networks:plian", num_classes=3)
        with pytest.raises(ValueError, match="module 'given_networks2' is not on the import path"):
            models.build("given_networks2.sub:plain", num_classes=3)

    def test_a_failing_import_inside_the_module_is_not_hidden(self):
        with pytest.raises(ModuleNotFoundError, match="there_is_no_such_module"):
            models.build("given_broken:plain", num_classes=3)

    @pytest.mark.parametrize("name", ["given_networks:", ":plain", "a b:c", "given_networks:plain:x", "os:system('x')"])
    def test_a_name_is_never_evaluated_as_code(self, name):
        with pytest.raises(ValueError, match=r"not of the form package\.module:function"):
            models.build(name, num_classes=3)


def test_importing_the_networks_loads_no_compiler():
    code = "import sys, vista.models; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "vista.models.resnet" in loaded
    assert not any(name.startswith(("torch._dynamo", "torch._inductor", "torchvision")) for name in loaded)


def test_without_a_network_a_pretrained_name_fails_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's library would try for half a minute."""

    def no_network(host: str, port: int) -> None:
        raise OSError("Name or service not known")

    monkeypatch.delenv("HTTPS_PROXY", raising=False)
    monkeypatch.delenv("https_proxy", raising=False)
    monkeypatch.delenv("ALL_PROXY", raising=False)
    monkeypatch.delenv("all_proxy", raising=False)
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    with pytest.raises(OSError, match=r"^no connection to huggingface\.co$"):
        check_hub_resolves()
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example/hub")
    with pytest.raises(OSError, match=r"^no connection to mirror\.example$"):
        check_hub_resolves()
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    check_hub_resolves()
