"""The record of a run is read as it was written; errors name missing files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vista.files import array_file, atomic
from vista.runs.record import COVERAGE, EPOCHS, FORMAT, TIMINGS, VERSION, Record

SIZES = {"val_given": 13, "test": 8}


def filled(epochs: int) -> Record:
    record = Record(dict(SIZES))
    generator = np.random.default_rng(0)
    for epoch in range(1, epochs + 1):
        correct = {name: generator.random(size) < 0.5 for name, size in SIZES.items()}
        timing = {"train_seconds": 1.5, "evaluate_seconds": 0.5}
        record.append({"epoch": epoch, "train_loss": 0.1 * epoch}, timing, correct)
    return record


def assert_same(one: Record, other: Record) -> None:
    assert (one.sizes, one.lines, one.timings) == (other.sizes, other.lines, other.timings)
    for name in one.sizes:
        assert one.correct(name).shape == (len(one), one.sizes[name])
        assert (one.correct(name) == other.correct(name)).all()


@pytest.mark.parametrize("epochs", [0, 1, 3])
def test_comes_back_as_it_was(tmp_path: Path, epochs: int) -> None:
    record = filled(epochs)
    assert record.packed("val_given").shape == (epochs, 2), "13 bits are two bytes"
    record.write(tmp_path)
    assert_same(Record.read(tmp_path), record)
    assert_same(Record.from_state(record.state()), record)
    assert sorted(path.name for path in tmp_path.iterdir()) == [COVERAGE, EPOCHS, TIMINGS]


def test_before_its_first_epoch_a_record_is_one_of_any_number_of_samples(tmp_path: Path) -> None:
    record = Record({"val_given": 1000, "test": 17})
    record.write(tmp_path)
    assert_same(Record.read(tmp_path), record)


def test_epochs_that_nobody_timed_took_no_time() -> None:
    assert Record({}, lines=[{"epoch": 1}, {"epoch": 2}], timings=[{"epoch": 1}, {"epoch": 2}]).seconds() == 0


def test_bits_are_the_samples_that_were_right() -> None:
    record = Record({"test": 9})
    rows = [np.arange(9) % k == 0 for k in (2, 3)]
    for epoch, row in enumerate(rows, 1):
        record.append({"epoch": epoch}, {}, {"test": row})
    assert (record.correct("test") == np.stack(rows)).all()
    assert record.packed("test").shape == (2, 2)
    with pytest.raises(KeyError, match="no set 'val'; it has test"):
        record.correct("val")


def test_a_record_killed_between_its_files_is_that_of_the_epoch_before(tmp_path: Path) -> None:
    """Coverage is written first, and timings last: what they have too much is not read."""
    filled(3).write(tmp_path)
    longer = {name: (tmp_path / name).read_bytes() for name in (COVERAGE, TIMINGS)}
    filled(2).write(tmp_path)
    for name, content in longer.items():
        (tmp_path / name).write_bytes(content)
    assert_same(Record.read(tmp_path), filled(2))


@pytest.mark.parametrize(("epochs", "same"), [(0, 0), (1, 0), (3, 2), (3, 0)])
def test_a_record_that_goes_back_can_be_read_at_every_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epochs: int, same: int
) -> None:
    """As after a resume from an older checkpoint: what is there is of the old epochs, or of the new ones."""
    old, new = filled(3), filled(epochs)
    if epochs:
        new.lines[same]["train_loss"] = 0.5
        new.rows["test"][same] = ~new.rows["test"][same]
    old.write(tmp_path)
    found: set[int] = set()

    def read(what: str, path: Path) -> None:
        there = Record.read(tmp_path)
        assert any(
            there.lines == record.lines[: len(there)]
            and all((there.packed(name) == record.packed(name)[: len(there)]).all() for name in SIZES)
            for record in (old, new)
        )
        found.add(len(there))

    monkeypatch.setattr(atomic, "on_write", read)
    new.write(tmp_path)
    assert found == {3, same, epochs}
    assert_same(Record.read(tmp_path), new)


@pytest.mark.parametrize("name", [COVERAGE, EPOCHS])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    filled(2).write(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"{tmp_path.name} has no record of a run: {name} is missing"):
        Record.read(tmp_path)


def test_a_record_without_timings_is_read(tmp_path: Path) -> None:
    filled(2).write(tmp_path)
    (tmp_path / TIMINGS).unlink()
    assert Record.read(tmp_path).timings == []


def test_what_was_cut_short_is_named(tmp_path: Path) -> None:
    filled(3).write(tmp_path)
    epochs, coverage = (tmp_path / EPOCHS).read_bytes(), (tmp_path / COVERAGE).read_bytes()
    (tmp_path / EPOCHS).write_bytes(epochs[:-5])
    with pytest.raises(ValueError, match=rf"{EPOCHS} line 3 is damaged: it is not JSON"):
        Record.read(tmp_path)
    (tmp_path / EPOCHS).write_bytes(b"".join(epochs.splitlines(keepends=True)[::2]))
    with pytest.raises(ValueError, match=rf"{EPOCHS} line 2 is damaged: epoch must be 2, got 3"):
        Record.read(tmp_path)
    (tmp_path / EPOCHS).write_bytes(epochs)
    (tmp_path / COVERAGE).write_bytes(coverage[:-5])
    with pytest.raises(ValueError, match=rf"{COVERAGE} is damaged: it is not a complete safetensors file"):
        Record.read(tmp_path)
    filled(2).write(tmp_path)
    (tmp_path / EPOCHS).write_bytes(epochs)
    with pytest.raises(ValueError, match=rf"{COVERAGE} is damaged: it has 2 epochs of \w+, but {EPOCHS} has 3"):
        Record.read(tmp_path)


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        (EPOCHS, "5", "line 2 is damaged: it must hold a JSON object, got int"),
        (EPOCHS, '{"epoch": 2, "anchors": "many"}', "line 2 is damaged: anchors must be a number, got 'many'"),
        (EPOCHS, '{"epoch": 2, "anchors": NaN}', "line 2 is damaged: numbers must be finite, got NaN"),
        (TIMINGS, "[1]", "line 2 is damaged: it must hold a JSON object, got list"),
        (TIMINGS, '{"train_seconds": 1}', "line 2 is damaged: evaluate_seconds must be a number, got None"),
        (TIMINGS, '{"evaluate_seconds": 1}', "line 2 is damaged: train_seconds must be a number, got None"),
        (
            TIMINGS,
            '{"train_seconds": "x", "evaluate_seconds": 1}',
            "line 2 is damaged: train_seconds must be a number, got 'x'",
        ),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, file: str, line: str, message: str) -> None:
    filled(3).write(tmp_path)
    lines = (tmp_path / file).read_text().splitlines()
    (tmp_path / file).write_text("\n".join([lines[0], line, lines[2]]))
    with pytest.raises(ValueError, match=f"{file} {message}; restore the file, or train the run again"):
        Record.read(tmp_path)


def test_lines_that_are_no_text_are_named(tmp_path: Path) -> None:
    filled(1).write(tmp_path)
    (tmp_path / EPOCHS).write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=f"{EPOCHS} line 1 is damaged: it is not UTF-8 text"):
        Record.read(tmp_path)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (None, "sizes must be the number of samples of each set, got None"),
        ([13, 8], r"sizes must be the number of samples of each set, got \[13, 8\]"),
        ({"val_given": "x", "test": 8}, "sizes must be .*, got {'test': 8, 'val_given': 'x'}"),
        ({"test": 8}, "it has bits of test, val_given, but sizes of test"),
        ({"val_given": 13, "test": 8, "val_true": 13}, "it has bits of test, val_given, but sizes of test, v"),
        ({"val_given": 30, "test": 8}, r"val_given must be uint8 \[epochs, 4\] for 30 samples, got uint8 \[2, 2\]"),
    ],
)
def test_sizes_that_are_not_those_of_the_bits_are_named(tmp_path: Path, sizes: object, message: str) -> None:
    filled(2).write(tmp_path)
    arrays, about = {name: filled(2).packed(name) for name in SIZES}, {} if sizes is None else {"sizes": sizes}
    (tmp_path / COVERAGE).write_bytes(array_file.to_bytes(arrays, FORMAT, VERSION, **about))
    with pytest.raises(ValueError, match=f"{COVERAGE} is damaged: {message}"):
        Record.read(tmp_path)


def test_another_version_is_rejected_by_name(tmp_path: Path) -> None:
    filled(1).write(tmp_path)
    arrays = {name: filled(1).packed(name) for name in SIZES}
    (tmp_path / COVERAGE).write_bytes(array_file.to_bytes(arrays, FORMAT, "99", sizes=SIZES))
    with pytest.raises(ValueError, match=f"is {FORMAT} version 99, expected {FORMAT} version {VERSION}"):
        Record.read(tmp_path)


def test_the_same_epochs_are_the_same_bytes(tmp_path: Path) -> None:
    one, other = filled(3), filled(3)
    other.lines = [dict(reversed(line.items())) for line in other.lines]
    for name, record in (("a", one), ("b", other)):
        (tmp_path / name).mkdir()
        record.write(tmp_path / name)
    for file in (COVERAGE, EPOCHS, TIMINGS):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_a_number_that_json_does_not_have_is_not_written(tmp_path: Path) -> None:
    record = filled(2)
    record.lines[1]["train_loss"] = float("nan")
    with pytest.raises(ValueError, match="not JSON compliant"):
        record.write(tmp_path)
    assert not list(tmp_path.iterdir())
