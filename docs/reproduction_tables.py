"""Update the tables of README.md and docs/*.md that depend on the ledger.

python docs/reproduction_tables.py     # the text around the tables is written by hand and checked by tests
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from vista.methods import available
from vista.reproduce import ledger, protocol, results_page, search_page
from vista.reproduce.ledger import LedgerRecord
from vista.reproduce.studies import ablations, beta
from vista.reproduce.studies.recipe import FIRST_SEED
from vista.reproduce.studies.table1 import SETTINGS, paper_number

ROOT = Path(__file__).parents[1]
WHICH = ("last", "best")
GAPS = ("gap_given", "gap_true", "gap_test")
AT_40 = "symmetric 40 %"
RUNS = {
    "ce": "`ce`",
    "sat": "`sat`",
    "kf": "`kf`",
    "vista": "`vista` (Basic)",
    "vista-light": "`vista-light` (τ = 0.01)",
    "vista-uniform": "`vista-uniform`",
    "ps-kd-beta": "`ps-kd-beta`",
}
HEADLINE = {
    "ce": "cross-entropy",
    "sat": "SAT",
    "kf": "KF, several networks at once",
    "vista": "VISTA",
    "vista-light": "VISTA Light (τ = 0.01)",
    "ps-kd-beta": "only the last state teaches",
}
ABLATIONS = {
    "vista": "coverage",
    "vista-chronological": "coverage, newest first",
    "vista-smoothing": "coverage, each state a mean with its two neighbours",
    "vista-accuracy": "accuracy",
    "vista-uniform": "equal",
}
SCHEDULES = {
    "ce": "0",
    "vista:schedule=fixed:value=0.5": "0.5",
    "vista:schedule=fixed:value=1:start=uniform": "1; in epoch 1 the target is uniform",
    "vista:schedule=fixed:value=1": "1; in epoch 1 the target is the label",
    "vista:schedule=linear": "rises linearly",
    "vista:schedule=cosine": "rises as a cosine",
    "vista:k=1": "rises exponentially, k = 1",
    "vista": "rises exponentially, k = 2",
    "vista:k=3": "rises exponentially, k = 3",
}
MEASURED = "| run | seeds | test, last epoch | test, best validation epoch | gain, last | gain, best | most anchors |"
FORGOTTEN = "| run | given validation labels | true validation labels | test labels |"
OTHER_LABELS = "| labels | run | seeds | last | best | gain, last | gain, best | paper | gain, paper | most anchors |"
WEIGHTS = "| weights | run | test, last epoch | test, best validation epoch | paper |"
RISING = "| β | test, last epoch | test, best validation epoch | paper | most anchors |"
HEADLINE_HEAD = (
    "| method | seeds | last epoch | best validation epoch | past predictions kept | mean deviation gap, true labels |"
)

METHODS = " | ".join(
    (
        "| method | family | digits, last | digits, best | CIFAR-100, last | CIFAR-100, best",
        "step, H200 | step, CPU | stores |",
    )
)


class Ledger:
    """Runs under the frozen protocol, by setting and method."""

    def __init__(self, results: Path) -> None:
        self.records = ledger.read(results)
        self._by_cell = ledger.group_by_cell(self.records)

    def runs(self, setting: str, method: str) -> list[LedgerRecord]:
        cell = ledger.cell_key(protocol.make_config(method, SETTINGS[setting], 0))
        return sorted(self._by_cell.get(cell, []), key=lambda record: record.config.seed)

    def first_seed(self, setting: str, method: str) -> list[LedgerRecord]:
        return [run for run in self.runs(setting, method) if run.config.seed == 0]

    def gain(self, setting: str, method: str, which: str) -> str:
        """The gain over plain training, seed by seed."""
        ours = self.runs(setting, method) if method != "ce" else []
        return results_page.format_gain(results_page.average_gain(ours, self.runs(setting, "ce"), "accuracy", which))


def measured(known: Ledger) -> list[str]:
    rows = []
    for method, name in RUNS.items():
        runs = known.runs(AT_40, method)
        gains = [known.gain(AT_40, method, which) for which in WHICH]
        rows.append(_row(name, len(runs), *_accuracies(runs), *gains, _anchors(runs)))
    return rows


def forgotten(known: Ledger) -> list[str]:
    rows = []
    for method, name in RUNS.items():
        runs = known.runs(AT_40, method)
        rows.append(_row(name, *(results_page.average(runs, gap, "last") for gap in GAPS)))
    return rows


def other_labels(known: Ledger) -> list[str]:
    rows = []
    for setting in SETTINGS:
        for method, name in RUNS.items() if setting != AT_40 else ():
            runs = known.runs(setting, method)
            gains = [known.gain(setting, method, which) for which in WHICH]
            paper = _paper_cells(setting, method)
            if runs:
                rows.append(_row(setting, name, len(runs), *_accuracies(runs), *gains, *paper, _anchors(runs)))
    return rows


def weights(known: Ledger) -> list[str]:
    """Of the first seed alone, which all methods have."""
    rows = []
    for method, name in ABLATIONS.items():
        runs, numbers = known.first_seed(AT_40, method), ablations.PAPER[method]
        if runs:
            rows.append(_row(name, f"`{method}`", *_accuracies(runs), _number(numbers and numbers[0])))
    return rows


def schedules(known: Ledger) -> list[str]:
    """Of the first seed alone, which all schedules have."""
    rows = []
    for method, name in SCHEDULES.items():
        runs = known.first_seed(AT_40, method)
        if runs:
            rows.append(_row(name, *_accuracies(runs), _number(beta.PAPER[method]), _anchors(runs)))
    return rows


def headline(known: Ledger) -> list[str]:
    rows = []
    for method, name in HEADLINE.items():
        runs = known.runs(AT_40, method)
        gap = f"{results_page.average(runs, 'gap_true', 'last')} %"
        rows.append(_row(name, len(runs), *_accuracies(runs), _anchors(runs), gap))
    return rows


def methods(known: Ledger) -> list[str]:
    """Accuracy, step time and stored state of every method and variant."""
    results = ROOT / "results"
    digits = {row["method"]: row for row in json.loads((results / "digits_methods.json").read_text())["rows"]}
    steps = [json.loads((results / f"methods-{machine}.json").read_text())["result"] for machine in ("h200", "cpu")]
    rows = []
    for name, method in available().items():
        mark = " †" if method.reconstruction else ""
        on_digits = ["{mean:.1f} ± {se:.1f}".format(**digits[name][which]) if name in digits else "" for which in WHICH]
        runs = known.runs(AT_40, name)
        on_cifar = _accuracies(runs) if runs else ["", ""]
        times = [f"{step[name]['ratio']:.2f}" if name in step else "" for step in steps]
        link = f"[`{name}`](methods/{method.name}.md){mark}"
        rows.append(_row(link, method.family, *on_digits, *on_cifar, *times, method.keeps))
    return rows


def _accuracies(runs: list[LedgerRecord]) -> list[str]:
    return [str(results_page.average(runs, "accuracy", which)) for which in WHICH]


def _anchors(runs: list[LedgerRecord]) -> str:
    return ", ".join(str(run.metrics["anchors_max"]) for run in runs if run.metrics["anchors_max"])


def _number(paper: tuple[float, float] | None) -> str:
    return "{:.2f} ± {:.2f}".format(*paper) if paper else ""


def _paper_cells(setting: str, method: str) -> tuple[str, str]:
    """The paper's number and its gain over plain training."""
    number, plain = paper_number(method, setting), paper_number("ce", setting)
    if number is None or plain is None:
        return "", ""
    return _number((number.value, number.error)), f"{number.value - plain.value:+.2f}" if method != "ce" else ""


