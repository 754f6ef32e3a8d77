"""AdamW, warm-up, clipping, accumulation, the weight average, frozen backbones: each does what its name promises."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from trainings import Kill, Trainer, config, ended_as, train

from vista import models
from vista.data.balance import balanced_order, check_balance
from vista.methods import available
from vista.runs.config import TrainConfig, preset
from vista.runs.folder import RunFolder
from vista.training.build import build_training
from vista.training.optimization import learning_rates, parameter_groups
from vista.training.resolve import identity, resolve
from vista.training.state import Training


def started(data: str, out: Path, method: str = "ce", **fields: Any) -> Training:
    training = build_training(resolve(config(data, method, **fields)), RunFolder(out), {})
    training.begin_epoch()
    return training


def weights(training: Training) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in training.network.parameters()]


def lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "epochs.jsonl").read_text().splitlines()]


# ---------------------------------------------------------------- learning rate and options


def test_warm_up_rises_in_equal_steps_and_then_follows_the_schedule() -> None:
    plain, warm = TrainConfig(epochs=4), TrainConfig(epochs=4, warmup_epochs=1.5)
    rates, usual = (np.concatenate([learning_rates(c, epoch, 10) for epoch in (1, 2, 3, 4)]) for c in (warm, plain))
    np.testing.assert_allclose(rates[:15], usual[:15] * np.arange(1, 16) / 15)
    np.testing.assert_array_equal(rates[15:], usual[15:])


def test_accumulated_batches_have_one_rate() -> None:
    rates, usual = (learning_rates(TrainConfig(epochs=4, accumulate=k), 1, 8) for k in (3, 1))
    np.testing.assert_array_equal(rates, usual[[0, 0, 0, 3, 3, 3, 6, 6]])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"optimizer": "adam"}, "optimizer must be one of sgd, adamw, got 'adam'"),
        ({"freeze": "head"}, "freeze must be one of none, backbone, got 'head'"),
        ({"ema": 1.0}, "ema must be .* got 1.0"),
        ({"accumulate": 0}, "accumulate must be greater than 0, got 0"),
        ({"warmup_epochs": 200.0}, "warmup_epochs must be less than the 200 epochs"),
        ({"clip_grad": -1.0}, "clip_grad must not be negative"),
        ({"freeze": "backbone", "backbone_lr": 0.1}, "backbone_lr is 0.1, but freeze is 'backbone'"),
        ({"backbone_lr": 0.0}, "backbone_lr must be greater than 0, got 0.0"),
        ({"label_smoothing": 1.0}, "label_smoothing must be .* got 1.0"),
        ({"class_weights": "sqrt"}, "class_weights must be one of none, balanced, got 'sqrt'"),
        ({"class_weights": "balanced", "balanced_sampling": True}, "leave one of them out"),
    ],
)
def test_invalid_values_are_rejected(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainConfig(**fields)


def test_the_identity_of_earlier_configurations_is_unchanged() -> None:
    """A literal: with it an existing run is found again."""
    assert identity(TrainConfig()) == "19acf117acf746d4"
    assert identity(TrainConfig(ema=0.9)) != identity(TrainConfig())


def test_adamw_has_its_own_default_rate() -> None:
    assert preset("noisy")["lr"] == 0.1
    assert preset("noisy", optimizer="adamw")["lr"] == 0.001


# ---------------------------------------------------------------- one step


def test_a_step_of_adamw_equals_torch(data: str, tmp_path: Path) -> None:
    training = started(data, tmp_path / "run", optimizer="adamw", lr=0.01, weight_decay=0.1)
    twin = started(data, tmp_path / "twin", optimizer="adamw")
    decayed, exempt = ([p for p in twin.network.parameters() if (p.dim() > 1) is large] for large in (True, False))
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": exempt, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.01, foreach=False)
    batch = twin.loader.batch(twin.engine.counter, twin.loader.size(0))
    twin.method.loss(twin.network, batch).backward()
    optimizer.step()
    training.engine.advance(1)
    for ours, theirs in zip(weights(training), weights(twin), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_clipping_bounds_the_step(data: str, tmp_path: Path) -> None:
    """Of plain SGD with rate 1, the step is the gradient."""
    sgd = {"lr": 1.0, "lr_schedule": "constant", "momentum": 0.0, "weight_decay": 0.0}
    lengths = {}
    for norm in (0.0, 0.01):
        training = started(data, tmp_path / f"{norm}", clip_grad=norm, **sgd)
        before = weights(training)
        training.engine.advance(1)
        moved = [(a - b).flatten() for a, b in zip(weights(training), before, strict=True)]
        lengths[norm] = float(torch.cat(moved).norm())
    assert lengths[0.0] > 0.1
    assert lengths[0.01] == pytest.approx(0.01, rel=1e-3)


def test_accumulated_batches_are_one_large_batch(data: str, tmp_path: Path) -> None:
    """With a network without BatchNorm; the last group has fewer batches, the last of them fewer samples."""
    fields = {"network": "mlp", "lr_schedule": "constant", "padding": 0, "flip": False, "rotation": 0.0}
    split = started(data, tmp_path / "split", batch_size=20, accumulate=2, **fields)
    whole = started(data, tmp_path / "whole", batch_size=40, **fields)
    assert split.loader.steps % 2 == 1, "the last group is not full"
    split.engine.advance(split.loader.steps)
    whole.engine.advance(whole.loader.steps)
    for ours, theirs in zip(weights(split), weights(whole), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------- head and backbone


def test_the_backbone_has_its_own_rate() -> None:
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
    slow, fast = parameter_groups(TrainConfig(lr=0.01, backbone_lr=0.001), network)
    assert (slow["scale"], fast["scale"]) == (pytest.approx(0.1), 1.0)
    assert fast["params"] == list(network[3].parameters())
    groups = parameter_groups(TrainConfig(optimizer="adamw"), network)
    assert [[p.dim() for p in group["params"]] for group in groups] == [[4, 2], [1, 1, 1, 1]]
    assert [group["weight_decay"] for group in groups] == [5e-4, 0.0]


def test_the_head_is_the_named_part_or_the_last_linear_layer() -> None:
    network = nn.Sequential(nn.Conv2d(1, 3, 1), nn.Linear(2, 2), nn.Linear(2, 3))
    assert models.head_of(network) is network[2]
    assert isinstance(models.head_of(models.build("small-cnn", num_classes=3, in_channels=1, image_size=8)), nn.Linear)
    with pytest.raises(ValueError, match="Conv2d has no linear layer, so its head is unknown"):
        models.head_of(nn.Conv2d(1, 3, 1))


def test_a_backbone_rate_scales_the_steps_of_the_backbone_only(data: str, tmp_path: Path) -> None:
    sgd = {"lr": 0.1, "lr_schedule": "constant", "momentum": 0.0, "weight_decay": 0.0}
    moved = {}
    for scale in (1.0, 0.25):
        training = started(data, tmp_path / f"{scale}", backbone_lr=0.1 * scale, **sgd)
        before = weights(training)
        training.engine.advance(1)
        moved[scale] = [a - b for a, b in zip(weights(training), before, strict=True)]
    head = set(models.head_of(training.network).parameters())
    for parameter, full, scaled in zip(training.network.parameters(), moved[1.0], moved[0.25], strict=True):
        factor = 1.0 if parameter in head else 0.25
        torch.testing.assert_close(scaled, full * factor, rtol=1e-3, atol=1e-6)


def test_a_frozen_backbone_keeps_its_weights_and_its_statistics(data: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    wanted = config(data, "ce", freeze="backbone", epochs=2)
    untrained = build_training(resolve(wanted), RunFolder(tmp_path / "fresh"), {}).network.state_dict()
    train(wanted, out)
    trained = RunFolder.open(out).weights("last")
    changed = {name for name, values in trained.items() if not torch.equal(values, untrained[name])}
    assert len(changed) == 2, changed
    assert {name.rpartition(".")[2] for name in changed} == {"weight", "bias"}


# ---------------------------------------------------------------- weight average


def test_a_run_with_a_weight_average_trains_as_without_and_records_both(data: str, tmp_path: Path) -> None:
    train(config(data, "vista-light"), tmp_path / "plain")
    train(config(data, "vista-light", ema=0.9), tmp_path / "averaged")
    plain, averaged = lines(tmp_path / "plain"), lines(tmp_path / "averaged")
    assert [line["train_loss"] for line in plain] == [line["train_loss"] for line in averaged]
    for name in ("val_accuracy", "val_true_accuracy", "test_accuracy"):
        assert [line[name] for line in plain] == [line[f"plain_{name}"] for line in averaged]
    assert [line["anchors"] for line in plain] == [line["anchors"] for line in averaged]
    metrics = [json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("plain", "averaged")]
    assert metrics[1]["plain"]["last"]["test_accuracy"] == pytest.approx(metrics[0]["last"]["test"]["top1"])
    assert metrics[1]["plain"]["best"]["epoch"] == metrics[0]["best"]["epoch"]
    assert "plain" not in metrics[0]


def test_the_weight_average_equals_that_of_the_method_ema(data: str, tmp_path: Path) -> None:
    train(config(data, "ce", ema=0.99), tmp_path / "option")
    train(config(data, "ema:decay=0.99"), tmp_path / "method")
    for name in ("last.safetensors", "best.safetensors"):
        assert (tmp_path / "option" / name).read_bytes() == (tmp_path / "method" / name).read_bytes()
    with pytest.raises(ValueError, match=r"ema is 0\.9, but method 'ema' averages the weights itself"):
        started(data, tmp_path / "both", "ema", ema=0.9)


# ---------------------------------------------------------------- targets and classes


def loss_and_parts(training: Training) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The loss of the first batch with its logits and given labels; without BatchNorm and dropout."""
    batch = training.loader.batch(training.engine.counter, training.loader.size(0))
    loss = training.method.loss(training.network, batch)
    return loss, training.network(batch.x), training.method.task.labels[batch.index]


