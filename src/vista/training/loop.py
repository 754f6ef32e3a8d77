"""The training loop. Read it from top to bottom.

``train`` is a generator of progress events, so that several runs can interleave on one GPU. The scheduler
(``scheduler.py``) advances it, shows the events and decides when to stop.
"""

from __future__ import annotations

import dataclasses
import json
import time
import traceback
import warnings
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vista.core import collectives
from vista.data import pixel_file
from vista.files import atomic, reader
from vista.methods import EpochEnd
from vista.runs import checkpoint
from vista.runs.checkpoint import Checkpoints
from vista.runs.config import MAX_SEED, TrainConfig
from vista.runs.folder import CONFIG, EARLIER, RunFolder
from vista.runs.lock import FolderMoved, HeldFolder
from vista.runs.record import EPOCHS, TEST, VAL_GIVEN, VAL_TRUE
from vista.training import results
from vista.training.build import build_training, write_description
from vista.training.engine import LossSnapshot, NotFinite
from vista.training.events import EpochEnded, Event, Finished, Interrupted, Started, Stepped, Stop, Waiting
from vista.training.memory import out_of_memory
from vista.training.network import load_model
from vista.training.preflight import check_same_run
from vista.training.resolve import ResolvedRun, resolve
from vista.training.samples import check_data_unchanged, check_files_unchanged
from vista.training.state import Training

STEPS_PER_PORTION = 50  # steps enqueued on a GPU before the host looks at signals and losses
STEPS_BETWEEN_AGREEMENTS = 10  # steps after which several processes agree whether to save or stop
# A run that another run needs first gets another seed: with the same one, teacher and student would start from the
# same weights and see the same images in the same order. It is far from the seeds that people use: 0, 1, 2.
SEED_OFFSET_OF_EARLIER_RUN = 1_000_003
ONE_SAMPLE_IN_BATCH_NORM = "more than 1 value per channel"  # torch's message about a batch of one sample


@dataclass
class Saving:
    """Where checkpoints go, whether a stop was requested, and when the last checkpoint was taken."""

    checkpoints: Checkpoints
    stop: Stop
    last: float = field(default_factory=time.monotonic)
    held: HeldFolder | None = None  # the locked run folder, in rank 0


def train(config: TrainConfig, out: str | Path, stop: Stop | None = None, role: str | None = None) -> Iterator[Event]:
    """Train in the folder ``out`` to the end, from its newest valid checkpoint if it has one.

    Args:
        config: The run; ``auto`` values are resolved here, once.
        out: The run folder. It is created if needed, and locked while the run trains.
        stop: Set its ``signal`` to request a checkpoint and :class:`Interrupted`.
        role: What the run is for, if another run needs it first.

    Yields:
        Progress events; the last one is :class:`Finished` with the metrics.
    """
    run, folder = resolve(config), RunFolder(Path(out))
    checkpoints = Checkpoints(folder.checkpoint_root(), collectives.rank())
    takes_lock = collectives.rank() == 0 and not folder.is_kept_read_only()
    with folder.locked() if takes_lock else nullcontext() as held, checkpoints.settled():
        check_same_run(run.config, folder)
        if collectives.broadcast_int(int(folder.is_finished())):  # other machines may not see the folder of rank 0
            if collectives.rank() == 0:
                check_files_unchanged(folder, run.config)
            checkpoints.clear()  # the process may have been killed between writing metrics and deleting checkpoints
            found = json.dumps(folder.metrics() if collectives.rank() == 0 else None)
            metrics = json.loads(collectives.broadcast_strings([found])[0])
        else:
            run = _place_checkpoints(run, folder)
            checkpoints.root = Path(run.config.checkpoint_dir or folder.path)
            earlier = yield from _train_earlier_runs(run, folder, stop)
            checkpoints.clear_store()
            try:
                with _decoding_stops(stop, folder):
                    training = build_training(run, folder, earlier)
                with closing(training.method):
                    saving = Saving(checkpoints, stop or Stop(), held=held)
                    metrics = yield from training.in_context(_train_epochs(training, saving, role))
            finally:
                checkpoint.remove_empty_store(checkpoints.root)
    yield Finished(folder.path, metrics, role)


