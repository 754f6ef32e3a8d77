"""Run by two processes: ``two_processes.py FRAMEWORK FOLDER``. Each saves the targets it used, and resumes once.

They train with ``Vista``, then with ``Posterior``.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.utils.data import DataLoader, DistributedSampler

import conftest

EACH = conftest.BATCH // 2  # two processes together have one batch of the plain loop


def lightning(task, path, new):
    import lightning.pytorch as pl
    import test_lightning

    def fit(vista, epochs_saved=None):
        saver = pl.callbacks.ModelCheckpoint(path, "{epoch}", save_top_k=-1)
        callback = test_lightning.VistaCallback(vista)
        trainer = test_lightning.trainer(path, callback, saver, devices=2, strategy="ddp", enable_checkpointing=True)
        # Lightning would shuffle the training set; it adds its own sampler to the validation set.
        in_order = DistributedSampler(task.train_set(), 2, int(os.environ["RANK"]), shuffle=False)
        loaders = DataLoader(task.train_set(), EACH, sampler=in_order), DataLoader(task.val_set(), 15)
        checkpoint = epochs_saved and path / f"epoch={epochs_saved - 1}.ckpt"
        trainer.fit(test_lightning.Module(task.model()), *loaders, ckpt_path=checkpoint)
        return vista

    return fit(new()), fit(new(), epochs_saved=2)


def huggingface(task, path, new):
    import test_huggingface

    options = {"per_device_train_batch_size": EACH, "save_strategy": "steps", "save_steps": 13}
    first, again = new(), new()
    test_huggingface.trainer(task, first, path, **options).train()
    dist.barrier()
    test_huggingface.trainer(task, again, path, **options).train(resume_from_checkpoint=str(path / "checkpoint-13"))
    return first, again


def accelerate(task, path, new):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)

    def fit(vista, resume=False):
        model = task.model()
        optimizer = torch.optim.SGD(model.parameters(), lr=conftest.LR)
        model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(task.train_set(), EACH))
        accelerator._custom_objects.clear()
        accelerator.register_for_checkpointing(vista)
        if resume:
            accelerator.load_state(str(path))
        for epoch in vista.epochs():
            if epoch == 3 and not resume:
                accelerator.save_state(str(path))
            for x, _, i in loader:
                optimizer.zero_grad()
                accelerator.backward(vista.loss(model(x), i))
                optimizer.step()
            mine = torch.arange(accelerator.process_index, len(task.val_x), 2)
            with torch.no_grad():
                vista.end_epoch(model(task.val_x[mine]), val_index=mine)
        accelerator.free_memory()
        return vista

    return fit(new()), fit(new(), resume=True)


if __name__ == "__main__":
    framework, folder = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    whole = conftest.make_task()
    task = replace(whole, x=whole.x[:288], labels=whole.labels[:288])
    for kind in ("vista", "posterior"):
        ours, resumed = globals()[framework](task, folder / kind, getattr(task, kind))
        targets = {f"{epoch}/{i}": target for (epoch, i), target in ours.seen.items()}
        ends = {"teacher": ours.teacher(), "next": ours.targets(torch.arange(288))}
        again = {"resumed teacher": resumed.teacher(), "resumed next": resumed.targets(torch.arange(288))}
        save_file({**targets, **ends, **again}, folder / f"{kind}-{dist.get_rank()}.safetensors")