def _row(*cells: object) -> str:
    return " ".join(f"| {' | '.join(map(str, cells))} |".split())


def replace_table(text: str, head: str, rows: list[str]) -> str:
    """Replace the rows below a table head."""
    before, found, rest = text.partition(f"{head}\n")
    if not found:
        raise SystemExit(f"the page has no table with the head {head}")
    after = rest[rest.index("\n\n") :]
    return before + "\n".join([head, "|" + "---|" * (head.count("|") - 1), *rows]) + after


def replace_section(text: str, name: str, section: str) -> str:
    """Replace what is between the marks ``<!-- name -->`` and ``<!-- end -->``."""
    before, mark, rest = text.partition(f"<!-- {name} -->\n")
    if not mark or "<!-- end -->" not in rest:
        raise SystemExit(f"the page has no section between <!-- {name} --> and <!-- end -->")
    return f"{before}{mark}\n{section}\n{rest[rest.index('<!-- end -->') :]}"


def pages(known: Ledger) -> dict[Path, str]:
    """The pages with up-to-date tables."""
    reproduction = ROOT / "docs" / "reproduction.md"
    runs = len({record.path for record in known.records if record.config.seed < FIRST_SEED})  # the others have a page
    text = re.sub(r"the ledger holds \d+ runs", f"the ledger holds {runs} runs", reproduction.read_text())
    tables = {
        MEASURED: measured,
        FORGOTTEN: forgotten,
        OTHER_LABELS: other_labels,
        WEIGHTS: weights,
        RISING: schedules,
    }
    for head, rows in tables.items():
        text = replace_table(text, head, rows(known))
    written = {reproduction: text}
    for path in (ROOT / "README.md", ROOT / "docs" / "index.md"):
        written[path] = replace_table(path.read_text(), HEADLINE_HEAD, headline(known))
    comparison = ROOT / "docs" / "method-comparison.md"
    written[comparison] = replace_table(comparison.read_text(), METHODS, methods(known))
    recipe = ROOT / "docs" / "recipe.md"
    written[recipe] = replace_section(recipe.read_text(), "search", search_page.render(known.records))
    return written


if __name__ == "__main__":
    for path, text in pages(Ledger(ROOT / "results")).items():
        path.write_text(text)
