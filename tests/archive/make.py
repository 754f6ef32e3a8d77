"""Make the archive of one version: files that every later version must read.

    OMP_NUM_THREADS=1 python tests/archive/make.py tests/archive/v0.1.0-with-manifest

Run it once, with the version to be archived installed, and commit the folder. Never run it again for the same
version: an archive made by newer code proves nothing about the old files. ``test_archive.py`` reads what it writes:

- ``NAME.tar.xz``, one per folder: finished runs, interrupted runs, the folder of a ``TrajectoryRecorder``, the saved
  states of a ``Vista`` and records of the ledger;
- ``expected.json``: for each interrupted run the files that the same command writes when nothing interrupts it, for
  each finished run what the commands printed, and a hash of this machine's float arithmetic (:func:`arithmetic`).

Everything goes through the command line and the public names, except ``vista.integrations.huggingface``, which is
the documented module of the Hugging Face Trainer.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

ROOT = Path(__file__).parents[2]
# tiny-staged has BatchNorm, whose buffers must survive too, and weights of 50 KB.
WORDS = (
    *("--data", "digits", "--noise", "symmetric:0.4", "--network", "tiny-staged", "--batch-size", "64"),
    *("--device", "cpu", "--checkpoint-seconds", "0"),
)
FINISHED = {
    "vista-light": ("--epochs", "4"),
    "ce": ("--epochs", "4"),
    "kf": ("--epochs", "8"),  # enough epochs to forget something, so that past states are fused
    "ban": ("--epochs", "4"),  # trains its teacher in earlier/ first
}
INTERRUPTED = {  # method and where the signal comes: a checkpoint of this epoch with at least 5 of its 17 steps
    "vista": ("vista", "checkpoints", 3),
    "vista-host": ("vista:store=host", "checkpoints", 3),
    "ema": ("ema", "checkpoints", 2),
    "tf-kd-self": ("tf-kd-self", "earlier/*/checkpoints", 2),
}
LEDGER = (
    "cifar100-symmetric-0.4-ce-seed0-5efa5f51bea73fce.json",
    "cifar100-symmetric-0.4-sat-seed0-318c288c828d63b5.json",
    "cifar100-asymmetric-0.4-vista-light-seed0-de021bedfa066769.json",
    "cifar100-asymmetric-0.4-vista-light-seed0-de021bedfa066769.safetensors",
)


def vista(*words: str) -> str:
    """What the command prints."""
    done = subprocess.run([sys.executable, "-m", "vista", *words], check=True, capture_output=True, text=True)
    return done.stdout


def arithmetic() -> str:
    """A hash of some training steps in plain PyTorch, without vista.

    Two machines that agree on it (processor, version of torch) compute the same bits, so a resumed run must end with
    the archived bytes. Elsewhere the second half of a run rounds differently, and only its values can be compared.
    """
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.empty(shape).uniform_(-1, 1, generator=generator)

    network = nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)),
    )
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(draw(*parameter.shape))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for size in (64, 64, 53, 64, 64, 53):  # the last batch of an epoch is short
        targets = draw(size, 10).softmax(dim=1)
        loss = -(network(draw(size, 1, 8, 8)).log_softmax(dim=1) * targets).sum(dim=1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    network.eval()
    with torch.no_grad():
        outputs = network(draw(270, 1, 8, 8)).softmax(dim=1)
    torch.set_num_threads(threads)
    digest = hashlib.sha256(outputs.numpy().tobytes())
    for value in network.state_dict().values():
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()


def result(run: Path) -> dict[str, Any]:
    """What a finished run wrote: hashes of its tensors, its epochs and its metrics."""
    tensors = sorted(run.rglob("*.safetensors"))
    return {
        "files": {str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest() for path in tensors},
        "epochs": [json.loads(line) for line in (run / "epochs.jsonl").read_text().splitlines()],
        "metrics": json.loads((run / "metrics.json").read_text()),
    }


def readings(run: Path) -> dict[str, Any]:
    """What the commands print about a finished run."""
    (row,) = json.loads(vista("runs", str(run), "--json"))["runs"]
    evaluated = json.loads(vista("evaluate", str(run), "--json"))
    vista("predict", str(run), "--data", "digits", "--out", "predictions.csv")
    with open("predictions.csv", newline="") as file:
        predictions = [line["label"] for line in csv.DictReader(file)]
    suspects = None
    if (run / "teacher.safetensors").exists():
        listed = json.loads(vista("labels", str(run), "--json", "--min-score", "0.5", "--out", "lists"))
        suspects = [suspect["id"] for suspect in listed["suspects"]]
    return {
        "runs": {name: row[name] for name in ("method", "data", "noise", "seed", "best", "last", "status")},
        "evaluate": {which: evaluated[which] for which in ("best", "last")},
        "predictions": "".join(predictions),
        "suspects": suspects,
    }


def interrupt(method: str, out: Path, checkpoints: str, epoch: int) -> None:
    """Train, and send SIGTERM in the middle of an epoch: the run saves a checkpoint and ends."""
    command = [sys.executable, "-m", "vista", "train", *WORDS, "--epochs", "4", "--method", method, "--out", str(out)]
    process = subprocess.Popen([*command, "--quiet"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not any(step_of(path) >= 5 for path in out.glob(f"{checkpoints}/epoch-{epoch:05d}-step-*")):
        assert process.poll() is None, "the run ended before it could be interrupted"
        time.sleep(0.002)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 128 + signal.SIGTERM
    newest = max(out.glob(f"{checkpoints}/epoch-*"))
    assert newest.name.startswith(f"epoch-{epoch:05d}")
    assert 5 <= step_of(newest) < 17, newest


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def open_recorder(folder: Path) -> Any:
    """The recorder of a training of four epochs that vista does not run; on an archived folder it continues there."""
    from vista import TrajectoryRecorder

    true = np.arange(40) % 3
    given = np.where(np.arange(40) % 5 == 0, (true + 1) % 3, true)
    config = {"method": "mine", "seed": 3, "epochs": 4}
    return TrajectoryRecorder(folder, given, true_labels=true, classes=["a", "b", "c"], config=config)


def record_trajectory(folder: Path) -> None:
    """Three of its epochs."""
    recorder, generator = open_recorder(folder), np.random.default_rng(0)
    for _ in range(3):
        recorder.end_epoch(generator.normal(size=(40, 3)) + np.eye(3)[np.arange(40) % 3])


def plain_vista() -> tuple[Any, Tensor, Tensor, Tensor]:
    """A ``Vista`` that has ended no epoch, with the inputs ``[60, 4]``, labels and validation inputs ``[30, 4]``."""
    from vista import Vista

    generator = np.random.default_rng(1)
    x, val_x = generator.normal(size=(60, 4)).astype(np.float32), generator.normal(size=(30, 4)).astype(np.float32)
    labels, val_labels = x[:, :3].argmax(1), val_x[:, :3].argmax(1)
    labels[:12] = (labels[:12] + 1) % 3
    made = Vista(labels, num_classes=3, epochs=4, val_labels=val_labels, tau=0.01)
    return made, torch.from_numpy(x), torch.from_numpy(labels), torch.from_numpy(val_x)


def save_states(folder: Path) -> None:
    """The state of a ``Vista`` in the middle of its third epoch: ``torch.save`` and what it must give once loaded."""
    made, x, _, val_x = plain_vista()
    weight = torch.linspace(-1, 1, 12).reshape(4, 3).requires_grad_()
    for _ in range(2):
        for rows in torch.arange(60).split(20):
            made.loss(x[rows] @ weight, rows).backward()
        with torch.no_grad():
            weight -= weight.grad * 0.5
            weight.grad = None
            made.end_epoch(val_x @ weight)
    made.loss(x[:20] @ weight, torch.arange(20))
    folder.mkdir()
    torch.save(made.state_dict(), folder / "vista.pt")
    np.savez(folder / "expected.npz", teacher=made.teacher().numpy(), targets=made.targets(range(60)).numpy(), epoch=2)


class Linear(nn.Module):
    """A model as the Hugging Face Trainer likes them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        logits = self.layer(x)
        return {"logits": logits} if labels is None else {"loss": logits.sum() * 0, "logits": logits}


