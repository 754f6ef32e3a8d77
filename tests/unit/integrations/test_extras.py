"""Without its extra an integration says which one to install; pyproject.toml has it, and none brings its own torch."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
TRACKERS = {name: name for name in ("tensorboard", "mlflow", "wandb", "trackio")}
NEEDS = {"lightning": "lightning", "huggingface": "transformers", "skorch": "skorch", **TRACKERS}


@pytest.mark.parametrize("extra", NEEDS)
def test_an_import_without_the_extra_names_it(extra):
    module = f"vista.integrations.{'trackers.' if extra in TRACKERS else ''}{extra}"
    code = f"import sys; sys.modules[{NEEDS[extra]!r}] = None; import {module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ModuleNotFoundError: {NEEDS[extra]}")
    assert last.endswith(f"pip install 'vista-distill[{extra}]'")


def test_extras_have_lower_bounds_only():
    extras = PROJECT["optional-dependencies"]
    for needed in [n for extra in (*NEEDS, "accelerate", "onnx") for n in extras[extra]]:
        assert ">=" in needed, needed
        assert not {"<", "==", "~="} & {needed[i : i + n] for n in (1, 2) for i in range(len(needed))}, needed
        assert not needed.startswith("torch")
