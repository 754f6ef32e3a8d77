"""The live display on a terminal, and the rows it shares with plain output."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.table import Table

from vista.cli import terminal
from vista.cli.compare import comparison_table, probabilities_table
from vista.cli.execute import report_table
from vista.runs.config import TrainConfig
from vista.training.events import EpochEnded, Finished, Started, Stepped
from vista.training.scheduler import Job

LINE = {"lr": 0.05, "train_loss": 1.2345, "val_accuracy": 0.5, "val_true_accuracy": 0.9, "test_accuracy": 0.905}


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def line(epoch: int, best: bool, **more: object) -> dict[str, object]:
    return {"epoch": epoch, "best": best, **LINE, **more}


def follow(display: terminal.Display, job: Job) -> None:
    with display:
        display(job, Started(job.config, job.out, 1, 100, None))
        display(job, Stepped(1, 50))
        display(job, EpochEnded(line(1, True, beta=0.25, anchors=1), {}))
        display(job, Stepped(2, 100))
        display(job, EpochEnded(line(2, False), {}))
        display(job, Finished(job.out, {}, None))


def test_columns_stand_under_their_heads() -> None:
    heads = [(m.group(), m.end()) for m in re.finditer(r"\S+( \S+)?", terminal.TEACHER_HEADER)]
    row = terminal.epoch_row(line(12, True, beta=0.25, anchors=17))
    cells = {m.end(): m.group() for m in re.finditer(r"\S+", row)}
    assert {name: cells[end] for name, end in heads} == {
        "epoch": "12",
        "lr": "0.05",
        "loss": "1.2345",
        "val acc": "50.00",
        "test acc": "90.50",
        "beta": "0.250",
        "anchors": "17",
    }
    assert row.endswith(" *")


def test_columns_of_a_teacher_are_shown_only_with_one() -> None:
    out, jobs = io.StringIO(), [Job(TrainConfig(epochs=3), Path(f"runs/{name}")) for name in ("a", "b")]
    display = terminal.Rows(jobs, out)
    for job in jobs:
        display(job, Started(job.config, job.out, 1, 100, None))
    for epoch in (1, 2):
        display(jobs[0], EpochEnded(line(epoch, False), {}))
    assert "beta" not in out.getvalue()
    for epoch in (1, 2):
        display(jobs[1], EpochEnded(line(epoch, False, beta=0.25, anchors=1), {}))
        display(jobs[0], EpochEnded(line(epoch + 2, False), {}))
    assert [len(row.split()) for row in out.getvalue().splitlines()[2:]] == [7, 6, 6, 9, 8, 6, 8, 6]


def test_the_pace_is_that_of_the_last_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run begins with compilation; counted in, the first lines would speak of days."""
    clock = [0.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: clock[0])
    job = Job(TrainConfig(epochs=10), Path("runs/a"))
    display = terminal.Rows([job], io.StringIO())
    display(job, Started(job.config, job.out, 1, 1000, None))
    said = []
    for clock[0], epoch, samples in ((90.0, 1, 0), (96.0, 1, 600), (102.0, 2, 200), (190.0, 2, 400), (200.0, 2, 800)):
        display(job, Stepped(epoch, samples))
        said.append(capsys.readouterr().err.strip())
    assert said == [
        "a: epoch 1 of 10",
        "a: epoch 1 of 10, 100 images/s, 1:34 left",
        "a: epoch 2 of 10, 100 images/s, 1:28 left",
        "a: epoch 2 of 10",
        "a: epoch 2 of 10, 40 images/s, 3:25 left",
    ]


def test_on_a_terminal_the_best_row_is_green_and_progress_shows_epoch_and_time_left() -> None:
    out = FakeTerminal()
    job = Job(TrainConfig(epochs=3), Path("runs/a"))
    display = terminal.Live([job], out)
    follow(display, job)
    with display:
        display(job, Started(job.config, job.out, 1, 100, None))
        display(job, Stepped(2, 50))
        display.progress.refresh()
    text = out.getvalue()
    best, other = (next(row for row in text.splitlines() if re.search(rf"    {n}  +0.05", row)) for n in (1, 2))
    assert "\x1b[1;32m" in best
    assert "\x1b[1;32m" not in other
    assert "epoch 2/3" in text
    assert "left" in text


def test_rows_of_several_runs_begin_with_the_run() -> None:
    out = io.StringIO()
    jobs = [Job(TrainConfig(epochs=3), Path(f"runs/{name}")) for name in ("ce-seed0", "vista-light-seed0")]
    follow(terminal.Rows(jobs, out), jobs[0])
    rows = [row for row in out.getvalue().splitlines() if "0.05" in row]
    assert all(row.startswith("ce-seed0             ") for row in rows)
    assert len(rows) == 2


def test_a_failed_run_leaves_the_live_display() -> None:
    jobs = [Job(TrainConfig(epochs=3), Path(f"runs/{name}")) for name in ("a", "b")]
    display = terminal.Live(jobs, FakeTerminal())
    with display:
        for job in jobs:
            display(job, Started(job.config, job.out, 1, 100, None))
        jobs[0].error = ValueError("no")
        display(jobs[1], Stepped(1, 50))
        assert list(display.lines) == [jobs[1].out]


