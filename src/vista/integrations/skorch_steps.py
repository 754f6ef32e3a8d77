"""What a net does with a batch, and at the end of an epoch."""

from __future__ import annotations

from typing import Any, ClassVar
from weakref import WeakSet

import torch

from vista import indexed
from vista.integrations import comes_with, skorch_input
from vista.integrations.noting_iterator import NotingIterator

with comes_with("skorch"):
    from skorch import NeuralNetClassifier  # type: ignore[import-untyped]


class NetSteps(NeuralNetClassifier):  # type: ignore[misc]
    """A skorch net whose loss is that of ``vista_``, which hears the validation of each epoch."""

    vista_: Any = None
    val_logits_: tuple[Any, ...] = ()  # of the running validation
    being_fitted: ClassVar[WeakSet[Any]] = WeakSet()  # not in the net: a pickled one is no longer fitted

    def get_iterator(self, dataset: Any, training: bool = False) -> Any:
        loader = super().get_iterator(indexed(dataset) if training else dataset, training=training)
        if not training and self in self.being_fitted:
            skorch_input.check_validation(loader)
        return NotingIterator(loader, self) if training else loader

    def get_loss(self, y_pred: Any, y_true: Any, X: Any = None, training: bool = False) -> Any:
        if not training:
            return super().get_loss(y_pred, y_true, X)
        return self.vista_.loss(y_pred, self.index_, class_weight=self.criterion_.weight)

    def validation_step(self, batch: Any, **fit_params: Any) -> Any:
        step = super().validation_step(batch, **fit_params)
        self.val_logits_ += (step["y_pred"],)
        return step

    def on_epoch_end(self, *args: Any, **kwargs: Any) -> None:
        super().on_epoch_end(*args, **kwargs)
        summary, self.val_logits_ = self.vista_.end_epoch(torch.cat(self.val_logits_)), ()
        self.history.record("beta", summary.beta)
        self.history.record("anchors", len(summary.anchors))
