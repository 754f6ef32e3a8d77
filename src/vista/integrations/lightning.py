"""Lightning 2.x: ``Trainer(callbacks=[VistaCallback(vista)])``, and a train set wrapped by ``indexed()``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vista.core import collectives
from vista.core.vista import Summary, Vista
from vista.integrations import comes_with, shared_state
from vista.integrations.lightning_trainer import check_plan, check_start, ends_epoch, validation

with comes_with("lightning"):
    from lightning.pytorch import Callback, LightningModule, Trainer


class VistaCallback(Callback):
    """Gives the targets, hears validation, and keeps VISTA's state in Lightning's own checkpoints.

    ``training_step`` then reads ``x, y, i = batch`` and ``loss = self.vista.loss(self(x), i)``; its metrics still see
    the hard ``y``. Where ``y`` serves the loss alone no line changes: ``replace_y=True`` hands it ``[x, targets]``
    and records what ``self(x)`` returned. Of validation the callback reads the logits ``[B, K]`` that
    ``validation_step`` returns, else those that ``self(x)`` returned in it, from the first validation loader.
    """

    def __init__(self, vista: Vista, *, replace_y: bool = False) -> None:
        self.vista, self.replace_y = vista, replace_y
        self.summary: Summary | None = None  # what the last epoch's end decided
        self._loaded = False  # whether a checkpoint brought VISTA's state
        self._index: Tensor | None = None  # samples of the running batch, under replace_y
        self._logits: Tensor | None = None  # the last [B, K] that the module's forward returned
        self._val_logits, self._val_seen = torch.zeros(0, vista.num_classes), torch.zeros(0).bool()
        self._val_positions: list[list[int]] = []

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit":
            check_plan(trainer, self.vista)
            pl_module.vista = self.vista  # type: ignore[assignment]
            pl_module.register_forward_hook(self._note_logits)

    def _note_logits(self, _module: Any, _inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.dim() == 2 and output.shape[1] == self.vista.num_classes:
            self._logits = output.detach()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        check_start(trainer, self.vista, self._loaded)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if self.replace_y:
            if not (isinstance(batch, list) and len(batch) == 3):
                raise TypeError(f"replace_y needs batches [x, y, i] as indexed() gives, but got {type(batch).__name__}")
            self._index = batch.pop()
            batch[1] = self.vista.targets(self._index).to(batch[1].device)

    def on_train_batch_end(self, *_: Any) -> None:
        if self._index is not None:
            if self._logits is None:
                raise RuntimeError("replace_y records what self(x) returns, but training_step did not call it")
            with torch.enable_grad():  # or nothing would be recorded
                self.vista.loss(self._logits, self._index)
        self._index = self._logits = None

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit":
            self._val_positions, m = validation(trainer)
            self._val_logits, self._val_seen = torch.zeros(m, self.vista.num_classes), torch.zeros(m).bool()

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, loader: int = 0
    ) -> None:
        if trainer.sanity_checking or trainer.state.fn != "fit" or loader != 0:
            return
        self._note_logits(None, None, outputs)
        if self._logits is None:
            raise RuntimeError("no logits [B, K] in validation: let validation_step call self(x) or return them")
        index = self._val_positions[batch_idx]
        self._val_logits[index], self._val_seen[index] = self._logits.float().cpu(), True
        self._logits = None

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not ends_epoch(trainer, self.vista, validated=bool(self._val_seen.any())):
            return
        seen = self._val_seen.nonzero().flatten()
        self.summary = self.vista.end_epoch(self._val_logits[seen], val_index=seen)
        self._val_seen.zero_()
        logged = {"vista/beta": self.summary.beta, "vista/anchors": float(len(self.summary.anchors))}
        pl_module.log_dict(logged, sync_dist=True)

    def state_dict(self) -> dict[str, Any]:
        logits, seen = self._val_logits.clone(), self._val_seen.clone()
        collectives.merge_rows(logits, seen)
        return {"vista": shared_state(self.vista), "val_logits": logits, "val_seen": seen}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.vista.load_state_dict(state_dict["vista"])
        self._loaded = True
        self._val_logits, self._val_seen = state_dict["val_logits"].cpu(), state_dict["val_seen"].cpu()
