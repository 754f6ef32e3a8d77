"""The layers of the package: imports only point down, none form a cycle, and no module has a vague name."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import vista

PACKAGE = Path(vista.__file__).parent
LAYERS = [  # lowest first; packages of one layer do not import each other
    {"files"},
    {"core"},
    {"noise", "split", "metrics"},
    {"functional"},
    {"data", "models"},
    {"runs"},
    {"analysis"},
    {"methods"},
    {"training"},
    {"review"},
    {"report"},
    {"reproduce", "integrations"},
    {"cli"},
    {"__main__"},
]
HEIGHT = {part: height for height, layer in enumerate(LAYERS) for part in layer}
ROOT_HEIGHT = HEIGHT["data"]  # the package itself offers Vista and indexed(), and imports what is higher on request
VAGUE = {"utils", "util", "helpers", "helper", "misc", "common", "manager"}


@dataclass(frozen=True)
class Import:
    """``module`` imports ``target``, at its top or (``lazy``) inside a function."""

    module: str
    target: str
    lazy: bool

    def __str__(self) -> str:
        return f"{self.module} imports {self.target}"


def modules(package: Path) -> dict[str, Path]:
    """Dotted names of all modules."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = [package.name, *path.relative_to(package).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@functools.cache
def imports(package: Path) -> list[Import]:
    """Every import of one of our modules by another, also those for type checkers and inside functions."""
    known = modules(package)
    return [found for module, path in known.items() for found in _imports_of(module, path, known, package)]


def _imports_of(module: str, path: Path, known: dict[str, Path], package: Path) -> Iterator[Import]:
    tree = ast.parse(path.read_text())
    lazy = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        or (path.parent == package and path.name == "__init__.py" and _is_for_types(node))
        for inner in ast.walk(node)
    }
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        for target in _targets(node, package, known):
            if target != module:
                yield Import(module, target, id(node) in lazy)


def _is_for_types(node: ast.AST) -> bool:
    """``if TYPE_CHECKING:``, where the package names what it imports lazily."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _targets(node: ast.AST, package: str, known: dict[str, Path]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in known)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*above, *([base] if base else [])])
        for alias in node.names:
            name = f"{base}.{alias.name}"
            if name in known:
                yield name
            elif base in known:
                yield base


def part(module: str) -> str:
    """``vista.data.loader`` -> ``data``; the package itself is ``""``."""
    return module.split(".")[1] if "." in module else ""


def height(module: str) -> int:
    return HEIGHT[part(module)] if part(module) else ROOT_HEIGHT


def points_up(found: Import) -> bool:
    if part(found.module) == "":
        return height(found.target) > ROOT_HEIGHT and not found.lazy
    return height(found.target) > height(found.module)


def reaches_sideways(found: Import) -> bool:
    """Packages of one layer do not import each other."""
    here, there = part(found.module), part(found.target)
    return HEIGHT.get(here) == HEIGHT.get(there) and here != there


def joins_methods(found: Import) -> bool:
    own = "vista.methods."
    is_method = found.module.startswith(own) and found.module != f"{own}base"
    return is_method and found.target.startswith(own) and found.target != f"{own}base"


def cycle(found: list[Import]) -> list[str]:
    """Modules whose imports form a cycle, or nothing. What the package imports lazily does not count."""
    edges: dict[str, set[str]] = {}
    for one in found:
        if not (one.module == "vista" and one.lazy):
            edges.setdefault(one.module, set()).add(one.target)
    done: set[str] = set()

    def follow(module: str, way: list[str]) -> list[str]:
        if module in way:
            return [*way[way.index(module) :], module]
        if module in done:
            return []
        for target in sorted(edges.get(module, ())):
            if closed := follow(target, [*way, module]):
                return closed
        done.add(module)
        return []

    return next((closed for module in sorted(edges) if (closed := follow(module, []))), [])


RULES = {"up": points_up, "sideways": reaches_sideways, "from one method to another": joins_methods}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_no_import_points(rule) -> None:
    assert [str(found) for found in imports(PACKAGE) if rule(found)] == []


def test_no_imports_form_a_cycle() -> None:
    assert cycle(imports(PACKAGE)) == []


def test_every_part_has_its_layer() -> None:
    parts = {part(module) for module in modules(PACKAGE)} - {""}
    assert parts - set(HEIGHT) == set(), "a new package needs a layer in LAYERS"


def test_no_module_has_a_vague_name() -> None:
    names = {word for path in PACKAGE.rglob("*") for word in path.with_suffix("").name.lower().split("_")}
    assert names & VAGUE == set()


# ---------------------------------------------------------------- the import reader itself


def built(folder: Path, **files: str) -> list[Import]:
    package = folder / "vista"
    for name, text in {"__init__": "", **files}.items():
        path = package / f"{name.replace('__in__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return imports(package)


@pytest.mark.parametrize(
    ("files", "rule"),
    [
        ({"split": "from vista import runs", "runs": ""}, points_up),
        ({"split": "import vista.runs", "runs": ""}, points_up),
        ({"split": "from .runs import x", "runs": ""}, points_up),
        ({"split": "def f():\n    from vista.runs import x", "runs": ""}, points_up),
        ({"split": "if TYPE_CHECKING:\n    from vista.runs import x", "runs": ""}, points_up),
        ({"split": "from vista import Vista"}, points_up),
        ({"__init__": "from vista.training import x", "training": ""}, points_up),
        ({"data__in__loader": "from vista.methods.base import x", "methods__in__base": ""}, points_up),
        ({"analysis": "from vista.report import x", "report": ""}, points_up),
        ({"analysis": "from vista.training.loop import x", "training__in__loop": ""}, points_up),
        ({"runs": "from vista import methods", "methods": ""}, points_up),
        ({"data__in__loader": "from ..models.vit import x", "models__in__vit": ""}, reaches_sideways),
        ({"reproduce": "from vista.integrations import x", "integrations": ""}, reaches_sideways),
        ({"methods__in__ban": "from vista.methods.ce import x", "methods__in__ce": ""}, joins_methods),
        ({"methods__in__ban": "from .ce import x", "methods__in__ce": ""}, joins_methods),
    ],
)
def test_a_forbidden_import_is_found(tmp_path: Path, files: dict[str, str], rule) -> None:
    assert len([found for found in built(tmp_path, **files) if rule(found)]) == 1


@pytest.mark.parametrize(
    "files",
    [
        {"core__in__store": "from vista.core.coverage import x", "core__in__coverage": "import os\nimport numpy"},
        {"functional": "from vista.core.vista import x", "core__in__vista": ""},
        {"training": "import vista"},
        {"__init__": "def f():\n    from vista.training import x", "training": ""},
        {"report": "from vista.analysis import x\nfrom vista.core import y", "analysis": "", "core": ""},
        {"analysis": "from vista.runs.record import y", "runs__in__record": ""},
        {"methods__in__ban": "from vista.methods.base import x", "methods__in__base": ""},
    ],
)
def test_an_allowed_import_is_accepted(tmp_path: Path, files: dict[str, str]) -> None:
    found = built(tmp_path, **files)
    assert found
    assert not any(rule(one) for rule in RULES.values() for one in found)
    assert cycle(found) == []


def test_a_cycle_is_found(tmp_path: Path) -> None:
    found = built(
        tmp_path, noise="from vista import split", split="import vista.metrics", metrics="from .noise import x"
    )
    assert cycle(found) == ["vista.metrics", "vista.noise", "vista.split", "vista.metrics"]
