"""Communication in real process groups of 1, 2 and 4 ranks: the same logits give the same state.

Run as a script this file is the ranks: it starts them, and each writes down what it ended with.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from vista import Posterior, Vista
from vista.core import collectives, posterior

WORLDS = 1, 2, 4
N, M, K, E = 11, 31, 3, 4
LABELS, VAL_LABELS = torch.arange(N) % K, torch.arange(M) % K


POSTERIORS: dict[str, dict[str, Any]] = {
    "posterior": {},
    "structured": {"noise_model": "structured"},
    "auto": {"noise_model": "auto"},
    "pooled": {"noise_model": "pooled", "matched": True},
    "matched": {"matched": True, "noise_rate": 0.3, "topk": 2},
}


def drawn(rows: int, *seed: int) -> Tensor:
    return torch.randn(rows, K, generator=torch.Generator().manual_seed(sum(s * 100**i for i, s in enumerate(seed))))


# ---------------------------------------------------------------- in one process


def test_alone_everything_stays_as_it_is() -> None:
    rows, seen = torch.rand(3, 2), torch.tensor([True, False, True])
    before = rows.clone(), seen.clone()
    collectives.merge_rows(rows, seen)
    collectives.broadcast(rows)
    collectives.agree(b"anything", "the anchors")
    assert torch.equal(rows, before[0])
    assert torch.equal(seen, before[1])
    assert not collectives.active()
    assert (collectives.rank(), collectives.world_size()) == (0, 1)
    assert collectives.broadcast_int(3) == 3
    assert collectives.broadcast_strings(["a"]) == ["a"]
    assert collectives.all_agree(True)
    assert not collectives.all_agree(False)


# ---------------------------------------------------------------- the ranks


def run_rank(rank: int, world: int, folder: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet-{world}", rank=rank, world_size=world)
    results = {"vista": _training(rank, world)}
    results |= {name: _posterior_training(rank, world, **options) for name, options in POSTERIORS.items()}
    if world > 1:
        results |= _single_calls(rank, world)
    torch.save(results, folder / f"{world}-{rank}.pt")
    dist.destroy_process_group()


def _training(rank: int, world: int) -> dict[str, Any]:
    """Each rank gets every ``world``-th sample, padded to equal parts as distributed samplers do."""
    vista = Vista(LABELS, num_classes=K, epochs=E, val_labels=VAL_LABELS, tau=0.04)
    anchors, unrecorded = [], []
    for epoch in vista.epochs():
        mine, of_val = _padded(N - (epoch == 3), rank, world), _padded(M, rank, world)  # epoch 3 drops a sample
        vista.loss(drawn(N, epoch)[mine].requires_grad_(), mine)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            summary = vista.end_epoch(drawn(M, epoch, 1)[of_val], val_index=of_val)
        anchors.append(summary.anchors)
        unrecorded.append(summary.unrecorded)
    return {"anchors": anchors, "unrecorded": unrecorded, "state": vista.state_dict(), "teacher": vista.teacher()}


def _posterior_training(rank: int, world: int, **options: Any) -> dict[str, Any]:
    """Like :func:`_training`, with memorised labels, and predictions that differ from every third validation label."""
    posterior = Posterior(LABELS, num_classes=K, epochs=E, val_labels=VAL_LABELS, ramp=0.0, tau=0.04, **options)
    memorised, ends = 3.0 * torch.eye(K)[LABELS], []
    learned = 2.0 * torch.eye(K)[(VAL_LABELS + (torch.arange(M) % 9 < 3)) % K]
    for epoch in posterior.epochs():
        mine, of_val = _padded(N, rank, world), _padded(M, rank, world)
        posterior.loss((drawn(N, epoch) + memorised)[mine].requires_grad_(), mine)
        summary = posterior.end_epoch((drawn(M, epoch, 1) + learned)[of_val], val_index=of_val)
        ends.append([summary.anchors, summary.temperature, summary.noise_rate, summary.excess])
    return {"ends": ends, "targets": posterior.targets(torch.arange(N)), "state": posterior.state_dict()}


def _other_fits(rank: int) -> dict[str, Any]:
    """The end of a training in which the ranks fit different noise, as different devices may."""
    fits = [posterior.Fit(0.5, 0.2, torch.eye(K).double() * 0.7 + 0.1), posterior.Fit(2.0, 0.4)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(posterior, "fit_noise", lambda *_, **__: fits[min(rank, 1)])
        first = _posterior_training(0, 1)
        patch.setattr(posterior, "fit_noise", lambda *_, **__: fits[rank == 0])
        second = _posterior_training(0, 1)
    return {"structured": first, "symmetric": second}


def _other_labels(rank: int) -> str | None:
    """The error of a rank whose training labels differ from the others'; its validation samples agree."""
    vista = Vista(LABELS.roll(rank), num_classes=K, epochs=E, val_labels=VAL_LABELS)
    vista.loss(drawn(N, 1).requires_grad_(), torch.arange(N))
    try:
        vista.end_epoch(drawn(M, 1, 1))
    except RuntimeError as error:
        return str(error)
    return None


