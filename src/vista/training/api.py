"""Train from Python: ``vista.train``, and what the command line shares with it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from vista import models
from vista.core import collectives
from vista.core.validation import suggest
from vista.data import hf_dataset, source
from vista.methods import Chosen
from vista.runs import config as run_config
from vista.runs.config import TrainConfig
from vista.runs.folder import Which
from vista.training import clusters, distributed
from vista.training.events import Event, Interrupted, Started
from vista.training.network import load_model
from vista.training.recommend import complete, keep_choices
from vista.training.replace import Replacement, restore_replaced_runs
from vista.training.resolve import choose_method, device_name, resolve
from vista.training.scheduler import Job, on_gpu, run_jobs
from vista.training.workers import at_once_on_cpu, run_jobs_in_processes

OnEvent = Callable[[Job, Event], None]


@dataclass(frozen=True, repr=False)
class Result:
    """The result of a run.

    Attributes:
        folder: The run folder, which ``vista report``, ``vista labels`` and ``vista.load_model`` read.
        config: The configuration with every default and every option of the method written out.
        metrics: The content of ``metrics.json``: for ``best`` and ``last`` the epoch and the metrics on ``val`` and
            ``test``, as fractions; ``deviation_gap``; ``anchors_max``.

    >>> result = train(data="digits", epochs=2, out="runs/digits")    # doctest: +SKIP
    >>> result.metrics["best"]["test"]["top1"], result.model()(images)    # doctest: +SKIP
    """

    folder: Path
    config: TrainConfig
    metrics: dict[str, Any]

    def __repr__(self) -> str:
        accuracies = [
            f"{which} {100 * self.metrics[which]['test']['top1']:.2f} % (epoch {self.metrics[which]['epoch']})"
            for which in ("best", "last")
            if which in self.metrics
        ]
        return f"Result({str(self.folder)!r}, {self.config.method}: test accuracy {', '.join(accuracies)})"

    def model(self, which: Which = "best", *, calibrated: bool = False) -> nn.Module:
        """Load the trained network, in eval mode on the CPU.

        Args:
            which: The weights of the best validation epoch, or of the last epoch.
            calibrated: Divide the logits by the temperature that the run fitted on its validation labels.

        Returns:
            The network without anything of vista's; its input is normalised images or features ``[B, ...]``.

        >>> train(data="digits", epochs=2, out="runs/digits").model("last")  # doctest: +SKIP
        """
        custom = models.is_custom_network(self.config.network)
        return load_model(self.folder, which, self.config.network if custom else None, calibrated=calibrated)


def train(
    config: TrainConfig | None = None,
    out: str | Path | None = None,
    on_event: Callable[[Event], None] | None = None,
    *,
    preset: str = "auto",
    fresh: bool = False,
    **fields: Any,
) -> Result:
    """Train one network, as ``vista train`` does.

    A folder that holds the same run is resumed, or its results are returned if it has finished. Ctrl-C and SIGTERM
    write a checkpoint and raise :class:`vista.training.events.Interrupted`.

    Args:
        config: The configuration; by default the preset for the data and noise in ``fields``.
        out: The run folder; by default ``runs/DATA-NOISE-METHOD-seedN``.
        on_event: Called with each event of :mod:`vista.training.events`: ``Started``, ``Stepped``, ``EpochEnded``,
            ``Finished``.
        preset: The defaults, unless ``config`` is given: ``auto``, ``recommended``, ``paper``, ``digits``, ``clean`` or
            ``noisy``; ``auto`` is ``recommended`` for custom data such as ``folder:PATH``.
        fresh: Replace a run in the same folder instead of resuming it.
        **fields: Fields of :class:`vista.runs.config.TrainConfig`, such as ``data``, ``noise``, ``method``, ``epochs``
            and ``seed``. They override ``config`` and the preset. ``data`` may be a dataset object of Hugging
            Face, which is saved in the folder ``datasets`` next to the run.

    Returns:
        The result of the run.

    Raises:
        ValueError: If an argument is invalid, or the folder holds another run.
        TypeError: If a field is unknown.

    Example:
        >>> import vista
        >>> result = vista.train(noise="symmetric:0.4", method="vista:tau=0.01", epochs=2)  # doctest: +SKIP
        >>> result.metrics["best"]["test"]["top1"]  # doctest: +SKIP
        0.8777777777777778
        >>> network = result.model("best")  # doctest: +SKIP
    """
    if hasattr(fields.get("data"), "save_to_disk"):
        kept = Path("runs" if out is None else Path(out).parent) / "datasets"
        fields["data"] = hf_dataset.store(fields["data"], kept)
    job = new_job(make_config(config, preset, fields), out)
    if not fresh:
        keep_choices([job], set(fields))
    execute_jobs([job], lambda _job, event: None if on_event is None else on_event(event), fresh=fresh)
    return result_of(job)


def make_config(config: TrainConfig | None, preset: str, fields: dict[str, Any]) -> TrainConfig:
    """The configuration with ``fields`` set; the preset gives the values that neither of them has."""
    known = [field.name for field in dataclasses.fields(TrainConfig)]
    for name in fields:
        if name not in known:
            raise TypeError(f"field {name!r} is unknown; {suggest(name, known)}")
    if config is not None:
        return dataclasses.replace(config, **fields)
    data, noise = fields.get("data", TrainConfig.data), fields.get("noise", TrainConfig.noise)
    optimizer = fields.get("optimizer", TrainConfig.optimizer)
    made = TrainConfig(**{**run_config.preset(preset, data, noise, optimizer), **fields})
    return complete(made, preset, set(fields))


def new_job(config: TrainConfig, out: str | Path | None) -> Job:
    """The job of a run, in ``out`` or in the default folder ``runs/DATA-NOISE-METHOD-seedN``."""
    name = f"{data_name(config)}-{method_name(choose_method(config))}-seed{config.seed}"
    return Job(config, output_folder(out, name))


def result_of(job: Job) -> Result:
    """The result of an executed job; raises its error."""
    if job.error is not None:
        raise job.error
    assert job.metrics is not None
    return Result(job.out, resolve(job.config).config, job.metrics)


def execute_jobs(
    jobs: list[Job], on_event: OnEvent, at_once: int | None = None, *, fresh: bool = False, on: str | None = None
) -> None:
    """Execute runs; each job then holds its metrics or its error.

    Args:
        jobs: The runs.
        on_event: Called with each event and its job.
        at_once: Concurrent runs; by default 5 on a GPU, and on the CPU one per core if a single thread is fastest.
        fresh: Replace runs in the same folders instead of resuming them; an old run is deleted once the new one starts.
        on: Execute them on a cluster: ``ray``, ``ray:ADDRESS``, ``slurm`` or ``slurm:PARTITION``. ``at_once`` is then
            the number of concurrent runs per GPU.

    Raises:
        Interrupted: If a signal stopped the runs, each with a checkpoint.
    """
    if at_once is not None and at_once < 1:
        raise ValueError(f"at_once must be at least 1, got {at_once}")
    engine = None if on is None else clusters.parse(on)
    for job in jobs:
        job.config = dataclasses.replace(job.config, device=distributed.own_device(job.config.device))
    with ExitStack() as stack:
        stack.enter_context(distributed.process_group(device_name(jobs[0].config.device)))
        restore_replaced_runs(jobs)
        replacement = stack.enter_context(Replacement(jobs)) if fresh else None

        def show(job: Job, event: Event) -> None:
            if replacement is not None and isinstance(event, Started):
                replacement.delete_old(job)
            on_event(job, event)

        try:
            if engine is not None:
                clusters.run_on(engine, jobs, show, at_once)
            else:
                _drive(jobs, show, at_once)
        except Interrupted as error:  # possibly in a run that another one needs first: name the job's own run
            raise Interrupted(jobs[0].out, error.signal) from error


def _drive(jobs: list[Job], show: OnEvent, at_once: int | None) -> None:
    """On a GPU, concurrent runs share this process; on the CPU each has its own."""
    if collectives.active():
        run_jobs(jobs, show, 1)
    elif on_gpu(jobs):
        run_jobs(jobs, show, at_once)
    elif (processes := min(len(jobs), at_once or at_once_on_cpu(jobs))) > 1:
        run_jobs_in_processes(jobs, show, processes)
    else:
        run_jobs(jobs, show, 1)


# ---------------------------------------------------------------- names of folders


def output_folder(out: str | Path | None, default: str) -> Path:
    """``out``, or the folder ``default`` below ``runs``."""
    if out is None:
        return Path("runs") / default
    if not str(out):
        raise ValueError("out must be the path of a folder, got ''")
    return Path(out).expanduser()


def data_name(config: TrainConfig) -> str:
    """``digits-symmetric-0.4``: data and noise as part of a folder name, with only the last part of a path."""
    parts = []
    for text in (config.data, config.noise):
        kind, _, value = text.partition(":")
        parts.append(_safe_name(f"{kind}-{Path(value).name}" if kind in (*source.KINDS, "file") else text))
    if config.labels is not None:
        parts[-1] = _safe_name(f"labels-{Path(config.labels).name}")
    if config.fold is not None:
        parts.append(_safe_name(f"fold-{config.fold}"))
    return "-".join(parts)


def method_name(chosen: Chosen) -> str:
    """``vista-tau0.01``: the method, and the options that differ from the defaults of its name."""
    usual = dataclasses.asdict(chosen.method.Config(**chosen.method.variants.get(chosen.name, {})))
    changed = {key: value for key, value in chosen.options.items() if value != usual[key]}
    return _safe_name("-".join([chosen.name, *(f"{key}{value}" for key, value in changed.items())]))


def _safe_name(text: str) -> str:
    """Keep letters, digits, dot, dash and underscore."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.") or "x"
