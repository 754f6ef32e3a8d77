"""The examples in the docstrings of the integrations run."""

import doctest
import importlib

import pytest
import torch

MODULES = {
    "vista.integrations": "torch",
    "vista.integrations.model_folder": "safetensors",
    "vista.integrations.lightning": "lightning",
    "vista.integrations.huggingface": "transformers",
    "vista.integrations.skorch": "skorch",
    "vista.integrations.trackers.watch": "matplotlib",
}


@pytest.mark.filterwarnings("ignore")  # from the libraries
@pytest.mark.parametrize("module", MODULES)
def test_docstring_examples_run(module, tmp_path, monkeypatch):
    pytest.importorskip(MODULES[module], reason=f"{MODULES[module]} is not installed")
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng():
        failed, attempted = doctest.testmod(importlib.import_module(module))
    assert attempted
    assert not failed
