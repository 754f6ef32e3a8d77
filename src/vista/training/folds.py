"""Cross-validation below a run: copies of it, each trained without one part of the samples, which it then predicts."""

from __future__ import annotations

import dataclasses

from vista import models
from vista.analysis.suspect_files import write_label_file
from vista.files import atomic
from vista.runs.folder import FOLD_LABELS, FOLDS, RunFolder
from vista.training.scheduler import Job


def fold_jobs(folder: RunFolder, count: int) -> list[Job]:
    """The runs of a cross-validation with the settings and the given labels of a run.

    All labelled samples take part, also those that the run validated and tested on, unless they have a test set of
    their own. The labels are written to a file, so that label noise is not drawn again for other samples.

    Args:
        folder: A finished run.
        count: Number of parts, from 2 to 50.

    Returns:
        A job in ``folds/`` of the run for each part that is not finished.
    """
    if not 2 <= count <= 50:
        raise ValueError(f"folds must be 2 to 50, got {count}: 5 is usual")
    config = folder.config()
    if models.is_custom_network(config.network):
        raise ValueError(f"folds cannot train {config.network}: the code that a run folder names is not run")
    missing = [number for number in range(1, count + 1) if not folder.fold(number, count).is_finished()]
    labels, data = folder.path.resolve() / FOLDS / FOLD_LABELS, folder.data()
    if missing:
        atomic.make_folder(labels.parent)
        write_label_file(labels, folder.labels().given, data.files, data.classes)
    config = dataclasses.replace(
        config, noise="none", noise_seed=None, labels=str(labels), split_from=None, device="auto", checkpoint_dir=None,
        choice="",
    )  # fmt: skip
    parts = [(dataclasses.replace(config, fold=f"{each}/{count}"), folder.fold(each, count).path) for each in missing]
    return [Job(*part) for part in parts]
