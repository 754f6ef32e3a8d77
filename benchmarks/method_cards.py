"""What every method reaches on the digits, in its card.

vista compare --data digits --noise symmetric:0.4 --methods all --json > all.json
python benchmarks/method_cards.py --take all.json     # makes results/digits_methods.json of it
python benchmarks/method_cards.py                     # writes the record's rows into docs/methods/*.md
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import torch

from vista.methods import available
from vista.training.environment import environment

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "results" / "digits_methods.json"
CARDS = ROOT / "docs" / "methods"
HEADING = "## What we measured"
KEPT = ("method", "seeds", "best", "last", "deviation_gap", "anchors_max", "seconds")
OURS = re.compile(r"On the digits, .*?\n\n(?:\|[^\n]*\n)+\n*", re.DOTALL)


def take(printed: Path) -> None:
    """The record, from what the comparison printed on this machine; methods it leaves out keep their rows.

    Each row names its commit, because not all need be of one.
    """
    told, here = json.loads(printed.read_text()), environment(torch.device("cpu"))
    new = {row["method"]: {name: row[name] for name in KEPT} | {"commit": here["commit"]} for row in told["rows"]}
    old = json.loads(RECORD.read_text()) if RECORD.exists() else {"rows": [], "config": told["config"]}
    if told["config"] | {"methods": None} != old["config"] | {"methods": None}:
        raise SystemExit(f"{printed} was made under another configuration than {RECORD}: delete that first")
    rows = [new.pop(row["method"], {"commit": old["environment"]["commit"]} | row) for row in old["rows"]]
    record = {"what": "methods on the digits", "environment": here, "config": old["config"]}
    RECORD.write_text(json.dumps({**record, "rows": [*rows, *new.values()]}, indent=1, sort_keys=True) + "\n")


def with_digits(card: str, method: str, record: dict[str, Any]) -> str:
    """The card of a method with its rows, those of its variants, and cross-entropy's to compare with."""
    names = [name for name, kind in available().items() if kind.name == method]
    shown = [row for row in record["rows"] if row["method"] in {*names, "ce"}]
    table = "\n".join(
        f"| `{row['method']}` | {accuracy(row['best'])} | {accuracy(row['last'])} |"
        for row in sorted(shown, key=lambda row: row["method"] == "ce")
    )
    seeds = shown[0]["seeds"]
    text = (
        f"On the digits, 40 % symmetric noise, small CNN, {record['config']['epochs']} epochs, "
        f"{seeds} seed{'s' if seeds > 1 else ''} (`results/{RECORD.name}`), test accuracy in %:\n\n"
        f"| method | best validation epoch | last epoch |\n|---|---|---|\n{table}\n"
    )
    before, rest = card.split(f"{HEADING}\n\n", 1)
    rest = OURS.sub("", rest).lstrip("\n")
    return f"{before}{HEADING}\n\n{text}" + (f"\n{rest}" if rest else "")


def accuracy(cell: dict[str, float | None]) -> str:
    return f"{cell['mean']:.1f}" + (f" ± {cell['se']:.1f}" if cell["se"] is not None else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--take", type=Path, metavar="FILE", help="what `vista compare --json` printed")
    options = parser.parse_args()
    if options.take:
        take(options.take)
        return
    record = json.loads(RECORD.read_text())
    for path in sorted(CARDS.glob("*.md")):
        if path.stem != "README":
            path.write_text(with_digits(path.read_text(), path.stem, record))


if __name__ == "__main__":
    main()