@pytest.mark.parametrize("method", ["ce", "vista-light", "ps-kd"])
def test_label_smoothing_and_class_weights_equal_torch(data: str, tmp_path: Path, method: str) -> None:
    """All three train on the labels in their first epoch."""
    fields = {"network": "mlp", "label_smoothing": 0.2, "class_weights": "balanced"}
    training = started(data, tmp_path / "run", method, **fields)
    loss, logits, labels = loss_and_parts(training)
    given = training.method.task.labels
    weight = len(given) / (10 * torch.bincount(given, minlength=10))
    targets = nn.functional.one_hot(labels, 10).float()
    torch.testing.assert_close(
        loss, nn.functional.cross_entropy(logits, targets, weight=weight.float(), label_smoothing=0.2)
    )


@pytest.mark.parametrize("name", sorted({method.name for method in available().values()}))
def test_every_method_smooths_its_targets_or_rejects_the_option(data: str, tmp_path: Path, name: str) -> None:
    losses = {}
    for smoothing in (0.0, 0.3):
        run = resolve(config(data, name, label_smoothing=smoothing))
        roles = [need.role for need in run.chosen.method.earlier_runs(run.chosen.config)]
        networks = {role: models.build("tiny-staged", num_classes=10, in_channels=1, image_size=8) for role in roles}
        if smoothing and not run.chosen.method.weighs_targets:
            with pytest.raises(ValueError, match=r"label_smoothing is 0\.3, but method .* weights samples itself"):
                build_training(run, RunFolder(tmp_path / "run"), networks)
            return
        training = build_training(run, RunFolder(tmp_path / "run"), networks)
        training.begin_epoch()
        losses[smoothing] = loss_and_parts(training)[0].item()
    assert losses[0.0] != losses[0.3]


