"""The Hugging Face Trainer: ``VistaTrainer(vista=vista, ..., train_dataset=indexed(train_set), eval_dataset=val_set)``.

VISTA's state is saved in the Trainer's checkpoint folders, as ``vista.safetensors``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from vista.core.vista import Summary, Vista
from vista.files import atomic, reader
from vista.integrations import check_epoch, fitted_values, merge_state, require_extra

with require_extra("huggingface"):
    import accelerate  # type: ignore[import-untyped]  # noqa: F401  (the Trainer needs it)
    from transformers import Trainer, TrainerCallback

STATE = "vista.safetensors"
FORMAT = "vista.state"
VERSION, WITHOUT_CHECKSUM = "2", "1"
GROUPS = "predictions", "val_predictions"  # parts of a state that hold a tensor per epoch


class VistaTrainer(Trainer):
    """The Hugging Face ``Trainer`` with VISTA's loss, for models that return ``logits`` ``[B, K]``.

    Every epoch ends with an evaluation of ``eval_dataset``, whatever ``eval_strategy`` is. ``compute_metrics`` receives
    hard labels. ``train(resume_from_checkpoint=...)`` restores VISTA's state too. Combine it with a custom Trainer as
    ``class Custom(VistaTrainer, MyTrainer)``.

    A ``compute_loss_func(outputs, labels, num_items_in_batch=None)`` receives VISTA's soft targets ``[B, K]`` as
    ``labels`` in training, which ``torch.nn.functional.cross_entropy`` accepts, and hard labels in evaluations.

    Args:
        *args: Arguments of ``Trainer``.
        vista: A :class:`vista.Vista` or :class:`vista.Posterior`. Its ``epochs`` must equal ``num_train_epochs``.
        class_weight: Weight of each class in the training loss, ``[K]``; not with a ``compute_loss_func``, which can
            weight the classes itself.
        **kwargs: Arguments of ``Trainer``. ``train_dataset`` must be wrapped with ``indexed()``; ``eval_dataset`` must
            hold the samples of ``val_labels`` in that order.

    Attributes:
        summary: The :class:`vista.Summary` of the last epoch, or None before the first.

    Example:
        >>> from transformers import BertConfig, BertForSequenceClassification, TrainingArguments
        >>> from vista import Vista, indexed
        >>> tokens, labels = torch.randint(16, (80, 6)), torch.arange(80) % 4
        >>> rows = [{"input_ids": ids, "labels": int(label)} for ids, label in zip(tokens, labels)]
        >>> config = BertConfig(vocab_size=16, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, num_labels=4)
        >>> trainer = VistaTrainer(
        ...     vista=Vista(labels[:64], num_classes=4, epochs=2, val_labels=labels[64:]),
        ...     model=BertForSequenceClassification(config),
        ...     args=TrainingArguments("out", num_train_epochs=2, save_strategy="no", logging_strategy="no",
        ...                            report_to=[], use_cpu=True, disable_tqdm=True),
        ...     train_dataset=indexed(rows[:64]),
        ...     eval_dataset=rows[64:],
        ... )
        >>> result = trainer.train()    # doctest: +ELLIPSIS
        {'eval_loss': ...
        >>> trainer.summary.epoch
        2
    """

    def __init__(self, *args: Any, vista: Vista, class_weight: Tensor | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _check_settings(self, vista, class_weight)
        self.vista = vista
        self.class_weight = None if class_weight is None else torch.as_tensor(class_weight, dtype=torch.float32)
        self.summary: Summary | None = None
        self.data_collator: Any = IndexCollator(self.data_collator)
        self.model_accepts_loss_kwargs = False
        # VISTA's loss is a mean over the batch; a compute_loss_func divides by num_items_in_batch, as in any Trainer.
        self.loss_is_scaled_for_ga = self.compute_loss_func is not None
        self.add_callback(_EpochEnd(self))
        self._ending = False  # whether the next evaluation ends the epoch
        self._output_names: list[str] = []  # of the model's outputs in that evaluation

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        self._signature_columns: Any = list({*self._signature_columns, "index"})

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, *args: Any, **kwargs: Any) -> Any:
        index = inputs.pop("index", None)
        if not model.training:
            evaluated: Any = super().compute_loss(model, inputs, return_outputs, *args, **kwargs)
            outputs = evaluated[1] if return_outputs else None
            self._output_names = [name for name in outputs if name != "loss"] if isinstance(outputs, Mapping) else []
            return evaluated
        if index is None:
            raise ValueError("the training batch has no 'index': wrap train_dataset with indexed()")
        outputs = model(**{name: value for name, value in inputs.items() if name not in self.label_names})
        logits = _get_logits(outputs)
        if self.compute_loss_func is None:
            weight = None if self.class_weight is None else self.class_weight.to(logits.device)
            loss = self.vista.loss(logits, index, class_weight=weight)
        else:
            items = kwargs.get("num_items_in_batch", args[0] if args else None)
            loss = self.compute_loss_func(outputs, self.vista.targets(index), num_items_in_batch=items)
            if self.vista.records_training:
                self.vista.record(logits.detach(), index)
        return (loss, outputs) if return_outputs else loss

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        if not self._ending:
            return super().evaluation_loop(*args, **kwargs)
        self._output_names = []
        output: Any = super().evaluation_loop(*args, **{**kwargs, "prediction_loss_only": False})
        self._ending = False
        self.summary = self.vista.end_epoch(_select_logits(output.predictions, self._output_names))
        values = {"beta": self.summary.beta, "anchors": len(self.summary.anchors), **fitted_values(self.summary)}
        output.metrics.update({f"eval_vista_{name}": value for name, value in values.items()})
        return output

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        state = merge_state(self.vista)
        if self.args.should_save:
            write_state(Path(output_dir) / STATE, state)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            self.vista.load_state_dict(read_state(Path(checkpoint) / STATE))


class IndexCollator:
    """Data collator that adds each sample's ``index`` to the batch of another collator, which never sees it.

    Args:
        inner: The collator for the remaining keys.

    >>> collate = IndexCollator(lambda rows: {"x": [row["x"] for row in rows]})
    >>> collate([{"x": 5, "index": 7}, {"x": 6, "index": 3}])
    {'x': [5, 6], 'index': tensor([7, 3])}
    """

    def __init__(self, inner: Callable[[list[Any]], dict[str, Any]]) -> None:
        self.inner = inner

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        index = [int(feature["index"]) for feature in features if "index" in feature]
        batch = self.inner([{k: v for k, v in feature.items() if k != "index"} for feature in features])
        return {**batch, "index": torch.tensor(index)} if index else batch


def write_state(path: str | Path, state: Mapping[str, Any]) -> None:
    """Write the result of ``state_dict()`` of a ``Vista`` or ``Posterior`` to a safetensors file, atomically.

    Args:
        path: The file to write.
        state: The state.

    >>> vista = Vista([0, 1], num_classes=2, epochs=2, val_labels=[0])
    >>> write_state("vista.safetensors", vista.state_dict())
    >>> vista.load_state_dict(read_state("vista.safetensors"))
    """
    groups = {name: state[name] for name in GROUPS if name in state}
    tensors: dict[str, Tensor] = {f"{name}/{s}": rows for name, group in groups.items() for s, rows in group.items()}
    tensors |= {name: value for name, value in state.items() if isinstance(value, Tensor)}
    rest = {name: {} if name in groups else value for name, value in state.items() if name not in tensors}
    tensors = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    metadata = {"format": FORMAT, "version": VERSION, "state": json.dumps(rest)}
    content = save(tensors, metadata={**metadata, "sha256": _digest(metadata["state"], tensors)})
    atomic.write(Path(path), content)


def read_state(path: str | Path) -> dict[str, Any]:
    """Read a file of :func:`write_state`.

    Args:
        path: The file to read.

    Returns:
        The state, for ``load_state_dict``.
    """
    if not Path(path).is_file():  # a FIFO or device would block
        raise FileNotFoundError(f"{path} does not exist: the checkpoint was saved without VISTA's state")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            version = metadata.get("version")
            if metadata.get("format") != FORMAT or version not in (VERSION, WITHOUT_CHECKSUM):
                found = f"{metadata.get('format')} version {metadata.get('version')}"
                raise ValueError(f"{path} must be {FORMAT} version {VERSION}, got {found}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged or truncated: {error}") from error
    if version == VERSION and metadata.get("sha256") != _digest(metadata.get("state", ""), tensors):
        raise ValueError(
            f"{path} is damaged: it does not have the checksum it was written with; use another checkpoint"
        )
    state = reader.parse_object(metadata.get("state", ""), path, "use another checkpoint", any_number=True)
    state.setdefault("predictions", {})  # not named by earlier versions
    for name, tensor in tensors.items():
        group, _, key = name.rpartition("/")
        (state.setdefault(group, {}) if group else state)[key] = tensor
    return state


def _digest(state: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(state.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


class _EpochEnd(TrainerCallback):
    """Requests the evaluation that ends an epoch, also when resuming from a checkpoint that was saved before it."""

    def __init__(self, trainer: VistaTrainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        completed = int(state.epoch or 0)
        if self.trainer.vista.epoch < completed:
            self.trainer._ending = True
            self.trainer.evaluate()
        check_epoch(self.trainer.vista, completed, "train(resume_from_checkpoint=...)")

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.trainer._ending = control.should_evaluate = True


def _check_settings(trainer: VistaTrainer, vista: Vista, class_weight: Any) -> None:
    """Reject settings with which an epoch of VISTA could not end, or that would be ignored."""
    args, dataset = trainer.args, trainer.eval_dataset
    if args.max_steps > 0:
        raise ValueError(f"max_steps must not be set, since Vista has epochs={vista.num_epochs}, got {args.max_steps}")
    if args.num_train_epochs != vista.num_epochs:
        raise ValueError(
            f"num_train_epochs must equal Vista's epochs={vista.num_epochs}, got {args.num_train_epochs:g}"
        )
    if dataset is None or isinstance(dataset, dict):
        raise ValueError(f"eval_dataset must be one dataset, which ends every epoch, got {type(dataset).__name__}")
    if args.dataloader_drop_last and hasattr(dataset, "__len__"):
        samples = len(dataset)
        if dropped := samples % (args.eval_batch_size * args.world_size):
            raise ValueError(
                f"dataloader_drop_last=True drops {dropped} of the {samples} samples of eval_dataset, but VISTA needs "
                f"all of them: use dataloader_drop_last=False, or an evaluation batch size that divides {samples}"
            )
    if args.batch_eval_metrics:
        raise ValueError("batch_eval_metrics must be False, since VISTA needs the logits of the complete eval_dataset")
    if not args.eval_do_concat_batches:
        raise ValueError("eval_do_concat_batches must be True, since VISTA needs the logits as one array")
    if getattr(args, "train_sampling_strategy", None) == "group_by_length":
        raise ValueError("train_sampling_strategy must not be 'group_by_length', which also reorders eval_dataset")
    if trainer.label_smoother is not None:
        raise ValueError(
            f"label_smoothing_factor must be 0, since VISTA's targets are soft, got {trainer.label_smoother.epsilon}"
        )
    if class_weight is not None:
        if trainer.compute_loss_func is not None:
            raise ValueError("class_weight must be None with compute_loss_func, which weights the classes itself")
        if (shape := tuple(np.shape(class_weight))) != (vista.num_classes,):
            raise ValueError(f"class_weight must have shape ({vista.num_classes},), got {shape}")


def _get_logits(outputs: Any) -> Any:
    """Return the ``logits`` of a model's outputs, a ``ModelOutput`` or a plain dict."""
    if isinstance(outputs, Mapping) and "logits" in outputs:
        return outputs["logits"]
    if (logits := getattr(outputs, "logits", None)) is None:
        keys = f" with {', '.join(outputs)}" if isinstance(outputs, Mapping) else ""
        raise TypeError(f"the model must return its logits as 'logits', got {type(outputs).__name__}{keys}")
    return logits


def _select_logits(predictions: Any, names: list[str]) -> Any:
    """Return the logits ``[n, K]`` of an evaluation: by name if every output was gathered, else the first output."""
    if isinstance(predictions, tuple):
        complete = "logits" in names and len(names) == len(predictions)
        predictions = predictions[names.index("logits") if complete else 0]
    return np.asarray(predictions, np.float32)
