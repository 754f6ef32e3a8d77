"""A method composes with CutMix, or says clearly that it does not; its card says the same.

That the composition is right is shown in `test_neutral.py`: there the loss is that of targets mixed by area.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from vista.methods import available
from vista.training.events import EpochEnded, Started
from vista.training.loop import train

COMPOSES = [name for name, method in available().items() if method.composes_with_cutmix]
REFUSES = [name for name, method in available().items() if not method.composes_with_cutmix]
CARDS = Path(__file__).parents[2] / "docs" / "methods"


@pytest.mark.filterwarnings("ignore:CutMix is on, so record becomes")
@pytest.mark.parametrize("method", COMPOSES)
def test_it_trains_on_mixed_pictures(make_config, tmp_path: Path, method: str) -> None:
    config = make_config(method, cutmix=1.0, epochs=2)
    losses = [e.line["train_loss"] for e in train(config, tmp_path) if isinstance(e, EpochEnded)]
    assert len(losses) >= 2
    assert all(math.isfinite(loss) for loss in losses)


@pytest.mark.parametrize("method", REFUSES)
def test_it_refuses_before_the_run_starts(make_config, tmp_path: Path, method: str) -> None:
    with pytest.raises(ValueError, match=rf"method '{method}' does not compose with CutMix: use --cutmix 0"):
        next(train(make_config(method, cutmix=0.5), tmp_path))
    assert isinstance(next(train(make_config(method), tmp_path)), Started), "as the message says"


@pytest.mark.parametrize("method", sorted({method.name for method in available().values()}))
def test_its_card_says_the_same(method: str) -> None:
    text = (CARDS / f"{method}.md").read_text()
    composes = available()[method].composes_with_cutmix
    assert ("Composes with CutMix" in text) == composes
    assert ("Does not compose with CutMix:" in text) == (not composes), "and why"


def test_there_are_both() -> None:
    assert "ce" in COMPOSES
    assert "ps-kd" in REFUSES
