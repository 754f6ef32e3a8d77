"""Suspects go to Label Studio and come back as decisions; what it reads and writes is checked by its own library."""

from __future__ import annotations

import copy
import csv
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from vista.review import label_studio

from .conftest import Vista

TINY = ("--network", "mlp", "--epochs", "3", "--batch-size", "16", "--lr", "0.05", "--device", "cpu", "--quiet")
NAMES = ("cat", "dog & <wolf>")


@pytest.fixture
def exported(vista: Vista, tmp_path: Path) -> tuple[list[dict[str, Any]], str]:
    """The tasks and the labelling interface of a run on a folder of images."""
    generator = np.random.default_rng(0)
    for number in range(40):
        path = tmp_path / "photos" / NAMES[number % 2] / f"{number:02d} .png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 256, (8, 8), dtype=np.uint8)).save(path)
    assert vista("train", "--data", "folder:photos", "--method", "ce", "--out", "run", *TINY).code == 0
    said = vista("labels", "run", "--top", "6", "--to-label-studio", "tasks.json")
    assert said.code == 0, said.err
    assert "Wrote tasks.json" in said.out
    return json.loads(Path("tasks.json").read_text()), Path("tasks.xml").read_text()


@pytest.fixture
def interface() -> Callable[[str], Any]:
    """Label Studio's own reader of labelling interfaces."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations inside the library
        from label_studio_sdk.label_interface import LabelInterface
    return LabelInterface


def annotate(tasks: list[dict[str, Any]], choices: list[str | None]) -> list[dict[str, Any]]:
    """The export of Label Studio after these choices; None skips a task."""
    done = copy.deepcopy(tasks)
    for number, (task, choice) in enumerate(zip(done, choices, strict=False)):
        result = copy.deepcopy(task["predictions"][0]["result"]) if choice is not None else []
        for each in result:
            each |= {"id": f"r{number}", "origin": "manual", "value": {"choices": [choice]}}
        annotation = {"id": number, "completed_by": 1, "result": result, "was_cancelled": choice is None,
                      "updated_at": "2030-01-01T00:00:00Z", "lead_time": 2.5}  # fmt: skip
        task |= {"id": number + 100, "annotations": [annotation]}
    for task in done[len(choices) :]:
        task["annotations"] = []
    return done


def test_its_library_accepts_the_tasks(
    exported: tuple[list[dict[str, Any]], str], interface: Callable[[str], Any]
) -> None:
    tasks, config = exported
    known = interface(config)
    known.validate()
    assert list(known.get_control("label").labels) == list(NAMES)
    assert len(tasks) == 6
    for task in tasks:
        assert known.validate_task({"data": task["data"]})
        for prediction in task["predictions"]:
            assert known.validate_prediction(prediction)
            assert prediction["result"][0]["value"]["choices"][0] != task["data"]["given"]
    assert tasks[0]["data"]["image"].startswith("/data/local-files/?d=")
    assert tasks[0]["data"]["image"].endswith("%20.png")
    assert not known.validate_prediction({"result": [{**tasks[0]["predictions"][0]["result"][0], "from_name": "x"}]})


def test_an_export_becomes_decisions(
    vista: Vista, exported: tuple[list[dict[str, Any]], str], interface: Callable[[str], Any]
) -> None:
    tasks, config = exported
    given, suggested = tasks[0]["data"]["given"], tasks[1]["predictions"][0]["result"][0]["value"]["choices"][0]
    done = annotate(tasks, [given, suggested, None])
    assert all(interface(config).validate_annotation(task["annotations"][0]) for task in done[:2])
    Path("export.json").write_text(json.dumps(done))
    said = vista("labels", "run", "--from-label-studio", "export.json")
    assert said.code == 0, said.err
    assert "3 decisions in export.json, 3 of them new" in said.out
    lines = [json.loads(line) for line in Path("run/decisions.jsonl").read_text().splitlines()]
    assert [(line["id"], line["decision"], line["author"]) for line in lines] == [
        (task["data"]["sample"], kind, "label-studio 1")
        for task, kind in zip(tasks, ("keep", "accept", "skip"), strict=False)
    ]
    assert "0 of them new" in vista("labels", "run", "--from-label-studio", "export.json").out
    assert vista("labels", "run", "--decisions", "run/decisions.jsonl", "--clean", "labels.csv").code == 0
    with open("labels.csv", newline="") as file:
        labels = {int(row["id"]): row["label"] for row in csv.DictReader(file)}
    assert labels[tasks[0]["data"]["sample"]] == given
    assert labels[tasks[1]["data"]["sample"]] == suggested
    assert vista("labels", "run", "--top", "6", "--to-label-studio", "again.json").code == 0
    again = json.loads(Path("again.json").read_text())
    assert ["annotations" in task for task in again] == [True, True, False, False, False, False]
    assert all(interface(config).validate_annotation(task["annotations"][0]) for task in again[:2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda task: task["data"].pop("sample"), "not from `vista labels --to-label-studio`: its sample is None"),
        (lambda task: task["data"].update(run="other"), "was made for another run"),
        (lambda task: task["data"].update(given="dog"), "was made for another run"),
        (
            lambda task: task["annotations"][0]["result"][0]["value"].update(choices=["caat"]),
            "task 1: label 'caat' is no class; did you mean 'cat'?",
        ),
        (lambda task: task["annotations"][0]["result"][0]["value"].update(choices=[]), "it must have one choice"),
        (lambda task: task.pop("annotations"), "it must be a list of tasks with annotations"),
    ],
)
def test_other_exports_are_rejected(
    vista: Vista, exported: tuple[list[dict[str, Any]], str], change: Callable[[Any], Any], message: str
) -> None:
    done = annotate(exported[0], ["cat"])
    change(done[0])
    Path("export.json").write_text(json.dumps(done))
    said = vista("labels", "run", "--from-label-studio", "export.json")
    assert said.code == 2
    assert message in " ".join(said.err.split())
    assert not Path("run/decisions.jsonl").exists()


def test_texts_are_texts() -> None:
    assert '<Text name="text" value="$text"/>' in label_studio.labelling_config(("a", "b"), is_image=False)
