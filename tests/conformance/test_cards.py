"""Every method documents its options in its file and has a complete card in docs/methods."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from vista.cli.methods import explanations
from vista.methods import Method, available, choose
from vista.reproduce import ledger

PROJECT = Path(__file__).parents[2]
CARDS = PROJECT / "docs" / "methods"
METHODS = {method.name: method for method in available().values()}
DEFAULTS = "Defaults and their sources"
SECTIONS = ["Idea", "Formula", "Cost", DEFAULTS, "Reported", "Measured"]
MARK = "**A reconstruction"


def split_sections(card: str) -> dict[str, str]:
    """Return the text of a card by heading."""
    pieces = re.split(r"^## (.+)$", card, flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(pieces[1::2], pieces[2::2])}


@pytest.fixture
def card(request: pytest.FixtureRequest) -> str:
    return (CARDS / f"{request.getfixturevalue('method')}.md").read_text()


@pytest.mark.parametrize("method", METHODS)
def test_card_has_all_sections(card: str, method: str) -> None:
    sections = split_sections(card)
    assert card.startswith(f"# {method}\n\n## Idea\n")
    assert list(sections) == SECTIONS
    assert all(sections.values())
    assert "\n" not in sections["Idea"], "the idea is one paragraph"
    sentences = re.findall(r"[.!?](?=\s|$)", sections["Idea"].removeprefix(f"{MARK}.**"))
    assert 2 <= len(sentences) <= 4, "two to four sentences"


@pytest.mark.parametrize("method", METHODS)
def test_card_names_every_option_and_variant(card: str, method: str) -> None:
    options = [field.name for field in dataclasses.fields(METHODS[method].Config)]
    first_cells = re.findall(r"^\|([^|]*`[^|]*)\|", split_sections(card)[DEFAULTS], flags=re.MULTILINE)
    rows = [name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)]
    assert [name for name in rows if name not in options] == []
    assert [name for name in options if not re.search(rf"\b{name}\b", card)] == []
    assert [variant for variant in METHODS[method].variants if variant not in card] == []


def parse_default(text: str) -> Any:
    """Parse a default of a card: a number, a fraction such as 80 / 300, or a word."""
    number = re.match(r"[\d.]+( / \d+)?", text)
    if number:
        return float(Fraction(number[0].replace(" ", "")))
    return {"none": None, "false": False}.get(text, text)


@pytest.mark.parametrize("method", METHODS)
def test_card_states_defaults_of_options(card: str, method: str) -> None:
    for first, cell in re.findall(r"^\|([^|]*`[^|]*)\|([^|]*)\|", split_sections(card)[DEFAULTS], flags=re.MULTILINE):
        usual, *others = cell.strip().split("; ")
        names = re.findall(r"`(\w+)`", first)
        for name, text in zip(names, usual.split(", ")):
            assert parse_default(text) == choose(method).options[name], name
        for value, variant in (other.split(" for ") for other in others):
            assert parse_default(value) == choose(variant).options[names[0]], variant


@pytest.mark.parametrize("method", METHODS)
def test_card_marks_reconstructions(card: str, method: str) -> None:
    assert split_sections(card)["Idea"].startswith(MARK) == METHODS[method].reconstruction


@pytest.mark.parametrize("method", METHODS)
def test_card_has_generated_measurements(card: str, method: str, benchmark: Callable[[str], ModuleType]) -> None:
    cards = benchmark("method_cards")
    digits, records = json.loads(cards.RECORD.read_text()), ledger.read(cards.ROOT / "results")
    assert cards.with_measured(card, method, digits, records) == card, "run `python benchmarks/method_cards.py`"


def test_new_measurements_replace_rows_of_the_same_configuration_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, benchmark: Callable[[str], ModuleType]
) -> None:
    cards, printed = benchmark("method_cards"), tmp_path / "printed.json"
    record = json.loads(cards.RECORD.read_text())
    older = record | {"config": {name: value for name, value in record["config"].items() if name != "own_validation"}}
    monkeypatch.setattr(cards, "RECORD", tmp_path / "record.json")
    cards.RECORD.write_text(json.dumps(older))
    again = [row | {"seconds": -1} for row in record["rows"] if row["method"] == "byot"]
    printed.write_text(json.dumps({"config": record["config"] | {"methods": ["byot"]}, "rows": again}))
    cards.take(printed)
    taken = json.loads(cards.RECORD.read_text())
    assert taken["config"] == record["config"], "a missing field has its default"
    methods = [row["method"] for row in record["rows"]]
    assert [row["method"] for row in taken["rows"]] == methods
    assert [row["method"] for row in taken["rows"] if row["seconds"] == -1] == ["byot"]
    printed.write_text(json.dumps({"config": record["config"] | {"lr": 0.5}, "rows": again}))
    with pytest.raises(SystemExit, match="has another configuration"):
        cards.take(printed)


def test_every_card_belongs_to_a_method() -> None:
    assert sorted(path.stem for path in CARDS.glob("*.md") if path.stem != "README") == sorted(METHODS)


@pytest.mark.parametrize("method", METHODS)
def test_options_have_defaults_and_docstrings(method: str) -> None:
    config = METHODS[method].Config
    for field in dataclasses.fields(config):
        assert field.default is not dataclasses.MISSING, f"{field.name} has no default"
    if config is Method.Config:
        return
    assert list(explanations(config)) == [field.name for field in dataclasses.fields(config)]
    assert all(explanations(config).values())


@pytest.mark.parametrize("method", METHODS)
def test_summary_cost_state_and_source_are_single_lines(method: str) -> None:
    for part in ("summary", "cost", "keeps", "source"):
        text = getattr(METHODS[method], part)
        assert text.strip()
        assert "\n" not in text
    assert len(METHODS[method].summary) <= 110
