"""Invalid options and networks: each error names the argument, the value and the remedy."""

from __future__ import annotations

import dataclasses
import re
import typing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from vista import models
from vista.methods import Task, available, choose
from vista.models import Staged
from vista.training.loop import train

METHODS = {method.name: method for method in available().values()}


def bad_values(hint: Any) -> list[Any]:
    """Values that are invalid for every option of this type."""
    kinds = typing.get_args(hint) if typing.get_origin(hint) not in (None, typing.Literal) else (hint,)
    if float in kinds:
        return [-1.0, float("nan"), float("inf")]
    if int in kinds:
        return [-1]
    return [] if bool in kinds else ["nonsense"]


BAD = [
    pytest.param(name, field.name, value, id=f"{name}:{field.name}={value}")
    for name, method in METHODS.items()
    for field in dataclasses.fields(method.Config)
    for value in bad_values(typing.get_type_hints(method.Config)[field.name])
]


@pytest.mark.parametrize(("method", "option", "value"), BAD)
def test_option_out_of_range_is_rejected(method: str, option: str, value: Any) -> None:
    given = re.escape(repr(value))
    with pytest.raises(ValueError, match=rf"^{option} (is {given}, but .+|must be .+, got {given})"):
        choose(method, {option: value})


@pytest.mark.parametrize(("method", "option", "value"), BAD)
def test_option_text_out_of_range_is_rejected(method: str, option: str, value: Any) -> None:
    given = f"'?{re.escape(str(value))}'?"
    with pytest.raises(ValueError, match=rf"(^|:){option} (is {given}, but .+|must be .+, got {given})"):
        choose(f"{method}:{option.replace('_', '-')}={value}")


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ("cs-kd:weight=abc", "cs-kd:weight must be a number, got 'abc'"),
        ("tf-kd:mode=sefl", "tf-kd:mode must be one of reg, self, got 'sefl'"),
        ("sd-dropout:detach=yes", "sd-dropout:detach must be true or false, got 'yes'"),
        ("kf:rounds=1e1", "kf:rounds must be a whole number, got '1e1'"),
        ("tf-kd:alpha=high", "tf-kd:alpha must be a number or none, got 'high'"),
    ],
)
def test_option_text_of_wrong_type_names_accepted_type(spec: str, wanted: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(wanted)}$"):
        choose(spec)


@pytest.mark.parametrize("method", available())
def test_unknown_option_error_names_known_options(method: str) -> None:
    known = [field.name for field in dataclasses.fields(available()[method].Config)]
    options = ", ".join(known) or "none"
    with pytest.raises(ValueError, match=rf"method '{method}' has no option 'warmth'; its options are {options}"):
        choose(f"{method}:warmth=3")
    with pytest.raises(ValueError, match=rf"method '{method}' has no option 'warmth'; its options are {options}"):
        choose(method, {"warmth": 3})


@pytest.mark.parametrize(("name", "close"), [("visat-light", "vista-light"), ("vsta", "vista"), ("foo", None)])
def test_unknown_method_suggests_close_name(name: str, close: str | None) -> None:
    suggestion = f"did you mean '{close}'[?]" if close else "known: ce, .*"
    suggestion += " [(]`vista methods` describes them[)]"
    with pytest.raises(ValueError, match=f"^method '{name}' is unknown; {suggestion}$"):
        choose(name)


# ---------------------------------------------------------------- networks that lack what a method needs


def make_task() -> Task:
    return Task(
        labels=torch.arange(8) % 4,
        val_labels=torch.arange(4),
        num_classes=4,
        epochs=4,
        steps_per_epoch=2,
        batch_size=4,
        device=torch.device("cpu"),
        generator=torch.Generator().manual_seed(0),
        earlier={"teacher": plain_network()},
    )


def plain_network() -> nn.Module:
    """A third-party network, which returns only logits."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4))


def error_of(method: str, network: nn.Module) -> str | None:
    chosen = choose(method)
    try:
        chosen.method(make_task(), network, chosen.config)
    except ValueError as raised:
        return str(raised)
    return None


@pytest.mark.parametrize("network", ["mlp", "vit-tiny"])
@pytest.mark.parametrize("method", METHODS)
def test_only_methods_that_need_stages_reject_networks_without(method: str, network: str) -> None:
    built = models.build(network, num_classes=4, in_channels=1, image_size=8)
    error = error_of(method, built)
    assert (error is not None) == METHODS[method].needs_stages
    if error is not None:
        assert f"{method} needs the feature maps of at least two stages, but {type(built).__name__} has none" in error


@pytest.mark.parametrize("method", METHODS)
def test_third_party_network_is_accepted_or_rejected_with_remedy(method: str) -> None:
    error = error_of(method, plain_network())
    if METHODS[method].needs_stages:
        assert error is not None
    if error is not None:
        assert re.search("Sequential (has|gives|provides) none", error)
        assert re.search(r"use a .*network|networks?.* (have them|vista.models)", error)


@pytest.mark.parametrize("method", METHODS)
def test_declared_size_covers_state(method: str) -> None:
    network = models.build("tiny-staged", num_classes=4, in_channels=1, image_size=8)
    made = METHODS[method](make_task(), network, choose(method).config)
    state = sum(value.nbytes for value in made.state_dict().values() if isinstance(value, torch.Tensor))
    momentum = sum(p.nbytes for p in made.parameters() if p.requires_grad)
    assert made.bytes_changing() >= state + momentum


@pytest.fixture(scope="module")
def has_stages() -> dict[str, bool]:
    """Whether each network family has stages; large members of a family are skipped."""
    families = {}
    for name in models.names():
        if name not in ("resnet101", "resnet34", "resnet50", "vgg19", "vgg19-fc", "vit-small"):
            network = models.build(name, num_classes=4)
            family = re.sub(r"\d+(-fc)?$", "", name)
            families[family] = isinstance(network, Staged) and len(network.stage_channels) >= 2
    return families


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if method.needs_stages])
def test_error_names_the_networks_with_stages(has_stages: dict[str, bool], method: str) -> None:
    error = error_of(method, plain_network())
    assert error is not None
    named = re.findall(r"[a-z]+(?:-[a-z]+)*", error.partition(";")[2])
    assert {family for family in has_stages if family in named} == {f for f, has in has_stages.items() if has}


@pytest.mark.parametrize("method", ["ban", "tf-kd-self"])
def test_missing_earlier_run_raises(method: str) -> None:
    chosen = choose(method)
    task = dataclasses.replace(make_task(), earlier={})
    with pytest.raises(ValueError, match=r"needs the network of an earlier run .*teacher"):
        chosen.method(task, plain_network(), chosen.config)


def test_fusion_without_stored_predictions_raises() -> None:
    chosen = choose("kf")
    method = chosen.method(make_task(), plain_network(), chosen.config)
    with pytest.raises(
        ValueError, match=r"must have the validation probabilities of every epoch, got none: train with the method 'kf'"
    ):
        method.fused_predictions()


def test_network_without_stages_is_rejected_before_first_step(make_config, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="byot needs the feature maps of at least two stages, but MLP has none"):
        next(train(make_config("byot", network="mlp"), tmp_path))


def test_bool_option_requires_bool() -> None:
    with pytest.raises(ValueError, match="sd-dropout:detach must be true or false, got 'x'"):
        choose("sd-dropout", {"detach": "x"})
