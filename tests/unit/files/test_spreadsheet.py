"""Tables with foreign text, in files that people open in a spreadsheet."""

import csv
import io

import pytest

from vista.files.spreadsheet import cell, table


@pytest.mark.parametrize("name", ["=HYPERLINK(1)", "-1+2", "+x", "-", "@SUM(A1)", "\tx", "\rx"])
def test_a_class_name_never_becomes_a_formula(name: str) -> None:
    assert cell(name) == f"'{name}"


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", "\n", "\r"])
@pytest.mark.parametrize("formula", ["=1+1", "+x", "-x", "@SUM(A1)", "\uff1d1"])
def test_no_separator_starts_a_formula(separator: str, formula: str) -> None:
    """A spreadsheet may split at another separator than the comma, even inside quotes."""
    assert cell(f"a{separator}{formula}") == f"a{separator}'{formula}"
    assert cell(f"{formula}{separator}a").startswith(f"'{formula}")
    written = table([f"h{separator}{formula}"], [(f"a{separator}{formula}",)]).decode()
    assert f"{separator}{formula}" not in written


@pytest.mark.parametrize("name", ["cat", "a=b", "1-2", "", "-1", "+1", "-2.5"])
def test_other_names_stay_as_they_are(name: str) -> None:
    assert cell(name) == name


def test_a_table_reads_back_as_it_was_but_for_formulas() -> None:
    written = table(["id", "name"], [(0, 'a "b", c\nd'), (-1, "=1+1"), (2, "größe")]).decode()
    assert list(csv.reader(io.StringIO(written, newline=""))) == [
        ["id", "name"], ["0", 'a "b", c\nd'], ["-1", "'=1+1"], ["2", "größe"],
    ]  # fmt: skip
    assert "\r" not in written


def test_a_carriage_return_in_a_name_ends_no_row() -> None:
    written = table(["id", "file"], [(0, "a\rb.png"), (1, "c.png")]).decode()
    assert list(csv.reader(io.StringIO(written, newline=""))) == [["id", "file"], ["0", "a\rb.png"], ["1", "c.png"]]
