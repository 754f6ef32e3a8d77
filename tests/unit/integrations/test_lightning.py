"""VistaCallback uses the targets of the plain loop, also after resuming."""

from contextlib import nullcontext
from itertools import islice

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

lightning = pytest.importorskip("lightning.pytorch", reason="needs vista-distill[lightning]")
from torchmetrics.classification import MulticlassAccuracy  # noqa: E402  (a dependency of Lightning)

from vista.integrations.lightning import VistaCallback  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*number of training batches"),
    pytest.mark.filterwarnings("ignore:.*GPU available but not used"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
EPOCHS = 4


class Module(lightning.LightningModule):
    """Two lines differ from a module without VISTA."""

    def __init__(self, net):
        super().__init__()
        self.net = net
        self.train_acc, self.val_acc = (MulticlassAccuracy(10, average="micro") for _ in range(2))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y, i = batch
        logits = self(x)
        self.train_acc(logits, y)
        self.log("train_acc", self.train_acc, on_step=False, on_epoch=True)
        return self.vista.loss(logits, i)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.val_acc(self(x), y)
        self.log("val_acc", self.val_acc)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)


class Unchanged(Module):
    """A module without VISTA."""

    def __init__(self, net):
        super().__init__(net)
        self.seen = []

    def training_step(self, batch, batch_idx):
        x, y = batch
        self.seen.append(y.clone())
        return F.cross_entropy(self(x), y)


def trainer(path, *callbacks, **options):
    settings = {
        "max_epochs": EPOCHS,
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "default_root_dir": path,
    }
    return lightning.Trainer(callbacks=list(callbacks), **{**settings, **options})


def loaders(task):
    return task.train_loader(), DataLoader(task.val_set(), batch_size=40)


def test_loss_uses_the_targets_of_the_plain_loop(task, targets, assert_same, tmp_path):
    new, plain = targets
    module, vista = Module(task.model()), new()
    trainer(tmp_path, VistaCallback(vista)).fit(module, *loaders(task))
    assert_same(vista, plain)


def test_the_fit_of_posterior_targets_is_logged(task, tmp_path):
    callback = VistaCallback(task.posterior())
    ours = trainer(tmp_path, callback)
    ours.fit(Module(task.model()), *loaders(task))
    logged = {name: float(value) for name, value in ours.callback_metrics.items() if name.startswith("vista/")}
    summary = callback.summary
    assert 0 < summary.noise_rate < 1
    assert logged == pytest.approx({
        "vista/beta": 1.0, "vista/anchors": len(summary.anchors), "vista/temperature": summary.temperature,
        "vista/noise_rate": summary.noise_rate,
    })  # fmt: skip


class MetricsOfEpochs(lightning.Callback):
    """Each epoch's metrics as another callback reads them, and the expected ones from hard labels."""

    def __init__(self, task):
        self.task, self.found, self.expected = task, [], []
        self.right = torch.zeros(len(task.labels), dtype=torch.bool)

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        x, y, i = batch
        assert torch.equal(y, self.task.labels[i])
        with torch.no_grad():
            self.right[i] = module.net(x).argmax(1) == y

    def on_train_epoch_end(self, trainer, module):
        self.found.append({name: float(trainer.callback_metrics[name]) for name in ("train_acc", "val_acc")})
        with torch.no_grad():
            val = module.net(self.task.val_x).argmax(1) == self.task.val_labels
        self.expected.append({"train_acc": float(self.right.float().mean()), "val_acc": float(val.float().mean())})


def test_other_metrics_use_hard_labels(task, tmp_path):
    metrics = MetricsOfEpochs(task)
    trainer(tmp_path, VistaCallback(task.vista()), metrics).fit(Module(task.model()), *loaders(task))
    assert len(metrics.found) == EPOCHS
    assert metrics.found == [pytest.approx(line) for line in metrics.expected]


