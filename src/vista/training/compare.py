"""Compare several methods over several seeds: ``vista.compare``, its plan and its rows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vista.core.validation import suggest
from vista.methods import Chosen, available, choose
from vista.methods.vista import VistaMethod
from vista.metrics import mean_and_error
from vista.runs.config import TrainConfig
from vista.runs.folder import CONFIG, RunFolder
from vista.training.api import OnEvent, data_name, execute_jobs, make_config, method_name, output_folder
from vista.training.preflight import check_same_run
from vista.training.recommend import keep_choices, measure
from vista.training.resolve import resolve
from vista.training.scheduler import Job, on_gpu

ALL = "all"
DEFAULT_METHODS = ("ce", "vista", "vista-light")
# Of the test set at the best validation epoch, with the factor of their unit; each also with `_calibrated`.
PROBABILISTIC = {"ece": 100.0, "nll": 1.0, "aurc": 100.0}


@dataclass(frozen=True)
class Entry:
    """A method of a comparison, and its runs, one per seed."""

    method: str  # as requested, with its options
    chosen: Chosen
    jobs: list[Job]
    same_as: str | None = None  # the method whose runs these are, because both are the same training


def compare(
    methods: Sequence[str] = DEFAULT_METHODS,
    seeds: int = 3,
    config: TrainConfig | None = None,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
    *,
    at_once: int | None = None,
    preset: str = "auto",
    fresh: bool = False,
    on: str | None = None,
    **fields: Any,
) -> list[dict[str, Any]]:
    """Train every method with every seed on the same labels, as ``vista compare`` does.

    Finished runs in ``out`` are reused, and interrupted ones are resumed.

    Args:
        methods: Names of methods, with options as in ``vista:tau=0.02``; ``all`` stands for every method.
        seeds: Number of seeds: 3 means 0, 1 and 2.
        config: The configuration that the runs share; by default the preset for the data and noise in ``fields``.
        out: The folder of the runs; by default ``runs/compare-DATA-NOISE``.
        on_event: Called with the job (``config``, ``out``) and each event of :mod:`vista.training.events`.
        at_once: Concurrent runs; by default 5 on a GPU and 1 on the CPU. On the CPU, more than one starts processes,
            so a script must call this below ``if __name__ == "__main__":``.
        preset: The defaults, unless ``config`` is given: ``auto``, ``recommended``, ``paper``, ``digits``, ``clean`` or
            ``noisy``; ``auto`` is ``recommended`` for custom data such as ``folder:PATH``.
        fresh: Replace runs in the same folder instead of reusing or resuming them.
        on: Train on a cluster: ``ray``, ``ray:ADDRESS``, ``slurm`` or ``slurm:PARTITION``; ``out`` and ``root`` must be
            visible on all nodes, and ``at_once`` is then per GPU.
        **fields: Fields of :class:`vista.runs.config.TrainConfig`. They override ``config`` and the preset.

    Returns:
        The ``rows`` of ``vista compare --json``, one per method: ``method``, ``seeds``, ``best`` and ``last`` (``mean``
        and ``se`` of the test accuracy), ``ece``, ``nll`` and ``aurc`` of the test set at the best epoch (``mean`` and
        ``se``), the same after calibration (``ece_calibrated`` ...), ``deviation_gap``, ``anchors_max``, ``seconds``,
        ``reconstruction`` and ``runs``. All but NLL, anchors and seconds are in percent. A failed run has its message
        in ``error``; if all runs fail for the same reason, that error is raised.

    Example:
        >>> import vista
        >>> rows = vista.compare(["ce", "vista"], seeds=3, noise="symmetric:0.4")  # doctest: +SKIP
        >>> [(row["method"], row["best"]["mean"]) for row in rows]  # doctest: +SKIP
        [('ce', 92.0), ('vista', 95.3)]
    """
    entries = plan(make_config(config, preset, fields), methods, seeds, out)
    jobs = jobs_of(entries)
    if not fresh:
        keep_choices(jobs, {*fields, "method", "options"})
    check_folders(jobs, fresh, on)
    if at_once is None and on is None and not on_gpu(jobs):
        at_once = 1
    execute_jobs(jobs, on_event or (lambda _job, _event: None), at_once, fresh=fresh, on=on)
    return rows_of(entries)


def plan(base: TrainConfig, methods: Sequence[str], seeds: int, out: str | Path | None = None) -> list[Entry]:
    """The runs of every method with the seeds ``0 .. seeds - 1``, each in ``out/METHOD-seedN``.

    Two spellings of the same method and options are one entry: ``vista-light`` is ``vista:tau=0.01``.
    """
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds} (3 means the seeds 0, 1 and 2)")
    if not methods:
        raise ValueError("methods must name at least one method, as in ce,vista, got none")
    folder = output_folder(out, f"compare-{data_name(base)}")
    entries: dict[tuple[str, str], Entry] = {}
    for method in _expand_all(methods):
        chosen = choose(method)
        config = dataclasses.replace(base, method=chosen.name, options=chosen.options)
        paths = [folder / f"{method_name(chosen)}-seed{seed}" for seed in range(seeds)]
        jobs = [Job(dataclasses.replace(config, seed=seed), path) for seed, path in enumerate(paths)]
        same = (chosen.method.name, json.dumps(chosen.options, sort_keys=True))
        entries.setdefault(same, Entry(method, chosen, jobs))
    return _train_once(list(entries.values()), base)


def _train_once(entries: list[Entry], base: TrainConfig) -> list[Entry]:
    """Let entries of VISTA share their runs where the tolerance is less than one validation sample.

    A state is an anchor if it adds more than ``tau * m`` samples: with ``tau * m`` below 1 that is at least one sample,
    as with ``tau=0``. Only custom data are that small.
    """
    tolerances = [entry for entry in entries if entry.chosen.method == VistaMethod]
    if len(tolerances) < 2 or ":" not in base.data:
        return entries
    samples = measure(base).validation
    first: dict[str, Entry] = {}
    shared: list[Entry] = []
    for entry in entries:
        if entry not in tolerances or entry.chosen.options["tau"] * samples >= 1:
            shared.append(entry)
            continue
        same = first.setdefault(json.dumps({**entry.chosen.options, "tau": 0.0}, sort_keys=True), entry)
        shared.append(entry if same is entry else dataclasses.replace(entry, jobs=same.jobs, same_as=same.method))
    return shared


def jobs_of(entries: Sequence[Entry]) -> list[Job]:
    """All runs of a comparison, each once."""
    return [job for entry in entries if entry.same_as is None for job in entry.jobs]


def check_folders(jobs: Sequence[Job], fresh: bool, on: str | None = None) -> None:
    """Reject folders that hold other runs, before anything is trained."""
    for job in () if fresh else jobs:
        folder, config = RunFolder(job.out), job.config
        if on is not None:  # a node decides about device and precision
            config = dataclasses.replace(config, device="cpu")
            if config.precision == "auto" and (folder.path / CONFIG).exists():
                config = dataclasses.replace(config, precision=folder.config().precision)
        check_same_run(resolve(config).config, folder)


def _expand_all(methods: Sequence[str]) -> list[str]:
    found: list[str] = []
    for method in methods:
        name, given, _ = method.partition(":")
        known = [*available(), ALL]
        if name not in known:
            raise ValueError(f"method {name!r} is unknown; {suggest(name, known)} (`vista methods` describes them)")
        if name == ALL and given:
            raise ValueError(f"{ALL} takes no options, got {method!r}")
        found += available() if name == ALL else [method]
    return found


def rows_of(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """The rows of executed runs; if all runs failed for the same reason, that error is raised."""
    errors = [job.error for job in jobs_of(entries)]
    if errors[0] is not None and len({str(error) if error is not None else None for error in errors}) == 1:
        raise errors[0]
    return [summary(entry) for entry in entries]


def summary(entry: Entry) -> dict[str, Any]:
    """A method's row: accuracies and gap in percent, means over the seeds that finished, SE = sd / sqrt(n)."""
    runs = [run_summary(job) for job in entry.jobs]
    done = [run for run in runs if run["error"] is None]
    anchors = [run["anchors_max"] for run in done if run["anchors_max"] is not None]
    return {
        "method": entry.method,
        "seeds": len(done),
        "best": over_seeds([run["best"] for run in done]),
        "last": over_seeds([run["last"] for run in done]),
        **{name: _over_known([run[name] for run in done]) for name in _probabilistic_names()},
        "deviation_gap": over_seeds([run["deviation_gap"] for run in done])["mean"],
        "anchors_max": max(anchors) if anchors else None,
        "seconds": over_seeds([run["seconds"] for run in done])["mean"],
        "reconstruction": entry.chosen.method.reconstruction,
        "same_as": entry.same_as,
        "runs": runs,
    }