def _recorded_by_the_last(rank: int, world: int) -> int:
    """How many samples lack a prediction where one rank alone made a clean pass, over all of them."""
    vista = Vista(LABELS, num_classes=K, epochs=E, val_labels=VAL_LABELS, record="eval")
    if rank == world - 1:
        vista.record(drawn(N, 1), torch.arange(N))
    return vista.end_epoch(drawn(M, 1, 1)).unrecorded


def _padded(n: int, rank: int, world: int) -> Tensor:
    everything = torch.arange(n)
    padded = torch.cat([everything, everything[: -n % world]])
    return padded[rank::world]


def _single_calls(rank: int, world: int) -> dict[str, Any]:
    rows = torch.full((4, 2), float(rank + 1), dtype=torch.float16)
    seen = torch.tensor([True, rank > 0, rank == world - 1, False])
    rows[3] = 0.5
    collectives.merge_rows(rows, seen)
    weights = torch.nn.Parameter(torch.full((2,), float(rank)))
    collectives.broadcast(weights)
    first, second = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(3, 1))
    first.grad = torch.full((2,), float(rank + 1))
    second.grad = torch.ones(3, 1) if rank == 0 else None  # a rank without a share
    unused = torch.nn.Parameter(torch.zeros(2))
    collectives.sum_gradients([first, second, unused])
    try:
        collectives.agree(b"same" if rank == 0 else b"other", "the anchors of epoch 3")
        disagreement = None
    except RuntimeError as error:
        disagreement = str(error)
    collectives.agree(b"same", "this")
    counts = torch.tensor([rank, 1])
    return {
        "rows": rows,
        "seen": seen,
        "sent": _sent_over_state(rank, world),
        "broadcast": weights.detach(),
        "gradients": [first.grad, second.grad],
        "unused": unused.grad,
        "disagreement": disagreement,
        "other_labels": _other_labels(rank),
        "other_fits": _other_fits(rank),
        "unrecorded": _recorded_by_the_last(rank, world),
        "total": collectives.total(counts),
        "counts": counts,
        "word": collectives.broadcast_int(rank + 5),
        "words": collectives.broadcast_strings([f"from {rank}"] * (2 + rank)),
        "all_agree": [collectives.all_agree(True), collectives.all_agree(rank == 0), collectives.all_agree(False)],
    }


def _sent_over_state(rank: int, world: int) -> float:
    """Bytes that are sent when an epoch ends, over those of its state; a ring sends a sum twice."""
    vista, sent = Vista(torch.arange(400) % 200, num_classes=200, epochs=2, val_labels=torch.arange(200)), [0]
    mine = torch.arange(400)[rank::world]
    vista.loss(torch.randn(len(mine), 200).requires_grad_(), mine)

    def counted(times: int, send: Any) -> Any:
        def call(tensor: Tensor, *arguments: Any, **options: Any) -> Any:
            sent[0] += times * tensor.nbytes
            return send(tensor, *arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "broadcast", counted(1, dist.broadcast))
        patch.setattr(dist, "all_reduce", counted(2, dist.all_reduce))
        vista.end_epoch(torch.eye(200)[rank::world], val_index=torch.arange(200)[rank::world])
    return sent[0] / (400 * 200 * 2)


def start_ranks(folder: Path) -> None:
    """Fork after the imports, which take longer than all the rest."""
    for world in WORLDS:
        children = []
        for rank in range(world):
            child = os.fork()
            if child == 0:
                try:
                    run_rank(rank, world, folder)
                    os._exit(0)
                except BaseException:
                    sys.excepthook(*sys.exc_info())
                    os._exit(1)
            children.append(child)
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * world


