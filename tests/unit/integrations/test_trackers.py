"""Every tracker receives the same values and figures, and its own reader can read them."""

import io
import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from vista import Vista, functional
from vista.analysis import TrajectoryRecorder, trajectory
from vista.analysis.runs import Run
from vista.integrations.trackers import FIGURES, Watch, publish
from vista.runs.config import TrainConfig
from vista.runs.record import VAL_GIVEN, Record
from vista.training.scheduler import Job, run_jobs

pytest.importorskip("matplotlib", reason="needs vista-distill[report]")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:mlflow"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


class InMemory:
    """The minimal tracker."""

    def __init__(self):
        self.lines, self.figures, self.closed = {}, [], False

    def log(self, epoch, values):
        self.lines[epoch] = dict(values)

    def figure(self, name, figure):
        self.figures.append(name)

    def close(self):
        self.closed = True


def train(task, watch, vista=None):
    """Train on random logits, so that samples are forgotten."""
    vista = vista or task.vista()
    generator = torch.Generator().manual_seed(0)
    truth = torch.nn.functional.one_hot(task.val_labels, 10).float()
    rows, summaries = [], []
    for _ in vista.epochs():
        vista.loss(torch.zeros(len(task.labels), 10, requires_grad=True), torch.arange(len(task.labels)))
        logits = truth + torch.rand(truth.shape, generator=generator) * 2
        summaries.append(vista.end_epoch(logits))
        watch.epoch(summaries[-1], logits)
        rows.append(logits.argmax(1) == task.val_labels)
    watch.close()
    return summaries, torch.stack(rows)


def test_watch_reports_accuracy_beta_anchors_weights_and_gap(task):
    tracker = InMemory()
    summaries, correct = train(task, Watch(tracker, task.val_labels))
    for summary in summaries:
        values = tracker.lines[summary.epoch]
        so_far = correct[: summary.epoch]
        assert values["vista/accuracy"] == pytest.approx(summary.accuracy)
        assert values["vista/beta"] == summary.beta
        assert values["vista/anchors"] == len(summary.anchors)
        assert values["vista/deviation_gap"] == pytest.approx(float(functional.deviation_gap(so_far).mean()))
        weights = {name: value for name, value in values.items() if name.startswith("vista/weight/")}
        assert weights == {f"vista/weight/{s}": w for s, w in summary.anchors.items()}
    assert tracker.lines[4]["vista/deviation_gap"] > 0
    assert tracker.figures == list(FIGURES)
    assert tracker.closed


def test_watch_reports_the_fit_of_posterior_targets(task):
    tracker = InMemory()
    for summary in train(task, Watch(tracker, task.val_labels), task.posterior())[0]:
        values = tracker.lines[summary.epoch]
        assert (values["vista/temperature"], values["vista/noise_rate"]) == (summary.temperature, summary.noise_rate)
        assert values["vista/beta"] == summary.beta
    assert tracker.figures == list(FIGURES)


def test_logits_of_other_samples_are_rejected_and_nothing_is_logged():
    tracker = InMemory()
    watch = Watch(tracker, [0, 1])
    vista = Vista([0, 1], num_classes=2, epochs=2, val_labels=[0, 1])
    vista.loss(torch.zeros(2, 2, requires_grad=True), [0, 1])
    summary = vista.end_epoch(torch.eye(2))
    with pytest.raises(ValueError, match=r"^val_logits must have 2 rows, one for each of val_labels, got 3"):
        watch.epoch(summary, torch.zeros(3, 2))
    with pytest.raises(ValueError, match=r"^val_logits must be rows of logits .*got shape \(2,\)"):
        watch.epoch(summary, torch.zeros(2))
    with pytest.raises(ValueError, match="val_logits has accuracy 0, but the summary has 1: "):
        watch.epoch(summary, torch.eye(2).flip(0))
    assert tracker.lines == {}
    watch.epoch(summary, torch.eye(2))
    assert tracker.lines[1]["vista/accuracy"] == 1.0
    with pytest.raises(TypeError, match="val_labels must be whole numbers, got a list_iterator without plain numbers"):
        Watch(tracker, iter([0, 1]))


