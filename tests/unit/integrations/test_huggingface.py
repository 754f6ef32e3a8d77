"""VistaTrainer uses the targets of the plain loop, also after resuming, and its state file can be read back."""

import json
from functools import partial

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import SequentialSampler

transformers = pytest.importorskip("transformers", reason="needs vista-distill[huggingface]")
pytest.importorskip("accelerate", reason="needs vista-distill[huggingface]")
from transformers.modeling_outputs import SequenceClassifierOutput  # noqa: E402

from vista import Vista, indexed  # noqa: E402
from vista.integrations.huggingface import IndexCollator, VistaTrainer, read_state, write_state  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*pin_memory.*no accelerator"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
EPOCHS, BATCH, STEPS = 4, 32, 10  # 300 samples


class Classifier(nn.Module):
    """Has the inputs and outputs of a classification model from the hub."""

    def __init__(self, net):
        super().__init__()
        self.net = net
        self.config = transformers.PretrainedConfig()

    def forward(self, pixel_values, labels=None, **kwargs):
        logits = self.net(pixel_values)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


class Rows(torch.utils.data.Dataset):
    def __init__(self, x, labels):
        self.x, self.labels = x, labels

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"pixel_values": self.x[i], "labels": self.labels[i], "comment": "not for the model"}


class InOrder(VistaTrainer):
    """Reads the samples in the order of the plain loop."""

    def _get_train_sampler(self, *args):
        return SequentialSampler(self.train_dataset)


def trainer(task, vista, path, kind=InOrder, model=Classifier, **options):
    model = model(task.model())
    settings = {
        "output_dir": str(path),
        "num_train_epochs": EPOCHS,
        "per_device_train_batch_size": BATCH,
        "max_grad_norm": 0.0,
        "report_to": [],
        "disable_tqdm": True,
        "logging_strategy": "no",
        "save_strategy": "no",
        "use_cpu": True,
    }
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    return kind(
        vista=vista,
        model=model,
        args=transformers.TrainingArguments(**{**settings, **options}),
        train_dataset=indexed(Rows(task.x, task.labels)),
        eval_dataset=Rows(task.val_x, task.val_labels),
        optimizers=(optimizer, constant),
        compute_metrics=lambda p: {
            "hard": float(np.array_equal(p.label_ids, task.val_labels)),
            "accuracy": float((p.predictions.argmax(1) == p.label_ids).mean()),
        },
    )


def test_loss_uses_the_targets_of_the_plain_loop(task, targets, assert_same, tmp_path):
    new, plain = targets
    vista = new()
    ours = trainer(task, vista, tmp_path)
    ours.train()
    assert_same(vista, plain)
    evaluations = [line for line in ours.state.log_history if "eval_hard" in line]
    assert [line["eval_hard"] for line in evaluations] == [1.0] * EPOCHS
    assert evaluations[-1]["eval_accuracy"] == pytest.approx(ours.summary.accuracy)
    assert evaluations[-1]["eval_vista_anchors"] == len(plain.state_dict()["states"])


def test_the_fit_of_posterior_targets_is_logged(task, tmp_path):
    ours = trainer(task, task.posterior(), tmp_path)
    ours.train()
    last, summary = [line for line in ours.state.log_history if "eval_vista_beta" in line][-1], ours.summary
    assert (last["eval_vista_temperature"], last["eval_vista_noise_rate"]) == (summary.temperature, summary.noise_rate)
    assert 0 < summary.noise_rate < 1


def test_a_custom_loss_gets_the_soft_targets(task, plain, tmp_path):
    items = []

    def loss(outputs, labels, num_items_in_batch=None):
        items.append(None if num_items_in_batch is None else int(num_items_in_batch))
        return nn.functional.cross_entropy(outputs.logits, labels)

    vista = task.vista()
    ours = trainer(task, vista, tmp_path, kind=partial(InOrder, compute_loss_func=loss))
    ours.train()
    torch.testing.assert_close(vista.teacher(), plain.teacher(), atol=1e-3, rtol=0)
    assert vista.state_dict()["states"] == plain.state_dict()["states"]
    assert BATCH in items, "as the Trainer counts them"
    assert ours.loss_is_scaled_for_ga


