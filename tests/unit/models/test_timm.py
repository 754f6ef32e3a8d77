"""Networks of timm, in a separate process: timm is installed apart, in ``.venv/timm`` (see the Makefile)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TIMM = Path(sys.prefix) / "timm"

# torchvision next to a CPU build of torch lacks two compiled operators: their schemas alone let it import.
SHIM = """
import torch
if torch.version.cuda is None:
    operators = torch.library.Library("torchvision", "DEF")
    operators.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    operators.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""

PROGRAM = """
import json, sys
from pathlib import Path

import timm
import torch
from safetensors.torch import save_file

from vista import models

folder = Path(sys.argv[1])


def store(name, architecture, **options):
    with models.seed_context(7):
        stored = timm.create_model(architecture, num_classes=5, **options)
    (folder / name).mkdir()
    save_file(stored.state_dict(), folder / name / "model.safetensors")
    about = {"architecture": architecture, "model_args": options, "pretrained_cfg": {"mean": [0.1, 0.2, 0.3]}}
    (folder / name / "config.json").write_text(json.dumps(about))
    return stored


def message(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except (ValueError, OSError) as error:
        return str(error)
    raise AssertionError("no error")


# a convolutional network: new head, the backbone's weights, greyscale images, another size
stored = store("cnn", "test_resnet")
name = f"timm:{folder / 'cnn'}"
built = models.build(name, num_classes=3, image_size=64).eval()
models.load_pretrained(name, built, image_size=64)
head = {id(p) for p in models.head_of(built).parameters()}
assert head and [p.shape[0] for p in models.head_of(built).parameters()] == [3, 3]
for key, parameter in built.model.named_parameters():
    assert id(parameter) in head or torch.equal(parameter, stored.get_parameter(key)), key
assert built(torch.zeros(2, 1, 64, 64)).shape == (2, 3)
assert models.read_backbone(name).mean == (0.1, 0.2, 0.3)

# position embeddings are resized to another grid
store("vit", "test_vit", img_size=160)
name = f"timm:{folder / 'vit'}"
built = models.build(name, num_classes=3, image_size=64).eval()
models.load_pretrained(name, built, image_size=64)
assert built(torch.zeros(2, 3, 64, 64)).shape == (2, 3)
described = models.Backbone.from_json(json.loads(json.dumps(models.read_backbone(name).to_json())))
again = models.build(name, num_classes=3, image_size=64, backbone=described).eval()
again.load_state_dict(built.state_dict())

# by name, without weights; its size and normalisation are known
assert models.build("timm:resnet18", num_classes=3, image_size=64)(torch.zeros(2, 3, 64, 64)).shape == (2, 3)
assert models.read_backbone("timm:resnet18").image_size == 224
assert models.read_backbone("timm:resnet18").mean == (0.485, 0.456, 0.406)

# messages
print(message(models.build, "timm:resnet81", num_classes=3))
untrained = models.build("timm:test_resnet", num_classes=3)
print(message(models.load_pretrained, "timm:test_resnet", untrained, image_size=64))
(folder / "cnn" / "model.safetensors").rename(folder / "vit" / "model.safetensors")
print(message(models.load_pretrained, name, built, image_size=64))
print(message(models.load_pretrained, f"timm:{folder / 'cnn'}", untrained, image_size=64))
"""


def in_own_process(program: str, *words: str, folder: Path) -> str:
    """Run a program with timm on its path; its output."""
    (folder / "program.py").write_text(SHIM + program)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join([*sys.path, str(TIMM)])}
    done = subprocess.run(
        [sys.executable, "program.py", *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not TIMM.is_dir(), reason="timm is not installed in .venv/timm: see the Makefile")
def test_networks_of_timm(tmp_path: Path) -> None:
    printed = in_own_process(PROGRAM, str(tmp_path), folder=tmp_path)
    expected = (
        ("timm has no network 'resnet81'; did you mean 'resnet18'",),
        (
            "model.safetensors of timm/test_resnet",
            "cannot be downloaded",
            "place config.json, model.safetensors in a folder and use --network timm:FOLDER",
        ),
        ("the weights of blocks.0.attn.proj.bias, ", "are missing or have other shapes than the network"),
        ("has no model.safetensors", "or use --no-pretrained"),
    )
    for line, parts in zip(printed.splitlines(), expected, strict=True):
        assert [part for part in parts if part not in line] == [], line
