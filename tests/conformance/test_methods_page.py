"""The page docs/methods/README.md lists all methods and the recorded step times."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from vista.methods import available

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "methods" / "README.md").read_text()
HEADINGS = {
    "plain": "Plain",
    "teacher-free": "Teacher-free",
    "current epoch": "Teachers of the current epoch",
    "past epochs": "Teachers of past epochs",
    "noise-robust": "Noise-robust references",
    "ours": "Ours",
}


def test_page_lists_every_method_under_its_family_with_card_and_variants() -> None:
    sections = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)
    rows = {
        heading: [line for line in text.splitlines() if line.startswith("| [")]
        for heading, text in zip(sections[1::2], sections[2::2])
    }
    wanted: dict[str, list[str]] = {}
    for name, method in available().items():
        if name == method.name:
            mark = " †" if method.reconstruction else ""
            variants = "".join(f", `{variant}`" for variant in method.variants)
            row = f"| [`{name}`]({name}.md){mark}{variants} | {method.summary} |"
            wanted.setdefault(HEADINGS[method.family], []).append(row)
    assert {heading: found for heading, found in rows.items() if found} == wanted


def test_step_times_equal_records(benchmark: Callable[[str], ModuleType]) -> None:
    assert PAGE.endswith(f"\n\n{benchmark('methods').table()}\n"), (
        "update the table with `python benchmarks/methods.py --table`"
    )


def test_table_has_row_per_method_and_column_per_record(benchmark: Callable[[str], ModuleType], tmp_path: Path) -> None:
    methods = benchmark("methods")
    assert methods.table(tmp_path) == methods.NO_RECORD
    gpu = {
        "base": "ce", "kind": "cuda", "precision": "bf16", "environment": {"device": "a GPU", "threads": 8},
        "result": {
            "ce": {"ratio": 1.0, "base_milliseconds": 2.0},
            "vista": {"ratio": 1.0151, "base_milliseconds": 2.0},
        },
    }  # fmt: skip
    cpu = {
        "base": "ce", "kind": "cpu", "precision": "fp32", "environment": {"device": "a CPU", "threads": 2},
        "result": {"vista": {"ratio": 1.0, "base_milliseconds": 1234.0}},
    }  # fmt: skip
    (tmp_path / "methods-a.json").write_text(json.dumps(gpu))
    (tmp_path / "methods-b.json").write_text(json.dumps(cpu))
    assert methods.table(tmp_path).splitlines() == [
        "| method | a GPU, bf16 (ce: 2.00 ms) | a CPU, 2 threads, fp32 (ce: 1,234.00 ms) |",
        "|---|---|---|",
        "| `ce` | 1.00 |  |",
        "| `vista` | 1.02 | 1.00 |",
    ]
