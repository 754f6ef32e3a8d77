"""``vista models`` lists every network."""

from __future__ import annotations

import json

import pytest

from vista import models

from .conftest import Vista


def test_table_lists_every_network_and_fits_80_columns(vista: Vista, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = vista("models")
    assert said.code == 0
    lines = said.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) == len(models.names()) + 9, "one line each"
    listed = [line.split()[0] for line in lines if line.split()[2:3] == ["M"]]
    assert listed == list(models.available())
    assert next(line.split()[1:3] for line in lines if line.split()[:1] == ["resnet18"]) == ["11.22", "M"]


def test_json_is_one_object_with_exact_counts(vista: Vista) -> None:
    rows = {row["name"]: row for row in json.loads(vista("models", "--json").out)["networks"]}
    assert tuple(sorted(rows)) == models.names()
    assert rows["vgg16"] == {
        "name": "vgg16",
        "description": "VGG-16 with a linear head",
        "image_sizes": "32+",
        "parameters": 14_774_436,
    }


def test_train_help_names_every_network(vista: Vista) -> None:
    said = vista("train", "--help")
    assert said.code == 0
    assert all(name in said.out for name in models.names())


def test_an_unknown_network_is_answered_with_the_list(vista: Vista) -> None:
    said = vista("train", "--data", "digits", "--network", "foo", "--out", "run")
    assert said.code == 2
    assert "did you mean" not in said.err
    assert all(name in said.err for name in models.names())