def test_a_method_that_weights_samples_itself_rejects_weights(data: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="class_weights is balanced, but method 'sat' weights samples itself"):
        started(data, tmp_path / "run", "sat", class_weights="balanced")


def test_balanced_sampling_draws_every_class_equally_often_and_no_sample_twice_in_a_batch() -> None:
    labels = torch.tensor([0] * 60 + [1] * 30 + [2] * 6 + [-1] * 4)
    source = torch.Generator().manual_seed(0)
    check_balance(labels, 14)
    for _ in range(20):
        order = balanced_order(labels, source)
        assert torch.bincount(labels[order] + 1).tolist() == [4, 32, 32, 32]
        assert all(len(batch.unique()) == len(batch) for batch in order.split(14))
        assert len(order[labels[order] == 1].unique()) == 30, "a rare class repeats all samples before one again"
    with pytest.raises(ValueError, match=r"up to 7 samples of each class .* batch of 16, but class 2 has 6"):
        check_balance(labels, 16)


def test_balanced_sampling_trains_without_warnings(data: str, tmp_path: Path) -> None:
    """Every pytest warning is an error."""
    train(config(data, "vista-light", balanced_sampling=True), tmp_path / "run")
    assert any(line["unrecorded"] for line in lines(tmp_path / "run"))
    assert not any("event" in line for line in lines(tmp_path / "run"))


# ---------------------------------------------------------------- killed and resumed, and two processes

ALL = {
    "adamw": {"optimizer": "adamw", "lr": 0.01, "warmup_epochs": 0.5, "backbone_lr": 0.001},
    "ema": {"ema": 0.9, "clip_grad": 0.5},
    "accumulate": {"accumulate": 2, "batch_size": 24, "optimizer": "adamw", "lr": 0.01, "ema": 0.9},
    "classes": {"label_smoothing": 0.1, "class_weights": "balanced"},
    "balanced": {"balanced_sampling": True, "freeze": "backbone"},
}


@pytest.mark.parametrize("fields", ALL.values(), ids=ALL)
def test_a_killed_run_resumes_to_the_same_bytes(
    trainer: Trainer, data: str, tmp_path: Path, fields: dict[str, Any]
) -> None:
    wanted = config(data, "vista-light", **{"batch_size": 24, **fields})
    trainer(wanted, tmp_path / "whole")
    assert trainer(wanted, tmp_path / "run", Kill(event="Stepped", count=5)).killed
    assert trainer(wanted, tmp_path / "run").began_at > (1, fields.get("accumulate", 1)), "a checkpoint was found"
    assert ended_as(tmp_path / "run") == ended_as(tmp_path / "whole")


def test_two_processes_resume_to_the_same_bytes(trainer: Trainer, data: str, tmp_path: Path) -> None:
    wanted = config(
        data, epochs=2, network="trainings:plain", **{**ALL["accumulate"], "batch_size": 6, "clip_grad": 0.5}
    )
    trainer(wanted, tmp_path / "whole", processes=2)
    assert trainer(wanted, tmp_path / "run", Kill(event="Stepped", count=12, rank=1), processes=2).killed
    assert trainer(wanted, tmp_path / "run", processes=2).began_at > (1, 10)
    assert ended_as(tmp_path / "run", 2) == ended_as(tmp_path / "whole", 2)
