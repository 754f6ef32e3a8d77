"""The training loop. Read it from top to bottom.

``train`` is a generator: it yields what happened, and between two things that happened other runs may go on on the
same card. Whoever drives it (see ``drive.py``) decides what to show and when to stop.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from vista import durable, exchange
from vista.methods import EpochEnd
from vista.training import checkpoint, results, run_folder
from vista.training.checkpoint import Checkpoints
from vista.training.config import MAX_SEED, TrainConfig
from vista.training.engine import Look, NotFinite
from vista.training.events import EpochEnded, Event, Finished, Interrupted, Started, Stepped, Stop, Waiting
from vista.training.network import load_model
from vista.training.record import EPOCHS, TEST, VAL_GIVEN, VAL_TRUE
from vista.training.refusals import refuse_another_run
from vista.training.run_folder import RunFolder
from vista.training.samples import refuse_changed, refuse_changed_files
from vista.training.setup import prepare, write_description
from vista.training.training import Training

STEPS_AT_A_TIME = 50  # enqueued on a card before the host looks around
STEPS_BETWEEN_AGREEMENTS = 10  # after which several processes ask the first one whether to save or stop
# A run that another one needs first is a draw of its own: with the same seed, teacher and student would begin with the
# same weights and see the same pictures in the same order. Far from the seeds that people count up: 0, 1, 2.
SEEDS_TO_EARLIER_RUN = 1_000_003


@dataclass
class Saving:
    """When the last checkpoint was taken."""

    checkpoints: Checkpoints
    stop: Stop
    last: float = field(default_factory=time.monotonic)


def train(config: TrainConfig, out: str | Path, stop: Stop | None = None, role: str | None = None) -> Iterator[Event]:
    """Train in the folder ``out``, from its newest sound checkpoint if it has one, to the end."""
    config, folder = config.resolved(), RunFolder(Path(out))
    checkpoints = Checkpoints(folder.checkpoint_root(), exchange.rank())
    is_first = exchange.rank() == 0 and not folder.is_kept_read_only()
    with folder.locked() if is_first else nullcontext(), checkpoints.settled():
        refuse_another_run(config, folder)
        if folder.is_finished():
            refuse_changed_files(folder, config)
            checkpoints.clear()  # it may have been killed between its metrics and this
            yield Finished(folder.path, folder.metrics(), role)
            return
        config = _place_checkpoints(config, folder)
        checkpoints.root = Path(config.checkpoint_dir or folder.path)
        earlier = yield from _earlier_runs(config, folder, stop)
        training = prepare(config, folder, earlier)
        saving = Saving(checkpoints, stop or Stop())
        _start_or_resume(training, checkpoints)
        yield Started(config, folder.path, training.epoch, len(training.loader.inputs), role)
        with training.engine.settled():
            with training.on_stream():
                training.engine.capture(training.in_memory_copy, training.load)
            while training.epoch <= config.epochs:
                began = time.monotonic()
                yield from _steps(training, saving)
                yield (yield from _end_epoch(training, began))
                training.epoch += 1
                if training.epoch <= config.epochs:
                    with training.on_stream():
                        training.begin_epoch()
        checkpoints.wait()
        with training.on_stream():
            metrics = results.finish(training)
        checkpoints.clear()
    yield Finished(folder.path, metrics, role)


def _steps(training: Training, saving: Saving) -> Iterator[Event]:
    """The rest of the running epoch. On a card two portions of steps are under way while the host looks around."""
    engine, loader = training.engine, training.loader
    portion = STEPS_AT_A_TIME if engine.captures else 1
    under_way: list[Look] = []
    while engine.steps_done < loader.steps:
        _save_or_stop(training, saving)
        with training.on_stream(), _faults_named(training):
            engine.advance(min(portion, loader.steps - engine.steps_done))
            if engine.captures:
                under_way.append(engine.look())
        yield Stepped(training.epoch, min(engine.steps_done * loader.batch_size, len(loader.inputs)))
        if len(under_way) > 1:
            look = under_way.pop(0)
            yield from _until(look.arrived)
            with training.on_stream(), _faults_named(training):
                engine.check(look)
    for look in under_way:
        yield from _until(look.arrived)
    with training.on_stream(), _faults_named(training):
        engine.check()


def _end_epoch(training: Training, began: float) -> Generator[Event, None, EpochEnded]:
    """Evaluate, let the method hear of it, note the best, write the record."""
    samples, method = training.samples, training.method
    trained = time.monotonic()
    with training.on_stream():
        _share_buffers(training.network)
        evaluated = method.evaluated(training.network)
        if evaluated is not training.network:
            _share_buffers(evaluated)
        val_logits, test_logits = training.logits(evaluated, samples.val), training.logits(evaluated, samples.test)
        if training.device.type == "cuda":
            yield_until = _mark()
    if training.device.type == "cuda":
        yield from _until(yield_until)
    with training.on_stream():
        everything = torch.arange(len(val_logits), device=training.device)
        training.refuse_broken(val_logits, everything, samples.split.val, "validation")
        end = EpochEnd(
            epoch=training.epoch,
            network=training.network,
            val_logits=val_logits,
            test_logits=test_logits,
            train_logits=training.train_logits,
            train_pictures=training.train_pictures,
        )
        guesses = val_logits.argmax(dim=1).cpu().numpy()
        correct = {
            VAL_GIVEN: guesses == samples.labels("val", "given"),
            VAL_TRUE: guesses == samples.labels("val", "true"),
            TEST: test_logits.argmax(dim=1).cpu().numpy() == samples.test_labels,
        }
        is_best = training.note_best(float(correct[VAL_GIVEN].mean()), evaluated)
        extra = method.end_epoch(end)  # which may change the network: its weights were judged, and kept, before
        method.share_state(training.loader.samples_of_rank())
        line = {
            "epoch": training.epoch,
            "lr": training.engine.host_rates[0],
            "train_loss": training.engine.mean_loss(),
            "val_accuracy": float(correct[VAL_GIVEN].mean()),
            "val_true_accuracy": float(correct[VAL_TRUE].mean()),
            "test_accuracy": float(correct[TEST].mean()),
            **extra,
            "best": is_best,
        }
    timing = {"epoch": training.epoch, "train_seconds": trained - began, "evaluate_seconds": time.monotonic() - trained}
    training.record.append(line, timing, correct)
    if exchange.rank() == 0:
        training.record.write(training.folder.path)
    return EpochEnded(line, timing)


def _share_buffers(network: nn.Module) -> None:
    """What BatchNorm has seen is each process's own: before it is judged, the network takes that of the first."""
    for buffer in network.buffers():
        exchange.broadcast(buffer)


