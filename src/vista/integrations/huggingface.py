"""The Hugging Face Trainer: ``VistaTrainer(vista=vista, ..., train_dataset=indexed(train_set), eval_dataset=...)``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from vista.distiller import Summary, Vista
from vista.integrations import check_epoch, comes_with, shared_state
from vista.integrations.collator import IndexCollator
from vista.integrations.state_file import read_state, write_state

with comes_with("huggingface"):
    import accelerate  # type: ignore[import-untyped]  # noqa: F401  (the Trainer needs it)
    from transformers import Trainer, TrainerCallback

STATE = "vista.safetensors"


class VistaTrainer(Trainer):
    """The Trainer with VISTA's loss; a mixin for Trainers of your own: ``class Mine(VistaTrainer, MyTrainer)``.

    Every epoch ends with an evaluation of ``eval_dataset``, which holds the samples of ``val_labels`` in that order.
    ``compute_metrics`` sees hard labels. ``resume_from_checkpoint`` finds VISTA's state in the Trainer's checkpoints.
    """

    def __init__(self, *args: Any, vista: Vista, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.args.max_steps > 0 or self.args.num_train_epochs != vista.num_epochs:
            raise ValueError(f"num_train_epochs must be {vista.num_epochs}, as Vista plans, without max_steps")
        if self.eval_dataset is None or isinstance(self.eval_dataset, dict):
            raise ValueError("eval_dataset must be one dataset: every epoch of VISTA ends with its evaluation")
        if getattr(self.args, "train_sampling_strategy", None) == "group_by_length":
            raise ValueError("train_sampling_strategy='group_by_length' also reorders eval_dataset: use 'random'")
        if self.label_smoother is not None:
            raise ValueError(f"label_smoothing_factor is {self.label_smoother.epsilon}, but VISTA's targets are soft")
        if self.compute_loss_func is not None:
            raise ValueError("compute_loss_func is given, but VISTA's loss would take its place in training alone")
        self.vista = vista
        self.summary: Summary | None = None  # what the last epoch's end decided
        self.data_collator: Any = IndexCollator(self.data_collator)
        self.loss_is_scaled_for_ga = self.model_accepts_loss_kwargs = False  # our loss is a mean over the batch
        self.add_callback(EpochEnd(self))
        self._ending = False  # whether the next evaluation ends the epoch

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        self._signature_columns: Any = list({*self._signature_columns, "index"})

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, *args: Any, **kwargs: Any) -> Any:
        index = inputs.pop("index", None)
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs, *args, **kwargs)
        if index is None:
            raise ValueError("the training batch has no 'index': wrap train_dataset by indexed()")
        outputs = model(**{name: value for name, value in inputs.items() if name not in self.label_names})
        loss = self.vista.loss(outputs.logits, index)
        return (loss, outputs) if return_outputs else loss

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        if not self._ending:
            return super().evaluation_loop(*args, **kwargs)
        output: Any = super().evaluation_loop(*args, **{**kwargs, "prediction_loss_only": False})
        self._ending = False
        logits = output.predictions[0] if isinstance(output.predictions, tuple) else output.predictions
        if self.preprocess_logits_for_metrics and np.ndim(logits) != 2:
            raise ValueError("preprocess_logits_for_metrics must leave the logits [n, K]: use compute_metrics")
        self.summary = self.vista.end_epoch(np.asarray(logits, np.float32))
        output.metrics.update(eval_vista_beta=self.summary.beta, eval_vista_anchors=len(self.summary.anchors))
        return output

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        state = shared_state(self.vista)
        if self.args.should_save:
            write_state(Path(output_dir) / STATE, state)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            self.vista.load_state_dict(read_state(Path(checkpoint) / STATE))


class EpochEnd(TrainerCallback):
    """Asks for the evaluation that ends an epoch, also of one whose checkpoint was saved before it."""

    def __init__(self, trainer: VistaTrainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.trainer.vista.epoch < (ended := int(state.epoch or 0)):
            self.trainer._ending = True
            self.trainer.evaluate()
        check_epoch(self.trainer.vista, ended, "train(resume_from_checkpoint=...)")

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.trainer._ending = control.should_evaluate = True
