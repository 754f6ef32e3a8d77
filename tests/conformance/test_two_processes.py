"""Two processes that train together have equal networks and method states at the end of every epoch.

Run as a script, this file is one of the processes. One process group serves all methods.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from vista.methods import available
from vista.runs.checkpoint import split
from vista.runs.config import TrainConfig
from vista.training import build, loop
from vista.training.events import EpochEnded
from vista.training.loop import train

METHODS = [*available(), "vista:topk=3"]
EPOCHS = 2
OWN_STATE = ("dlb",)  # each process repeats its own last batch


def hash_state(state: Any) -> str:
    """Return a hash of all values of a state."""
    skeleton, tensors, blobs = split(state)
    tensors |= {f"{path}/{name}": t for path, group in blobs.items() for name, t in group.items()}
    hashed = hashlib.sha256(json.dumps(skeleton, sort_keys=True).encode())
    for path in sorted(tensors):
        hashed.update(path.encode())
        hashed.update(tensors[path].contiguous().view(-1).numpy().tobytes())
    return hashed.hexdigest()


def hash_epochs(config: TrainConfig, out: Path) -> list[dict[str, str]]:
    """Return the hashes of this process's state at the end of every epoch, without earlier runs."""
    kept: list[build.Training] = []

    def keep(*arguments: Any) -> build.Training:
        kept.append(build.build_training(*arguments))
        return kept[-1]

    loop.build_training = keep
    found = []
    for event in train(config, out):
        if isinstance(event, EpochEnded) and kept[-1].folder.path == out:
            training = kept[-1]
            state = {"method": training.method.state_dict(), "network": training.network.state_dict()}
            found.append({name: hash_state(part) for name, part in state.items()})
    return found


def main(folder: Path, rank: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    configs = json.loads((folder / "configs.json").read_text())
    found = {name: hash_epochs(TrainConfig.from_json(values), folder / name) for name, values in configs.items()}
    (folder / f"rank{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(make_config, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The state hashes of each of two processes, by method."""
    folder = tmp_path_factory.mktemp("together")
    configs = {name: make_config(name, epochs=EPOCHS, batch_size=75).to_json() for name in METHODS}
    (folder / "configs.json").write_text(json.dumps(configs))
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error::UserWarning", __file__, str(folder)]
    processes = [
        subprocess.Popen([*command, str(rank)], env=environment, stderr=subprocess.PIPE, text=True) for rank in (0, 1)
    ]
    failures = [process.communicate(timeout=800)[1] for process in processes]
    for process, failure in zip(processes, failures):
        assert process.returncode == 0, failure
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("method", METHODS)
def test_both_processes_have_equal_state(ranks: list[dict[str, Any]], method: str) -> None:
    first, second = (found[method] for found in ranks)
    assert len(first) == EPOCHS
    assert [epoch["network"] for epoch in first] == [epoch["network"] for epoch in second]
    assert (first == second) == (method not in OWN_STATE)
    assert first[0]["network"] != first[1]["network"], "the network did not change"


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