def test_replace_y_needs_no_change_of_the_module(task, targets, tmp_path):
    new, plain = targets
    module, vista = Unchanged(task.model()), new()
    ours = trainer(tmp_path, VistaCallback(vista, replace_y=True))
    ours.fit(module, *loaders(task))
    seen = torch.cat(module.seen).view(EPOCHS, len(task.labels), -1)
    for (epoch, i), target in plain.seen.items():
        assert torch.allclose(seen[epoch - 1, i], target, atol=1e-3), (epoch, i)  # its loss rounds differently
    assert vista.state_dict()["states"] == plain.state_dict()["states"]
    with torch.no_grad():
        right = module(task.val_x).argmax(1) == task.val_labels
    assert float(ours.callback_metrics["val_acc"]) == pytest.approx(float(right.float().mean()))


def test_the_last_of_several_validations_counts(task, plain, assert_same, tmp_path):
    vista = task.vista()
    trainer(tmp_path, VistaCallback(vista), val_check_interval=0.5).fit(Module(task.model()), *loaders(task))
    assert_same(vista, plain)


def test_an_epoch_without_validation_is_an_error(task, tmp_path):
    with pytest.raises(RuntimeError, match="epoch 1 had no validation"):
        trainer(tmp_path, VistaCallback(task.vista()), check_val_every_n_epoch=2).fit(
            Module(task.model()), *loaders(task)
        )


@pytest.mark.parametrize("sanity", [0, 1])
@pytest.mark.parametrize(("drop_last", "limit", "given"), [(True, 1.0, 80), (False, 1, 40), (False, 0.7, 80)])
def test_an_incomplete_validation_loader_is_rejected(task, tmp_path, drop_last, limit, given, sanity):
    train, _ = loaders(task)
    val = DataLoader(task.val_set(), batch_size=40, drop_last=drop_last)
    ours = trainer(tmp_path, VistaCallback(task.vista()), limit_val_batches=limit, num_sanity_val_steps=sanity)
    message = rf"^the validation loader yields {given} of its 100 samples \(drop_last={drop_last}, .*={limit}\)"
    with pytest.raises(ValueError, match=message):
        ours.fit(Module(task.model()), train, val)
    assert ours.global_step == 0


@pytest.mark.filterwarnings("ignore:.*sampler has shuffling enabled")
def test_a_shuffled_validation_loader_is_rejected(task, tmp_path):
    train, _ = loaders(task)
    shuffled = DataLoader(task.val_set(), batch_size=40, shuffle=True)
    with pytest.raises(ValueError, match="in order and in batches, got RandomSampler"):
        trainer(tmp_path, VistaCallback(task.vista()), num_sanity_val_steps=0).fit(
            Module(task.model()), train, shuffled
        )


@pytest.mark.filterwarnings("ignore:.*sampler has shuffling enabled")
def test_a_validation_loader_with_a_shuffled_batch_sampler_is_rejected(task, tmp_path):
    """The loader's own sampler is not used then."""
    train, _ = loaders(task)
    shuffled = DataLoader(task.val_set(), batch_sampler=BatchSampler(RandomSampler(task.val_set()), 40, False))
    with pytest.raises(ValueError, match="must read its samples in order and in batches, got RandomSampler"):
        trainer(tmp_path, VistaCallback(task.vista()), num_sanity_val_steps=0).fit(
            Module(task.model()), train, shuffled
        )


def test_fast_dev_run_ends_no_epoch(task, tmp_path):
    callback = VistaCallback(task.vista())
    trainer(tmp_path, callback, fast_dev_run=True).fit(Module(task.model()), *loaders(task))
    assert callback.summary is None
    assert callback.vista.epoch == 0


def test_the_first_of_named_validation_loaders_is_used(task, plain, tmp_path):
    train, val = loaders(task)
    module, callback = Module(task.model()), VistaCallback(task.vista())
    module.validation_step = lambda batch, batch_idx, dataloader_idx=0: module(batch[0])
    trainer(tmp_path, callback).fit(module, train, {"first": val, "second": val})
    assert torch.equal(callback.vista.teacher(), plain.teacher())
    assert callback.vista.epoch == EPOCHS


