"""Headline, details and tiles: generated from the record, also where VISTA does not win."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from made_runs import hand_run, record_of, write_run

from vista.analysis import read_runs
from vista.analysis.runs import Run
from vista.report import summary
from vista.report.payload import payload


def run_of(
    method: str, right: int, seed: int = 0, *, noise: str = "symmetric:0.4", epochs: int = 2, planned: int = 2
) -> Run:
    """A run with ``right`` of 100 test samples right after the last epoch, and half of them after the first."""
    test = np.stack([np.arange(100) < right // 2, np.arange(100) < right])[:epochs]
    config = {"method": method, "seed": seed, "noise": noise, "data": "digits"}
    return Run(f"{method}{seed}", Path(f"{method}{seed}"), record_of(val_given=test, test=test), config, epochs=planned)


def headline(runs: Sequence[Run]) -> str:
    return str(payload(runs)["headline"])


@pytest.mark.parametrize(
    ("ce", "vista", "said"),
    [
        ([50, 52], [62, 64], "With 40 % wrong labels, VISTA ends 12.0 points above cross-entropy"),
        ([62, 64], [50, 52], "With 40 % wrong labels, VISTA ends 12.0 points below cross-entropy"),
        ([50, 60], [52, 62], "With 40 % wrong labels, VISTA ends level with cross-entropy"),
        ([50], [51], "With 40 % wrong labels, VISTA ends 1.0 points above cross-entropy"),
        ([50], [50], "With 40 % wrong labels, VISTA ends level with cross-entropy"),
    ],
)
def test_the_headline_says_who_wins(ce: list[int], vista: list[int], said: str) -> None:
    runs = [run_of("vista", right, seed) for seed, right in enumerate(vista)]
    assert headline([*runs, *(run_of("ce", right, seed) for seed, right in enumerate(ce))]) == said


def test_a_difference_within_two_standard_errors_is_stated() -> None:
    data = payload(
        [run_of(m, right + shift, s) for m, shift in (("ce", 0), ("vista", 2)) for s, right in ((0, 50), (1, 60))]
    )
    assert "The difference, +2.0 ± 7.1 points, is within two standard errors." in data["detail"]


def test_the_details_name_a_method_that_is_higher() -> None:
    data = payload([run_of("ce", 50), run_of("sat", 70), run_of("vista", 60)])
    assert data["headline"] == "With 40 % wrong labels, VISTA ends 10.0 points above cross-entropy"
    assert data["detail"].startswith("Test accuracy at the last epoch, one seed: VISTA 60.00 %, cross-entropy 50.00 %.")
    assert "SAT ends highest, with 70.00 %." in data["detail"]
    assert "At the best validation epoch the difference is +10.0 points; SAT is highest there" in data["detail"]


@pytest.mark.parametrize(
    ("noise", "start"),
    [
        ("none", "VISTA ends"),
        ("human", "With human labels, VISTA ends"),
        ("pairflip:0.25", "With 25 % wrong labels, VISTA ends"),
        ("file:labels.csv", "With labels from a file, VISTA ends"),
        ("anything else", "VISTA ends"),
    ],
)
def test_the_headline_names_the_noise(noise: str, start: str) -> None:
    assert headline([run_of("ce", 50, noise=noise), run_of("vista", 60, noise=noise)]).startswith(start)


def test_without_a_baseline_the_two_highest_are_compared() -> None:
    assert headline([run_of("sat", 50), run_of("elr", 60)]) == "With 40 % wrong labels, ELR ends 10.0 points above SAT"
    assert headline([run_of("ce", 50)]) == "With 40 % wrong labels, cross-entropy ends at 50.0 % test accuracy"
    assert headline([hand_run("mine")]) == "mine ends at 66.7 % validation accuracy on given labels"


def test_an_unfinished_run_states_its_epoch() -> None:
    runs = [run_of(method, right, planned=9) for method, right in (("ce", 50), ("vista", 60))]
    assert headline(runs) == "With 40 % wrong labels, VISTA is after epoch 2 10.0 points above cross-entropy"
    assert payload(runs)["tiles"][0]["label"] == "test accuracy of VISTA after epoch 2"


def test_a_run_before_its_first_epoch_has_a_headline(tmp_path: Path) -> None:
    write_run(tmp_path / "run", epochs=0, finished=False)
    data = payload(read_runs([tmp_path / "run"]))
    assert (data["headline"], data["tiles"]) == ("No run has finished its first epoch yet", [])


def test_there_are_four_tiles(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path / f"ce{seed}", seed=seed)
        write_run(tmp_path / f"vista{seed}", method="vista", seed=seed, teacher=True)
    data = payload(read_runs([tmp_path]))
    accuracy, gain, wrong, gap = data["tiles"]
    rows = {row["name"]: row["cells"] for row in data["table"]["rows"]}
    ours, plain = rows["VISTA"], rows["cross-entropy"]
    assert accuracy["value"] == f"{ours['last']['mean']:.1f} %"
    assert accuracy["note"] == f"± {ours['last']['se']:.1f}, 2 seeds"
    assert gain["value"] == f"{ours['last']['mean'] - plain['last']['mean']:+.1f}"
    assert wrong["value"] == f"≈ {data['suspects']['estimated']:,}"
    assert wrong["label"] == f"of {data['suspects']['samples']:,} labels look wrong"
    assert gap["value"] == f"{ours['gap']['mean']:.1f} %"
    alone = payload([run_of("ce", 50)])["tiles"]
    assert [tile["value"] for tile in alone] == ["50.0 %", "50.0 %", "–", "0.0 %"]
    assert alone[2]["label"] == "labels not judged"


def test_an_estimate_with_a_caution_is_called_uncertain() -> None:
    found = {"estimated": 578, "samples": 1000, "interval": [336, 640], "wrong": None, "caution": "Overtrained."}
    note = "58 %; 95 % interval 336 to 640"
    assert summary.wrong_tile(found).note == f"{note}; uncertain: see Labels to check"
    assert summary.wrong_tile({**found, "caution": None}).note == note
    assert summary.wrong_tile({**found, "wrong": 150}).note == f"{note}; truly 150", (
        "where the truth is known it says more"
    )
