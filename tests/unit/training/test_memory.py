"""A run that is out of GPU memory names a batch size that fits; the error is faked, memory too."""

from __future__ import annotations

import re
import weakref
from pathlib import Path

import pytest
import torch
from trainings import config, train

from vista.cli.errors import exit_code
from vista.training.engine import Engine
from vista.training.memory import largest_batch

FREE = 10_000


@pytest.mark.parametrize(
    ("fixed", "below", "fits"), [(1_000, 256, 64), (1_000, 33, 32), (1_000, 8, 4), (9_000, 64, None)]
)
def test_the_batch_size_is_extrapolated_from_two_small_ones(fixed: int, below: int, fits: int | None) -> None:
    assert largest_batch(lambda size: fixed + 100 * size, FREE, below) == fits


@pytest.mark.parametrize(
    ("per_sample", "advice"),
    [
        (700, "8 should fit, use --batch-size 8 --fresh (adding --accumulate 8"),
        (6_000, "use a smaller --batch-size, --image-size or --network"),
    ],
)
def test_the_error_names_a_batch_size_that_fits(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, per_sample: int, advice: str
) -> None:
    step, alive = Engine._step, []

    def out_of_memory(engine: Engine, size: int, *rest: object) -> None:
        if size * per_sample > FREE:
            activations = torch.zeros(size)
            alive.append(weakref.ref(activations))
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
        step(engine, size, *rest)

    def peak_bytes(engine: Engine, size: int) -> int:
        assert alive[0]() is None, "the tensors of the failed step are freed before memory is measured"
        engine._step(size, False, engine.network)
        return size * per_sample

    monkeypatch.setattr(Engine, "_step", out_of_memory)
    monkeypatch.setattr(Engine, "peak_bytes", peak_bytes)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (FREE, FREE))
    with pytest.raises(RuntimeError, match=re.escape(advice)) as found:
        train(config(data, "ce", epochs=2, batch_size=64), tmp_path / "run")
    assert "\n" not in str(found.value)
    assert exit_code(found.value) == 1
