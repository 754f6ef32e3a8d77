"""A method either composes with CutMix or rejects it before the run starts, as its card states.

`test_neutral.py` checks that composed losses use targets mixed by area.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from vista.methods import available
from vista.training.events import EpochEnded, Started
from vista.training.loop import train

COMPOSES = [name for name, method in available().items() if method.composes_with_cutmix]
REJECTS = [name for name, method in available().items() if not method.composes_with_cutmix]
CARDS = Path(__file__).parents[2] / "docs" / "methods"


@pytest.mark.filterwarnings("ignore:CutMix is on, so record becomes")
@pytest.mark.parametrize("method", COMPOSES)
def test_trains_with_cutmix(make_config, tmp_path: Path, method: str) -> None:
    config = make_config(method, cutmix=0.5 if available()[method].needs_unmixed else 1.0, epochs=2)
    losses = [e.line["train_loss"] for e in train(config, tmp_path) if isinstance(e, EpochEnded)]
    assert len(losses) >= 2
    assert all(math.isfinite(loss) for loss in losses)


@pytest.mark.parametrize("method", REJECTS)
def test_rejects_cutmix_before_run_starts(make_config, tmp_path: Path, method: str) -> None:
    with pytest.raises(ValueError, match=rf"method '{method}' does not support CutMix: use --cutmix 0"):
        next(train(make_config(method, cutmix=0.5), tmp_path))
    assert isinstance(next(train(make_config(method), tmp_path)), Started), "without CutMix it starts"


def test_a_method_that_learns_from_unmixed_batches_rejects_mixing_all(make_config, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"method 'posterior' learns from unmixed batches: use --cutmix 0\.5"):
        next(train(make_config("posterior", cutmix=1.0), tmp_path))


@pytest.mark.parametrize("method", sorted({method.name for method in available().values()}))
def test_card_states_whether_it_composes(method: str) -> None:
    text = (CARDS / f"{method}.md").read_text()
    composes = available()[method].composes_with_cutmix
    assert ("Composes with CutMix" in text) == composes
    assert ("Does not compose with CutMix:" in text) == (not composes), "with the reason"


def test_both_kinds_exist() -> None:
    assert "ce" in COMPOSES
    assert "ps-kd" in REJECTS
