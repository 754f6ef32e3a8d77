"""An integration without its extra names the extra to install; extras are declared and do not pin torch."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch import nn

from vista.integrations.onnx import to_onnx

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TRACKERS = {name: name for name in ("tensorboard", "mlflow", "wandb", "trackio")}
NEEDS = {"lightning": "lightning", "huggingface": "transformers", "skorch": "skorch", **TRACKERS}

CASES = [*NEEDS.items(), ("huggingface", "accelerate")]
# One process per case, forked from one that has done the shared imports.
WITHOUT = """
import os, sys
import vista.integrations.trackers
for case in sys.argv[1:]:
    module, package = case.split(":")
    if os.fork() == 0:
        sys.modules[package] = None
        try:
            __import__(module)
        except ModuleNotFoundError as error:
            print(case, error, sep="=", flush=True)
        os._exit(0)
    os.wait()
"""


def case(extra, package):
    return f"vista.integrations.{'trackers.' if extra in TRACKERS else ''}{extra}:{package}"


@pytest.fixture(scope="module")
def messages():
    """The error message of each import without the package."""
    command = [sys.executable, "-c", WITHOUT, *(case(*pair) for pair in CASES)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize(("extra", "package"), CASES)
def test_an_import_without_the_extra_names_it(messages, extra, package):
    message = messages[case(extra, package)]
    assert message.startswith(package)
    assert message.endswith(f" is not installed; run: pip install 'vista-distill[{extra}]'")


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_an_export_without_the_extra_names_it(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=rf"^{package} is .*pip install 'vista-distill\[onnx\]'$"):
        to_onnx(nn.Linear(2, 2), SimpleNamespace(sample_shape=(2,), tokenizer=None), {})


def test_every_named_extra_is_declared():
    named = set()
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]:
        for names in re.findall(r"vista-distill\[([a-z,]+)\]", path.read_text(encoding="utf-8")):
            named |= set(names.split(","))
    assert {"lightning", "huggingface", "accelerate", "skorch", "report", "tensorboard"} <= named
    assert named <= PROJECT["optional-dependencies"].keys()


def test_extras_have_lower_bounds_only():
    extras = PROJECT["optional-dependencies"]
    for needed in [n for extra in (*NEEDS, "accelerate", "onnx") for n in extras[extra]]:
        assert ">=" in needed, needed
        assert not {"<", "==", "~="} & {needed[i : i + n] for n in (1, 2) for i in range(len(needed))}, needed
        assert not needed.startswith("torch")
