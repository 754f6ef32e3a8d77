"""The Hugging Face Trainer: the loss sees what it sees in the plain loop, and nothing is lost on resume."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import SequentialSampler

transformers = pytest.importorskip("transformers", reason="needs vista-distill[huggingface]")
pytest.importorskip("accelerate", reason="needs vista-distill[huggingface]")
from transformers.modeling_outputs import SequenceClassifierOutput  # noqa: E402

from vista import indexed  # noqa: E402
from vista.integrations.huggingface import IndexCollator, VistaTrainer  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*pin_memory.*no accelerator"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
EPOCHS, BATCH, STEPS = 4, 32, 10  # 300 samples


class Classifier(nn.Module):
    """Takes and returns what classification models of the hub do."""

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
        return {"pixel_values": self.x[i], "labels": self.labels[i], "remark": "not for the model"}


class InOrder(VistaTrainer):
    """TorchRng in the order of the plain loop here."""

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


def test_loss_sees_the_targets_of_the_plain_loop(task, plain, assert_same, tmp_path):
    vista = task.vista()
    ours = trainer(task, vista, tmp_path)
    ours.train()
    assert_same(vista, plain)
    evaluations = [line for line in ours.state.log_history if "eval_hard" in line]
    assert [line["eval_hard"] for line in evaluations] == [1.0] * EPOCHS
    assert evaluations[-1]["eval_accuracy"] == pytest.approx(ours.summary.accuracy)
    assert evaluations[-1]["eval_vista_anchors"] == len(plain.state_dict()["states"])


class PlainDict(Classifier):
    """Something of its own before the logits, as nobody forbids."""

    def forward(self, pixel_values, labels=None, **kwargs):
        outputs = super().forward(pixel_values, labels)
        return {"loss": outputs.loss, "negative": -outputs.logits, "logits": outputs.logits}


def test_a_model_may_return_a_plain_dict(task, plain, assert_same, tmp_path):
    vista = task.vista()
    ours = trainer(task, vista, tmp_path, model=PlainDict)
    ours.compute_metrics = None
    ours.train()
    assert_same(vista, plain)


def test_a_model_without_logits_is_told_how_to_give_them(task, tmp_path):
    class Scores(Classifier):
        def forward(self, pixel_values, labels=None, **kwargs):
            return {"scores": super().forward(pixel_values, labels).logits}

    with pytest.raises(TypeError, match="the model returned a dict of scores, but VISTA needs its logits"):
        trainer(task, task.vista(), tmp_path, model=Scores).train()


def test_validation_samples_that_would_be_dropped_are_refused_before_training(task, tmp_path):
    options = {"dataloader_drop_last": True, "per_device_eval_batch_size": 32}
    with pytest.raises(ValueError, match="dataloader_drop_last is True, which drops 4 of the 100 samples of eval_data"):
        trainer(task, task.vista(), tmp_path, **options)
    vista = task.vista()
    with pytest.warns(UserWarning, match="were not recorded"):
        trainer(task, vista, tmp_path, **{**options, "per_device_eval_batch_size": 25}).train()
    assert vista.epoch == EPOCHS


def test_evaluations_within_an_epoch_do_not_end_it(task, plain, assert_same, tmp_path):
    vista = task.vista()
    trainer(task, vista, tmp_path, eval_strategy="steps", eval_steps=5).train()
    assert_same(vista, plain)


def test_guesses_in_place_of_logits_are_refused(task, tmp_path):
    ours = trainer(task, task.vista(), tmp_path)
    ours.preprocess_logits_for_metrics = lambda logits, labels: logits.argmax(dim=-1)
    ours.compute_metrics = None
    with pytest.raises(ValueError, match=r"preprocess_logits_for_metrics gives shape \(100,\), but it must leave"):
        ours.train()


@pytest.mark.parametrize("step", [15, 20], ids=["within an epoch", "after an epoch's last step"])
def test_resume_gives_the_same_targets_and_anchors(task, plain, assert_same, tmp_path, step):
    """Saved by steps, so at step 20 before the evaluation that ends epoch 2; fresh objects go on."""
    trainer(task, task.vista(), tmp_path, save_strategy="steps", save_steps=step).train()
    vista = task.vista()
    trainer(task, vista, tmp_path).train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
    resumed = {key for key in plain.seen if key[0] > 2 or (step == 15 and key[0] == 2 and key[1] >= 5 * BATCH)}
    assert vista.seen.keys() == resumed
    for key in resumed:
        assert torch.equal(vista.seen[key], plain.seen[key])
    assert torch.equal(vista.teacher(), plain.teacher())


@pytest.mark.parametrize("ended", [1, EPOCHS])
def test_a_vista_that_has_moved_on_is_refused_before_the_first_step(task, tmp_path, ended):
    """Interrupted in the second epoch, or trained to its end: its beta would be that of later epochs."""

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
    with pytest.raises(ValueError, match=f"^vista has ended {ended} of .*, but this training 0: .*resume_from_check"):
        ours.train()
    assert (vista.epoch, vista.seen) == (ended, {})
    ours.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{STEPS + 2}"))
    assert vista.epoch == EPOCHS


def test_gradient_accumulation_takes_the_mean_over_all_samples(task, tmp_path):
    """Two halves of 15 make the same step as one batch of 30, whether or not the model takes loss arguments."""
    weights = []
    for batch, parts in ((30, 1), (15, 2)):
        options = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": parts}
        ours = trainer(task, task.vista(), tmp_path, **options)
        ours.train()
        weights.append(ours.model.net[0].weight.detach())
    assert torch.allclose(*weights, atol=1e-4)


def test_a_trainer_of_your_own_keeps_its_hooks(task, tmp_path):
    class Own(transformers.Trainer):
        steps = 0

        def training_step(self, *args, **kwargs):
            self.steps += 1
            return super().training_step(*args, **kwargs)

    class Both(InOrder, Own):
        pass

    vista = task.vista()
    ours = trainer(task, vista, tmp_path, kind=Both)
    ours.train()
    assert (ours.steps, vista.epoch) == (EPOCHS * STEPS, EPOCHS)


def test_the_index_passes_any_collator():
    collate = IndexCollator(lambda rows: {"keys": sorted(rows[0])})
    batch = collate([{"a": 1, "index": 7}, {"a": 2, "index": 3}])
    assert batch["index"].tolist() == [7, 3]
    assert batch["keys"] == ["a"]


def test_what_could_not_work_is_refused(task, tmp_path):
    with pytest.raises(ValueError, match=r"num_train_epochs is 3, but Vista plans epochs=4"):
        trainer(task, task.vista(), tmp_path, num_train_epochs=3)
    with pytest.raises(ValueError, match=r"max_steps is 7, but Vista plans epochs=4: leave it out"):
        trainer(task, task.vista(), tmp_path, max_steps=7)
    for given in (None, {"one": []}):
        with pytest.raises(ValueError, match=rf"eval_dataset is a {type(given).__name__}, but .* of one dataset"):
            trainer(
                task,
                task.vista(),
                tmp_path,
                kind=lambda given=given, **rest: InOrder(**{**rest, "eval_dataset": given}),
            )
    with pytest.raises(ValueError, match="also reorders eval_dataset"):
        trainer(task, task.vista(), tmp_path, train_sampling_strategy="group_by_length")
    with pytest.raises(ValueError, match="batch_eval_metrics is True, but VISTA needs the logits of the whole"):
        trainer(
            task,
            task.vista(),
            tmp_path,
            kind=lambda **rest: InOrder(**{**rest, "compute_metrics": None}),
            batch_eval_metrics=True,
        )
    with pytest.raises(ValueError, match="eval_do_concat_batches is False, but VISTA needs the logits as one array"):
        trainer(task, task.vista(), tmp_path, eval_do_concat_batches=False)
    with pytest.raises(ValueError, match=r"label_smoothing_factor is 0\.1"):
        trainer(task, task.vista(), tmp_path, label_smoothing_factor=0.1)
    with pytest.raises(ValueError, match="compute_loss_func is given"):
        trainer(task, task.vista(), tmp_path, kind=partial(InOrder, compute_loss_func=lambda *_: 0.0))
    ours = trainer(task, task.vista(), tmp_path)
    ours.train_dataset = Rows(task.x, task.labels)
    with pytest.raises(ValueError, match="wrap train_dataset by indexed"):
        ours.train()