def test_the_role_of_a_run_that_another_one_needs_is_shown() -> None:
    out = io.StringIO()
    job = Job(TrainConfig(epochs=3), Path("runs/ban-seed0"))
    display = terminal.Rows([job], out)
    display(job, Started(job.config, job.out / "earlier" / "teacher", 1, 100, "teacher"))
    assert out.getvalue().startswith("ban-seed0 (teacher) starts")


def test_durations() -> None:
    assert terminal.duration(63.2) == "1:03"
    assert terminal.duration(3600 * 2 + 65) == "2:01:05"


def test_names_are_no_markup_and_cannot_command_the_terminal() -> None:
    out = FakeTerminal()
    table = Table(title="a[/b]\x1b[2J:smile:", width=40)
    table.add_column("x[red]")
    table.add_row("[bold]\x9b2J")
    console = terminal.console(out)
    console.print(table)
    console.print("say [/] \x07")
    text = out.getvalue()
    for shown in ("a[/b]\\x1b[2J:smile:", "x[red]", "[bold]\\x9b2J", "say [/] \\x07"):
        assert shown in text
    assert "\x1b[2J" not in text


def printed(table: Table, width: int) -> str:
    out = io.StringIO()
    terminal.PlainConsole(file=out, width=width).print(table)
    return out.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_numbers_of_a_runs_table_are_whole_on_a_narrow_terminal(width: int) -> None:
    numbers = {"top1": 1.0, "top5": 1.0, "nll": 1.2345, "ece": 0.1234, "aurc": 0.2345}
    metrics = {which: {"epoch": 187, "val": numbers, "test": numbers} for which in ("best", "last")}
    text = printed(report_table(TrainConfig(), metrics, 6), width)
    words = text.split()
    assert "…" not in text
    assert [words.count(number) for number in ("100.00", "1.2345", "12.34", "23.45")] == [8, 4, 4, 4]
    assert [words.count(word) for word in ("best", "last", "val", "test")] == [2, 2, 2, 2]
    assert "top-5" in text
    of_five = printed(report_table(TrainConfig(), metrics, 5), width)
    assert "top-5" not in of_five
    assert of_five.split().count("100.00") == 4


@pytest.mark.parametrize("width", [60, 80, 120])
def test_numbers_of_a_comparison_are_whole_on_a_narrow_terminal(width: int) -> None:
    numbers = {"best": {"mean": 94.44, "se": 1.15}, "last": {"mean": 96.15, "se": 0.71}, "deviation_gap": 10.59}
    known = {"seeds": 3, "reconstruction": False, "anchors_max": 101, "seconds": 123.4}
    rows = [{"method": method, **numbers, **known} for method in ("ce", "vista-light")]
    text = printed(comparison_table(rows, TrainConfig(), 3), width)
    words = text.split()
    assert "…" not in text
    for number in ("94.44", "1.15", "96.15", "0.71", "10.59", "101", "123.4"):
        assert words.count(number) == 2, number
    if width >= 80:
        assert "94.44 ± 1.15" in text
        assert {"vista-light", "method", "seeds", "best", "last", "epoch", "gap", "anchors"} <= set(words)


def test_probabilities_before_and_after_calibration_are_whole_on_a_narrow_terminal() -> None:
    before = {
        "ece": {"mean": 45.64, "se": 0.21},
        "nll": {"mean": 1.234, "se": 0.056},
        "aurc": {"mean": 7.0, "se": None},
    }
    after = {f"{name}_calibrated": {"mean": 3.62, "se": 11.94} for name in before}
    text = printed(probabilities_table([{"method": "vista-light", **before, **after}]), 60)
    first, second = [" ".join(line.split()) for line in text.splitlines() if "±" in line]
    assert first == "vista-light 45.6 ± 0.2 1.234 ± 0.056 7.00"
    assert second == "calibrated 3.6 ± 11.9 3.620 ± 11.940 3.62 ± 11.94"


def test_a_run_with_an_odd_name_is_followed_live() -> None:
    out = FakeTerminal()
    job = Job(TrainConfig(epochs=3), Path("runs/a[red]\x1b[2J"))
    display = terminal.Live([job], out)
    with display:
        display(job, Started(job.config, job.out, 1, 100, None))
        display.progress.refresh()
    assert out.getvalue().count("a[red]\\x1b[2J") >= 3
    assert "\x1b[2J" not in out.getvalue()


def test_what_is_no_text_is_shown_escaped() -> None:
    assert terminal.visible("über\n[a]") == "über\n[a]"
    assert terminal.visible("\x1b\t\u202e\udcff") == "\\x1b\\t\\u202e\\udcff"


def test_a_small_rate_stays_in_its_column() -> None:
    row = terminal.epoch_row({**line(12, True), "lr": 0.00085193})
    assert row.index("1.2345") == terminal.epoch_row(line(12, True)).index("1.2345")


def test_rows_that_do_not_fit_keep_each_name_with_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    out = terminal.PlainConsole(width=40)
    cells = ["a", *("0.12345678" for _ in range(6))]
    terminal.print_rows(out, ["run", "best val", "last val", "gap", "size", "rate", "loss"], [cells])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "a"
    assert max(map(len, lines)) <= 40
    pairs = [pair for line in lines[1:] for pair in line.strip().rstrip(",").split(", ")]
    names = [f"{name} 0.12345678" for name in ("best val", "last val", "gap", "size", "rate", "loss")]
    assert pairs == names
