"""Small trainings that tests kill, stop and damage, and what of a run must be the same bytes at its end.

Run as a program this file imports everything once and then forks: a process that trains is there at once, and may be
killed at any instant without a trace in the tests' own process.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import distributed_c10d

from vista import methods, models
from vista.core import collectives, host_store
from vista.core.store import RowsOnDisk
from vista.files import atomic
from vista.runs import folder, lock
from vista.runs.checkpoint import split
from vista.runs.config import TrainConfig
from vista.runs.record import TIMINGS
from vista.training import loop, results
from vista.training.events import Event, Stepped
from vista.training.scheduler import Job, run_jobs
from vista.training.state import Training

WAITS_AT = "VISTA_TEST_WAITS_AT"
TRAINED, HELD_OUT, TESTED = 127, 31, 50  # the first two are prime: no number of processes divides them
NOT_OF_THE_SEED = folder.ENVIRONMENT, lock.FILE, TIMINGS, folder.MANIFEST  # with the hashes of the others


# ---------------------------------------------------------------- what is trained


def write_digits(path: Path) -> str:
    """A few digits as an ``.npz`` file; returns the name a configuration gives it."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    pixels, n = (images.reshape(-1, 8, 8) * 15).astype(np.uint8), TRAINED + HELD_OUT
    train, test = slice(0, n), slice(n, n + TESTED)
    np.savez(path, x_train=pixels[train], y_train=labels[train], x_test=pixels[test], y_test=labels[test])
    return f"npz:{path}"


def config(data: str, method: str = "vista", **changes: Any) -> TrainConfig:
    """Three epochs of two steps, the second one short; samples are shuffled, shifted, turned and mirrored."""
    values: dict[str, Any] = {
        "data": data, "noise": "symmetric:0.4", "method": method, "network": "tiny-staged", "epochs": 3,
        "batch_size": 64, "lr": 0.1, "rotation": 10.0, "validation": HELD_OUT, "device": "cpu",
        "checkpoint_seconds": 0.0,
    }  # fmt: skip
    return TrainConfig(**{**values, **changes})


def plain(num_classes: int, in_channels: int, image_size: int) -> nn.Module:
    """Without BatchNorm a batch may be divided among processes and its mean is the same."""
    pixels = in_channels * image_size**2
    return nn.Sequential(nn.Flatten(), nn.Linear(pixels, 16), nn.Tanh(), nn.Linear(16, num_classes))


def half_frozen(num_classes: int, in_channels: int, image_size: int) -> nn.Module:
    network = plain(num_classes, in_channels, image_size)
    network.get_submodule("1").requires_grad_(False)
    return network


def twice_the_same(num_classes: int, in_channels: int, image_size: int) -> nn.Module:
    """One layer in two places: two names for its weights."""
    pixels, middle = in_channels * image_size**2, nn.Linear(16, 16)
    inner = (nn.Linear(pixels, 16), nn.Tanh(), middle, nn.Tanh(), middle, nn.Tanh())
    return nn.Sequential(nn.Flatten(), *inner, nn.Linear(16, num_classes))


def drops(num_classes: int, in_channels: int, image_size: int) -> nn.Module:
    """TorchRng from torch's own generator."""
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.3), plain(num_classes, in_channels, image_size))


def lazy(num_classes: int) -> nn.Module:
    """Learns from a sample how many inputs its layers have."""
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(num_classes))


def normalised(num_classes: int, in_channels: int, image_size: int) -> nn.Module:
    """Keeps averages of what it saw in training."""
    return nn.Sequential(nn.BatchNorm2d(in_channels), plain(num_classes, in_channels, image_size))


