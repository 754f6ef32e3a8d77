from __future__ import annotations

from collections import deque

import numpy as np
import pytest
import torch
from by_hand import softmax

from vista.methods import choose
from vista.methods.tsd import NEUTRAL, append_to_queues, compute_tolerant_term, read_queues


def make(task, network, **options):
    chosen = choose("tsd", options)
    return chosen.method(task, network, chosen.config)


def inputs(rows=3, seed=1):
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed))


def test_queues_match_python_deques():
    size, generator = 3, torch.Generator().manual_seed(4)
    queues, written = torch.zeros(4 * size + 1, 2), torch.zeros(4, dtype=torch.long)
    expected = [deque(maxlen=size) for _ in range(4)]
    for step in range(8):
        group = torch.randint(-1, 4, (9,), generator=generator)
        probs = torch.rand(9, 2, generator=generator)
        if step == 3:
            group[:] = 2  # more predictions than the queue holds
        append_to_queues(queues, written, group, probs)
        for g, row in zip(group.tolist(), probs):
            if g >= 0:
                expected[g].append(row)
        mean, known = read_queues(queues, written, torch.arange(4))
        for g in range(4):
            assert bool(known[g]) == bool(expected[g])
            if expected[g]:
                torch.testing.assert_close(mean[g], torch.stack(tuple(expected[g])).mean(0))
    assert queues[-1].sum() == 0


def test_three_steps_against_numpy(make_task, FakeBatch, Linear5):
    network, index, y = Linear5(), [0, 5, 1, 6], np.array([0, 0, 1, 1])
    method = make(make_task(), network, weight=0.7, temperature=3.0, queue=2)
    queues = {(c, right): deque(maxlen=2) for c in range(5) for right in (True, False)}
    taught = 0
    for seed in range(1, 6):
        x = inputs(4, seed)
        loss = method.loss(network, FakeBatch(x, index))
        z = network(x).detach().numpy().astype(float)
        p, right = softmax(z), z.argmax(1) == y
        expected = -np.log(p[range(4), y]).mean()
        for row in range(4):
            stored = queues[y[row], not right[row]]
            if stored:
                taught += 1
                q, s = softmax(np.log(np.mean(stored, axis=0))[None] / 3), softmax(z[row : row + 1] / 3)
                expected += 0.7 * 9 * (q * np.log(q / s)).sum() / 4
        assert loss.item() == pytest.approx(expected, rel=1e-4)
        for row in range(4):
            queues[y[row], right[row]].append(p[row])
    assert taught > 2, "the case must reach the memory"


def test_own_prediction_as_teacher_has_zero_loss():
    logits = torch.randn(3, 5, generator=torch.Generator().manual_seed(1), requires_grad=True)
    known = torch.tensor([True, True, False])
    term = compute_tolerant_term(logits, logits.softmax(1).detach(), known, temperature=4.0)
    assert term.item() == pytest.approx(0.0, abs=1e-6)
    term.backward()
    assert logits.grad.abs().max() < 1e-6


def test_first_step_is_cross_entropy(make_task, FakeBatch, Linear5):
    network, x = Linear5(), inputs()
    loss = make(make_task(), network).loss(network, FakeBatch(x, [0, 1, 2]))
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(network(x), torch.tensor([0, 1, 2])))


def test_weight_0_is_cross_entropy_exactly(make_task, FakeBatch, Linear5):
    network, task = Linear5(), make_task()
    method, plain = make(task, network, **NEUTRAL), choose("ce").method(task, network, None)
    for seed in (1, 2, 3):
        batch = FakeBatch(inputs(4, seed), [0, 5, 1, 6])
        assert torch.equal(method.loss(network, batch), plain.loss(network, batch))


def test_unlabelled_samples_are_neither_distilled_nor_stored(make_task, FakeBatch, Linear5):
    network, labels = Linear5(), torch.tensor([-1, -1, 2])
    method = make(make_task(labels=labels), network)
    everybody = torch.arange(10).repeat_interleave(16)  # fill every queue, so that each sample has a teacher
    append_to_queues(method.queues, method.written, everybody, torch.full((160, 5), 0.2))
    queues = method.queues.clone()
    loss = method.loss(network, FakeBatch(inputs(2), [0, 1]))
    assert loss.item() == pytest.approx(0.0, abs=1e-6)
    assert torch.equal(method.queues, queues)
    assert method.written.tolist() == [16] * 10


def test_state_survives_saving(make_task, FakeBatch, Linear5):
    network = Linear5()
    method = make(make_task(), network)
    for seed in (1, 2):
        method.loss(network, FakeBatch(inputs(4, seed), [0, 5, 1, 6]))
    other = make(make_task(), network)
    other.load_state_dict(method.state_dict())
    batch = FakeBatch(inputs(4, 3), [0, 5, 1, 6])
    assert torch.equal(other.loss(network, batch), method.loss(network, batch))


def test_is_marked_as_reconstruction():
    method = choose("tsd").method
    assert method.reconstruction
    assert "reconstruction" in method.source


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight": -1.0}, "weight .*-1.0"),
        ({"temperature": 0.0}, "temperature .*0.0"),
        ({"queue": 0}, "queue .*0"),
    ],
)
def test_bad_options_raise(options, message):
    with pytest.raises(ValueError, match=message):
        choose("tsd", options)
