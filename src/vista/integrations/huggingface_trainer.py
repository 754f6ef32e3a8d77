"""What VistaTrainer asks of its arguments, and where it finds a model's logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vista.core.vista import Vista


def check_plan(trainer: Any, vista: Vista) -> None:
    """Refuse arguments with which an epoch of VISTA could not end, or would be another."""
    args, planned = trainer.args, f"but Vista plans epochs={vista.num_epochs}"
    if args.max_steps > 0:
        raise ValueError(f"max_steps is {args.max_steps}, {planned}: leave it out")
    if args.num_train_epochs != vista.num_epochs:
        raise ValueError(f"num_train_epochs is {args.num_train_epochs:g}, {planned}")
    if trainer.eval_dataset is None or isinstance(trainer.eval_dataset, dict):
        kind = type(trainer.eval_dataset).__name__
        raise ValueError(f"eval_dataset is a {kind}, but every epoch of VISTA ends with the evaluation of one dataset")
    if args.dataloader_drop_last and hasattr(trainer.eval_dataset, "__len__"):
        _refuse_dropped(len(trainer.eval_dataset), args.eval_batch_size * args.world_size)
    if args.batch_eval_metrics:
        raise ValueError("batch_eval_metrics is True, but VISTA needs the logits of the whole eval_dataset: use False")
    if not args.eval_do_concat_batches:
        raise ValueError("eval_do_concat_batches is False, but VISTA needs the logits as one array: use True")
    if getattr(args, "train_sampling_strategy", None) == "group_by_length":
        raise ValueError("train_sampling_strategy is 'group_by_length', which also reorders eval_dataset: use 'random'")
    if trainer.label_smoother is not None:
        raise ValueError(f"label_smoothing_factor is {trainer.label_smoother.epsilon}, but VISTA's targets are soft")
    if trainer.compute_loss_func is not None:
        raise ValueError("compute_loss_func is given, but VISTA's loss would take its place in training alone")


def _refuse_dropped(samples: int, at_once: int) -> None:
    if dropped := samples % at_once:
        raise ValueError(
            f"dataloader_drop_last is True, which drops {dropped} of the {samples} samples of eval_dataset, "
            f"but VISTA needs them all: use dataloader_drop_last=False, or an eval batch that divides {samples}"
        )


def logits_of(outputs: Any) -> Any:
    """What a model's outputs call logits, whether they are the hub's or a plain dict."""
    if isinstance(outputs, Mapping) and "logits" in outputs:
        return outputs["logits"]
    if (logits := getattr(outputs, "logits", None)) is None:
        names = f" of {', '.join(outputs)}" if isinstance(outputs, Mapping) else ""
        raise TypeError(
            f"the model returned a {type(outputs).__name__}{names}, but VISTA needs its logits: return them as 'logits'"
        )
    return logits


def predicted(outputs: Any) -> list[str]:
    """Names of what an evaluation gathers of a model's outputs."""
    return [name for name in outputs if name != "loss"] if isinstance(outputs, Mapping) else []


def logits_among(predictions: Any, names: Sequence[str], preprocessed: bool) -> Any:
    """The logits ``[n, K]`` of an evaluation: by their name where everything is there, else what comes first."""
    if isinstance(predictions, tuple):
        named = "logits" in names and len(names) == len(predictions)
        predictions = predictions[names.index("logits") if named else 0]
    if preprocessed and np.ndim(predictions) != 2:
        raise ValueError(
            f"preprocess_logits_for_metrics gives shape {np.shape(predictions)}, but it must leave the logits [n, K]: "
            "use compute_metrics"
        )
    return np.asarray(predictions, np.float32)
