"""Killed, interrupted or broken, a run resumes from its last checkpoint and ends with the same bytes.

The long version, at every write and many instants, on one process and on two, is in ``tests/faults``.
"""

from __future__ import annotations

import fcntl
import math
import os
import shutil
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from trainings import Kill, Trainer, config, ended_as, stopped, train, until_it_waits, waiting_at

from vista.cli import main
from vista.core import vista as vista_module
from vista.core.store import WrittenOnce
from vista.runs.checkpoint import Checkpoints
from vista.runs.config import TrainConfig
from vista.runs.folder import RunFolder
from vista.training import loop
from vista.training.build import build_training
from vista.training.engine import NotFinite
from vista.training.events import Started, Stepped, Stop
from vista.training.resolve import resolve
from vista.training.state import Training


@pytest.fixture(scope="module")
def whole(data: str, trainer: Trainer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files of an uninterrupted run."""
    out = tmp_path_factory.mktemp("whole") / "run"
    trainer(config(data), out)
    return ended_as(out)


def test_the_same_seed_is_the_same_bytes(data: str, whole: dict[str, str], tmp_path: Path) -> None:
    """In another process, too; and what is compared is everything."""
    train(config(data), tmp_path / "run")
    assert ended_as(tmp_path / "run") == whole
    for part in ("network", "momentum", "method", "generator", "losses", "record", "best"):
        assert f"state of process 0: {part}" in whole
    for file in ("best.safetensors", "last.safetensors", "coverage.safetensors", "epochs.jsonl", "teacher.safetensors"):
        assert file in whole
    train(config(data, seed=1), tmp_path / "other")
    other = ended_as(tmp_path / "other")
    alike = {name.rpartition(": ")[2] for name in whole if whole[name] == other[name]}
    assert alike <= {"epoch", "steps_done", "best_epoch", "best_accuracy"}


@pytest.mark.parametrize("write", [2, 21, 60, 94, 133])
def test_killed_at_a_write(trainer: Trainer, data: str, whole: dict[str, str], tmp_path: Path, write: int) -> None:
    assert trainer(config(data), tmp_path / "run", Kill(write=write)).killed
    trainer(config(data), tmp_path / "run")
    assert ended_as(tmp_path / "run") == whole


def test_killed_in_the_middle_of_an_epoch_and_between(trainer: Trainer, data: str, tmp_path: Path) -> None:
    """With CutMix, whose clean pass at an epoch's end must leave no trace."""
    wanted = config(data, "vista-light", batch_size=24, cutmix=0.5)
    trainer(wanted, tmp_path / "whole")
    for name, kill in {"middle": Kill(event="Stepped", count=9), "end": Kill(event="EpochEnded", count=2)}.items():
        assert trainer(wanted, tmp_path / name, kill).killed
        epoch, step = trainer(wanted, tmp_path / name).began_at
        assert (epoch, step) > (1, 3), "a checkpoint was found"
        assert ended_as(tmp_path / name) == ended_as(tmp_path / "whole")


def test_a_killed_pair_of_processes(trainer: Trainer, data: str, tmp_path: Path) -> None:
    wanted = config(data, batch_size=12, epochs=2)
    trainer(wanted, tmp_path / "whole", processes=2)
    assert trainer(wanted, tmp_path / "run", Kill(event="Stepped", count=21, rank=1), processes=2).killed
    assert trainer(wanted, tmp_path / "run", processes=2).began_at > (1, 10)
    assert ended_as(tmp_path / "run", 2) == ended_as(tmp_path / "whole", 2)


@pytest.fixture(scope="module")
def whole_on_host(data: str, trainer: Trainer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    out = tmp_path_factory.mktemp("whole") / "host"
    trainer(config(data, "vista:store=host"), out)
    return ended_as(out)


def test_a_store_on_the_host_is_the_same_run(
    data: str, whole: dict[str, str], whole_on_host: dict[str, str], tmp_path: Path
) -> None:
    """Its files have the same bytes but for the name of the option; so has a run that moves there at an epoch's end."""
    results = {name for name in whole if not name.startswith("state of")} - {"config.json"}
    assert results
    assert {name: whole[name] for name in results} == {name: whole_on_host[name] for name in results}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vista_module, "fits_one_more", lambda size, device: False)
        train(config(data), tmp_path / "moved")
    moved = ended_as(tmp_path / "moved")
    assert {name: whole[name] for name in {*results, "config.json"}} == {
        name: moved[name] for name in {*results, "config.json"}
    }


@pytest.mark.parametrize("write", [21, 60, 94, 133])
def test_killed_with_the_store_on_the_host(
    trainer: Trainer, data: str, whole_on_host: dict[str, str], tmp_path: Path, write: int
) -> None:
    """Its files are those of the checkpoint: they are linked, and what was left in the store is cleared."""
    wanted, out = config(data, "vista:store=host"), tmp_path / "run"
    assert trainer(wanted, out, Kill(write=write)).killed
    linked = [path for path in out.rglob("epoch-*.safetensors") if path.stat().st_nlink > 1]
    assert linked or write <= 60
    trainer(wanted, out)
    assert ended_as(out) == whole_on_host


def test_resuming_reads_the_predictions_once(tmp_path: Path) -> None:
    """The tensors of 40 MB in files need little memory besides: they are mapped. Measured in a process of its own."""
    blobs = {str(s): torch.rand(10, 1_000_000).half() for s in range(2)}
    Checkpoints(tmp_path).save("epoch-00001-step-0000000", {"rows": WrittenOnce(blobs)}, wait=True)
    program = f"""
from pathlib import Path
from vista.runs.checkpoint import Checkpoints
def peak():
    [line] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024
open("/proc/self/clear_refs", "w").write("5")  # the peak before is that of the process that started this one
before = peak()
rows = Checkpoints(Path({str(tmp_path)!r})).load_newest()["rows"]
total = sum(int(r.view(-1)[::1024].count_nonzero()) for r in rows.values())
print(peak() - before, total > 0)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert said[1] == "True"
    assert 0.5 * sum(rows.nbytes for rows in blobs.values()) <= int(said[0]), "all of it was read"
    assert int(said[0]) <= 1.2 * sum(rows.nbytes for rows in blobs.values())


def test_after_a_checkpoint_the_next_is_due_when_its_time_has_passed_again(data: str, tmp_path: Path) -> None:
    training = build_training(resolve(config(data, "ce", checkpoint_seconds=600.0)), RunFolder(tmp_path / "run"), {})
    saved: list[str] = []
    checkpoints: Any = SimpleNamespace(save=lambda name, *_, **__: saved.append(name))
    saving = loop.Saving(checkpoints, Stop(), last=-math.inf)
    for _ in range(2):
        loop._save_or_stop(training, saving)
    assert len(saved) == 1


@pytest.mark.parametrize("steps_done", [0, 2])
def test_a_loss_that_was_not_looked_at_is_neither_saved_nor_judged(data: str, tmp_path: Path, steps_done: int) -> None:
    """On a GPU, where steps are enqueued before the first of them is checked."""
    training = build_training(resolve(config(data, "ce")), RunFolder(tmp_path / "run"), {})
    training.begin_epoch(steps_done)
    training.engine.losses[0] = math.nan
    saved: list[str] = []
    checkpoints: Any = SimpleNamespace(save=lambda name, *_, **__: saved.append(name))
    with pytest.raises(NotFinite, match="in epoch 1, step 1, ") as raised:
        list(loop._train_steps(training, loop.Saving(checkpoints, Stop(), last=-math.inf)))
    assert saved == []
    assert raised.value.samples == training.samples.split.train[training.loader.order[:64].numpy()].tolist()


def test_a_failed_checkpoint_after_a_signal_is_an_error(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the exit code would claim that everything is saved."""

    def fill(what: str, path: Path) -> None:
        if what == "half" and path.name == "tensors.safetensors":
            raise OSError(28, os.strerror(28))

    monkeypatch.setattr("vista.files.atomic.on_write", fill)
    with pytest.raises(OSError, match=r"cannot write .*tensors\.safetensors: No space left on device"):
        list(loop.train(config(data, checkpoint_seconds=600.0), tmp_path / "run", Stop(signal.SIGTERM)))


def test_a_state_brings_back_every_part(data: str, tmp_path: Path) -> None:
    """The optimiser among them: of a run that stopped in mid-epoch each part differs from that of a fresh one."""
    state = Checkpoints(stopped(config(data), tmp_path / "run", 2, 1)).load("epoch-00002-step-0000001")
    assert (state["epoch"], state["steps_done"], len(state["record"]["lines"])) == (2, 1, 1)
    assert all(bool(buffer.any()) for buffer in state["momentum"])
    assert len(state["momentum"]) == sum(1 for name in state["network"] if name.endswith(("weight", "bias")))
    assert state["losses"].count_nonzero() == 1
    assert state["method"]["_extra_state"]["seen"].sum() == 64, "predictions of the running epoch, so far"
    assert list(state["best"]) == ["1"]


def test_on_another_kind_of_device_a_run_continues_with_other_draws_and_warns(data: str, tmp_path: Path) -> None:
    """A generator of a GPU has a state of 16 bytes, which one of the CPU cannot take, nor the other way round."""
    wanted = config(data, network="trainings:plain")
    state = Checkpoints(stopped(wanted, tmp_path / "run", 2, 1)).load("epoch-00002-step-0000001")
    training = build_training(resolve(wanted), RunFolder(tmp_path / "run"), {})
    assert training.rng is not None
    fresh, (drawn,) = training.method.task.generator.get_state(), state["draws"]
    on_card = torch.arange(16, dtype=torch.uint8)
    with pytest.warns(
        UserWarning, match=f"{tmp_path / 'run'} was saved on another type of device: random draws start anew"
    ):
        training.load({**state, "generator": on_card, "draws": [drawn, on_card]})
    assert torch.equal(training.method.task.generator.get_state(), fresh)
    assert torch.equal(*training.rng.state(), drawn)
    assert (training.epoch, training.engine.steps_done) == (2, 1)
    training.load({**state, "draws": [drawn]})
    assert torch.equal(training.method.task.generator.get_state(), state["generator"])


def test_a_run_that_continues_has_on_record_what_its_checkpoint_knows(data: str, tmp_path: Path) -> None:
    """Epochs that are to be made again are not shown as done meanwhile, and what was lost of the others is back."""
    run = RunFolder(stopped(config(data), tmp_path / "run", 2, 1))
    before = {name: (run.path / name).read_bytes() for name in ("epochs.jsonl", "coverage.safetensors")}
    line = before["epochs.jsonl"].decode()
    (run.path / "epochs.jsonl").write_text(line + line.replace('"epoch": 1', '"epoch": 2'))
    (run.path / "coverage.safetensors").unlink()
    events = loop.train(config(data), run.path)
    assert isinstance(next(events), Started)
    assert {name: (run.path / name).read_bytes() for name in before} == before
    events.close()


# ---------------------------------------------------------------- through the command line


def flags(configuration: TrainConfig, out: Path) -> list[str]:
    names = ("data", "noise", "method", "network", "epochs", "batch_size", "lr", "rotation", "validation", "device")
    given = [word for name in names for word in (f"--{name.replace('_', '-')}", str(getattr(configuration, name)))]
    return ["train", *given, "--checkpoint-seconds", str(configuration.checkpoint_seconds), "--out", str(out)]


def waiting_run(data: str) -> TrainConfig:
    """Waits in epoch 7 if the environment asks for it, and ends before a checkpoint is due."""
    return config(data, network="trainings:waits_in_batch_13", epochs=8, checkpoint_seconds=600.0)


def heed_hangups() -> None:
    """Also where the tests themselves run under `nohup`."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="module")
def never_stopped(data: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    out = tmp_path_factory.mktemp("waiting") / "whole"
    assert main([*flags(waiting_run(data), out), "--quiet"]) == 0
    return ended_as(out, 0)


@pytest.mark.parametrize(
    ("number", "name"),
    [(signal.SIGINT, "by Ctrl-C"), (signal.SIGTERM, "by SIGTERM"), (signal.SIGHUP, "because the terminal was closed"),
     (signal.SIGUSR1, "by SIGUSR1"), (signal.SIGUSR2, "by SIGUSR2")],
)  # fmt: skip
def test_ctrl_c_and_other_signals_save_and_say_how_to_go_on(
    data: str, never_stopped: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str], number: int, name: str
) -> None:
    out, place = tmp_path / "run", tmp_path / "it waits"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **waiting_at(place)}
    command = [sys.executable, "-m", "vista", *flags(waiting_run(data), out)]
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=heed_hangups
    ) as run:
        until_it_waits(run, place)
        run.send_signal(number)
        _, said = run.communicate(timeout=400)
    assert run.returncode == 128 + number, said
    _, advice, command_to_resume = said.partition(f"vista: stopped {name}; progress is saved. To resume: ")
    assert advice, said
    assert Checkpoints(out).names() == ["epoch-00007-step-0000001"]
    assert command_to_resume.split() == ["vista", "resume", str(out), "--network", waiting_run(data).network]
    assert main([*command_to_resume.split()[1:], "--quiet"]) == 0
    assert f"Saved in {out}" in capfd.readouterr().out
    assert ended_as(out, 0) == never_stopped


@pytest.mark.parametrize("with_stderr", [False, True], ids=["stdout", "stdout and stderr"])
def test_a_run_whose_output_was_closed_saves_and_ends(
    data: str, never_stopped: dict[str, str], tmp_path: Path, with_stderr: bool
) -> None:
    """The output closes before the first line, as in ``vista train | head``, and with ``2>&1``."""
    out = tmp_path / "run"
    command = [sys.executable, "-m", "vista", *flags(waiting_run(data), out)]
    stderr = subprocess.STDOUT if with_stderr else subprocess.PIPE
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **waiting_at(None)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True) as run:
        assert run.stdout is not None
        run.stdout.close()
        said = run.stderr.read() if run.stderr is not None else ""
        assert run.wait(timeout=400) == 128 + signal.SIGPIPE
    if not with_stderr:
        assert said.startswith("vista: stopped because its output was closed; progress is saved. To resume: ")
        assert said.count("\n") == 1, said
    assert Checkpoints(out).names() == ["epoch-00001-step-0000000"]
    assert main(["resume", str(out), "--network", waiting_run(data).network, "--quiet"]) == 0
    assert ended_as(out, 0) == never_stopped


def test_a_run_whose_terminal_is_closed_saves_and_ends(
    data: str, never_stopped: dict[str, str], tmp_path: Path
) -> None:
    """The terminal's processes receive SIGHUP, and writing to it fails from then on."""
    out, place = tmp_path / "run", tmp_path / "it waits"
    command = [sys.executable, "-m", "vista", *flags(waiting_run(data), out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm", **waiting_at(place)}
    ours, theirs = os.openpty()

    def its_terminal() -> None:
        heed_hangups()
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    with subprocess.Popen(
        command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=its_terminal, text=True
    ) as run:
        os.close(theirs)
        until_it_waits(run, place)
        os.close(ours)
        assert run.wait(timeout=400) == 128 + signal.SIGHUP
    assert Checkpoints(out).names() == ["epoch-00007-step-0000001"]
    assert main(["resume", str(out), "--network", waiting_run(data).network, "--quiet"]) == 0
    assert ended_as(out, 0) == never_stopped


def test_a_loss_that_is_not_finite_names_epoch_step_and_samples(
    data: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wanted = config(data, network="trainings:breaks_in_batch_4")
    assert main([*flags(wanted, tmp_path / "run"), "--quiet"]) == 1
    said = capfd.readouterr().err
    samples = said.partition("on the training samples ")[2].partition(" and 55 more")[0].split(", ")
    assert "vista: error: the loss is not finite in epoch 2, step 2, on the training samples" in said
    assert "earlier checkpoints are kept" in said
    run = RunFolder.open(tmp_path / "run")
    assert {int(sample) for sample in samples} <= set(run.split().train.tolist())
    assert Checkpoints(run.path).names()[0] == "epoch-00002-step-0000001", "that before the step"
    assert main(["resume", str(run.path), "--network", wanted.network, "--quiet"]) == 1, "it breaks there again"
    assert capfd.readouterr().err == said


def test_the_samples_named_are_those_of_the_step(data: str, tmp_path: Path) -> None:
    """Positions in the original data: those whose predictions the step had not yet recorded."""
    wanted = config(data, network="trainings:breaks_in_batch_4")
    with pytest.raises(FloatingPointError) as raised:
        train(wanted, tmp_path / "run")
    state = Checkpoints(tmp_path / "run").load("epoch-00002-step-0000001")
    unseen = (~state["method"]["_extra_state"]["seen"]).nonzero().flatten().numpy()
    original = RunFolder.open(tmp_path / "run").split().train[unseen]
    named = str(raised.value).partition("samples ")[2].partition(" and")[0].split(", ")
    assert {int(sample) for sample in named} <= set(original.tolist())


@pytest.mark.parametrize("method", ["ce", "vista"])
def test_weights_that_the_last_step_broke_stop_the_run(data: str, tmp_path: Path, method: str) -> None:
    """Every loss was finite; the predictions that follow are not."""
    one_step = {"batch_size": 127, "network": "trainings:plain", "epochs": 2}
    with pytest.raises(FloatingPointError, match=r"after epoch 2, step 1, on the val samples \d+, ") as raised:
        train(config(data, method, lr=1e25, lr_schedule="constant", **one_step), tmp_path / "run")
    run = RunFolder.open(tmp_path / "run")
    named = str(raised.value).partition("samples ")[2].partition(" and")[0].split(", ")
    assert {int(sample) for sample in named} <= set(run.split().val.tolist())
    assert f" and {31 - len(named)} more: try a smaller --lr" in str(raised.value)
    assert not run.is_finished()


def test_a_clean_pass_that_breaks_stops_the_run_and_is_not_in_its_checkpoints(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, predict = config(data, "vista:record=eval"), Training._predict

    def poisoned(training: Training, network: Any, inputs: Any, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        for logits, index in predict(training, network, inputs, rows):
            if training.epoch == 2 and inputs is training.samples.train:
                logits[2] = math.nan
            yield logits, index

    with monkeypatch.context() as patched:
        patched.setattr(Training, "_predict", poisoned)
        with pytest.raises(FloatingPointError) as raised:
            train(wanted, tmp_path / "run")
    sample = RunFolder.open(tmp_path / "run").split().train[2]
    said = f"predictions are not finite after epoch 2, step 2, on the train samples {sample}: try a smaller --lr"
    assert str(raised.value).startswith(said)
    train(wanted, tmp_path / "run")
    train(wanted, tmp_path / "whole")
    assert ended_as(tmp_path / "run") == ended_as(tmp_path / "whole")


def test_a_full_disk_is_one_clear_line_and_an_exit_code(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fill(what: str, path: Path) -> None:
        if what == "half" and path.parent.name.startswith(".epoch-00002"):
            raise OSError(28, os.strerror(28))

    monkeypatch.setattr("vista.files.atomic.on_write", fill)
    assert main([*flags(config(data), tmp_path / "run"), "--quiet"]) == 1
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"vista: error: [Errno 28] cannot write {tmp_path / 'run'}/checkpoints/")
    assert lines[0].endswith("state.json: No space left on device")
    assert Checkpoints(tmp_path / "run").names() == ["epoch-00001-step-0000001", "epoch-00001-step-0000000"]


@pytest.mark.filterwarnings("default")
def test_a_damaged_checkpoint_is_a_note_on_the_command_line(
    data: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = stopped(config(data), tmp_path / "run", 2, 1)
    (run / "checkpoints" / "epoch-00002-step-0000001" / "tensors.safetensors").unlink()
    assert main(["resume", str(run), "--quiet"]) == 0
    said = capfd.readouterr().err
    assert "vista: note: checkpoint" in said
    assert "epoch-00002-step-0000001 is damaged: tensors.safetensors is missing; it is not used" in said


def test_a_run_continues_wherever_its_folder_is_moved(data: str, whole: dict[str, str], tmp_path: Path) -> None:
    moved = shutil.move(stopped(config(data), tmp_path / "here", 2, 0), tmp_path / "there")
    events = train(config(data), Path(moved))
    assert isinstance(events[0], Started)
    assert events[0].epoch == 2
    assert sum(isinstance(event, Stepped) for event in events) == 4
    assert ended_as(Path(moved)) == whole