def test_a_different_number_of_epochs_is_rejected(task, tmp_path):
    with pytest.raises(ValueError, match="max_epochs must equal Vista's epochs=4, got 3"):
        trainer(tmp_path, VistaCallback(task.vista()), max_epochs=3).fit(Module(task.model()), *loaders(task))


@pytest.mark.parametrize("ended", [2, EPOCHS])
def test_a_used_vista_is_rejected_before_the_first_step(task, tmp_path, ended):
    """Killed in the third epoch, or trained to the end: beta would be that of later epochs."""
    vista = task.vista()
    with nullcontext() if ended == EPOCHS else pytest.raises(Killed):
        trainer(tmp_path, VistaCallback(vista), StopAfter(10 * ended + 5)).fit(Module(task.model()), *loaders(task))
    vista.seen.clear()
    with pytest.raises(ValueError, match=f"^vista has completed {ended} of its 4 .* completed 0: .*ckpt_path"):
        trainer(tmp_path, VistaCallback(vista)).fit(Module(task.model()), *loaders(task))
    assert (vista.epoch, vista.seen) == (ended, {})


@pytest.mark.parametrize(("steps", "ended"), [(12, 1), (20, 2)], ids=["within an epoch", "after an epoch's last step"])
def test_max_steps_may_stop_within_an_epoch(task, plain, tmp_path, steps, ended):
    """An epoch that stops before its validation is not ended."""
    vista = task.vista()
    callback = VistaCallback(vista)
    trainer(tmp_path, callback, max_steps=steps).fit(Module(task.model()), *loaders(task))
    assert callback.summary.epoch == vista.epoch == ended
    assert all(torch.equal(target, plain.seen[key]) for key, target in vista.seen.items())


def with_batch_norm(task):
    first, *rest = task.model()
    return torch.nn.Sequential(first, torch.nn.BatchNorm1d(first.out_features), *rest)


@pytest.mark.parametrize("ours_first", [True, False])
def test_the_extra_epoch_of_weight_averaging_for_batch_norm_is_ignored(task, tmp_path, ours_first):
    vista = task.vista()
    callbacks = [VistaCallback(vista), lightning.callbacks.StochasticWeightAveraging(0.1)]
    averaged = trainer(tmp_path, *(callbacks if ours_first else callbacks[::-1]))
    averaged.fit(Module(with_batch_norm(task)), *loaders(task))
    assert averaged.current_epoch == EPOCHS + 1
    assert callbacks[0].summary.epoch == vista.epoch == EPOCHS


def test_another_epoch_after_the_last_one_is_an_error(task, tmp_path):
    class OneMore(lightning.Callback):
        def on_train_start(self, trainer, module):
            trainer.fit_loop.max_epochs += 1

    with pytest.raises(RuntimeError, match="all 4 epochs have ended"):
        trainer(tmp_path, VistaCallback(task.vista()), OneMore()).fit(Module(task.model()), *loaders(task))


class Killed(Exception):
    pass


class StopAfter(lightning.Callback):
    def __init__(self, steps):
        self.steps = steps

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == self.steps:
            raise Killed


@pytest.mark.parametrize("at_end", [True, False], ids=["saved at epoch end", "saved at validation end"])
def test_resume_gives_the_same_targets_and_anchors(task, targets, assert_same, tmp_path, at_end):
    """Killed in epoch 3; new objects resume from the checkpoint of epoch 2."""
    new, plain = targets

    def saver():
        return lightning.callbacks.ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1, save_on_train_epoch_end=at_end)

    first = trainer(tmp_path, VistaCallback(new()), StopAfter(25), saver(), enable_checkpointing=True)
    with pytest.raises(Killed):
        first.fit(Module(task.model()), *loaders(task))
    vista = new()
    again = trainer(tmp_path, VistaCallback(vista), saver(), enable_checkpointing=True)
    again.fit(Module(task.model()), *loaders(task), ckpt_path=tmp_path / "epoch=1.ckpt", weights_only=True)
    assert_same(vista, plain, epochs=(3, 4))


