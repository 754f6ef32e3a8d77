"""Every Python block of the docs runs and produces the output shown.

The blocks of a page share a namespace, top to bottom. In a line ``expression  # -> text``, ``text`` must be the
representation of the expression's value.
"""

from __future__ import annotations

import ast
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from doc_pages import PAGES, Block, blocks_of, name_of

from vista import methods

MODULES = {"skorch": "skorch", "huggingface": "transformers", "report": "matplotlib", "onnx": "onnxruntime"}
SHOWN = "# -> "


def groups() -> Iterator[Any]:
    for page in PAGES:
        if page.name == "photos.md":  # test_photos_guide.py runs it, commands included
            continue
        python = [block for block in blocks_of(page) if block.language == "python"]
        for number, group in itertools.groupby(python, key=lambda block: block.group):
            blocks = list(group)
            yield pytest.param(blocks, id=f"{name_of(page)}:{blocks[0].line}" if number else name_of(page))


def checked(block: Block) -> Any:
    """The block's code, with an assertion for each expression that shows its value; line numbers are the page's."""
    tree = ast.parse("\n" * (block.line - 1) + block.text, filename=str(block.page))
    lines = block.text.splitlines()
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Expr) and statement.end_lineno is not None:
            line = lines[statement.end_lineno - block.line]
            if SHOWN in line:
                text = ast.Constant(line.partition(SHOWN)[2].strip())
                call = ast.Call(ast.Name("shows_as", ast.Load()), [statement.value, text], [])
                statement.value = ast.copy_location(call, statement.value)
    return compile(ast.fix_missing_locations(tree), str(block.page), "exec")


def shows_as(value: Any, text: str) -> None:
    assert repr(value) == text


@pytest.mark.filterwarnings("default")  # frameworks have warnings of their own; vista's are errors
@pytest.mark.filterwarnings(r"error:::vista(\..*)?")
@pytest.mark.parametrize("blocks", list(groups()))
def test_python_blocks_run(blocks: list[Block], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = blocks[0].extra
    if extra is not None:
        pytest.importorskip(MODULES.get(extra, extra), reason=f"needs vista-distill[{extra}]")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(methods, "_registered", {})  # a page may register a method
    module = ModuleType("page")
    module.__dict__["shows_as"] = shows_as
    monkeypatch.setitem(sys.modules, "page", module)  # dataclasses look up their module
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for block in blocks:
            exec(checked(block), module.__dict__)


def test_a_block_with_wrong_output_fails() -> None:
    block = Block(Path("page.md"), "python", 3, "1 + 1  # -> 3", 0, None)
    with pytest.raises(AssertionError):
        exec(checked(block), {"shows_as": shows_as})