def test_class_weights_reach_the_loss(task, tmp_path):
    vista, weight = task.vista(), torch.arange(10.0)
    original, seen = vista.loss, []

    def loss(logits, index, class_weight):
        seen.append(class_weight)
        return original(logits, index, class_weight=class_weight)

    vista.loss = loss
    trainer(task, vista, tmp_path, kind=partial(InOrder, class_weight=weight.tolist())).train()
    assert len(seen) == EPOCHS * STEPS
    assert all(torch.equal(each, weight) for each in seen)


class PlainDict(Classifier):
    """Returns another output before the logits."""

    def forward(self, pixel_values, labels=None, **kwargs):
        outputs = super().forward(pixel_values, labels)
        return {"loss": outputs.loss, "negative": -outputs.logits, "logits": outputs.logits}


def test_a_model_may_return_a_plain_dict(task, plain, assert_same, tmp_path):
    vista = task.vista()
    ours = trainer(task, vista, tmp_path, model=PlainDict)
    ours.compute_metrics = None
    ours.train()
    assert_same(vista, plain)


def test_a_model_without_logits_is_rejected(task, tmp_path):
    class Scores(Classifier):
        def forward(self, pixel_values, labels=None, **kwargs):
            return {"scores": super().forward(pixel_values, labels).logits}

    with pytest.raises(TypeError, match="must return its logits as 'logits', got dict with scores"):
        trainer(task, task.vista(), tmp_path, model=Scores).train()


def test_dropped_validation_samples_are_rejected_before_training(task, tmp_path):
    options = {"dataloader_drop_last": True, "per_device_eval_batch_size": 32}
    with pytest.raises(ValueError, match="dataloader_drop_last=True drops 4 of the 100 samples of eval_dataset"):
        trainer(task, task.vista(), tmp_path, **options)
    vista = task.vista()
    with pytest.warns(UserWarning, match="were not recorded"):
        trainer(task, vista, tmp_path, **{**options, "per_device_eval_batch_size": 25}).train()
    assert vista.epoch == EPOCHS


def test_evaluations_within_an_epoch_do_not_end_it(task, plain, assert_same, tmp_path):
    vista = task.vista()
    trainer(task, vista, tmp_path, eval_strategy="steps", eval_steps=5).train()
    assert_same(vista, plain)


def test_predicted_classes_instead_of_logits_are_rejected(task, tmp_path):
    ours = trainer(task, task.vista(), tmp_path)
    ours.preprocess_logits_for_metrics = lambda logits, labels: logits.argmax(dim=-1)
    ours.compute_metrics = None
    with pytest.raises(ValueError, match=r"val_logits must be rows of logits \[n, K\], got shape \(100,\)"):
        ours.train()


@pytest.mark.parametrize("step", [15, 20], ids=["within an epoch", "after an epoch's last step"])
def test_resume_gives_the_same_targets_and_anchors(task, targets, assert_same, tmp_path, step):
    """Checkpoints by steps: the one of step 20 precedes the evaluation that ends epoch 2. New objects resume."""
    new, plain = targets
    trainer(task, new(), tmp_path, save_strategy="steps", save_steps=step).train()
    vista = new()
    trainer(task, vista, tmp_path).train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
    resumed = {key for key in plain.seen if key[0] > 2 or (step == 15 and key[0] == 2 and key[1] >= 5 * BATCH)}
    assert vista.seen.keys() == resumed
    for key in resumed:
        assert torch.equal(vista.seen[key], plain.seen[key])
    assert torch.equal(vista.teacher(), plain.teacher())
    assert torch.equal(vista.targets(torch.arange(300)), plain.targets(torch.arange(300)))


