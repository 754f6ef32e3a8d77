"""Options: the preset's values are the defaults, the method's options are flags, names of folders are safe."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from vista.cli import command_names, main
from vista.cli.train import read
from vista.methods import available, choose
from vista.runs.config import MAX_SEED, PRESETS, TrainConfig
from vista.training.api import data_name, method_name

from .conftest import Vista


@pytest.mark.parametrize(
    ("words", "preset"),
    [
        ([], "digits"),
        (["--data", "digits", "--noise", "symmetric:0.4"], "digits"),
        (["--data", "cifar100"], "clean"),
        (["--data=cifar100", "--noise", "symmetric:0.4"], "noisy"),
        (["--data", "cifar100", "--preset", "noisy"], "noisy"),
        (["--preset=clean"], "clean"),
    ],
)
def test_the_preset_gives_the_defaults(words: list[str], preset: str) -> None:
    _, config = read(words)
    for name, value in PRESETS[preset].items():
        assert getattr(config, name) == value, name


def test_what_is_given_overrides_the_preset() -> None:
    _, config = read(["--preset", "noisy", "--epochs", "7", "--lr-schedule", "constant", "--no-compile"])
    assert (config.epochs, config.lr_schedule, config.compile) == (7, "constant", False)
    assert config.lr == PRESETS["noisy"]["lr"]


def test_help_shows_the_defaults_of_the_preset_and_the_options_of_the_method(vista: Vista) -> None:
    text = " ".join(vista("train", "--data", "cifar100", "--method", "elr", "--help").out.replace("│", " ").split())
    assert re.search(r"--epochs INT [^()]*\(default: 200\)", text)
    assert "elr options" in text
    assert "--elr-momentum FLOAT" in text
    assert "--tau" not in text
    assert "--options" not in text
    assert "--tau" in vista("train", "--help").out


def test_options_of_the_method_are_flags_or_part_of_its_name() -> None:
    for words in (["--method", "vista", "--tau", "0.02"], ["--method", "vista:tau=0.02"], ["--tau=0.02"]):
        _, config = read(words)
        assert config.method == "vista"
        assert config.options["tau"] == 0.02
    _, config = read(["--method", "vista:tau=0.02:k=3", "--tau", "0.05"])
    assert (config.options["tau"], config.options["k"]) == (0.05, 3.0)
    _, config = read(["--method", "vista-light"])
    assert config.options["tau"] == 0.01


def choices() -> Iterator[tuple[str, str, str]]:
    """Every option of every method that is one of several words, with each of them that needs nothing beside it."""
    for name, method in available().items():
        for option, hint in typing.get_type_hints(method.Config).items():
            for word in typing.get_args(hint):
                if isinstance(word, str):
                    with suppress(ValueError):
                        choose(f"{name}:{option}={word}")
                        yield name, option, word


@pytest.mark.parametrize(("name", "option", "word"), list(choices()))
def test_a_choice_means_the_same_as_a_flag_and_in_the_name(name: str, option: str, word: str) -> None:
    """Defaults of other options may depend on it, as those of tf-kd on its mode."""
    assert read(["--method", name, f"--{option}", word])[1].options == choose(f"{name}:{option}={word}").options


def test_an_option_of_the_method_named_like_one_of_the_training_does_not_touch_it() -> None:
    _, config = read(["--method", "elr", "--elr-momentum", "0.5", "--momentum", "0.8"])
    assert (config.options["momentum"], config.momentum) == (0.5, 0.8)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epochs", "1"], "epochs must be at least 2, got 1"),
        (["--method", "ce", "--epochs", "0"], "epochs must be at least 2, got 0"),
        (["--epochs", "five"], "--epochs must be a whole number, got 'five' (see"),
        (["--image-size", "abc"], "--image-size must be a whole number, got 'abc' (see"),
        (["--backbone-lr", "abc"], "--backbone-lr must be a number, got 'abc' (see"),
        (["--flip", "maybe"], "--flip must be one of True, False, got 'maybe' (see"),
        (["--tau", "3"], "tau must be a fraction"),
        (["--lr", "inf"], "lr must be finite, such as 0.1, got inf"),
        (["--weight-decay", "nan"], "weight_decay must be finite, such as 0.0005, got nan"),
        (["--momentum", "inf"], "momentum must be finite, such as 0.9, got inf"),
        (["--momentum", "5"], "momentum must be less than 1 (0.9 is usual), got 5.0"),
        (["--momentum", "0", "--nesterov"], "nesterov needs a momentum greater than 0"),
        (["--rotation", "inf"], "rotation must be finite, such as 0.0, got inf"),
        (["--validation", "inf"], "validation must be finite, such as 0.1, got inf"),
        (["--seed", "-1"], "seed must be between 0 and 4294967295, got -1"),
        (["--seed", "4294967296"], "seed must be between 0 and 4294967295, got 4294967296"),
        (["--noise-seed", "-2"], "noise_seed must be between 0 and 4294967295, got -2"),
        (["--split-seed", "-2"], "split_seed must be between 0 and 4294967295, got -2"),
        (["--device", "gpu"], "device must be cpu, cuda, cuda:NUMBER or auto, got 'gpu'"),
        (["--noise", "symetric:0.4"], "'symmetric:0.4'"),
        (["--method", "visat"], "did you mean 'vista'"),
        (["--method", "vista:tua=1"], "no option 'tua'"),
        (["--method", "vista:tau"], "vista:tau must be a number, got ''"),
        (["--data", "digist", "--epochs", "2"], "'digits'"),
    ],
)
def test_bad_values_are_rejected_in_one_line(vista: Vista, words: list[str], message: str) -> None:
    said = vista("train", "--device", "cpu", *words)
    assert said.code == 2
    assert said.err.startswith("vista: error: ")
    assert said.err.count("\n") == 1
    assert message in said.err
    assert not Path("runs").exists()


def test_an_unknown_network_names_the_nearest(vista: Vista, small: tuple[str, ...]) -> None:
    said = vista("train", *small, "--network", "resnet81", "--quiet")
    assert said.code == 2
    assert "did you mean 'resnet18'?" in said.err


def test_an_unknown_option_names_the_nearest(vista: Vista) -> None:
    said = vista("train", "--epohcs", "3")
    assert said.code == 2
    assert "--epochs" in said.err


def test_names_of_folders_are_safe_and_tell_what_differs() -> None:
    assert data_name(TrainConfig("digits", noise="symmetric:0.4")) == "digits-symmetric-0.4"
    assert data_name(TrainConfig("npz:/tmp/a b/../c;rm.npz")) == "npz-c-rm.npz-none"
    assert data_name(TrainConfig("folder:/", noise="file:labels.csv")) == "folder-file-labels.csv"
    assert method_name(choose("vista-light")) == "vista-light"
    assert method_name(choose("vista:tau=0.02:k=3")) == "vista-tau0.02-k3.0"
    assert method_name(choose("vista:tau=0")) == "vista"


def test_the_largest_seed_trains(vista: Vista, small: tuple[str, ...]) -> None:
    assert vista("train", *small, "--seed", str(MAX_SEED), "--out", "run", "--quiet").code == 0


@pytest.mark.parametrize("words", [[name] for name in command_names()] + [["runs", "delete"], ["compare", "a", "b"]])
def test_help_fits_a_terminal_of_80_columns(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No line is longer, none is broken where the source is, and no empty default is shown."""
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*words, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line.rstrip()) > 80] == []
    assert [line for line in lines if "default: )" in line or "None" in line] == []
