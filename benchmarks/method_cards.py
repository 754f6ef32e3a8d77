"""Write the results of every method on the digits and on CIFAR-100 into its page in docs/methods.

vista compare --data digits --noise symmetric:0.4 --methods all --json > all.json
python benchmarks/method_cards.py --take all.json     # writes results/digits_methods.json
python benchmarks/method_cards.py                     # updates docs/methods/*.md from it and the ledger
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from pathlib import Path
from typing import Any

import torch

from vista.methods import available
from vista.reproduce import ledger, load_study, results_page, study_names
from vista.reproduce.grid import Cell
from vista.reproduce.ledger import LedgerRecord
from vista.reproduce.studies.table1 import SETTINGS
from vista.runs.config import TrainConfig
from vista.runs.environment import environment

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "results" / "digits_methods.json"
CARDS = ROOT / "docs" / "methods"
HEADING = "## Measured"
KEPT = ("method", "seeds", "best", "last", "deviation_gap", "anchors_max", "seconds")
NOTHING_YET = "No run of this method on CIFAR-100 under the protocol of the tables is in the ledger yet.\n"
OURS = re.compile(
    rf"{re.escape(NOTHING_YET)}\n*|(?:On the digits|On CIFAR-100), [^|]*?\n\n(?:\|[^\n]*\n)+\n*", re.DOTALL
)


def take(printed: Path) -> None:
    """Write the record from the output of a comparison on this machine; methods that it lacks keep their rows.

    Each row names its commit, because commits may differ.
    """
    comparison, here = json.loads(printed.read_text()), environment(torch.device("cpu"))
    new = {row["method"]: {name: row[name] for name in KEPT} | {"commit": here["commit"]} for row in comparison["rows"]}
    old = json.loads(RECORD.read_text()) if RECORD.exists() else {"rows": [], "config": comparison["config"]}
    if _shared(comparison["config"]) != _shared(old["config"]):
        raise SystemExit(f"{printed} has another configuration than {RECORD}; delete {RECORD} first")
    rows = [new.pop(row["method"], {"commit": old["environment"]["commit"]} | row) for row in old["rows"]]
    config = {**comparison["config"], "methods": old["config"]["methods"]}
    record = {"what": "methods on the digits", "environment": here, "config": config}
    RECORD.write_text(json.dumps({**record, "rows": [*rows, *new.values()]}, indent=1, sort_keys=True) + "\n")


def _shared(config: dict[str, Any]) -> tuple[TrainConfig, int]:
    """The settings shared by all methods of a comparison; fields added later have their defaults."""
    of_runs = {name: value for name, value in config.items() if name not in ("methods", "seeds")}
    return TrainConfig.from_json(of_runs), config["seeds"]


def with_measured(card: str, method: str, digits: dict[str, Any], records: list[LedgerRecord]) -> str:
    """The page of a method with its rows, those of its variants, and cross-entropy's for comparison."""
    variants = [name for name, kind in available().items() if kind.name == method]
    before, rest = card.split(f"{HEADING}\n\n", 1)
    own_words = OURS.sub("", rest).strip("\n")
    parts = (on_digits(variants, digits), on_cifar(variants, records), f"{own_words}\n" if own_words else "")
    return f"{before}{HEADING}\n\n" + "\n".join(part for part in parts if part)


def on_digits(variants: list[str], record: dict[str, Any]) -> str:
    shown = [row for row in record["rows"] if row["method"] in {*variants, "ce"}]
    table = "\n".join(
        f"| `{row['method']}` | {accuracy(row['last'])} | {accuracy(row['best'])} |"
        for row in sorted(shown, key=lambda row: row["method"] == "ce")
    )
    seeds = shown[0]["seeds"]
    return (
        f"On the digits, 40 % symmetric noise, small CNN, {record['config']['epochs']} epochs, "
        f"{seeds} seed{'s' if seeds > 1 else ''} (`results/{RECORD.name}`), test accuracy in %:\n\n"
        f"| method | last epoch | best validation epoch |\n|---|---|---|\n{table}\n"
    )


def on_cifar(variants: list[str], records: list[LedgerRecord]) -> str:
    """Rows of the ledger under the frozen protocol; other networks and CutMix are omitted."""
    by_cell = ledger.group_by_cell(records)
    cells = {
        (cell.setting, cell.method): cell for name in study_names() for cell in load_study(name).cells if is_plain(cell)
    }
    rows: list[str] = []
    for setting in SETTINGS:
        there = {method: cell for (where, method), cell in cells.items() if where == setting}
        own = [method for method in there if method.partition(":")[0] in variants and method != "ce"]
        found = {
            method: runs for method in [*own, "ce"] if (runs := by_cell.get(ledger.cell_key(there[method].config())))
        }
        if found.keys() != {"ce"} or "ce" in variants:
            rows += [row(setting, method, runs) for method, runs in found.items()]
    if not rows:
        return NOTHING_YET
    return (
        "On CIFAR-100, ResNet-18, under the protocol of [all tables](../../RESULTS.md), test accuracy in %:\n\n"
        "| labels | method | seeds | last epoch | best validation epoch | most anchors |\n|---|---|---|---|---|---|\n"
        + "".join(rows)
    )


def is_plain(cell: Cell) -> bool:
    return cell.changes.keys() <= {"noise"} and cell.setting in SETTINGS


def row(setting: str, method: str, runs: list[LedgerRecord]) -> str:
    best, last = results_page.average(runs, "accuracy", "best"), results_page.average(runs, "accuracy", "last")
    most = [run.metrics["anchors_max"] for run in runs if run.metrics["anchors_max"] is not None]
    anchors = f"{statistics.fmean(most):.0f}" if most else ""
    return f"| {setting} | `{method}` | {len(runs)} | {last} | {best} | {anchors} |\n"


def accuracy(cell: dict[str, float | None]) -> str:
    return f"{cell['mean']:.1f}" + (f" ± {cell['se']:.1f}" if cell["se"] is not None else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--take", type=Path, metavar="FILE", help="output of `vista compare --json`")
    options = parser.parse_args()
    if options.take:
        take(options.take)
        return
    digits, records = json.loads(RECORD.read_text()), ledger.read(ROOT / "results")
    for path in sorted(CARDS.glob("*.md")):
        if path.stem != "README":
            path.write_text(with_measured(path.read_text(), path.stem, digits, records))


if __name__ == "__main__":
    main()
