"""scikit-learn by way of skorch: ``VistaClassifier(module, epochs=40, tau=0.01).fit(X, y)``."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.preprocessing import LabelEncoder  # type: ignore[import-untyped]

from vista import Vista
from vista.integrations import skorch_input, skorch_labels
from vista.integrations.skorch_progress import LoadedState, epochs_to_go
from vista.integrations.skorch_steps import NetSteps


class VistaClassifier(NetSteps):
    """A skorch net, so a scikit-learn classifier, that trains a module of logits ``[B, K]`` with VISTA.

    ``fit(X, y)`` sets ``validation_fraction`` aside, ``fit(X, y, X_val, y_val)`` validates on those. ``vista__*`` are
    further options of ``Vista``, the rest is skorch's. A pickled net resumes by ``partial_fit``, to its last epoch; so
    does a new one after ``load_params``, with an ``f_vista`` beside the other files.
    """

    prefixes_ = [*NetSteps.prefixes_, "vista"]  # noqa: RUF012
    max_epochs = property(lambda self: self.epochs, lambda self, value: setattr(self, "epochs", value))
    classes_ = property(skorch_labels.classes_of)
    validation_: Any = None  # (X_val, y_val)
    warm_epochs_ = 0  # those in the history when the last fit began: a warm start is a training of its own

    def __init__(self, module: Any, *args: Any, epochs: int = 40, tau: float = 0.0, validation_fraction: float = 0.1,
                 split_seed: int = 0, criterion: Any = torch.nn.CrossEntropyLoss, **kwargs: Any) -> None:  # fmt: skip
        self.tau, self.validation_fraction, self.split_seed = tau, validation_fraction, split_seed
        skorch_input.refuse_unheeded(kwargs)
        super().__init__(module, *args, criterion=criterion, **{**kwargs, "train_split": None, "max_epochs": epochs})

    def set_params(self, **params: Any) -> Any:
        skorch_input.check_options(params)
        later = {name: params.pop(name) for name in list(params) if name.startswith(skorch_input.READ_LATER)}
        vars(super().set_params(**params)).update(later)
        return self

    def fit(self, X: Any, y: Any, X_val: Any = None, y_val: Any = None, **fit_params: Any) -> Any:
        skorch_labels.check_labels(y, X_val, y_val)
        self.vista_, self.validation_ = None, None if X_val is None else (X_val, y_val)
        self.warm_epochs_ = len(self.history) if self.warm_start and self.initialized_ else 0
        return super().fit(X, y, **fit_params)

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, X_val: Any = None, y_val: Any = None,
                    **fit_params: Any) -> Any:  # fmt: skip
        skorch_labels.check_labels(y, X_val, y_val)
        if X_val is not None:
            self.validation_ = X_val, y_val
        return super().partial_fit(X, np.asarray(y), classes, **fit_params)  # skorch's scores index it

    def load_params(self, *args: Any, **kwargs: Any) -> None:
        if self.vista_ is None:
            self.vista_ = LoadedState()  # skorch loads f_vista into it
        try:
            super().load_params(*args, **kwargs)
        finally:
            if isinstance(self.vista_, LoadedState) and not self.vista_.state:
                self.vista_ = None

    def fit_loop(self, X: Any, y: Any = None, epochs: int | None = None, **fit_params: Any) -> Any:
        skorch_input.check_criterion(self.criterion_)
        self.encoder_ = LabelEncoder().fit(y if self.classes is None else self.classes)
        self.being_fitted.add(self)
        self.val_logits_ = ()
        try:
            return super().fit_loop(X, self.encoder_.transform(y), epochs_to_go(self, epochs), **fit_params)
        finally:
            self.being_fitted.discard(self)

    def get_split_datasets(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        train, val, labels, val_labels = skorch_input.parts(self, X, y)
        skorch_input.check_options(vars(self))
        options = {"epochs": self.epochs, "tau": self.tau, **self.get_params_for("vista")}
        vista = Vista(labels, num_classes=len(self.classes_), val_labels=val_labels, **options)
        if self.vista_ is not None:  # partial_fit goes on, but not with other data or options
            vista.load_state_dict(self.vista_.state_dict())
        self.vista_ = vista
        return train, val

    def predict(self, X: Any) -> Any:
        guesses = super().predict(X)
        return guesses if self in self.being_fitted else self.classes_[guesses]  # scoring within a fit compares places
