"""Properties of ``Vista`` over whole trainings with any predictions; histories have many ties."""

from __future__ import annotations

import io
import itertools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from vista import Vista
from vista.functional import beta, light_coverage

OPTIONS = st.sampled_from(
    [
        {},
        {"tau": 0.1},
        {"tau": 0.3},
        {"order": "newest"},
        {"order": "newest", "tau": 0.2},
        {"weights": "accuracy"},
        {"weights": "uniform", "schedule": "linear"},
        {"smoothing": 3},
        {"smoothing": 5, "weights": "accuracy", "schedule": "cosine"},
        {"schedule": "fixed", "value": 0.7},
        {"schedule": "fixed", "value": 1.0, "start": "uniform"},
        {"record": "eval", "k": 5.0},
        {"record": "eval", "tau": 0.15},
    ]
)


@dataclass(frozen=True)
class Story:
    """A training as data: what the network says at every step, and which validation samples it gets right."""

    labels: Tensor  # [N]
    val_labels: Tensor  # [m]
    classes: int
    correct: np.ndarray  # bool [E, m]
    batches: list[list[tuple[Tensor, Tensor]]]  # epoch -> steps of (logits [B, K], index [B])

    def vista(self, **options: Any) -> Vista:
        vista = Vista(
            self.labels, num_classes=self.classes, epochs=len(self.correct), val_labels=self.val_labels, **options
        )
        vista.expects_every_sample = False  # stories repeat samples, and leave samples out
        return vista

    def val_logits(self, epoch: int) -> Tensor:
        """Logits whose largest one is the given label exactly where ``correct`` says so."""
        right = torch.from_numpy(self.correct[epoch - 1])
        guesses = torch.where(right, self.val_labels, (self.val_labels + 1) % self.classes)
        return torch.nn.functional.one_hot(guesses, self.classes).float()

    def steps(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        for epoch, steps in enumerate(self.batches, 1):
            for logits, index in steps:
                yield epoch, logits, index


@st.composite
def stories(draw: st.DrawFn, missing: bool = False) -> Story:
    epochs, m, n, classes = (draw(st.integers(low, high)) for low, high in ((2, 7), (1, 24), (1, 9), (2, 5)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    share = draw(st.sampled_from([0.0, 0.1, 0.5, 0.9]))
    rows: list[np.ndarray] = []
    for kind in draw(st.lists(st.sampled_from(["new", "copy", "tie"]), min_size=epochs, max_size=epochs)):
        if kind == "new" or not rows:
            rows.append(rng.random(m) < share)
        else:
            rows.append(rows[-1].copy() if kind == "copy" else rng.permutation(rows[rng.integers(len(rows))]))
    labels = rng.integers(-1 if missing else 0, classes, n)
    batches = []
    for _ in range(epochs):  # any sampler: samples may come twice, even in one batch, or not at all
        order = rng.permutation(n) if rng.random() < 0.5 else rng.integers(0, n, rng.integers(1, 2 * n + 1))
        parts = np.array_split(order, rng.integers(1, 4))
        batches.append([_logits(rng, part, classes) for part in parts if len(part)])
    return Story(
        torch.from_numpy(labels), torch.from_numpy(rng.integers(0, classes, m)), classes, np.array(rows), batches
    )


def _logits(rng: np.random.Generator, index: np.ndarray, classes: int) -> tuple[Tensor, Tensor]:
    values = torch.from_numpy(rng.normal(size=(len(index), classes)).astype(np.float32) * 4)
    return values, torch.from_numpy(index)


def step(vista: Vista, logits: Tensor, index: Tensor) -> Tensor:
    """A step of training and, for record='eval', one of a clean pass that sees the same."""
    vista.record(logits, index)
    return vista.loss(logits.clone().requires_grad_(), index)


def end_epoch(vista: Vista, story: Story):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # samples that were not seen
        return vista.end_epoch(story.val_logits(vista.epoch + 1))


def run(vista: Vista, story: Story) -> Iterator[int]:
    for epoch in vista.epochs():
        for logits, index in story.batches[epoch - 1]:
            step(vista, logits, index)
        end_epoch(vista, story)
        yield epoch


class NeverPrunes:
    """Algorithm 1 word by word: every state is kept, and the sweep is on Python sets."""

    def __init__(self, story: Story, order: str = "accuracy") -> None:
        self.story, self.order = story, order
        self.rows = torch.nn.functional.one_hot(story.labels, story.classes).half()
        self.states: list[Tensor] = []
        self.covered: list[set[int]] = []

    def end_epoch(self, epoch: int) -> dict[int, float]:
        for logits, index in self.story.batches[epoch - 1]:
            for row, sample in zip(logits.log_softmax(1).exp().half(), index.tolist()):
                self.rows[sample] = row
        self.states.append(self.rows.clone())
        self.covered.append(set(np.flatnonzero(self.story.correct[epoch - 1]).tolist()))
        newest_first = range(len(self.covered) - 1, -1, -1)
        best_first = sorted(range(len(self.covered)), key=lambda s: (-len(self.covered[s]), s))
        counts, union = [0] * len(self.covered), set[int]()
        for s in best_first if self.order == "accuracy" else newest_first:
            counts[s] = len(self.covered[s] - union)
            union |= self.covered[s]
        return {s: count / len(union) for s, count in enumerate(counts, 1)} if union else {}

    def teacher(self, weights: dict[int, float]) -> Tensor:
        total = torch.zeros(self.rows.shape)
        for s, state in enumerate(self.states, 1):
            total.add_(state.float(), alpha=weights[s])
        return total / total.sum(1, keepdim=True)


@settings(max_examples=60)
@given(stories(), st.sampled_from(["accuracy", "newest"]))
def test_pruning_without_tolerance_changes_no_weight_and_no_bit_of_the_teacher(story: Story, order: Any) -> None:
    vista, basic = story.vista(order=order), NeverPrunes(story, order)
    everything = torch.arange(len(story.labels))
    hard = torch.nn.functional.one_hot(story.labels, story.classes).float()
    for epoch in vista.epochs():
        for logits, index in story.batches[epoch - 1]:
            step(vista, logits, index)
        summary = end_epoch(vista, story)
        weights = basic.end_epoch(epoch)
        assert summary.anchors == {s: w for s, w in weights.items() if w > 0}
        assert summary.accuracy == story.correct[epoch - 1].mean()
        assert summary.beta == beta(epoch, len(story.correct))
        if not weights:
            assert torch.equal(vista.targets(everything), hard)
            continue
        teacher = basic.teacher(weights)
        assert torch.equal(vista.teacher(), teacher)
        blended = teacher * summary.beta + hard * (1 - summary.beta)
        assert torch.equal(vista.targets(everything), blended)


@settings(max_examples=30)
@given(stories(), st.sampled_from([0.02, 0.1, 0.25, 0.4]))
def test_the_anchors_are_those_of_algorithm_2_and_never_reach_1_over_tau(story: Story, tau: float) -> None:
    vista = story.vista(tau=tau)
    expected = light_coverage(story.correct, tau)
    for epoch in run(vista, story):
        state = vista.state_dict()
        assert dict(zip(state["states"], state["counts"])) == expected[epoch - 1]
        assert set(state["predictions"]) == {str(s) for s in state["states"]}, "only anchors take up room"
        assert len(state["states"]) < 1 / tau


@settings(max_examples=40)
@given(stories(missing=True), OPTIONS)
def test_targets_are_distributions(story: Story, options: dict[str, Any]) -> None:
    vista = story.vista(**options)
    everything, labelled = torch.arange(len(story.labels)), story.labels >= 0
    for rows in itertools.chain([vista.targets(everything)], (vista.targets(everything) for _ in run(vista, story))):
        assert rows.dtype == torch.float32
        assert (rows >= 0).all()
        torch.testing.assert_close(rows[labelled].sum(1), torch.ones(int(labelled.sum())), atol=1e-6, rtol=0)
        without_label = rows[~labelled].sum(1)  # a distribution once there is a teacher, nothing before
        assert (((without_label - 1).abs() < 1e-6) | (without_label == 0)).all()


@settings(max_examples=25)
@given(stories(), st.sampled_from(["exp", "linear", "cosine"]))
def test_epochs_1_and_2_train_on_the_labels_alone(story: Story, schedule: Any) -> None:
    vista = story.vista(schedule=schedule)
    everything = torch.arange(len(story.labels))
    hard = torch.nn.functional.one_hot(story.labels, story.classes).float()
    assert torch.equal(vista.targets(everything), hard)
    for logits, index in story.batches[0]:
        step(vista, logits, index)
    end_epoch(vista, story)
    assert torch.equal(vista.targets(everything), hard)


@settings(max_examples=25)
@given(stories(), OPTIONS, st.integers(0, 1000))
def test_the_order_of_the_validation_samples_does_not_matter(story: Story, options: dict, seed: int) -> None:
    straight, shuffled = story.vista(**options), story.vista(**options)
    source = torch.Generator().manual_seed(seed)
    for epoch in range(1, len(story.correct) + 1):
        for logits, index in story.batches[epoch - 1]:
            step(straight, logits, index)
            step(shuffled, logits, index)
        order = torch.randperm(len(story.val_labels), generator=source)
        one = end_epoch(straight, story)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            other = shuffled.end_epoch(story.val_logits(epoch)[order], val_index=order)
        assert one == other
        assert torch.equal(straight.teacher(), shuffled.teacher())


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@settings(max_examples=40)
@given(stories(missing=True), OPTIONS, st.data())
def test_a_state_saved_after_any_step_continues_as_if_never_saved(
    story: Story, options: dict, data: st.DataObject
) -> None:
    """The points between steps, before the first and after the last included."""
    points = sum(len(steps) + 1 for steps in story.batches)
    stop = data.draw(st.integers(0, points), "stop")
    vista, resumed, point = story.vista(**options), None, 0
    everything = torch.arange(len(story.labels))

    def maybe_save() -> None:
        nonlocal resumed, point
        if point == stop:
            resumed = story.vista(**options)
            resumed.load_state_dict(through_a_file(vista.state_dict()))
            assert torch.equal(resumed.teacher(), vista.teacher())
        point += 1

    maybe_save()
    for epoch in vista.epochs():
        for logits, index in story.batches[epoch - 1]:
            losses = [step(v, logits, index) for v in (vista, resumed) if v is not None]
            assert all(torch.equal(losses[0], other) for other in losses)
            maybe_save()
        summaries = [end_epoch(v, story) for v in (vista, resumed) if v is not None]
        assert all(summaries[0] == other for other in summaries)
        maybe_save()
        if resumed is not None:
            assert torch.equal(resumed.targets(everything), vista.targets(everything))
            assert torch.equal(resumed.teacher(), vista.teacher())
    assert resumed is not None
    assert_same(resumed.state_dict(), vista.state_dict())


def assert_same(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    else:
        assert one == other