def test_val_index_reorders_the_rows(task):
    tracker, vista = InMemory(), task.vista()
    watch, truth = Watch(tracker, task.val_labels), torch.nn.functional.one_hot(task.val_labels, 10).float()
    for epoch in vista.epochs():
        vista.loss(torch.zeros(len(task.labels), 10, requires_grad=True), torch.arange(len(task.labels)))
        order = torch.randperm(len(truth), generator=torch.Generator().manual_seed(epoch))
        watch.epoch(vista.end_epoch(truth[order], val_index=order), truth[order], val_index=order)
    assert [values["vista/accuracy"] for values in tracker.lines.values()] == [1.0] * vista.num_epochs
    assert [values["vista/deviation_gap"] for values in tracker.lines.values()] == [0.0] * vista.num_epochs


def test_a_run_without_a_completed_epoch_is_rejected(tmp_path):
    TrajectoryRecorder(tmp_path / "run", val_labels=[0, 1])
    with pytest.raises(ValueError, match=r"run has no completed epoch to publish$"):
        publish(tmp_path / "run", InMemory())


def test_without_matplotlib_the_values_are_logged_and_the_extra_is_named(task, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    tracker = InMemory()
    with pytest.raises(ImportError, match=r"pip install 'vista-distill\[report\]'"):
        train(task, Watch(tracker, task.val_labels))
    assert len(tracker.lines) == 4
    assert tracker.closed


@pytest.mark.parametrize("method", ["vista", "posterior"])
def test_publish_reports_the_values_of_the_record(tmp_path, method):
    config = TrainConfig(data="digits", noise="symmetric:0.4", epochs=3, network="mlp", device="cpu", method=method)
    job = Job(config, tmp_path / "run")
    run_jobs([job], lambda job, event: None)
    assert job.error is None
    tracker = InMemory()
    publish(job.out, tracker)
    from vista.analysis.runs import read_run

    for line in read_run(job.out).record.lines:
        values = tracker.lines[line["epoch"]]
        assert values["vista/accuracy"] == pytest.approx(line["val_accuracy"])
        assert values["vista/beta"] == line["beta"]
        assert values["vista/anchors"] == line["anchors"]
        for name in ("temperature", "noise_rate"):
            assert values.get(f"vista/{name}") == line.get(name)
            assert (name in line) == (method == "posterior")
        assert sum(v for name, v in values.items() if "/weight/" in name) == pytest.approx(1.0)
    assert tracker.closed


def test_publish_reads_the_recorded_anchors_instead_of_replaying(monkeypatch):
    lines = [{"epoch": t, "beta": 0.0, "anchors": 1, "anchor_weights": {str(t): 1.0}} for t in (1, 2)]
    record = Record({VAL_GIVEN: 4}, lines, [{}, {}], {VAL_GIVEN: [np.packbits([True, True, False, False])] * 2})
    monkeypatch.setattr("vista.integrations.trackers.watch.read_run", lambda path: Run("run", Path(), record))
    tracker = InMemory()
    publish("run", tracker)
    assert [tracker.lines[t][f"vista/weight/{t}"] for t in (1, 2)] == [1.0, 1.0]  # a replay keeps epoch 1 only
    for line in lines:
        del line["anchor_weights"]
    publish("run", tracker)
    assert [tracker.lines[t]["vista/weight/1"] for t in (1, 2)] == [1.0, 1.0]


def test_tensorboard(task, tmp_path):
    pytest.importorskip("tensorboard", reason="needs vista-distill[tensorboard]")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from vista.integrations.trackers.tensorboard import TensorBoard

    summaries, _ = train(task, Watch(TensorBoard(tmp_path), task.val_labels))
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [e.value for e in events.Scalars("vista/beta")] == pytest.approx([s.beta for s in summaries])
    assert set(events.Tags()["images"]) == set(FIGURES)


def test_mlflow(task, tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="needs vista-distill[mlflow]")
    from vista.integrations.trackers.mlflow import MLflow

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client = mlflow.MlflowClient(tracking_uri=uri)
    client.create_experiment("digits", artifact_location=str(tmp_path / "artifacts"))
    tracker = MLflow("digits", name="vista", uri=uri)
    summaries, _ = train(task, Watch(tracker, task.val_labels))
    (run,) = client.search_runs([client.get_experiment_by_name("digits").experiment_id])
    history = client.get_metric_history(run.info.run_id, "vista/anchors")
    assert {m.step: m.value for m in history} == {s.epoch: len(s.anchors) for s in summaries}
    assert {a.path for a in client.list_artifacts(run.info.run_id)} == {f"{name}.png" for name in FIGURES}
    assert run.info.status == "FINISHED"


def test_wandb_offline(task, tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="needs vista-distill[wandb]")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB__SERVICE_WAIT", "120")  # seconds until its process has started
    from vista.integrations.trackers.wandb import WandB

    tracker = WandB("digits", folder=tmp_path)
    summaries, _ = train(task, Watch(tracker, task.val_labels))
    (offline,) = (tmp_path / "wandb").glob("offline-run-*")
    expected, found = {len(s.anchors) for s in summaries}, set()
    until = time.monotonic() + 120  # another process writes the file, maybe after finish()
    while found != expected and time.monotonic() < until:
        content = b"".join(path.read_bytes() for path in offline.glob("*.wandb"))
        found = {int(n) for n in re.findall(rb"vista/anchors\x82\x01\x01(\d)", content)}  # a key and its value as JSON
        time.sleep(0.1)
    assert found == expected
    images = [path.name for path in offline.rglob("*.png")]
    assert all(any(name in image for image in images) for name in FIGURES)


def test_figures_use_the_tolerance_and_the_weights_of_the_training(task, monkeypatch):
    drawn = []
    monkeypatch.setattr("vista.report.drawing.draw", lambda name, groups: drawn.append((name, groups[0].runs[0])))
    vista, watch = task.vista(tau=0.2), Watch(InMemory(), task.val_labels)
    generator = torch.Generator().manual_seed(0)
    for _ in vista.epochs():
        vista.loss(torch.zeros(len(task.labels), 10, requires_grad=True), torch.arange(len(task.labels)))
        logits = torch.rand(len(task.val_labels), 10, generator=generator)
        summary = vista.end_epoch(logits)
        watch.epoch(summary, logits)
    watch.close()
    run = drawn[0][1]
    assert run.options["tau"] == 0.2
    assert run.record.lines[-1]["anchor_weights"] == {str(s): weight for s, weight in summary.anchors.items()}
    weights = trajectory.anchor_weights(run.correct(), trajectory.credit(run.correct(), 0.2, "accuracy"), "coverage")
    assert {int(s) + 1: pytest.approx(weights[-1][s]) for s in weights[-1].nonzero()[0]} == summary.anchors


def train_in_two_parts(task, restore):
    """A training and one resumed after its second epoch, each with its own Watch."""
    trackers, state = [], {}
    for part in range(2):
        vista, tracker = task.vista(), InMemory()
        watch = Watch(tracker, task.val_labels)
        if part:
            vista.load_state_dict(state["vista"])
            if restore:
                watch.load_state_dict(torch.load(io.BytesIO(state["watch"]), weights_only=True))
        for epoch in vista.epochs():
            vista.loss(torch.zeros(len(task.labels), 10, requires_grad=True), torch.arange(len(task.labels)))
            logits = torch.rand(len(task.val_labels), 10, generator=torch.Generator().manual_seed(epoch))
            watch.epoch(vista.end_epoch(logits), logits)
            if not part and epoch == 2:
                saved = io.BytesIO()
                torch.save(watch.state_dict(), saved)
                state = {"vista": vista.state_dict(), "watch": saved.getvalue()}
        watch.close()
        trackers.append(tracker)
    return trackers


def test_a_resumed_watch_continues_from_its_state(task):
    uninterrupted, resumed = train_in_two_parts(task, restore=True)
    assert resumed.lines == {epoch: uninterrupted.lines[epoch] for epoch in (3, 4)}
    assert resumed.figures == uninterrupted.figures


def test_a_resumed_watch_without_its_state_omits_the_gap_and_the_figures(task):
    with pytest.warns(UserWarning, match="epoch 3 follows 0 known epochs, so the deviation gap and the"):
        uninterrupted, resumed = train_in_two_parts(task, restore=False)
    assert all("vista/deviation_gap" in values for values in uninterrupted.lines.values())
    assert list(resumed.lines) == [3, 4]
    assert all("vista/deviation_gap" not in values for values in resumed.lines.values())
    assert resumed.figures == []
    assert resumed.closed


def test_the_state_of_other_samples_is_rejected(task):
    watch = Watch(InMemory(), task.val_labels)
    train(task, watch)
    fewer = Watch(InMemory(), task.val_labels[:-1])  # the same number of bytes
    with pytest.raises(ValueError, match="the state must have 99 validation samples, got 100"):
        fewer.load_state_dict(watch.state_dict())
