"""Tables as data: every cell has a valid run, and the numbers are the paper's."""

from __future__ import annotations

import pytest

from vista.methods import choose
from vista.reproduce import load_study, study_names
from vista.training.resolve import choose_method


@pytest.mark.parametrize("name", study_names())
def test_every_cell_of_every_table_has_a_valid_configuration(name: str) -> None:
    for cell in load_study(name).cells:
        config = cell.config()
        assert choose_method(config).method is choose(cell.method).method
        if config.data in ("digits", "cifar100-small"):
            continue
        assert config.epochs == (50 if name.startswith("recipe-") else 200)
        assert (config.batch_size, config.lr) == ((32, 0.01) if config.noise == "none" else (64, 0.1))


def test_all_tables_are_found_and_an_unknown_name_is_rejected() -> None:
    tables = "table1 table2 table3 table4 table5 table6 cutmix ema ablations beta"
    figures = "fig1 lifespan coverage contributing surrogate"
    ours = "calibration clean-validation controls recording permutation recipe recipe-additions recipe-search"
    assert {*tables.split(), *figures.split(), *ours.split()} == set(study_names())
    with pytest.raises(ValueError, match=r"table or figure 'tabel2' is unknown; did you mean 'table2'\?"):
        load_study("tabel2")
    with pytest.raises(ValueError, match=r"table or figure 'xyz' is unknown; known: ablations, beta, "):
        load_study("xyz")


def test_the_papers_table_3_has_its_errors() -> None:
    errors = {
        (cell.setting, cell.method, cell.measure): cell.paper.error for cell in load_study("table3").cells if cell.paper
    }
    assert errors["DenseNet-121", "vista", "aurc"] == 0.88
    assert errors["ResNet-18", "ce", "error"] == 0.07
    assert sum(error is not None for error in errors.values()) == 12
