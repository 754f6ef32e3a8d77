"""Trainings that are killed in epoch 3, and new processes that go on from each framework's own checkpoint.

``new_process.py FOLDER begin FRAMEWORK...`` leaves what unbroken trainings showed the loss, begins anew and is killed.
``new_process.py FOLDER resume FRAMEWORK...`` goes on, and leaves what it showed the loss from then on.
The samples come shuffled, in an order that each framework brings back in its own way. Every training has a process of
its own, forked from one that has only imported: imports are what takes the time.
"""

import importlib
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


class Mortal(conftest.TracedVista):
    """Where doomed, it takes the process with it in the middle of epoch 3."""

    doomed = False  # not in the object, which may be pickled

    def loss(self, logits, index, **kwargs):
        if self.doomed and sum(epoch == 3 for epoch, _ in self.seen) >= 5 * conftest.BATCH:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().loss(logits, index, **kwargs)


def new_vista(task):
    options = {"num_classes": conftest.CLASSES, "epochs": conftest.EPOCHS, "tau": 0.0}
    return Mortal(task.labels, val_labels=task.val_labels, **options)


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
    by_epoch = DistributedSampler(task.train_set(), num_replicas=1, rank=0)  # Lightning tells it the epoch
    loaders = task.train_loader(sampler=by_epoch), DataLoader(task.val_set(), 40)
    checkpoint = folder / "epoch=1.ckpt" if resume else None
    trainer.fit(test_lightning.Module(task.model()), *loaders, ckpt_path=checkpoint, weights_only=True)
    return vista


def huggingface(task, folder, resume):
    import test_huggingface

    vista = new_vista(task)
    trainer = test_huggingface.trainer(task, vista, folder, test_huggingface.VistaTrainer, save_strategy="epoch")
    trainer.train(resume_from_checkpoint=resume)  # True: from the last checkpoint in its folder
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

    import vista.integrations.skorch

    vista.integrations.skorch.Vista = Mortal
    x, y, *validation = test_skorch.arrays(task)
    if resume:
        net = pickle.loads((folder / "net.pkl").read_bytes())  # noqa: S301 (skorch's own checkpoint)
        return net.partial_fit(x, y).vista_
    others = {f"f_{part}": None for part in ("params", "optimizer", "criterion", "history")}
    saver = Checkpoint(monitor=None, f_pickle=str(folder / "net.pkl"), **others)
    order = {"iterator_train__shuffle": True, "iterator_train__generator": torch.Generator().manual_seed(3)}
    net = test_skorch.classifier(callbacks=[saver], optimizer__momentum=0.5, **order)
    return net.fit(x, y, *validation).vista_


def leave(vista, path):
    targets = {f"{epoch}/{i}": target for (epoch, i), target in vista.seen.items()}
    state = vista.state_dict()
    ends = {name: torch.tensor(state[name]) for name in ("states", "counts")}
    save_file({**targets, **ends, "teacher": vista.teacher()}, path)


def begin(fit, folder):
    for name in ("unbroken", "broken"):
        (folder / name).mkdir(parents=True)
    leave(fit(conftest.make_task(), folder / "unbroken", False), folder / "unbroken.safetensors")
    Mortal.doomed = True
    fit(conftest.make_task(), folder / "broken", False)


def resume(fit, folder):
    leave(fit(conftest.make_task(), folder / "broken", True), folder / "resumed.safetensors")


def in_own_process(act, *args):
    """How it ended: 0, or the signal with a minus, or another number after an error."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        act(*args)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    place, act, frameworks = Path(sys.argv[1]), globals()[sys.argv[2]], sys.argv[3:]
    warnings.simplefilter("ignore")  # what the libraries say among themselves
    torch.set_num_threads(1)
    for name in frameworks:
        importlib.import_module(NEEDS.get(name, "torch"))
    ends = {name: in_own_process(act, globals()[name], place / name) for name in frameworks}
    (place / f"{sys.argv[2]}.json").write_text(json.dumps(ends))
