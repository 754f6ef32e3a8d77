"""Tables as data: every cell is a run, and the paper's numbers are the paper's."""

from __future__ import annotations

import pytest

from vista.methods import choose
from vista.reproduce import names, protocol, study
from vista.training.resolve import choose_method


@pytest.mark.parametrize("name", names())
def test_every_cell_of_every_table_is_a_run_that_could_be_made(name: str) -> None:
    for cell in study(name).cells:
        config = protocol.configuration(cell.method, cell.changes, 0)
        assert choose_method(config).method is choose(cell.method).method
        assert config.epochs == 200
        assert (config.batch_size, config.lr) == ((32, 0.01) if config.noise == "none" else (64, 0.1))


def test_known_tables_are_all_there_and_an_unknown_one_names_the_nearest() -> None:
    tables = "table1 table2 table3 table4 table5 table6 cutmix ema ablations beta"
    figures = "fig1 lifespan coverage contributing surrogate"
    ours = "calibration controls recording permutation"
    assert {*tables.split(), *figures.split(), *ours.split()} == set(names())
    with pytest.raises(ValueError, match=r"'tabel2' is no table or figure; nearest is 'table2'"):
        study("tabel2")


def test_the_papers_table_3_has_its_errors() -> None:
    errors = {
        (cell.setting, cell.method, cell.measure): cell.paper.error for cell in study("table3").cells if cell.paper
    }
    assert errors["DenseNet-121", "vista", "aurc"] == 0.88
    assert errors["ResNet-18", "ce", "error"] == 0.07
    assert sum(error is not None for error in errors.values()) == 12