def _train_epochs(training: Training, saving: Saving, role: str | None) -> Generator[Event, None, dict[str, Any]]:
    """Every remaining epoch of a run; returns the final metrics."""
    config = training.config
    if collectives.rank() == 0:
        checkpoint.write_owner(saving.checkpoints.root, training.folder.path)
    _start_or_resume(training, saving.checkpoints)
    yield Started(config, training.folder.path, training.epoch, len(training.loader.inputs), role)
    with training.engine.settled():
        with _errors_explained(training):
            training.engine.capture(training.copy_state, training.load)
        while training.epoch <= config.epochs:
            began = time.monotonic()
            yield from _train_steps(training, saving)
            yield from _end_epoch(training, saving, began)
            training.epoch += 1
            if training.epoch <= config.epochs:
                training.begin_epoch()
    _check_folder(training, saving)  # first: in a moved folder the last checkpoint has failed
    saving.checkpoints.wait()
    metrics = results.finish(training)
    saving.checkpoints.clear()
    return metrics


def _train_steps(training: Training, saving: Saving) -> Iterator[Event]:
    """The remaining steps of the current epoch. On a GPU, two portions of steps are enqueued ahead of the host."""
    engine, loader = training.engine, training.loader
    # whole groups of batches whose gradients are accumulated, so that a checkpoint needs no gradients
    portion = -(-(STEPS_PER_PORTION if engine.captures else 1) // engine.accumulate) * engine.accumulate
    pending: list[LossSnapshot] = []
    while engine.steps_done < loader.steps:
        _save_or_stop(training, saving)
        with _errors_explained(training):
            engine.advance(min(portion, loader.steps - engine.steps_done))
            if engine.captures:
                pending.append(engine.snapshot_losses())
        yield Stepped(training.epoch, min(engine.steps_done * loader.batch_size, len(loader.inputs)))
        if len(pending) > 1:
            snapshot = pending.pop(0)
            yield from _wait_for(snapshot.arrived)
            with _errors_explained(training):
                engine.check_losses(snapshot)
    for snapshot in pending:
        yield from _wait_for(snapshot.arrived)
    with _errors_explained(training):
        engine.check_losses()


def _end_epoch(training: Training, saving: Saving, began: float) -> Iterator[Event]:
    """Evaluate, call the method's ``end_epoch``, keep the best weights, write the record."""
    samples, method = training.samples, training.method
    training.evidence.end_epoch()
    trained = time.monotonic()
    _broadcast_buffers(training.network)
    evaluated, own = training.evaluated(), method.evaluated(training.network)
    if evaluated is not training.network:
        _broadcast_buffers(evaluated)
    val_logits, test_logits = training.logits(evaluated, samples.val), training.logits(evaluated, samples.test)
    seen_by_method = (val_logits, test_logits)
    if evaluated is not own:  # an average beside the method, which trains as it would without
        seen_by_method = (training.logits(own, samples.val), training.logits(own, samples.test))
    if training.device.type == "cuda":
        done = torch.cuda.Event()
        done.record()
        yield from _wait_for(done)
    for logits in {id(logits): logits for logits in (val_logits, seen_by_method[0])}.values():
        training.check_finite(logits, torch.arange(len(logits), device=training.device), "val")
    correct = _correct(training, val_logits, test_logits)
    correct_by_method = correct if evaluated is own else _correct(training, *seen_by_method)
    end = EpochEnd(
        epoch=training.epoch,
        network=training.network,
        val_logits=seen_by_method[0],
        test_logits=seen_by_method[1],
        train_logits=training.train_logits,
        train_images=training.train_images,
        val_correct=correct_by_method[VAL_GIVEN],
    )
    accuracies = _accuracies(correct)
    if evaluated is not own:
        accuracies |= {f"plain_{name}": value for name, value in _accuracies(correct_by_method).items()}
    val_accuracy = accuracies["val_accuracy"]
    is_best = training.keep_if_best(val_accuracy, evaluated)
    extra = method.end_epoch(end)  # after the best weights are kept: the method may change the network
    method.share_state(training.loader.samples_of_rank())
    line = {
        "epoch": training.epoch,
        "lr": training.engine.host_rates[0],
        "train_loss": training.engine.mean_loss(),
        **accuracies,
        **extra,
        "best": is_best,
    }
    timing = {"epoch": training.epoch, "train_seconds": trained - began, "evaluate_seconds": time.monotonic() - trained}
    training.record.append(line, timing, correct)
    if collectives.rank() == 0:
        _check_folder(training, saving)
        training.record.write(training.folder.path)
    yield EpochEnded(line, timing)


def _correct(training: Training, val_logits: Tensor, test_logits: Tensor) -> dict[str, NDArray[np.bool_]]:
    """Which samples of each set of the record are predicted correctly."""
    samples, classes = training.samples, val_logits.argmax(dim=1).cpu().numpy()
    return {
        VAL_GIVEN: classes == samples.labels("val", "given"),
        VAL_TRUE: classes == samples.labels("val", "true"),
        TEST: test_logits.argmax(dim=1).cpu().numpy() == samples.test_labels,
    }


def _accuracies(correct: dict[str, NDArray[np.bool_]]) -> dict[str, float]:
    names = {"val_accuracy": VAL_GIVEN, "val_true_accuracy": VAL_TRUE, "test_accuracy": TEST}
    return {name: float(correct[part].mean()) for name, part in names.items()}


def _broadcast_buffers(network: nn.Module) -> None:
    """BatchNorm statistics differ between processes: before an evaluation all take those of rank 0."""
    for buffer in network.buffers():
        collectives.broadcast(buffer)


# ---------------------------------------------------------------- starting, saving, stopping


@contextmanager
def _decoding_stops(stop: Stop | None, folder: RunFolder) -> Iterator[None]:
    """Photos may take minutes to decode, and a run that has not started has nothing to save: stop at the next photo."""
    shown = pixel_file.on_progress

    def show_or_stop(done: int, total: int) -> None:
        shown(done, total)
        if stop is not None and stop.signal:
            raise Interrupted(folder.path, stop.signal)

    pixel_file.on_progress = show_or_stop
    try:
        yield
    finally:
        pixel_file.on_progress = shown


def _place_checkpoints(run: ResolvedRun, folder: RunFolder) -> ResolvedRun:
    """The run with its own folder below ``checkpoint_dir``, if that is given; rank 0 chooses it."""
    root = ""
    if collectives.rank() == 0:
        folder.reject_links()
        chosen = folder.choose_checkpoint_root(run.config.checkpoint_dir)
        checkpoint.reject_links(chosen)
        root = "" if chosen == folder.path else str(chosen)
        if chosen != folder.checkpoint_root() and (folder.path / CONFIG).exists():
            recorded = dataclasses.replace(folder.config(), checkpoint_dir=root or None)
            atomic.write_json(folder.path / CONFIG, recorded.to_json())
    config = dataclasses.replace(run.config, checkpoint_dir=collectives.broadcast_strings([root])[0] or None)
    return dataclasses.replace(run, config=config)


def _train_earlier_runs(
    run: ResolvedRun, folder: RunFolder, stop: Stop | None
) -> Generator[Event, None, dict[str, nn.Module]]:
    """Train the runs that the method needs first, each in its own folder below this run's ``earlier/``."""
    config, networks = run.config, dict[str, nn.Module]()
    noise_seed, split_seed = config.data_seeds()
    for need in run.chosen.method.earlier_runs(run.chosen.config):
        out = folder.path / EARLIER / need.role
        needed = dataclasses.replace(
            config,
            method=need.method,
            options=need.options,
            seed=(config.seed + SEED_OFFSET_OF_EARLIER_RUN) % (MAX_SEED + 1),
            noise_seed=noise_seed,  # the same labels
            split_seed=split_seed,  # and the same split
        )
        for event in train(needed, out, stop, need.role):
            if isinstance(event, Started) and collectives.rank() == 0:
                # From here on the run has a configuration on disk: if it is killed, it can be listed and resumed.
                atomic.write_json(folder.path / CONFIG, config.to_json())
            yield event
        networks[need.role] = load_model(out, "best", config.network).to(run.device)
    return networks


def _start_or_resume(training: Training, checkpoints: Checkpoints) -> None:
    had_checkpoints = bool(checkpoints.names())  # damaged ones are reported while they are read
    state = checkpoints.load_newest(training.run.identity)
    if state is not None:
        samples = training.samples
        if (training.folder.path / CONFIG).exists():  # not on another machine than that of rank 0
            check_data_unchanged(training.folder, training.config, samples.given, samples.description)
        training.load(state)
        if collectives.rank() == 0:
            training.record.write(training.folder.path)
        return
    if collectives.rank() == 0:
        if not had_checkpoints:
            _warn_about_lost_epochs(training.folder)
        write_description(training)
        training.record.write(training.folder.path)
    training.begin_epoch()


def _warn_about_lost_epochs(folder: RunFolder) -> None:
    lines = folder.path / EPOCHS
    done = reader.read_bytes(lines).count(b"\n") if lines.exists() else 0
    if done:
        warnings.warn(
            f"{folder.path} has a record of {done} epochs but no checkpoint: it starts from epoch 1", stacklevel=2
        )


def _save_or_stop(training: Training, saving: Saving) -> None:
    """Take a checkpoint when one is due or a signal arrived; several processes follow the clock of rank 0."""
    _check_folder(training, saving, save=not collectives.active())
    if collectives.active() and training.engine.steps_done // training.engine.accumulate % STEPS_BETWEEN_AGREEMENTS:
        return
    due = time.monotonic() - saving.last >= training.config.checkpoint_seconds
    signal = collectives.broadcast_int(saving.stop.signal)
    if not (collectives.broadcast_int(int(due)) or signal):
        return
    with _errors_explained(training):
        training.engine.check_losses()
        saving.checkpoints.save(_name(training), training.state(), wait=bool(signal) or collectives.active())
    saving.last = time.monotonic()
    if signal:
        raise Interrupted(training.folder.path, signal)


def _name(training: Training) -> str:
    return f"epoch-{training.epoch:05d}-step-{training.engine.steps_done:07d}"


def _check_folder(training: Training, saving: Saving, save: bool = False) -> None:
    """Stop if the run folder was moved or removed, instead of creating it again at its old path.

    Args:
        training: The training; for ``save`` it must be at a step boundary.
        saving: Holds the folder.
        save: Write a checkpoint into the moved folder first, if its new path is known.
    """
    try:
        if saving.held is not None:
            saving.held.check_path()
    except FolderMoved as error:
        checkpoints = saving.checkpoints
        with suppress(OSError):  # the last checkpoint may have failed because of the move
            checkpoints.wait()
        if save and error.now is not None:
            if checkpoints.root == training.folder.path:
                checkpoints.root = error.now
            with suppress(OSError):
                checkpoints.save(_name(training), training.state(), wait=True)
        raise


@contextmanager
def _errors_explained(training: Training) -> Iterator[None]:
    """Add what only the loop knows to errors of a step: the epoch and samples, or a batch size that works."""
    loader = training.loader
    try:
        yield
    except NotFinite as error:
        batch = loader.order[error.step * loader.batch_size :][: loader.size(error.step)]
        original = training.samples.split.train[batch.cpu().numpy()].tolist()
        raise NotFinite(error.step, training.epoch, original) from error
    except torch.OutOfMemoryError as error:
        traceback.clear_frames(error.__traceback__)  # they hold the tensors of the failed step
        raise out_of_memory(training.config, training.engine) from None
    except ValueError as error:
        if ONE_SAMPLE_IN_BATCH_NORM not in str(error):
            raise
        raise ValueError(
            f"batch_size is {training.config.batch_size}, which leaves one of {len(loader.inputs)} training samples "
            f"alone in a batch, but BatchNorm in network {training.config.network!r} needs at least two: "
            f"use another --batch-size, such as {training.config.batch_size + 1}"
        ) from error


def _wait_for(event: torch.cuda.Event) -> Iterator[Event]:
    """Let other runs proceed until the GPU has reached ``event``."""
    while not event.query():
        yield Waiting(event)
