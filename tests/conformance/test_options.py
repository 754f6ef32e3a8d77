"""Bad input: each message names what came and what would do."""

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
    """Values that no option of this type takes."""
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
def test_an_option_out_of_range_is_refused_by_name(method: str, option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{option} is {re.escape(repr(value))}, but .+"):
        choose(method, {option: value})


@pytest.mark.parametrize(("method", "option", "value"), BAD)
def test_so_is_its_text(method: str, option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"(^|:){option} is '?{re.escape(str(value))}'?, but .+"):
        choose(f"{method}:{option.replace('_', '-')}={value}")


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ("cs-kd:weight=abc", "cs-kd:weight is 'abc', but it must be a number"),
        ("tf-kd:mode=sefl", "tf-kd:mode is 'sefl', but it must be one of reg, self"),
        ("sd-dropout:detach=yes", "sd-dropout:detach is 'yes', but it must be true or false"),
        ("kf:rounds=1e1", "kf:rounds is '1e1', but it must be a whole number"),
        ("tf-kd:alpha=high", "tf-kd:alpha is 'high', but it must be a number or none"),
    ],
)
def test_a_text_of_another_kind_hears_what_kind_would_do(spec: str, wanted: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(wanted)}$"):
        choose(spec)


@pytest.mark.parametrize("method", available())
def test_an_unknown_option_is_refused_and_the_known_ones_are_named(method: str) -> None:
    known = [field.name for field in dataclasses.fields(available()[method].Config)]
    takes = ", ".join(known) or "none"
    with pytest.raises(ValueError, match=rf"method '{method}' has no option 'warmth=3'; it takes {takes}"):
        choose(f"{method}:warmth=3")
    with pytest.raises(ValueError, match=rf"method '{method}' has no option 'warmth'; it takes {takes}"):
        choose(method, {"warmth": 3})


def test_an_unknown_method_is_refused_and_the_nearest_is_named() -> None:
    with pytest.raises(ValueError, match=r"method 'visat-light' is unknown; nearest is 'vista-light'"):
        choose("visat-light")


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
    """A network of somebody else's, which tells nothing but its logits."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4))


def refusal(method: str, network: nn.Module) -> str | None:
    chosen = choose(method)
    try:
        chosen.method(make_task(), network, chosen.config)
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize("network", ["mlp", "vit-tiny"])
@pytest.mark.parametrize("method", METHODS)
def test_only_what_needs_stages_refuses_a_network_without(method: str, network: str) -> None:
    built = models.build(network, num_classes=4, in_channels=1, image_size=8)
    said = refusal(method, built)
    assert (said is not None) == METHODS[method].needs_stages
    if said is not None:
        assert f"{method} needs the feature maps of at least two stages, but {type(built).__name__} has none" in said


@pytest.mark.parametrize("method", METHODS)
def test_a_foreign_network_is_taken_or_refused_with_what_would_do(method: str) -> None:
    said = refusal(method, plain_network())
    if METHODS[method].needs_stages:
        assert said is not None
    if said is not None:
        assert re.search(r"Sequential (has|gives) none", said)
        assert re.search(r"use a .*network|networks?.* does", said)


@pytest.mark.parametrize("method", METHODS)
def test_the_room_it_asks_for_holds_its_state(method: str) -> None:
    network = models.build("tiny-staged", num_classes=4, in_channels=1, image_size=8)
    made = METHODS[method](make_task(), network, choose(method).config)
    state = sum(value.nbytes for value in made.state_dict().values() if isinstance(value, torch.Tensor))
    momentum = sum(p.nbytes for p in made.parameters() if p.requires_grad)
    assert made.bytes_changing() >= state + momentum


@pytest.fixture(scope="module")
def has_stages() -> dict[str, bool]:
    """Of every family of networks whether it has stages; the large ones of a family that is looked at are left out."""
    families = {}
    for name in models.names():
        if name not in ("resnet101", "resnet34", "vgg19", "vgg19-fc", "vit-small"):
            network = models.build(name, num_classes=4)
            family = re.sub(r"\d+(-fc)?$", "", name)
            families[family] = isinstance(network, Staged) and len(network.stage_channels) >= 2
    return families


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if method.needs_stages])
def test_the_networks_it_names_are_those_that_have_stages(has_stages: dict[str, bool], method: str) -> None:
    said = refusal(method, plain_network())
    assert said is not None
    named = re.findall(r"[a-z]+(?:-[a-z]+)*", said.partition(";")[2])
    assert {family for family in has_stages if family in named} == {f for f, has in has_stages.items() if has}


@pytest.mark.parametrize("method", ["ban", "tf-kd-self"])
def test_what_needs_an_earlier_run_says_so_without(method: str) -> None:
    chosen = choose(method)
    task = dataclasses.replace(make_task(), earlier={})
    with pytest.raises(ValueError, match=r"needs the network of an earlier run .*teacher"):
        chosen.method(task, plain_network(), chosen.config)


def test_fusion_without_stored_predictions_says_where_they_come_from() -> None:
    chosen = choose("kf")
    method = chosen.method(make_task(), plain_network(), chosen.config)
    with pytest.raises(ValueError, match=r"needs the validation probabilities of every epoch, which a run with .*'kf'"):
        method.fused_predictions()


def test_a_network_without_stages_stops_the_run_before_its_first_step(make_config, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="byot needs the feature maps of at least two stages, but MLP has none"):
        next(train(make_config("byot", network="mlp"), tmp_path))


def test_a_switch_is_true_or_false() -> None:
    with pytest.raises(ValueError, match="sd-dropout:detach is 'x', but it must be true or false"):
        choose("sd-dropout", {"detach": "x"})