def test_a_checkpoint_between_an_epochs_last_step_and_its_validation_is_rejected(task, tmp_path):
    """Lightning resumes with the next epoch, so VISTA's epoch would never end."""

    def saver():
        return lightning.callbacks.ModelCheckpoint(tmp_path, "{step}", save_top_k=-1, every_n_train_steps=10)

    first = trainer(tmp_path, VistaCallback(task.vista()), StopAfter(25), saver(), enable_checkpointing=True)
    with pytest.raises(Killed):
        first.fit(Module(task.model()), *loaders(task))
    again = trainer(tmp_path, VistaCallback(task.vista()), saver(), enable_checkpointing=True)
    with pytest.raises(ValueError, match=r"completed 1 of its 4 .* completed 2: .* saved before the validation"):
        again.fit(Module(task.model()), *loaders(task), ckpt_path=tmp_path / "step=20.ckpt", weights_only=True)


@pytest.mark.parametrize("through_a_checkpoint", [True, False])
def test_a_training_that_started_without_vista_is_rejected(task, tmp_path, through_a_checkpoint):
    plain = trainer(tmp_path, max_epochs=1)
    plain.fit(Unchanged(task.model()), DataLoader(TensorDataset(task.x, task.labels), 32), loaders(task)[1])
    plain.save_checkpoint(tmp_path / "plain.ckpt")
    ours = trainer(tmp_path, VistaCallback(task.vista())) if through_a_checkpoint else plain
    if not through_a_checkpoint:
        plain.callbacks.append(VistaCallback(task.vista()))
        plain.fit_loop.max_epochs = EPOCHS
    from_there = {"ckpt_path": tmp_path / "plain.ckpt", "weights_only": True} if through_a_checkpoint else {}
    with pytest.raises(ValueError, match=r"completed 0 of its 4 .* completed 1: no checkpoint restored VISTA"):
        ours.fit(Module(task.model()), *loaders(task), **from_there)


class StatefulLoader(DataLoader):
    """Resumes after the batches it has yielded, as its state says."""

    yielded, skipped = 0, 0

    def __iter__(self):
        self.yielded, self.skipped = self.skipped, 0
        for batch in islice(super().__iter__(), self.yielded, None):
            self.yielded += 1
            yield batch

    def state_dict(self):
        return {"yielded": self.yielded}

    def load_state_dict(self, state):
        self.skipped = state["yielded"]


@pytest.mark.parametrize("kind", [StatefulLoader, DataLoader])
@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch ended")
def test_resume_within_an_epoch_needs_a_stateful_loader(task, plain, tmp_path, kind):
    """Other loaders restart at the first sample while the batch count continues: samples repeat or are missed."""

    def saver():
        return lightning.callbacks.ModelCheckpoint(tmp_path, "{step}", save_top_k=-1, every_n_train_steps=13)

    train, val = lambda: kind(task.train_set(), batch_size=32), loaders(task)[1]
    first = trainer(tmp_path, VistaCallback(task.vista()), StopAfter(15), saver(), enable_checkpointing=True)
    with pytest.raises(Killed):
        first.fit(Module(task.model()), train(), val)
    vista = task.vista()
    again = trainer(tmp_path, VistaCallback(vista), saver(), enable_checkpointing=True)
    stateful = kind is StatefulLoader
    with nullcontext() if stateful else pytest.warns(UserWarning, match="76 of 300 training samples were not recorded"):
        again.fit(Module(task.model()), train(), val, ckpt_path=tmp_path / "step=13.ckpt", weights_only=True)
    seen = {i for epoch, i in vista.seen if epoch == 2}
    assert seen == set(range(3 * 32, 300) if stateful else range(7 * 32))
    assert torch.equal(vista.teacher(), plain.teacher()) == stateful
    assert vista.epoch == EPOCHS
