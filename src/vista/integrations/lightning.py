"""Lightning 2.x: ``Trainer(callbacks=[VistaCallback(vista)])`` and a training set wrapped with ``indexed()``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vista.core import collectives
from vista.core.vista import Summary, Vista
from vista.integrations import check_epoch, fitted_values, list_batch_indices, merge_state, require_extra

with require_extra("lightning"):
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.callbacks import StochasticWeightAveraging


class VistaCallback(Callback):
    """Lightning callback that trains a module with VISTA and keeps VISTA's state in Lightning's checkpoints.

    The callback sets ``self.vista`` on the module. ``training_step`` unpacks ``x, y, i = batch`` and returns
    ``self.vista.loss(self(x), i)``; ``y`` remains the hard label, so other metrics are unaffected.

    An epoch ends with the validation logits ``[B, K]`` that ``validation_step`` returned, or else those that
    ``self(x)`` returned in it. They come from the first validation loader, which must hold the samples of
    ``val_labels`` in that order.

    Args:
        vista: A :class:`vista.Vista` or :class:`vista.Posterior`; its ``epochs`` must equal the trainer's
            ``max_epochs``.
        replace_y: Pass ``[x, targets]`` to ``training_step`` and record what ``self(x)`` returned. A module that uses
            ``y`` only in a loss on class probabilities, such as ``F.cross_entropy``, then needs no changes.

    Attributes:
        summary: The :class:`vista.Summary` of the last epoch, or None before the first.

    Example:
        >>> import lightning.pytorch as pl
        >>> from torch.utils.data import DataLoader, TensorDataset
        >>> from vista import Vista, indexed
        >>> x, y = torch.randn(80, 8), torch.arange(80) % 4
        >>> class Classifier(pl.LightningModule):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.net = torch.nn.Linear(8, 4)
        ...     def forward(self, x):
        ...         return self.net(x)
        ...     def training_step(self, batch, batch_idx):
        ...         x, y, i = batch
        ...         return self.vista.loss(self(x), i)
        ...     def validation_step(self, batch, batch_idx):
        ...         self(batch[0])
        ...     def configure_optimizers(self):
        ...         return torch.optim.SGD(self.parameters(), lr=0.1)
        >>> callback = VistaCallback(Vista(y[:64], num_classes=4, epochs=2, val_labels=y[64:]))
        >>> trainer = pl.Trainer(max_epochs=2, callbacks=[callback], accelerator="cpu", logger=False,
        ...                      enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
        >>> train = DataLoader(indexed(TensorDataset(x[:64], y[:64])), batch_size=16, shuffle=True)
        >>> trainer.fit(Classifier(), train, DataLoader(TensorDataset(x[64:], y[64:]), batch_size=16))
        >>> callback.summary.epoch
        2
    """

    def __init__(self, vista: Vista, *, replace_y: bool = False) -> None:
        self.vista, self.replace_y = vista, replace_y
        self.summary: Summary | None = None
        self._loaded = False  # whether a checkpoint restored VISTA's state
        self._index: Tensor | None = None  # samples of the current batch, with replace_y
        self._logits: Tensor | None = None  # the last [B, K] that the module's forward returned
        self._val_logits, self._val_seen = torch.zeros(0, vista.num_classes), torch.zeros(0).bool()
        self._val_batches: list[list[int]] = []  # sample indices of each validation batch

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        if trainer.max_epochs != self.vista.num_epochs and not _is_dev_run(trainer):
            raise ValueError(f"max_epochs must equal Vista's epochs={self.vista.num_epochs}, got {trainer.max_epochs}")
        pl_module.vista = self.vista  # type: ignore[assignment]
        pl_module.register_forward_hook(self._keep_logits)

    def _keep_logits(self, _module: Any, _inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.dim() == 2 and output.shape[1] == self.vista.num_classes:
            self._logits = output.detach()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not _is_dev_run(trainer):
            check_epoch(self.vista, trainer.current_epoch, "fit(..., ckpt_path=...)", self._loaded)
            if trainer.val_dataloaders is not None:
                _read_validation_loader(trainer)  # fails now and not after an epoch

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if self.replace_y:
            if not (isinstance(batch, list) and len(batch) == 3):
                raise TypeError(f"replace_y needs batches [x, y, i] as indexed() gives, got {type(batch).__name__}")
            self._index = batch.pop()
            batch[1] = self.vista.targets(self._index).to(batch[1].device)

    def on_train_batch_end(self, *_: Any) -> None:
        if self._index is not None:
            if self._logits is None:
                raise RuntimeError("replace_y records what self(x) returns, but training_step did not call self(x)")
            with torch.enable_grad():  # loss() records nothing without gradients
                self.vista.loss(self._logits, self._index)
        self._index = self._logits = None

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit":
            self._val_batches, m = _read_validation_loader(trainer)
            self._val_logits, self._val_seen = torch.zeros(m, self.vista.num_classes), torch.zeros(m).bool()

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, loader: int = 0
    ) -> None:
        if trainer.sanity_checking or trainer.state.fn != "fit" or loader != 0:
            return
        self._keep_logits(None, None, outputs)
        if self._logits is None:
            raise RuntimeError("validation gave no logits [B, K]: call self(x) in validation_step, or return them")
        index = self._val_batches[batch_idx]
        self._val_logits[index], self._val_seen[index] = self._logits.float().cpu(), True
        self._logits = None

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if _is_dev_run(trainer) or _only_updates_batch_norm(trainer, self.vista):
            return
        if not self._val_seen.any():
            if 0 <= trainer.max_steps <= trainer.global_step:  # stopped within the epoch; -1 means no limit
                return
            raise RuntimeError(f"epoch {self.vista.epoch + 1} had no validation: set check_val_every_n_epoch=1")
        seen = self._val_seen.nonzero().flatten()
        self.summary = self.vista.end_epoch(self._val_logits[seen], val_index=seen)
        self._val_seen.zero_()
        values = {"beta": self.summary.beta, "anchors": float(len(self.summary.anchors)), **fitted_values(self.summary)}
        logged = {f"vista/{name}": value for name, value in values.items()}
        pl_module.log_dict(logged, sync_dist=True)

    def state_dict(self) -> dict[str, Any]:
        logits, seen = self._val_logits.clone(), self._val_seen.clone()
        collectives.merge_rows(logits, seen)
        return {"vista": merge_state(self.vista), "val_logits": logits, "val_seen": seen}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.vista.load_state_dict(state_dict["vista"])
        self._loaded = True
        self._val_logits, self._val_seen = state_dict["val_logits"].cpu(), state_dict["val_seen"].cpu()


def _is_dev_run(trainer: Any) -> bool:
    """Whether the trainer runs a few batches only, as a test of the setup: no epoch ends then."""
    return bool(trainer.fast_dev_run)


def _read_validation_loader(trainer: Trainer) -> tuple[list[list[int]], int]:
    """Return the sample indices of each batch of the first validation loader, and the size of its dataset."""
    loaders: Any = trainer.val_dataloaders
    several = [*loaders.values()] if isinstance(loaders, dict) else loaders
    loader = several[0] if isinstance(several, list) else several
    batches, samples = list_batch_indices(loader), len(loader.dataset)
    used = sum(map(len, batches[: int(trainer.num_val_batches[0])])) * trainer.world_size  # each process has its part
    if used < samples and not _is_dev_run(trainer):
        raise ValueError(
            f"the validation loader yields {used} of its {samples} samples (drop_last={loader.drop_last}, "
            f"limit_val_batches={trainer.limit_val_batches}), but VISTA needs all of them: "
            "set drop_last=False and limit_val_batches=1.0"
        )
    return batches, samples


def _only_updates_batch_norm(trainer: Trainer, vista: Vista) -> bool:
    """Whether this is the extra epoch in which weight averaging recomputes BatchNorm's statistics, without learning."""
    averages = any(isinstance(callback, StochasticWeightAveraging) for callback in trainer.callbacks)  # type: ignore[attr-defined]
    return averages and trainer.current_epoch == vista.num_epochs
