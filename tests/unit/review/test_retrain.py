"""The printed command trains as the run did."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from vista.cli import arguments, train
from vista.review import retrain
from vista.runs.config import TrainConfig
from vista.runs.folder import RunFolder
from vista.training.resolve import resolve

SETTINGS: dict[str, dict[str, Any]] = {
    "chosen by auto": {"method": "label-smoothing", "epochs": 90, "lr": 0.05, "choice": "auto: 1,000 images, chosen"},
    "the default method": {"method": "vista", "network": "small-cnn"},
    "another version of a method": {"method": "temporal-ensembling", "method_version": 2},
    "another optimiser": {"method": "elr", "optimizer": "adamw", "lr": 0.1, "weight_decay": 0.5},
    "switches": {"flip": False, "own_validation": False, "balanced_sampling": True, "padding": 3},
}


@pytest.mark.parametrize("data", ["folder:my photos", "digits"])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_command_trains_as_the_run_did(tmp_path: Path, name: str, data: str) -> None:
    config = resolve(TrainConfig(data=data, device="cpu", **SETTINGS[name])).config
    (tmp_path / "config.json").write_text(json.dumps(config.to_json()))
    command = shlex.split(retrain.train_command(RunFolder(tmp_path), "labels.csv"))
    assert command[:2] == ["vista", "train"]
    _, read = train.read(command[2:])
    again = resolve(dataclasses.replace(read, labels=None, split_from=None, device="cpu")).config
    assert again == dataclasses.replace(config, choice="", precision=again.precision)
    chosen = {"method", *retrain.CHOSEN} if ":" in data else set()  # otherwise auto might choose something else
    assert chosen <= arguments.given_fields(command[2:])


def test_what_is_no_option_is_left_out() -> None:
    assert {"options", *retrain.NO_FLAGS} == set(arguments.NO_FLAGS)
