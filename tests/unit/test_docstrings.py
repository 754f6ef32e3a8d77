"""The examples in docstrings run, and promised functions and classes have Args, Returns and an example."""

from __future__ import annotations

import doctest
import importlib
import inspect
from pathlib import Path

import pytest
import torch

import vista
from vista import noise

PACKAGE = Path(vista.__file__).parent
LIBRARIES = ("integrations", "kernels")  # tested where their libraries are installed
PROMISED = [
    *(getattr(vista, name) for name in vista.__all__),
    *(getattr(noise, name) for name in noise.__all__),
]


def modules_with_examples() -> list[str]:
    paths = [path.relative_to(PACKAGE).with_suffix("") for path in PACKAGE.rglob("*.py") if ">>> " in path.read_text()]
    return sorted(".".join(("vista", *path.parts)) for path in paths if not set(path.parts) & set(LIBRARIES))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of libraries
@pytest.mark.parametrize("module", modules_with_examples())
def test_examples_run(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng():
        found = doctest.testmod(importlib.import_module(module.removesuffix(".__init__")))
    assert not found.failed


def documented() -> dict[str, object]:
    """Promised functions, classes and their public methods by name."""
    found: dict[str, object] = {}
    for item in PROMISED:
        if not callable(item) or (inspect.isclass(item) and issubclass(item, BaseException)):
            continue
        name = getattr(item, "__name__", str(item))
        found[name] = item
        if inspect.isclass(item):
            methods = inspect.getmembers(item, lambda member: inspect.isfunction(member) or inspect.ismethod(member))
            found |= {f"{name}.{each}": method for each, method in methods if not each.startswith("_")}
    return found


@pytest.mark.parametrize("name", documented())
def test_promised_names_are_documented(name: str) -> None:
    item = documented()[name]
    text, signature = inspect.getdoc(item) or "", inspect.signature(item)  # type: ignore[arg-type]
    assert ">>> " in text or "for an example" in text
    if set(signature.parameters) - {"self"}:
        assert "Args:" in text or "Attributes:" in text
    if not inspect.isclass(item) and signature.return_annotation not in (None, "None"):
        assert "Returns:" in text or "Yields:" in text
