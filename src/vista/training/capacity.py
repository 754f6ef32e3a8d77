"""What a run needs: memory, disk, network and time, from a few numbers and without training anything.

Activations, which depend on network and batch, and a library's own memory are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from vista.core.store import WORKING_TABLES, bytes_per_state, states_at_most
from vista.runs import checkpoint

LIKELY_STATES = 13  # 12 anchors, the most that tau = 0.01 has kept, and the newest state
GPUS_PER_NODE = 8


@dataclass(frozen=True)
class Workload:
    """What is trained.

    Attributes:
        samples: Number of training samples, ``N``.
        validation: Number of validation samples.
        classes: Number of classes, ``K``.
        epochs: Number of epochs.
        batch_size: Samples per step, over all processes.
        sample_bytes: Size of one stored sample.
        weights: Size of the network's float32 weights.
        rate: Samples per second that one device trains; ``None`` if unknown.
        stores: Whether the method stores predictions of past states.
        tau: Its tolerance.
        kept: Probabilities kept per sample (``topk``); ``None`` for all.
    """

    samples: int
    validation: int
    classes: int
    epochs: int
    batch_size: int
    sample_bytes: int
    weights: int
    rate: float | None
    stores: bool = True
    tau: float = 0.01
    kept: int | None = None


@dataclass(frozen=True)
class Needs:
    """What a run needs on some number of devices, in bytes and seconds.

    Attributes:
        samples: Stored samples, on each device.
        training: Weights, gradients and momentum, on each device.
        predictions: Predictions of the likely states and the targets, on each device that keeps them.
        state: Predictions of one state: what each epoch exchanges between nodes.
        gradients: Gradients that each process sends in an epoch, as a ring does.
        disk: Checkpoints at the end of the run, with the one being written.
        epoch: Seconds of an epoch with its evaluation, by counted operations; ``None`` if unknown.
        run: Seconds of the run.
    """

    samples: int
    training: int
    predictions: int
    state: int
    gradients: int
    disk: int
    epoch: float | None
    run: float | None


def needs(work: Workload, devices: int = 1) -> Needs:
    """Compute what a run needs.

    Args:
        work: What is trained.
        devices: Processes with one device each.

    >>> imagenet = Workload(1_281_167, 50_000, 1000, 100, 1024, 196_608, 102_228_128, 1600.0)
    >>> round(needs(imagenet).state / 1e9, 2)
    2.56
    """
    state = bytes_per_state(work.samples, work.classes, work.kept) if work.stores else 0
    kept = min(LIKELY_STATES, states_at_most(work.epochs, work.tau)) if work.tau else work.epochs
    dense = bytes_per_state(work.samples, work.classes) if work.stores else 0
    steps = -(-work.samples // work.batch_size)
    # An evaluation is a forward pass, a third of a step.
    epoch = None if work.rate is None else (work.samples + work.validation / 3) / (work.rate * devices)
    return Needs(
        samples=(work.samples + work.validation) * work.sample_bytes,
        training=3 * work.weights,
        predictions=kept * state + WORKING_TABLES * dense,
        state=state,
        gradients=round(2 * (devices - 1) / devices * work.weights * steps),
        disk=checkpoint.AT_ONCE * (3 * work.weights + state) + kept * state,
        epoch=epoch,
        run=None if epoch is None else epoch * work.epochs,
    )
