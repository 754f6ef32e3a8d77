"""Text from outside in files that people open in a spreadsheet."""

import pytest

from vista.spreadsheet import cell


@pytest.mark.parametrize("name", ["=HYPERLINK(1)", "-1+2", "+x", "-", "@SUM(A1)", "\tx", "\rx"])
def test_a_class_name_never_becomes_a_formula(name: str) -> None:
    assert cell(name) == f"'{name}"


@pytest.mark.parametrize("name", ["cat", "a=b", "1-2", "", "-1", "+1", "-2.5"])
def test_other_names_stay_as_they_are(name: str) -> None:
    assert cell(name) == name
