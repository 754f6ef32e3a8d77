"""Draw docs/images/ours-against-paper.svg from the ledger: our test accuracy against the paper's, a point per cell.

python docs/draw_reproduction.py
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vista.reproduce import ledger, load_study, results_page
from vista.reproduce.grid import Paper
from vista.reproduce.results_page import Mean

ROOT = Path(__file__).parents[1]
FIGURE = ROOT / "docs" / "images" / "ours-against-paper.svg"
STUDIES = ("table1", "table2", "ablations", "beta", "cutmix", "ema")  # accuracies under the frozen protocol
GROUPS = {"ce": ("plain training", "#555555"), "sat": ("SAT", "#c26a00"), "kf": ("KF", "#6a3d9a")}
OTHERS = ("VISTA and its variants", "#1f6fb2")
SIZE, LEFT, TOP, LOW, HIGH = 480, 60, 20, 25.0, 85.0


@dataclass(frozen=True)
class Point:
    """A cell that both the paper and the ledger have."""

    setting: str
    method: str
    paper: Paper
    last: Mean
    best: Mean


def points(results: Path) -> list[Point]:
    """Every cell with an accuracy of the paper and at least one run of ours, each run once."""
    by_cell, found = ledger.group_by_cell(ledger.read(results)), {}
    for cell in (cell for name in STUDIES for cell in load_study(name).cells):
        key = ledger.cell_key(cell.config())
        if cell.paper is None or cell.is_gain or cell.measure != "accuracy" or key in found or key not in by_cell:
            continue
        last, best = (results_page.average(by_cell[key], "accuracy", which) for which in ("last", "best"))
        assert last is not None
        assert best is not None
        found[key] = Point(cell.setting, cell.method, cell.paper, last, best)
    return list(found.values())


def draw(shown: list[Point]) -> str:
    """The figure as SVG: a filled point for the last epoch, an open one for the best-validation epoch."""
    right, bottom = LEFT + SIZE, TOP + SIZE
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right + 20} {bottom + 118}" font-family="sans-serif" '
        'font-size="13">',
        f'<rect width="{right + 20}" height="{bottom + 118}" fill="#ffffff"/>',
        f'<path d="M{_x(LOW)} {_y(LOW)}L{_x(HIGH)} {_y(HIGH)}" stroke="#999999" stroke-dasharray="5 4"/>',
    ]
    for tick in range(30, 90, 10):
        lines.append(f'<path d="M{LEFT} {_y(tick)}H{right}M{_x(tick)} {TOP}V{bottom}" stroke="#e6e6e6"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{_y(tick) + 4}" text-anchor="end">{tick}</text>')
        lines.append(f'<text x="{_x(tick)}" y="{bottom + 18}" text-anchor="middle">{tick}</text>')
    lines.append(f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="#333333"/>')
    lines.append(
        f'<text x="{LEFT + SIZE / 2}" y="{bottom + 40}" text-anchor="middle">test accuracy in the paper, %</text>'
    )
    middle = TOP + SIZE / 2
    lines.append(f'<text x="16" y="{middle}" text-anchor="middle" transform="rotate(-90 16 {middle})">ours, %</text>')
    for point in shown:
        if point.paper.value >= LOW:  # beta fixed at 1 is at chance, far below all others
            lines += _marks(point)
    for x, (name, colour) in zip((LEFT, LEFT + 120, LEFT + 190, LEFT + 250), (*GROUPS.values(), OTHERS)):
        lines.append(f'<circle cx="{x + 5}" cy="{bottom + 66}" r="5" fill="{colour}"/>')
        lines.append(f'<text x="{x + 16}" y="{bottom + 70}">{name}</text>')
    lines.append(f'<circle cx="{LEFT + 5}" cy="{bottom + 94}" r="4" fill="#555555"/>')
    lines.append(f'<text x="{LEFT + 16}" y="{bottom + 98}">last epoch</text>')
    lines.append(f'<circle cx="{LEFT + 125}" cy="{bottom + 94}" r="4" fill="#ffffff" stroke="#555555"/>')
    lines.append(f'<text x="{LEFT + 136}" y="{bottom + 98}">best-validation epoch; bars: standard errors</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _marks(point: Point) -> list[str]:
    _, colour = GROUPS.get(point.method, OTHERS)
    x, last, best = _x(point.paper.value), _y(point.last.mean), _y(point.best.mean)
    marks = [f'<path d="M{x} {last}V{best}" stroke="{colour}" stroke-opacity="0.35"/>']
    if point.paper.error:
        ends = (_x(point.paper.value - point.paper.error), _x(point.paper.value + point.paper.error))
        marks.append(f'<path d="M{ends[0]} {last}H{ends[1]}" stroke="{colour}"/>')
    marks += [
        f'<path d="M{x} {_y(mean.mean - mean.error)}V{_y(mean.mean + mean.error)}" stroke="{colour}"/>'
        for mean in (point.last, point.best)
        if mean.error
    ]
    title = (
        f"<title>{point.setting}, {point.method}: paper {point.paper.value:.2f}, ours {point.last} at the last epoch"
    )
    title += f" and {point.best} at the best-validation epoch, n = {point.last.n}</title>"
    marks.append(f'<circle cx="{x}" cy="{best}" r="4" fill="#ffffff" stroke="{colour}">{title}</circle>')
    marks.append(f'<circle cx="{x}" cy="{last}" r="4" fill="{colour}">{title}</circle>')
    return marks


def _x(value: float) -> float:
    return round(LEFT + SIZE * (value - LOW) / (HIGH - LOW), 1)


def _y(value: float) -> float:
    return round(TOP + SIZE * (HIGH - value) / (HIGH - LOW), 1)


if __name__ == "__main__":
    FIGURE.write_text(draw(points(ROOT / "results")))
