"""Trainings that are killed in epoch 3 and resumed by new processes from each framework's own checkpoint.

``new_process.py FOLDER begin FRAMEWORK...`` saves the targets of an uninterrupted training, starts again and is killed.
``new_process.py FOLDER resume FRAMEWORK...`` resumes and saves the targets from then on.
Each framework trains with ``Vista`` and with ``Posterior``. The samples are shuffled, and each framework restores their
order in its own way. Every training runs in a process forked from one that has done the imports, which take most of the
time.
"""

import importlib
import itertools
import json
import os
import pickle
import signal
import sys
import traceback
import warnings
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.utils.data import DataLoader, DistributedSampler

import conftest

NEEDS = {"lightning": "test_lightning", "huggingface": "test_huggingface", "accelerate": "accelerate",
         "skorch": "test_skorch"}  # fmt: skip


class Killing:
    """Kills the process in the middle of epoch 3 if ``kills`` is set."""

    kills = False  # a class attribute, since the object may be pickled

    def loss(self, logits, index, **kwargs):
        if self.kills and sum(epoch == 3 for epoch, _ in self.seen) >= 5 * conftest.BATCH:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().loss(logits, index, **kwargs)


class KillingVista(Killing, conftest.TracedVista):
    pass


class KillingPosterior(Killing, conftest.TracedPosterior):
    pass


KINDS = {"vista": KillingVista, "posterior": KillingPosterior}
kind = KillingVista  # of this process


def new_vista(task):
    return task.vista(kind, tau=0.0)


def plain(task, folder, resume):
    vista, model, path = new_vista(task), task.model(), folder / "checkpoint.pt"
    optimizer = torch.optim.SGD(model.parameters(), lr=conftest.LR, momentum=0.5)
    order = torch.Generator().manual_seed(3)
    if resume:
        saved = torch.load(path, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        order.set_state(saved["order"])
        vista.load_state_dict(saved["vista"])
    for _ in vista.epochs():
        for x, _, i in task.train_loader(shuffle=True, generator=order):
            optimizer.zero_grad()
            vista.loss(model(x), i).backward()
            optimizer.step()
        with torch.no_grad():
            vista.end_epoch(model(task.val_x))
        parts = {"model": model, "optimizer": optimizer, "vista": vista}
        torch.save({name: part.state_dict() for name, part in parts.items()} | {"order": order.get_state()}, path)
    return vista


def lightning(task, folder, resume):
    import lightning.pytorch as pl
    import test_lightning

    vista = new_vista(task)
    saver = pl.callbacks.ModelCheckpoint(folder, "{epoch}", save_top_k=-1)
    trainer = test_lightning.trainer(folder, test_lightning.VistaCallback(vista), saver, enable_checkpointing=True)
    by_epoch = DistributedSampler(task.train_set(), num_replicas=1, rank=0)  # Lightning calls its set_epoch
    loaders = task.train_loader(sampler=by_epoch), DataLoader(task.val_set(), 40)
    checkpoint = folder / "epoch=1.ckpt" if resume else None
    trainer.fit(test_lightning.Module(task.model()), *loaders, ckpt_path=checkpoint, weights_only=True)
    return vista


def huggingface(task, folder, resume):
    import test_huggingface

    vista = new_vista(task)
    trainer = test_huggingface.trainer(task, vista, folder, test_huggingface.VistaTrainer, save_strategy="epoch")
    trainer.train(resume_from_checkpoint=resume)  # True: the last checkpoint in its folder
    return vista


def accelerate(task, folder, resume):
    from accelerate import Accelerator
    from accelerate.utils import set_seed

    set_seed(3)
    accelerator, vista, model = Accelerator(cpu=True), new_vista(task), task.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=conftest.LR, momentum=0.5)
    model, optimizer, loader = accelerator.prepare(model, optimizer, task.train_loader(shuffle=True))
    accelerator.register_for_checkpointing(vista)
    if resume:
        accelerator.load_state(str(folder / "last"))
    for _ in vista.epochs():
        for x, _, i in loader:
            optimizer.zero_grad()
            accelerator.backward(vista.loss(model(x), i))
            optimizer.step()
        with torch.no_grad():
            vista.end_epoch(model(task.val_x))
        accelerator.save_state(str(folder / "last"))
    return vista


def skorch(task, folder, resume):
    import test_skorch
    from skorch.callbacks import Checkpoint

    x, y, *validation = test_skorch.arrays(task)
    if resume:
        net = pickle.loads((folder / "net.pkl").read_bytes())  # noqa: S301 (a checkpoint of skorch)
        return net.partial_fit(x, y).vista_
    others = {f"f_{part}": None for part in ("params", "optimizer", "criterion", "history")}
    saver = Checkpoint(monitor=None, f_pickle=str(folder / "net.pkl"), **others)
    order = {"iterator_train__shuffle": True, "iterator_train__generator": torch.Generator().manual_seed(3)}
    net = test_skorch.classifier(vista=kind, tau=0.0, callbacks=[saver], optimizer__momentum=0.5, **order)
    return net.fit(x, y, *validation).vista_


def save_targets(vista, path):
    targets = {f"{epoch}/{i}": target for (epoch, i), target in vista.seen.items()}
    state = vista.state_dict()
    fitted = [name for name in conftest.FITTED if name in state]
    ends = {name: torch.tensor(state[name], dtype=torch.float64) for name in ("states", "counts", *fitted)}
    save_file({**targets, **ends, "teacher": vista.teacher(), "next": vista.targets(torch.arange(300))}, path)


def begin(fit, folder):
    for name in ("uninterrupted", "interrupted"):
        (folder / name).mkdir(parents=True)
    save_targets(fit(conftest.make_task(), folder / "uninterrupted", False), folder / "uninterrupted.safetensors")
    Killing.kills = True
    fit(conftest.make_task(), folder / "interrupted", False)


def resume(fit, folder):
    save_targets(fit(conftest.make_task(), folder / "interrupted", True), folder / "resumed.safetensors")


def in_own_process(act, name, *args):
    """Return the exit code of a forked process: 0, the negated signal number, or 1 after an error."""
    global kind
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        kind = KINDS[name]
        act(*args)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    folder, act, frameworks = Path(sys.argv[1]), globals()[sys.argv[2]], sys.argv[3:]
    warnings.simplefilter("ignore")  # from the libraries
    torch.set_num_threads(1)
    for name in frameworks:
        importlib.import_module(NEEDS.get(name, "torch"))
    ends = {
        f"{name} {targets}": in_own_process(act, targets, globals()[name], folder / name / targets)
        for name, targets in itertools.product(frameworks, KINDS)
    }
    (folder / f"{sys.argv[2]}.json").write_text(json.dumps(ends))
