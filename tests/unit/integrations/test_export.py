"""A trained network is exported as a plain model."""

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from vista import load_model, models
from vista.cli import main
from vista.data import source
from vista.runs.config import TrainConfig
from vista.runs.folder import RunFolder
from vista.training.scheduler import Job, run_jobs


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    job = Job(
        TrainConfig(data="digits", noise="symmetric:0.4", epochs=2, network="small-cnn", device="cpu"),
        tmp_path_factory.mktemp("runs") / "run",
    )
    run_jobs([job], lambda job, event: None)
    assert job.error is None
    return job.out


@pytest.fixture(scope="module")
def images():
    data = source.load("digits")
    x = torch.from_numpy(data.test_inputs[:33]).permute(0, 3, 1, 2).float() / 255
    return (x - torch.tensor(data.mean).view(1, -1, 1, 1)) / torch.tensor(data.std).view(1, -1, 1, 1)


@pytest.mark.parametrize("which", ["best", "last"])
def test_safetensors_logits_are_equal_to_the_last_bit(run, images, tmp_path, which):
    path = tmp_path / "model.safetensors"
    assert main(["export", str(run), "--to", str(path), "--which", which]) == 0
    with safe_open(path, framework="pt") as file:
        about = file.metadata()
    shape = json.loads(about["sample_shape"])
    network = models.build(
        about["network"],
        num_classes=len(json.loads(about["classes"])),
        in_channels=shape[0],
        image_size=shape[1],
        seed=9,
    )
    network.load_state_dict(load_file(path))
    with torch.no_grad():
        assert torch.equal(network.eval()(images), load_model(run, which)(images))


@pytest.mark.parametrize("raw", [False, True])
def test_onnx_logits_are_close_at_any_batch_size_and_calibrated_unless_raw(run, images, tmp_path, raw):
    runtime = pytest.importorskip("onnxruntime", reason="needs vista-distill[onnx]")
    pytest.importorskip("onnxscript", reason="needs vista-distill[onnx]")
    path = tmp_path / "model.onnx"
    assert main(["export", str(run), "--to", str(path), *(["--raw"] if raw else [])]) == 0
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]  # the weights are inside
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["classes"]) == [str(digit) for digit in range(10)]
    temperature = RunFolder(run).temperature("best")
    assert temperature is not None
    assert about.get("temperature") == (None if raw else json.dumps(temperature))
    for count in (1, 33):
        with torch.no_grad():
            expected = load_model(run, calibrated=not raw)(images[:count]).numpy()
        (logits,) = session.run(["logits"], {"x": images[:count].numpy()})
        np.testing.assert_allclose(logits, expected, atol=1e-4)


@pytest.mark.parametrize("raw", [False, True])
def test_safetensors_keep_the_weights_with_the_temperature_as_metadata(run, tmp_path, capfd, raw):
    path = tmp_path / "model.safetensors"
    assert main(["export", str(run), "--to", str(path), *(["--raw"] if raw else [])]) == 0
    weights, expected = load_file(path), load_file(run / "best.safetensors")
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    temperature = RunFolder(run).temperature("best")
    with safe_open(path, framework="pt") as file:
        assert file.metadata().get("temperature") == (None if raw else json.dumps(temperature))
    assert ("Calibrated: weights unchanged" in capfd.readouterr().out) is not raw


@pytest.mark.parametrize("which", ["best", "last"])
def test_a_calibrated_model_divides_its_logits_by_the_temperature(run, images, which):
    with torch.no_grad():
        plain, calibrated = load_model(run, which)(images), load_model(run, which, calibrated=True)(images)
    assert torch.equal(calibrated, plain / RunFolder(run).temperature(which))
    assert not load_model(run, which, calibrated=True).training


def test_unknown_file_extensions_are_rejected(run, capfd):
    assert main(["export", str(run), "--to", "model.pt"]) == 2
    assert "must end in .safetensors or .onnx" in capfd.readouterr().err
