"""A method's file explains its options, and its card the method: what it does, costs, takes and is said to reach."""

from __future__ import annotations

import dataclasses
import inspect
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
PARTS = ["Formula", "Cost", "Defaults", "Reported", "What we measured"]
MARK = "**A reconstruction"


def parts_of(card: str) -> dict[str, str]:
    """The text of a card by heading; what comes before the first one is the idea."""
    pieces = re.split(r"^## (.+)$", card, flags=re.MULTILINE)
    return {"Idea": pieces[0].split("\n", 1)[1].strip()} | {
        name: text.strip() for name, text in zip(pieces[1::2], pieces[2::2])
    }


@pytest.fixture
def card(request: pytest.FixtureRequest) -> str:
    return (CARDS / f"{request.getfixturevalue('method')}.md").read_text()


@pytest.mark.parametrize("method", METHODS)
def test_its_card_has_every_part(card: str, method: str) -> None:
    parts = parts_of(card)
    assert card.startswith(f"# {method}\n")
    assert list(parts) == ["Idea", *PARTS]
    assert all(parts.values())
    assert "\n" not in parts["Idea"], "the idea is one paragraph"
    sentences = re.findall(r"[.!?](?=\s|$)", parts["Idea"].removeprefix(f"{MARK}.**"))
    assert 2 <= len(sentences) <= 4, "three sentences, give or take what a reconstruction has to say"


@pytest.mark.parametrize("method", METHODS)
def test_its_card_names_every_option_and_variant(card: str, method: str) -> None:
    options = [field.name for field in dataclasses.fields(METHODS[method].Config)]
    first_cells = re.findall(r"^\|([^|]*`[^|]*)\|", parts_of(card)["Defaults"], flags=re.MULTILINE)
    rows = [name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)]
    assert [name for name in rows if name not in options] == []
    assert [name for name in options if not re.search(rf"\b{name}\b", card)] == []
    assert [variant for variant in METHODS[method].variants if variant not in card] == []


def read(text: str) -> Any:
    """What a card says of a default: a number, a share such as 80 / 300, or a word."""
    number = re.match(r"[\d.]+( / \d+)?", text)
    if number:
        return float(Fraction(number[0].replace(" ", "")))
    return {"none": None, "false": False}.get(text, text)


@pytest.mark.parametrize("method", METHODS)
def test_its_card_has_the_defaults_of_its_options(card: str, method: str) -> None:
    for first, cell in re.findall(r"^\|([^|]*`[^|]*)\|([^|]*)\|", parts_of(card)["Defaults"], flags=re.MULTILINE):
        usual, *others = cell.strip().split("; ")
        names = re.findall(r"`(\w+)`", first)
        for name, text in zip(names, usual.split(", ")):
            assert read(text) == choose(method).options[name], name
        for value, variant in (other.split(" for ") for other in others):
            assert read(value) == choose(variant).options[names[0]], variant


@pytest.mark.parametrize("method", METHODS)
def test_its_card_says_whether_it_is_a_reconstruction(card: str, method: str) -> None:
    assert parts_of(card)["Idea"].startswith(MARK) == METHODS[method].reconstruction


@pytest.mark.parametrize("method", METHODS)
def test_its_card_has_what_was_measured(card: str, method: str, benchmark: Callable[[str], ModuleType]) -> None:
    cards = benchmark("method_cards")
    digits, records = json.loads(cards.RECORD.read_text()), ledger.read(cards.ROOT / "results")
    assert cards.with_measured(card, method, digits, records) == card, "run `python benchmarks/method_cards.py`"


def test_rows_that_are_measured_again_join_the_record_under_its_configuration_alone(
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
    assert taken["config"] == record["config"], "a field that came later is at its default"
    methods = [row["method"] for row in record["rows"]]
    assert [row["method"] for row in taken["rows"]] == methods
    assert [row["method"] for row in taken["rows"] if row["seconds"] == -1] == ["byot"]
    printed.write_text(json.dumps({"config": record["config"] | {"lr": 0.5}, "rows": again}))
    with pytest.raises(SystemExit, match="has another configuration"):
        cards.take(printed)


def test_every_card_belongs_to_a_method() -> None:
    assert sorted(path.stem for path in CARDS.glob("*.md") if path.stem != "README") == sorted(METHODS)


@pytest.mark.parametrize("method", METHODS)
def test_its_options_have_defaults_and_a_line_each(method: str) -> None:
    config = METHODS[method].Config
    for field in dataclasses.fields(config):
        assert field.default is not dataclasses.MISSING, f"{field.name} has no default"
    if config is Method.Config:
        return
    assert list(explanations(config)) == [field.name for field in dataclasses.fields(config)]
    assert all(explanations(config).values())


@pytest.mark.parametrize("method", METHODS)
def test_it_says_in_one_line_each_what_it_does_costs_and_keeps_and_whose_it_is(method: str) -> None:
    for part in ("summary", "cost", "keeps", "source"):
        text = getattr(METHODS[method], part)
        assert text.strip()
        assert "\n" not in text
    assert len(METHODS[method].summary) <= 110


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if not method.capturable])
def test_what_cannot_be_captured_says_why(method: str) -> None:
    assert re.search(r"^    capturable = False  # \w+", inspect.getsource(METHODS[method]), re.MULTILINE)
