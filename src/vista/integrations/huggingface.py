"""The Hugging Face Trainer: ``VistaTrainer(vista=vista, ..., train_dataset=indexed(train_set), eval_dataset=...)``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vista.core.vista import Summary, Vista
from vista.integrations import check_epoch, comes_with, shared_state
from vista.integrations.collator import IndexCollator
from vista.integrations.huggingface_trainer import check_plan, logits_among, logits_of, predicted
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
        check_plan(self, vista)
        self.vista = vista
        self.summary: Summary | None = None  # what the last epoch's end decided
        self.data_collator: Any = IndexCollator(self.data_collator)
        self.loss_is_scaled_for_ga = self.model_accepts_loss_kwargs = False  # our loss is a mean over the batch
        self.add_callback(EpochEnd(self))
        self._ending = False  # whether the next evaluation ends the epoch
        self._predicted: list[str] = []  # what the model gave in it, by name

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        self._signature_columns: Any = list({*self._signature_columns, "index"})

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, *args: Any, **kwargs: Any) -> Any:
        index = inputs.pop("index", None)
        if not model.training:
            evaluated: Any = super().compute_loss(model, inputs, return_outputs, *args, **kwargs)
            self._predicted = predicted(evaluated[1]) if return_outputs else []
            return evaluated
        if index is None:
            raise ValueError("the training batch has no 'index': wrap train_dataset by indexed()")
        outputs = model(**{name: value for name, value in inputs.items() if name not in self.label_names})
        loss = self.vista.loss(logits_of(outputs), index)
        return (loss, outputs) if return_outputs else loss

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        if not self._ending:
            return super().evaluation_loop(*args, **kwargs)
        self._predicted = []
        output: Any = super().evaluation_loop(*args, **{**kwargs, "prediction_loss_only": False})
        self._ending = False
        logits = logits_among(output.predictions, self._predicted, bool(self.preprocess_logits_for_metrics))
        self.summary = self.vista.end_epoch(logits)
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