class LooksUp(nn.Module):
    """Takes its pixels in an order that it has in a buffer, and a mask of them."""

    def __init__(self, network: nn.Module, pixels: int) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("order", torch.arange(pixels).flip(0))
        self.register_buffer("mask", torch.arange(pixels) % 7 != 0)
        self.register_buffer("seen", torch.full((), 3, dtype=torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen += 1
        logits: Tensor = self.network(x.flatten(1)[:, self.order] * self.mask)
        return logits


def looks_up(num_classes: int, in_channels: int, image_size: int) -> nn.Module:
    return LooksUp(plain(num_classes, in_channels, image_size), in_channels * image_size**2)


class JudgedOtherwise(nn.Module):
    """Its logits in eval mode are negated in all processes but the first."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x)
        return logits if self.training or collectives.rank() == 0 else -logits


def judged_otherwise(num_classes: int, in_channels: int, image_size: int) -> nn.Module:
    return JudgedOtherwise(normalised(num_classes, in_channels, image_size))


class Breaks(nn.Module):
    """Gives NaN from a certain training batch on."""

    def __init__(self, network: nn.Module, sound_batches: int) -> None:
        super().__init__()
        self.network, self.sound_batches = network, sound_batches
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x)
        if self.training:
            self.seen += 1
            if self.seen > self.sound_batches:
                return logits * float("nan")
        return logits


def breaks_in_batch_4(num_classes: int, in_channels: int, image_size: int) -> nn.Module:
    return Breaks(plain(num_classes, in_channels, image_size), 3)


class Waits(nn.Module):
    """In a certain training batch the first process leaves the file that the environment names, and waits for a signal.

    Its sender finds the run at a known step, however slow the sender or fast the run. Elsewhere it does not wait.
    """

    def __init__(self, network: nn.Module, batch: int) -> None:
        super().__init__()
        self.network, self.batch = network, batch
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen += 1
            place = os.environ.get(WAITS_AT)
            if place and self.seen == self.batch and os.environ.get("RANK", "0") == "0":
                _wait_for_a_signal(Path(place))
        logits: Tensor = self.network(x)
        return logits


def _wait_for_a_signal(place: Path) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer)
    place.touch()
    os.read(reader, 1)
    signal.set_wakeup_fd(before)


def waits_in_batch_13(num_classes: int, in_channels: int, image_size: int) -> nn.Module:
    sizes = {"num_classes": num_classes, "in_channels": in_channels, "image_size": image_size}
    return Waits(models.build("tiny-staged", **sizes), 13)


def waiting_at(place: Path | None) -> dict[str, str]:
    """Environment variables of such a run: the path of this network, and the file if it is to wait."""
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYTHONPATH": path, **({WAITS_AT: str(place)} if place else {})}


def until_it_waits(process: subprocess.Popen[str], place: Path) -> None:
    """Block until the run waits for a signal, or has ended, which it should not."""
    while process.poll() is None and not place.exists():
        time.sleep(0.01)


def kills_its_process(num_classes: int, in_channels: int, image_size: int) -> nn.Module:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed processes do not come here")


def warns(num_classes: int, in_channels: int, image_size: int) -> nn.Module:
    warnings.warn("a word from the network", UserWarning, stacklevel=1)
    return plain(num_classes, in_channels, image_size)


# ---------------------------------------------------------------- what must be the same


def state_file(out: Path, rank: int = 0) -> Path:
    """The file for the final state of a training: optimiser and method are gone once a run has finished."""
    return out.with_name(f"{out.name}-state-{rank}.json")


def digests(state: dict[str, Any]) -> dict[str, str]:
    """A hash of each part of a training's state, timings left out."""
    parts = dict(state)
    parts["record"] = {name: value for name, value in state["record"].items() if name != "timings"}
    return {name: _digest(part) for name, part in parts.items()}


def _digest(part: Any) -> str:
    skeleton, tensors, blobs = split(part)
    dense = {path: {"": group.rows} if isinstance(group, RowsOnDisk) else group for path, group in blobs.items()}
    groups = {f"{path}/{name}": tensor for path, group in dense.items() for name, tensor in group.items()}
    digest = hashlib.sha256(json.dumps(skeleton, sort_keys=True).encode())
    for name, tensor in sorted({**tensors, **groups}.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


def ended_as(out: Path, processes: int = 1) -> dict[str, str]:
    """A hash of every file of a run that the seed decides, and of the state each process ended with."""
    files = [path for path in sorted(out.rglob("*")) if path.is_file() and path.name not in NOT_OF_THE_SEED]
    ended = {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    for rank in range(processes):
        for name, digest in json.loads(state_file(out, rank).read_text()).items():
            ended[f"state of process {rank}: {name}"] = digest
    return ended


@contextlib.contextmanager
def noting_states(rank: int = 0) -> Any:
    """Inside, every training that ends notes its state beside its folder."""
    finish = results.finish

    def noted(training: Training) -> dict[str, Any]:
        state_file(training.folder.path, rank).write_text(json.dumps(digests(training.state())))
        return finish(training)

    results.finish = noted
    try:
        yield
    finally:
        results.finish = finish


def train(configuration: TrainConfig, out: Path) -> list[Event]:
    """Train here, to the end; an error is raised. What happened is returned."""
    job, events = Job(configuration, out), []
    with noting_states():
        run_jobs([job], lambda _, event: events.append(event))
    if job.error is not None:
        raise job.error
    return events


def stopped(configuration: TrainConfig, out: Path, epoch: int, step: int) -> Path:
    """Train until the checkpoint of this epoch and step is written, and stop there."""
    run = loop.train(configuration, out)
    for event in run:
        if isinstance(event, Stepped) and event.epoch == epoch and event.samples > step * configuration.batch_size:
            run.close()
    return out


def damage(path: Path, kind: str) -> None:
    """Damage a file as disks, cables and users do."""
    content = bytearray(path.read_bytes())
    if kind == "missing":
        path.unlink()
        return
    if kind == "flipped":
        content[len(content) // 2] ^= 1
    path.write_bytes(content[: len(content) // 2] if kind == "cut short" else content)


# ---------------------------------------------------------------- the program that forks


@dataclass(frozen=True)
class Kill:
    """When a process is killed, by SIGKILL: at its n-th write, or a while after its n-th event, by the last step."""

    write: int = 0
    event: str = ""
    count: int = 1
    seconds: float = 0.0
    rank: int = 0  # of the process that kills itself; the others follow


@dataclass(frozen=True)
class Ended:
    """The result of a training."""

    killed: bool
    failed: bool
    began_at: tuple[int, int]  # the epoch and the step of it that came first
    output: str


class Trainer:
    """The program below, as a test sees it."""

    def __init__(self, meetings: Path) -> None:
        self._meetings, self._number = meetings, 0
        one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        environment = {**os.environ, **one_thread}
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=200)

    def __call__(
        self, configuration: TrainConfig, out: Path, kill: Kill | None = None, processes: int = 1, apart: bool = False
    ) -> Ended:
        """Train, or resume a training. One that fails is an error of the test."""
        ended = self.try_to(configuration, out, kill, processes, apart)
        assert not ended.failed, ended.output
        return ended

    def try_to(
        self, configuration: TrainConfig, out: Path, kill: Kill | None = None, processes: int = 1, apart: bool = False
    ) -> Ended:
        """The same, where a failure is what is looked for; ``apart``: on machines that share no disk."""
        order = {"config": asdict(configuration), "out": str(out), "kill": asdict(kill or Kill())}
        return self._send({**order, "processes": processes, "apart": apart})

    def call(self, function: str, out: Path, processes: int) -> None:
        """Call ``ranks.function(out)`` in a group of processes."""
        ended = self._send({"function": function, "out": str(out), "kill": asdict(Kill()), "processes": processes})
        assert not ended.failed, ended.output

    def _send(self, order: dict[str, Any]) -> Ended:
        self._number += 1
        order["notes"] = str(self._meetings / f"notes-{self._number}")
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        reply = json.loads(self._process.stdout.readline())
        return Ended(reply["killed"], reply["failed"], tuple(reply["began_at"]), reply["output"])


def _serve() -> None:
    """Read an order a line, fork its processes, and say how they ended."""
    importlib.import_module("torch._dynamo")  # what the first training would spend seconds on
    methods.choose("vista")
    for line in sys.stdin:
        order = json.loads(line)
        ranks = range(order["processes"])
        children = {_fork(order, rank): rank for rank in ranks}
        ends: dict[int, int] = {}
        while len(ends) < len(children):
            child, status = os.wait()
            ends[children[child]] = os.waitstatus_to_exitcode(status)
            if ends[children[child]] == -signal.SIGKILL:  # one that failed leaves the others time to say why they do
                for other in children.keys() - {child}:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(other, signal.SIGKILL)
        notes = Path(order["notes"])
        killed = Kill(**order["kill"]) != Kill() and ends[order["kill"]["rank"]] == -signal.SIGKILL
        reply = {
            "killed": killed,
            "failed": any(ends.values()) and not killed,
            "began_at": json.loads(notes.read_text()) if notes.exists() else [0, 0],
            "output": "".join(_output(order, rank).read_text() for rank in ranks),
        }
        print(json.dumps(reply), flush=True)


def _output(order: dict[str, Any], rank: int) -> Path:
    return Path(f"{order['notes']}-output-{rank}")


def _fork(order: dict[str, Any], rank: int) -> int:
    child = os.fork()
    if child:
        return child
    try:
        with open(_output(order, rank), "w") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        _run(order, rank)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def _run(order: dict[str, Any], rank: int) -> None:
    torch.set_num_threads(1)
    _forbid_pickle()
    processes = order["processes"]
    if processes > 1:
        meeting = f"file://{order['notes']}-meeting"
        dist.init_process_group("gloo", meeting, timedelta(seconds=200), rank=rank, world_size=processes)
    if "function" in order:
        getattr(importlib.import_module("ranks"), order["function"])(Path(order["out"]))
    else:
        _train(order, rank)
    if processes > 1:
        dist.destroy_process_group()


def _train(order: dict[str, Any], rank: int) -> None:
    kill, notes = Kill(**order["kill"]), Path(order["notes"])
    left = {"writes": kill.write, "events": kill.count}

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def count_write(what: str, path: Path) -> None:
        left["writes"] -= 1
        if left["writes"] == 0 and rank == kill.rank:
            die()

    def count_event(job: Job, event: Event) -> None:
        if isinstance(event, Stepped) and rank == 0 and not notes.exists():
            _note(notes, [event.epoch, -(-event.samples // job.config.batch_size)])
        if type(event).__name__ == kill.event and rank == kill.rank:
            left["events"] -= 1
            if left["events"] == 0:
                if kill.seconds == 0:
                    die()
                threading.Timer(kill.seconds, die).start()
        is_last = isinstance(event, Stepped) and (event.epoch, event.samples) == (job.config.epochs, TRAINED)
        if left["events"] <= 0 and is_last:  # a busy machine may keep the timer waiting until all is done
            die()

    atomic.on_write = count_write
    out = Path(order["out"])
    if order["apart"]:
        host_store._is_visible = lambda folder: collectives.rank() == int(folder.parent.parent.name[-1] == "1")
        host_store.platform = SimpleNamespace(node=lambda: f"host-{rank}")
        out = out.with_name(f"{out.name}-1") if rank else out
    job = Job(TrainConfig(**order["config"]), out)
    with noting_states(rank), warnings.catch_warnings():
        warnings.showwarning = _show_warning
        run_jobs([job], count_event)
    if job.error is not None:
        raise job.error


def _note(path: Path, value: Any) -> None:
    """Write atomically: another thread's write may kill the process at any instant."""
    draft = path.with_name(f"{path.name}-draft")
    draft.write_text(json.dumps(value))
    draft.replace(path)


def _show_warning(message: Warning | str, *_: Any) -> None:
    print(f"note: {message}", flush=True)


def _forbid_pickle() -> None:
    """Make pickling fail, on disk and between the processes of a training."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("something is pickled")

    for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        setattr(pickle, name, refuse)
    for name in ("_pickler", "_unpickler"):  # torch.distributed has other names for them
        setattr(distributed_c10d, name, refuse)


if __name__ == "__main__":
    _serve()