def _probabilistic_names() -> list[str]:
    return [f"{name}{suffix}" for suffix in ("", "_calibrated") for name in PROBABILISTIC]


def _over_known(values: Sequence[float | None]) -> dict[str, float | None]:
    """Mean and standard error; None where a run lacks the value."""
    known = [value for value in values if value is not None]
    return over_seeds(known if len(known) == len(values) else [])


def _probabilistic(metrics: dict[str, Any]) -> dict[str, float | None]:
    """ECE, NLL and AURC before and after calibration; None in runs without them."""
    before = metrics["best"]["test"]
    after = (metrics["best"].get("calibrated") or {"test": {}})["test"]
    pairs = [
        (f"{name}{suffix}", part.get(name), factor)
        for suffix, part in (("", before), ("_calibrated", after))
        for name, factor in PROBABILISTIC.items()
    ]
    return {name: None if value is None else factor * value for name, value, factor in pairs}


def verdict(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Which method has the highest test accuracy at the best validation epoch, and whether by more than chance.

    Differences are paired over the seeds that two methods share. One counts if it exceeds two standard errors, which
    takes at least two seeds.

    Args:
        rows: The rows of a comparison.

    Returns:
        ``winner``, ``second``, ``difference`` in percentage points, its standard error ``se``, ``exceeds_chance``
        (``None`` with one seed) and the ``sentence`` that says so. All but ``sentence`` are ``None`` if fewer than two
        trainings finished.
    """
    ranked = sorted((row for row in rows if row["seeds"] and not row["same_as"]), key=lambda row: -row["best"]["mean"])
    if len(ranked) < 2:
        nothing: dict[str, Any] = dict.fromkeys(("winner", "second", "difference", "se", "exceeds_chance"))
        return {**nothing, "sentence": "No verdict: fewer than two methods have finished."}
    winner, second = ranked[:2]
    found = _paired(winner, second)
    sentence = f"{winner['method']} is first with {winner['best']['mean']:.2f} % at its best epoch, "
    sentence += _in_words(found, second["method"])
    plain = next((row for row in ranked[2:] if row["method"] == "ce"), None)
    if plain is not None:
        sentence += f"; it is {_in_words(_paired(winner, plain), 'cross-entropy (ce)')}"
    elif winner["method"] == "ce" and found["exceeds_chance"] is not None:
        sentence += "; plain cross-entropy is enough here"
    return {"winner": winner["method"], "second": second["method"], **found, "sentence": sentence + "."}


def _paired(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    theirs = {run["seed"]: run["best"] for run in other["runs"] if run["error"] is None}
    pairs = [run["best"] - theirs[run["seed"]] for run in one["runs"] if run["error"] is None and run["seed"] in theirs]
    if not pairs:  # no seed that both finished
        return {"difference": one["best"]["mean"] - other["best"]["mean"], "se": None, "exceeds_chance": None}
    over = over_seeds(pairs)
    assert over["mean"] is not None
    beyond = None if over["se"] is None else bool(over["mean"] > 2 * over["se"])
    return {"difference": over["mean"], "se": over["se"], "exceeds_chance": beyond}


def _in_words(found: dict[str, Any], other: str) -> str:
    ahead = f"{found['difference']:.2f}"
    if found["exceeds_chance"] is None:
        return f"{ahead} points above {other}; one seed cannot tell this from chance (use --seeds 3)"
    chance = "more than chance explains" if found["exceeds_chance"] else "which may be chance"
    return f"{ahead} ± {found['se']:.2f} points above {other}, {chance}"


def run_summary(job: Job) -> dict[str, Any]:
    """One run of a method's row."""
    values: dict[str, Any] = {"seed": job.config.seed, "run": str(job.out)}
    if job.metrics is None:
        names = ("best", "last", *_probabilistic_names(), "best_epoch", "deviation_gap", "anchors_max", "seconds")
        nothing = dict.fromkeys(names)
        return {**values, **nothing, "error": str(job.error) if job.error is not None else "stopped"}
    return {
        **values,
        "best": 100 * job.metrics["best"]["test"]["top1"],
        "last": 100 * job.metrics["last"]["test"]["top1"],
        **_probabilistic(job.metrics),
        "best_epoch": job.metrics["best"]["epoch"],
        "deviation_gap": 100 * job.metrics["deviation_gap"]["val_given"],
        "anchors_max": job.metrics["anchors_max"],
        "seconds": RunFolder(job.out).seconds(),
        "error": None,
    }


def over_seeds(values: Sequence[float]) -> dict[str, float | None]:
    """Mean and standard error; None where there are too few values for it."""
    mean, error = mean_and_error(values) if values else (None, None)
    return {"mean": mean, "se": error}
