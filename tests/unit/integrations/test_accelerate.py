"""Accelerate needs only prepare() and register_for_checkpointing()."""

import pytest
import torch

accelerate = pytest.importorskip("accelerate", reason="needs vista-distill[accelerate]")

EPOCHS, LR = 4, 0.5


def train(task, vista, path, stop=None, resume=None, accumulate=1):
    """Train the plain loop with Accelerate; ``stop`` and ``resume`` are (epoch, steps done in it)."""
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
    model = task.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    model, optimizer, loader = accelerator.prepare(model, optimizer, task.train_loader())
    accelerator.register_for_checkpointing(vista)
    skip = 0
    if resume:
        accelerator.load_state(str(path))
        skip = resume[1]
    for epoch in vista.epochs():
        batches = accelerator.skip_first_batches(loader, skip)
        for step, (x, y, i) in enumerate(batches, skip):
            assert torch.equal(y, task.labels[i])  # for the loop's own metrics
            if stop == (epoch, step):
                accelerator.save_state(str(path))
                return vista
            with accelerator.accumulate(model):
                accelerator.backward(vista.loss(model(x), i))
                optimizer.step()
                optimizer.zero_grad()
        skip = 0
        with torch.no_grad():
            vista.end_epoch(model(task.val_x))
    return vista


def test_loss_uses_the_targets_of_the_plain_loop(task, targets, assert_same, tmp_path):
    new, plain = targets
    assert_same(train(task, new(), tmp_path), plain)


@pytest.mark.parametrize("position", [(3, 0), (3, 4)], ids=["between epochs", "within an epoch"])
def test_resume_gives_the_same_targets_and_anchors(task, targets, tmp_path, position):
    new, plain = targets
    train(task, new(), tmp_path, stop=position)
    vista = train(task, new(), tmp_path, resume=position)
    assert vista.seen.keys() == {
        key for key in plain.seen if key[0] > 3 or (key[0] == 3 and key[1] >= 32 * position[1])
    }
    assert all(torch.equal(target, plain.seen[key]) for key, target in vista.seen.items())
    assert torch.equal(vista.teacher(), plain.teacher())
    assert torch.equal(vista.targets(torch.arange(300)), plain.targets(torch.arange(300)))
