"""The house: imports only point down its layers, none closes a circle, and every name says what may be inside."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import vista

HOUSE = Path(vista.__file__).parent
LAYERS = [  # lowest first; a room may use its own layer and what lies below
    {
        "coverage",
        "schedule",
        "losses",
        "noise",
        "label_files",
        "split",
        "metrics",
        "over_seeds",
        "artefact",
        "npz",
        "memory",
        "checks",
        "faults",
        "exchange",
        "durable",
        "fused_sum",
        "spreadsheet",
        "shell",
    },
    {"store", "teacher", "fusion", "options", "distiller_state"},
    {"distiller", "functional"},
    {"data", "models"},
    {"methods"},
    {"training"},
    {"analysis", "report", "reproduce", "integrations"},
    {"cli", "__main__"},
]
HEIGHT = {room: height for height, layer in enumerate(LAYERS) for room in layer}
ROOT_HEIGHT = HEIGHT["data"]  # the package itself offers Vista and indexed(), and fetches what is higher when asked
# On their own layer the rooms stand apart, but for these: who may use whom.
BESIDE = {"report": {"analysis"}, "reproduce": {"analysis", "report"}, "integrations": {"analysis", "report"}}
# Analysis and report read the record of a run (its configuration, artefacts, lines and bits), and never touch models,
# methods or what trains.
READERS = {"analysis", "report"}
RECORD = {f"vista.training.{name}" for name in ("record", "run_folder", "config")}
NAMELESS = {"utils", "util", "helpers", "helper", "misc", "common", "manager"}


@dataclass(frozen=True)
class Import:
    """``module`` imports ``target``, at its top or (``lazy``) inside a function."""

    module: str
    target: str
    lazy: bool

    def __str__(self) -> str:
        return f"{self.module} imports {self.target}"


def modules(house: Path) -> dict[str, Path]:
    """Dotted names of all modules."""
    found = {}
    for path in sorted(house.rglob("*.py")):
        parts = [house.name, *path.relative_to(house).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@functools.cache
def imports(house: Path) -> list[Import]:
    """Every import of one of our modules by another, also those for type checkers and inside functions."""
    known = modules(house)
    return [found for module, path in known.items() for found in _imports_of(module, path, known, house)]


def _imports_of(module: str, path: Path, known: dict[str, Path], house: Path) -> Iterator[Import]:
    tree = ast.parse(path.read_text())
    lazy = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        or (path.parent == house and path.name == "__init__.py" and _is_for_types(node))
        for inner in ast.walk(node)
    }
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        for target in _targets(node, package, known):
            if target != module:
                yield Import(module, target, id(node) in lazy)


def _is_for_types(node: ast.AST) -> bool:
    """``if TYPE_CHECKING:``, where the package itself names what it fetches when asked."""
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


def room(module: str) -> str:
    """``vista.data.loader`` -> ``data``; the package itself is ``""``."""
    return module.split(".")[1] if "." in module else ""


def height(module: str) -> int:
    return HEIGHT[room(module)] if room(module) else ROOT_HEIGHT


def points_up(found: Import) -> bool:
    if room(found.module) == "":
        return height(found.target) > ROOT_HEIGHT and not found.lazy
    return height(found.target) > height(found.module)


def reaches_beside(found: Import) -> bool:
    """Rooms on one layer of several packages do not use each other; the small files at the bottom may."""
    here, there = room(found.module), room(found.target)
    apart = HEIGHT.get(here) in (HEIGHT["data"], HEIGHT["analysis"]) and HEIGHT.get(here) == HEIGHT.get(there)
    return apart and here != there and there not in BESIDE.get(here, set())


def reads_more_than_records(found: Import) -> bool:
    touches = room(found.target) in ("models", "methods", "training") and found.target not in RECORD
    return room(found.module) in READERS and touches


def joins_methods(found: Import) -> bool:
    own = "vista.methods."
    is_method = found.module.startswith(own) and found.module != f"{own}base"
    return is_method and found.target.startswith(own) and found.target != f"{own}base"


def circle(found: list[Import]) -> list[str]:
    """Modules that import each other in a circle, or nothing. What the package fetches when asked closes none."""
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


RULES = {
    "up the layers": points_up,
    "beside, between rooms that stand apart": reaches_beside,
    "to more than records": reads_more_than_records,
    "one method by another": joins_methods,
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_no_import_points(rule) -> None:
    assert [str(found) for found in imports(HOUSE) if rule(found)] == []


def test_no_imports_close_a_circle() -> None:
    assert circle(imports(HOUSE)) == []


def test_every_room_has_its_layer() -> None:
    rooms = {room(module) for module in modules(HOUSE)} - {""}
    assert rooms - set(HEIGHT) == set(), "a new room needs a place in LAYERS"


def test_every_name_says_what_may_be_inside() -> None:
    names = {part for path in HOUSE.rglob("*") for part in path.with_suffix("").name.lower().split("_")}
    assert names & NAMELESS == set()


# ---------------------------------------------------------------- the reader of imports itself


def built(folder: Path, **files: str) -> list[Import]:
    house = folder / "vista"
    for name, text in {"__init__": "", **files}.items():
        path = house / f"{name.replace('__in__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return imports(house)


@pytest.mark.parametrize(
    ("files", "rule"),
    [
        ({"coverage": "from vista import store", "store": ""}, points_up),
        ({"coverage": "import vista.store", "store": ""}, points_up),
        ({"coverage": "from .store import x", "store": ""}, points_up),
        ({"coverage": "def f():\n    from vista.store import x", "store": ""}, points_up),
        ({"coverage": "if TYPE_CHECKING:\n    from vista.store import x", "store": ""}, points_up),
        ({"store": "from vista import Vista"}, points_up),
        ({"__init__": "from vista.training import x", "training": ""}, points_up),
        ({"data__in__loader": "from vista.methods.base import x", "methods__in__base": ""}, points_up),
        ({"data__in__loader": "from ..models.vit import x", "models__in__vit": ""}, reaches_beside),
        ({"analysis": "from vista.report import x", "report": ""}, reaches_beside),
        ({"analysis": "from vista.training.loop import x", "training__in__loop": ""}, reads_more_than_records),
        ({"report": "from vista import models", "models": ""}, reads_more_than_records),
        ({"methods__in__ban": "from vista.methods.ce import x", "methods__in__ce": ""}, joins_methods),
        ({"methods__in__ban": "from .ce import x", "methods__in__ce": ""}, joins_methods),
    ],
)
def test_a_forbidden_import_is_found(tmp_path: Path, files: dict[str, str], rule) -> None:
    assert len([found for found in built(tmp_path, **files) if rule(found)]) == 1


@pytest.mark.parametrize(
    "files",
    [
        {"store": "from vista.coverage import x\nimport vista.coverage", "coverage": "import os\nimport numpy"},
        {"functional": "from vista.distiller import x", "distiller": ""},
        {"training": "import vista"},
        {"__init__": "def f():\n    from vista.training import x", "training": ""},
        {"report": "from vista.analysis import x\nfrom vista.store import y", "analysis": "", "store": ""},
        {"analysis": "from vista.training.record import y", "training__in__record": ""},
        {"methods__in__ban": "from vista.methods.base import x", "methods__in__base": ""},
    ],
)
def test_a_good_import_is_let_through(tmp_path: Path, files: dict[str, str]) -> None:
    found = built(tmp_path, **files)
    assert found
    assert not any(rule(one) for rule in RULES.values() for one in found)
    assert circle(found) == []


def test_a_circle_is_found(tmp_path: Path) -> None:
    found = built(
        tmp_path, noise="from vista import split", split="import vista.metrics", metrics="from .noise import x"
    )
    assert circle(found) == ["vista.metrics", "vista.noise", "vista.split", "vista.metrics"]