# ---------------------------------------------------------------- starting, saving, stopping


def _place_checkpoints(config: TrainConfig, folder: RunFolder) -> TrainConfig:
    """The configuration with the run's own folder below ``checkpoint_dir``; the first process chooses it."""
    root = ""
    if exchange.rank() == 0:
        folder.reject_links()
        chosen = folder.choose_checkpoint_root(config.checkpoint_dir)
        checkpoint.reject_links(chosen)
        root = "" if chosen == folder.path else str(chosen)
        if chosen != folder.checkpoint_root() and (folder.path / run_folder.CONFIG).exists():
            recorded = dataclasses.replace(folder.config(), checkpoint_dir=root or None)
            durable.write_json(folder.path / run_folder.CONFIG, recorded.to_json())
    return dataclasses.replace(config, checkpoint_dir=exchange.first_ranks_words([root])[0] or None)


def _earlier_runs(
    config: TrainConfig, folder: RunFolder, stop: Stop | None
) -> Generator[Event, None, dict[str, nn.Module]]:
    """Train what the method needs first, each in a folder of its own below this run's."""
    networks: dict[str, nn.Module] = {}
    chosen = config.chosen()
    noise_seed, split_seed = config.data_seeds()
    for need in chosen.method.earlier_runs(chosen.config):
        out = folder.path / run_folder.EARLIER / need.role
        needed = dataclasses.replace(
            config,
            method=need.method,
            options=need.options,
            seed=(config.seed + SEEDS_TO_EARLIER_RUN) % (MAX_SEED + 1),
            noise_seed=noise_seed,  # the same labels
            split_seed=split_seed,  # and the same split
        )
        for event in train(needed, out, stop, need.role):
            if isinstance(event, Started) and exchange.rank() == 0:
                # It has come this far, so the run has a name: killed meanwhile, it can be listed and resumed.
                durable.write_json(folder.path / run_folder.CONFIG, config.to_json())
            yield event
        networks[need.role] = load_model(out, "best", config.network).to(config.device)
    return networks


def _start_or_resume(training: Training, checkpoints: Checkpoints) -> None:
    with training.on_stream():
        was_saved = bool(checkpoints.names())  # of damaged ones that is said where they are found
        sound = checkpoints.newest_sound_everywhere()
        if sound is not None:
            samples = training.samples
            refuse_changed(training.folder, training.config, samples.given, samples.description)
            training.load(sound)
            if exchange.rank() == 0:
                training.record.write(training.folder.path)
            return
        if exchange.rank() == 0:
            if not was_saved:
                _warn_of_lost_epochs(training.folder)
            write_description(training)
            training.record.write(training.folder.path)
        training.begin_epoch()


def _warn_of_lost_epochs(folder: RunFolder) -> None:
    lines = folder.path / EPOCHS
    done = lines.read_bytes().count(b"\n") if lines.exists() else 0
    if done:
        said = f"{folder.path} has {done} epochs on record, but no checkpoint left: it starts anew"
        warnings.warn(said, stacklevel=2)


def _save_or_stop(training: Training, saving: Saving) -> None:
    """Take a checkpoint when it is due, or when a signal came; several processes follow the first one's clock."""
    if exchange.active() and training.engine.steps_done % STEPS_BETWEEN_AGREEMENTS:
        return
    due = time.monotonic() - saving.last >= training.config.checkpoint_seconds
    signal = exchange.first_ranks_word(saving.stop.signal)
    if not (exchange.first_ranks_word(int(due)) or signal):
        return
    with training.on_stream(), _faults_named(training):
        training.engine.check()
        name = f"epoch-{training.epoch:05d}-step-{training.engine.steps_done:07d}"
        saving.checkpoints.save(name, training.state(), wait=bool(signal) or exchange.active())
    saving.last = time.monotonic()
    if signal:
        raise Interrupted(training.folder.path, signal)


@contextmanager
def _faults_named(training: Training) -> Iterator[None]:
    """What is not finite is reported with its epoch, its step, and the samples' places in the original data."""
    try:
        yield
    except NotFinite as error:
        batch = training.loader.order[error.step * training.loader.batch_size :][: training.loader.size(error.step)]
        original = training.samples.split.train[batch.cpu().numpy()].tolist()
        raise NotFinite(error.step, training.epoch, original) from error


# ---------------------------------------------------------------- the card


def _mark() -> torch.cuda.Event:
    event = torch.cuda.Event()
    event.record()
    return event


def _until(event: torch.cuda.Event) -> Iterator[Event]:
    while not event.query():
        yield Waiting(event)