# ---------------------------------------------------------------- what they ended with


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("ranks")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [sys.executable, __file__, folder], env=environment, capture_output=True, text=True, timeout=800
    )
    assert done.returncode == 0, done.stderr
    return {
        world: [torch.load(folder / f"{world}-{rank}.pt", weights_only=True) for rank in range(world)]
        for world in WORLDS
    }


def assert_same(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    else:
        assert one == other


@pytest.mark.parametrize("world", WORLDS)
def test_one_two_and_four_ranks_end_with_the_same_bits(ranks, world: int) -> None:
    alone = _training(0, 1)
    assert alone["unrecorded"] == [0, 0, 1, 0]
    assert len(alone["anchors"][-1]) > 1
    for rank in range(world):
        assert_same(ranks[world][rank]["vista"], alone)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", POSTERIORS)
def test_posterior_targets_temperature_and_noise_rate_are_those_of_one_process(ranks, name: str, world: int) -> None:
    alone = _posterior_training(0, 1, **POSTERIORS[name])
    for rank in range(world):
        assert_same(ranks[world][rank][name], alone)
    _, temperature, noise_rate, excess = alone["ends"][-1]
    assert temperature != 1.0
    assert noise_rate > 0.01
    assert (excess > 0) == (name == "matched")
    assert float(alone["targets"].amax(dim=1).min()) < 0.999, "not the labels alone"


@pytest.mark.parametrize("world", [2, 4])
def test_every_rank_uses_the_noise_that_the_first_has_fitted(ranks, world: int) -> None:
    for result in ranks[world]:
        assert_same(result["other_fits"], ranks[world][0]["other_fits"])
        assert result["other_fits"]["structured"]["ends"][-1][1:3] == [0.5, 0.2]
        assert result["other_fits"]["symmetric"]["ends"][-1][1:3] == [2.0, 0.4]


@pytest.mark.parametrize("world", [2, 4])
def test_the_lowest_rank_that_saw_a_row_gives_it(ranks, world: int) -> None:
    for result in ranks[world]:
        assert result["rows"][:, 0].tolist() == [1.0, 2.0, float(world), 0.5]
        assert result["seen"].tolist() == [True, True, True, False]


@pytest.mark.parametrize("world", [2, 4])
def test_every_prediction_is_sent_once(ranks, world: int) -> None:
    """As a broadcast passes each node once, these are the bytes between nodes, too."""
    for result in ranks[world]:
        assert 1.0 <= result["sent"] <= 1.1


@pytest.mark.parametrize("world", [2, 4])
def test_sums_and_the_first_ranks_word_reach_everybody(ranks, world: int) -> None:
    total = world * (world + 1) / 2
    for rank, result in enumerate(ranks[world]):
        assert result["broadcast"].tolist() == [0.0, 0.0]
        assert [g.flatten().tolist() for g in result["gradients"]] == [[total] * 2, [1.0] * 3]
        assert result["unused"] is None, "an optimiser decays whatever has a gradient"
        assert result["total"].tolist() == [total - world, world]
        assert result["word"] == 5
        assert result["counts"].tolist() == [rank, 1], "what was summed stays each rank's own"
        assert result["words"] == ["from 0"] * 2
        assert result["all_agree"] == [True, False, False]


@pytest.mark.parametrize("world", [2, 4])
def test_a_rank_that_recorded_nothing_ends_the_epoch_with_the_others(ranks, world: int) -> None:
    assert [result["unrecorded"] for result in ranks[world]] == [0] * world


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_that_decided_otherwise_stop_by_name(ranks, world: int) -> None:
    others = list(range(1, world))
    for result in ranks[world]:
        assert result["disagreement"].startswith(f"the anchors of epoch 3 differ between rank 0 and ranks {others}:")


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_with_other_labels_stop_at_the_first_epochs_end(ranks, world: int) -> None:
    for result in ranks[world]:
        assert result["other_labels"].startswith("the anchors of epoch 1 differ between rank 0")
        assert "give all processes the same data" in result["other_labels"]


if __name__ == "__main__":
    torch.set_num_threads(1)
    start_ranks(Path(sys.argv[1]))