def trainer(folder: Path, callbacks: list[Any]) -> Any:
    """A Trainer of four epochs that saves a checkpoint after each of them."""
    from transformers import TrainingArguments

    from vista import indexed
    from vista.integrations.huggingface import VistaTrainer

    made, x, labels, val_x = plain_vista()
    samples = [{"x": x[i], "labels": int(labels[i])} for i in range(60)]
    arguments = TrainingArguments(
        str(folder), num_train_epochs=4, per_device_train_batch_size=20, learning_rate=0.1, save_strategy="epoch",
        report_to=[], disable_tqdm=True, seed=0, use_cpu=True, dataloader_pin_memory=False,
    )  # fmt: skip
    return VistaTrainer(
        vista=made,
        model=Linear(),
        args=arguments,
        train_dataset=indexed(samples),
        eval_dataset=[{"x": row, "labels": 0} for row in val_x],
        callbacks=callbacks,
    )


def save_trainer(folder: Path) -> None:
    """The Trainer's checkpoint after epoch 2, and the teacher that it holds.

    Only the files that vista or the weights need: the optimiser's are torch pickles that name paths of this machine.
    """
    from transformers import TrainerCallback

    teachers = []

    class Watch(TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            teachers.append(made.vista.teacher().numpy())

    made = trainer(Path("trainer"), [Watch()])
    made.train()
    checkpoint = Path("trainer/checkpoint-6")
    folder.mkdir()
    for name in ("model.safetensors", "trainer_state.json", "vista.safetensors"):
        shutil.copy(checkpoint / name, folder / name)
    np.savez(folder / "expected.npz", teacher=teachers[1], epoch=2)


def pack(folder: Path, archive: Path) -> None:
    """The folder as it is, its lock files apart, with nothing of this machine in the archive's headers."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        return None if Path(member.name).name == "lock" else member

    with tarfile.open(archive, "w:xz", preset=9) as file:
        file.add(folder, folder.name, filter=plain)


def main() -> None:
    target = Path(sys.argv[1]).absolute()
    target.mkdir(parents=True)
    expected: dict[str, Any] = {"torch": torch.__version__, "arithmetic": arithmetic(), "finished": {}, "resumed": {}}
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        for method, words in FINISHED.items():
            run = Path(f"finished-{method}")
            vista("train", *WORDS, *words, "--method", method, "--out", str(run), "--quiet")
            expected["finished"][method] = readings(run)
            pack(run, target / f"{run}.tar.xz")
        for name, (method, checkpoints, epoch) in INTERRUPTED.items():
            run, whole = Path(f"interrupted-{name}"), Path(f"whole-{name}")
            interrupt(method, run, checkpoints, epoch)
            pack(run, target / f"{run}.tar.xz")
            vista("train", *WORDS, "--epochs", "4", "--method", method, "--out", str(whole), "--quiet")
            expected["resumed"][name] = result(whole)
        others = {"recorder": record_trajectory, "state": save_states, "trainer-checkpoint": save_trainer}
        for name, make in others.items():
            make(Path(name))
            pack(Path(name), target / f"{name}.tar.xz")
        ledger = Path("ledger/runs")
        ledger.mkdir(parents=True)
        for name in LEDGER:
            shutil.copy(ROOT / "results" / "runs" / name, ledger / name)
        pack(ledger.parent, target / "ledger.tar.xz")
    (target / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
