"""A training killed within an epoch resumes in a new process with the targets of an uninterrupted one."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

MODULES = {
    "plain": "torch",
    "lightning": "lightning",
    "huggingface": "transformers",
    "accelerate": "accelerate",
    "skorch": "skorch",
}


@pytest.fixture(scope="module")
def trainings(tmp_path_factory):
    """The folder in which all trainings were started, killed and resumed, and their stderr."""
    folder, script = tmp_path_factory.mktemp("trainings"), Path(__file__).with_name("new_process.py")
    installed = [name for name, module in MODULES.items() if importlib.util.find_spec(module)]
    stderr = ""
    for act in ("begin", "resume"):
        command = [sys.executable, str(script), str(folder), act, *installed]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        stderr += subprocess.run(command, capture_output=True, text=True, env=environment, timeout=800).stderr
    return folder, stderr


@pytest.mark.parametrize("framework", MODULES)
@pytest.mark.parametrize("targets", ["vista", "posterior"])
def test_a_killed_training_resumes_in_a_new_process(trainings, framework, targets):
    if not importlib.util.find_spec(MODULES[framework]):
        pytest.skip(f"needs vista-distill[{framework}]")
    folder, stderr = trainings
    ends = [json.loads((folder / f"{act}.json").read_text())[f"{framework} {targets}"] for act in ("begin", "resume")]
    assert ends == [-signal.SIGKILL, 0], stderr
    saved = (folder / framework / targets / f"{name}.safetensors" for name in ("uninterrupted", "resumed"))
    expected, found = map(load_file, saved)
    assert found.keys() == {name for name in expected if not name.startswith(("1/", "2/"))}  # epochs 3 and 4, end
    assert sum("/" in name for name in found) == 2 * 300
    assert len(found["states"]) > 1
    assert ("temperature" in found) == (targets == "posterior")
    for name, tensor in found.items():
        assert torch.equal(tensor, expected[name]), name