@pytest.mark.parametrize("ended", [1, EPOCHS])
def test_a_used_vista_is_rejected_before_the_first_step(task, tmp_path, ended):
    """Interrupted in the second epoch, or trained to the end: beta would be that of later epochs."""

    class Interrupt(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == STEPS + 3:
                raise KeyboardInterrupt

    vista = task.vista()
    ours = trainer(task, vista, tmp_path, save_strategy="steps", save_steps=STEPS + 2)
    if ended == EPOCHS:
        ours.train()
    else:
        ours.add_callback(Interrupt())
        with pytest.raises(KeyboardInterrupt):
            ours.train()
        ours.remove_callback(Interrupt)
    vista.seen.clear()
    with pytest.raises(ValueError, match=f"^vista has completed {ended} of .* completed 0: .*resume_from_check"):
        ours.train()
    assert (vista.epoch, vista.seen) == (ended, {})
    ours.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{STEPS + 2}"))
    assert vista.epoch == EPOCHS


def test_gradient_accumulation_takes_the_mean_over_all_samples(task, tmp_path):
    """Two batches of 15 make the same step as one of 30, whether or not the model accepts loss arguments."""
    weights = []
    for batch, parts in ((30, 1), (15, 2)):
        options = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": parts}
        ours = trainer(task, task.vista(), tmp_path, **options)
        ours.train()
        weights.append(ours.model.net[0].weight.detach())
    assert torch.allclose(*weights, atol=1e-4)


def test_a_custom_trainer_keeps_its_hooks(task, tmp_path):
    class Custom(transformers.Trainer):
        steps = 0

        def training_step(self, *args, **kwargs):
            self.steps += 1
            return super().training_step(*args, **kwargs)

    class Both(InOrder, Custom):
        pass

    vista = task.vista()
    ours = trainer(task, vista, tmp_path, kind=Both)
    ours.train()
    assert (ours.steps, vista.epoch) == (EPOCHS * STEPS, EPOCHS)


def test_the_index_bypasses_any_collator():
    collate = IndexCollator(lambda rows: {"keys": sorted(rows[0])})
    batch = collate([{"a": 1, "index": 7}, {"a": 2, "index": 3}])
    assert batch["index"].tolist() == [7, 3]
    assert batch["keys"] == ["a"]


def test_incompatible_settings_are_rejected(task, tmp_path):
    with pytest.raises(ValueError, match="num_train_epochs must equal Vista's epochs=4, got 3"):
        trainer(task, task.vista(), tmp_path, num_train_epochs=3)
    with pytest.raises(ValueError, match="max_steps must not be set, since Vista has epochs=4, got 7"):
        trainer(task, task.vista(), tmp_path, max_steps=7)
    for given in (None, {"one": []}):
        with pytest.raises(ValueError, match=f"eval_dataset must be one dataset, .*, got {type(given).__name__}"):
            trainer(
                task,
                task.vista(),
                tmp_path,
                kind=lambda given=given, **rest: InOrder(**{**rest, "eval_dataset": given}),
            )
    with pytest.raises(ValueError, match="also reorders eval_dataset"):
        trainer(task, task.vista(), tmp_path, train_sampling_strategy="group_by_length")
    with pytest.raises(ValueError, match="batch_eval_metrics must be False"):
        trainer(
            task,
            task.vista(),
            tmp_path,
            kind=lambda **rest: InOrder(**{**rest, "compute_metrics": None}),
            batch_eval_metrics=True,
        )
    with pytest.raises(ValueError, match="eval_do_concat_batches must be True"):
        trainer(task, task.vista(), tmp_path, eval_do_concat_batches=False)
    with pytest.raises(ValueError, match=r"label_smoothing_factor must be 0, .* got 0\.1"):
        trainer(task, task.vista(), tmp_path, label_smoothing_factor=0.1)
    kind = partial(InOrder, compute_loss_func=lambda *_: 0.0, class_weight=torch.ones(10))
    with pytest.raises(ValueError, match="class_weight must be None with compute_loss_func"):
        trainer(task, task.vista(), tmp_path, kind=kind)
    with pytest.raises(ValueError, match=r"class_weight must have shape \(10,\), got \(3,\)"):
        trainer(task, task.vista(), tmp_path, kind=partial(InOrder, class_weight=torch.ones(3)))
    ours = trainer(task, task.vista(), tmp_path)
    ours.train_dataset = Rows(task.x, task.labels)
    with pytest.raises(ValueError, match="wrap train_dataset with indexed"):
        ours.train()


def test_the_state_file_restores_the_complete_state(task, plain, tmp_path):
    state = plain.state_dict()
    write_state(tmp_path / "vista.safetensors", state)
    again = read_state(tmp_path / "vista.safetensors")
    assert again.keys() == state.keys()
    vista = task.vista()
    vista.load_state_dict(again)
    assert torch.equal(vista.teacher(), plain.teacher())
    assert [p.name for p in tmp_path.iterdir()] == ["vista.safetensors"]


@pytest.mark.parametrize("options", [{}, {"noise_model": "structured"}])
@pytest.mark.parametrize("epochs", [0, 2])
def test_the_state_file_restores_posterior_targets(task, tmp_path, options, epochs):
    """Before the first epoch there are no validation predictions; structured noise has a matrix."""
    saved, vista = task.posterior(**options), task.posterior(**options)
    for _ in range(epochs):
        saved.record(torch.eye(10)[task.labels], range(300))
        saved.end_epoch(torch.eye(10)[task.val_labels].roll(7, 0) + torch.eye(10)[task.val_labels])
    write_state(tmp_path / "vista.safetensors", saved.state_dict())
    again = read_state(tmp_path / "vista.safetensors")
    assert again.keys() == saved.state_dict().keys()
    assert ("matrix" in again) == (epochs > 0 and bool(options))
    vista.load_state_dict(again)
    assert vista.epoch == epochs
    assert torch.equal(vista.targets(torch.arange(300)), saved.targets(torch.arange(300)))


def test_a_state_file_of_an_earlier_version_can_be_read(tmp_path):
    """Such a file does not name the groups of tensors."""
    vista = Vista([0, 1], num_classes=2, epochs=2, val_labels=[0])
    write_state(tmp_path / "vista.safetensors", vista.state_dict())
    with safe_open(tmp_path / "vista.safetensors", "pt") as file:
        about, tensors = dict(file.metadata()), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    state = json.loads(about["state"])
    assert state.pop("predictions") == {}
    del about["sha256"]
    save_file(tensors, tmp_path / "old.safetensors", {**about, "version": "1", "state": json.dumps(state)})
    vista.load_state_dict(read_state(tmp_path / "old.safetensors"))


def test_every_flipped_bit_of_a_state_file_is_noticed(tmp_path):
    path, generator = tmp_path / "vista.safetensors", np.random.default_rng(0)
    state = {"epoch": 2, "predictions": {"1": torch.rand(8, 3).half()}, "seen": torch.ones(8, dtype=torch.bool)}
    write_state(path, state)
    content = path.read_bytes()
    for position in generator.integers(8 * len(content), size=200):
        flipped = bytearray(content)
        flipped[position // 8] ^= 1 << position % 8
        path.write_bytes(flipped)
        with pytest.raises(ValueError, match=r"vista\.safetensors"):
            read_state(path)


def test_other_files_than_a_state_are_rejected_by_path(tmp_path):
    path = tmp_path / "vista.safetensors"
    with pytest.raises(FileNotFoundError, match=r"vista\.safetensors does not exist"):
        read_state(path)
    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match=r"vista\.safetensors must be vista\.state version 2, got None"):
        read_state(path)
    path.write_bytes(b"\x00" * 20)
    with pytest.raises(ValueError, match=r"vista\.safetensors is damaged or truncated"):
        read_state(path)
