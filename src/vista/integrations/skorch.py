"""scikit-learn through skorch: ``VistaClassifier(module, epochs=40, tau=0.01).fit(X, y)``."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from inspect import signature
from typing import Any, ClassVar
from weakref import WeakSet

import numpy as np
import torch
from sklearn.preprocessing import LabelEncoder  # type: ignore[import-untyped]
from torch.nn import CrossEntropyLoss

from vista import Vista, indexed
from vista.data.holdout import holdout
from vista.integrations import fitted_values, list_batch_indices, require_extra

with require_extra("skorch"):
    from skorch import NeuralNetClassifier  # type: ignore[import-untyped]

# skorch rebuilds the component that a parameter belongs to. These belong to none: fit reads them.
READ_BY_FIT = "vista__", "iterator_train__", "iterator_valid__", "dataset__"
SET_BY_FIT = {"labels", "val_labels", "num_classes", "epochs", "tau"}
MISSING = {"nan": "NaN", "None": "None", "<NA>": "NA", "NaT": "NaT"}


class VistaClassifier(NeuralNetClassifier):  # type: ignore[misc]
    """scikit-learn classifier that trains a PyTorch module with VISTA; a skorch ``NeuralNetClassifier``.

    ``fit(X, y)`` holds out ``validation_fraction`` of the samples, ``fit(X, y, X_val, y_val)`` validates on ``X_val``.
    A pickled net resumes with ``partial_fit`` and trains up to its last epoch. So does a new net after ``load_params``
    with an ``f_vista`` beside the other files.

    Args:
        module: Class or instance of a module that returns logits ``[B, K]``, without softmax.
        *args: Positional arguments of skorch's ``NeuralNetClassifier`` after ``module``.
        epochs: Number of epochs; it takes the place of skorch's ``max_epochs``.
        tau: Prune states that add at most this fraction of the validation set; by default that of ``vista``.
        validation_fraction: Fraction of the samples to validate on, stratified by class.
        split_seed: Seed of that split.
        criterion: ``CrossEntropyLoss``; VISTA uses its ``weight`` only.
        vista: Class of the targets: :class:`vista.Vista` or :class:`vista.Posterior`.
        **kwargs: Further parameters of skorch, and ``vista__*`` for the options of the class ``vista``.

    Attributes:
        classes_: The class labels in order.
        vista_: The :class:`vista.Vista` or :class:`vista.Posterior` of the current fit.
        history: skorch's history, with ``beta`` and ``anchors`` for each epoch; with ``Posterior`` also ``temperature``
            and ``noise_rate``.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> X, y = load_digits(return_X_y=True)
        >>> net = VistaClassifier(torch.nn.Linear(64, 10), epochs=2, lr=0.01, verbose=0)
        >>> net.fit(X[:200].astype("float32"), y[:200]).predict(X[:5].astype("float32")).shape
        (5,)
        >>> len(net.history)
        2
    """

    prefixes_ = [*NeuralNetClassifier.prefixes_, "vista"]  # noqa: RUF012
    max_epochs = property(lambda self: self.epochs, lambda self, value: setattr(self, "epochs", value))
    vista_: Any = None
    validation_: Any = None  # (X_val, y_val)
    val_logits_: tuple[Any, ...] = ()  # of the current validation
    warm_epochs_ = 0  # in the history when the last fit began: a warm start begins a new training
    being_fitted: ClassVar[WeakSet[Any]] = WeakSet()  # not an attribute of the net, which may be pickled during a fit

    def __init__(self, module: Any, *args: Any, epochs: int = 40, tau: float | None = None,
                 validation_fraction: float = 0.1, split_seed: int = 0, criterion: Any = CrossEntropyLoss,
                 vista: type[Vista] = Vista, **kwargs: Any) -> None:  # fmt: skip
        self.tau, self.validation_fraction, self.split_seed, self.vista = tau, validation_fraction, split_seed, vista
        _check_skorch_arguments(kwargs)
        super().__init__(module, *args, criterion=criterion, **{**kwargs, "train_split": None, "max_epochs": epochs})

    @property
    def classes_(self) -> Any:
        if "encoder_" in vars(self):
            return self.encoder_.classes_
        if self.classes is None:
            raise AttributeError(
                "classes is not set and load_params does not restore it: pass classes=..., fit the net, or pickle it"
            )
        return np.unique(self.classes)

    def set_params(self, **params: Any) -> Any:
        _check_vista_options(params, params.get("vista", self.vista))
        later = {name: params.pop(name) for name in list(params) if name == "vista" or name.startswith(READ_BY_FIT)}
        vars(super().set_params(**params)).update(later)
        return self

    def fit(self, X: Any, y: Any, X_val: Any = None, y_val: Any = None, **fit_params: Any) -> Any:
        """Train from the beginning.

        Args:
            X: Training samples, in any form that skorch accepts.
            y: Their labels: numbers or text, none missing.
            X_val: Samples to validate on; by default ``validation_fraction`` of ``X``.
            y_val: Their labels.
            **fit_params: Further arguments of skorch's ``fit``.

        Returns:
            The net itself.
        """
        _check_labels(y, X_val, y_val)
        self.vista_, self.validation_ = None, None if X_val is None else (X_val, y_val)
        self.warm_epochs_ = len(self.history) if self.warm_start and self.initialized_ else 0
        return super().fit(X, y, **fit_params)

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, X_val: Any = None, y_val: Any = None,
                    **fit_params: Any) -> Any:  # fmt: skip
        """Train the remaining epochs, on the same data and with the same options; arguments as in :meth:`fit`."""
        _check_labels(y, X_val, y_val)
        if X_val is not None:
            self.validation_ = X_val, y_val
        return super().partial_fit(X, np.asarray(y), classes, **fit_params)  # skorch's scoring indexes y

    def load_params(self, *args: Any, **kwargs: Any) -> None:
        if self.vista_ is None:
            self.vista_ = _LoadedState()  # skorch loads f_vista into it
        try:
            super().load_params(*args, **kwargs)
        finally:
            if isinstance(self.vista_, _LoadedState) and not self.vista_.state:
                self.vista_ = None

    def fit_loop(self, X: Any, y: Any = None, epochs: int | None = None, **fit_params: Any) -> Any:
        _check_criterion(self.criterion_)
        self.encoder_ = LabelEncoder().fit(y if self.classes is None else self.classes)
        self.being_fitted.add(self)
        self.val_logits_ = ()
        try:
            return super().fit_loop(X, self.encoder_.transform(y), self._count_epochs(epochs), **fit_params)
        finally:
            self.being_fitted.discard(self)

    def _count_epochs(self, requested: int | None) -> int:
        """Return the number of epochs to train: as many as requested, else all that remain."""
        if self.vista_ is None and (unknown := len(self.history) - self.warm_epochs_) > 0:
            raise ValueError(
                f"the history has {unknown} epochs, but the net has no VISTA state for them: save and load it with "
                "save_params(..., f_vista=FILE) and load_params(..., f_vista=FILE), or pickle the net; "
                "to start a new training from the weights, do not load f_history"
            )
        done = self.vista_.epoch if self.vista_ else 0
        remaining = self.epochs - done
        if requested and 0 <= remaining < requested:
            raise ValueError(
                f"epochs must be at most {remaining}, since {done} of {self.epochs} are done, got {requested}"
            )
        if not remaining:
            warnings.warn(
                f"all {self.epochs} epochs are done, so partial_fit trains nothing: to train longer, call "
                "set_params(epochs=...) and fit()",
                stacklevel=5,
            )
        return requested or remaining

    def get_split_datasets(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        train = self.get_dataset(X, y)
        if self.validation_ is None:
            train, val, labels, val_labels = holdout(train, y, self.validation_fraction, self.split_seed)
        else:
            labels, val_labels = y, self.encoder_.transform(self.validation_[1])
            val = self.get_dataset(self.validation_[0], val_labels)
        _check_vista_options(vars(self), self.vista)
        options = {"epochs": self.epochs, **({} if self.tau is None else {"tau": self.tau})}
        options |= self.get_params_for("vista")
        vista = self.vista(labels, num_classes=len(self.classes_), val_labels=val_labels, **options)
        if self.vista_ is not None:  # partial_fit resumes; load_state_dict rejects different data or options
            vista.load_state_dict(self.vista_.state_dict())
        self.vista_ = vista
        return train, val

    def get_iterator(self, dataset: Any, training: bool = False) -> Any:
        loader = super().get_iterator(indexed(dataset) if training else dataset, training=training)
        if training:
            return _IndexIterator(loader, self)
        if self in self.being_fitted:
            _check_validation_loader(loader)
        return loader

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
        for name, value in fitted_values(summary).items():
            self.history.record(name, value)

    def predict(self, X: Any) -> Any:
        """Predict the class label of each sample.

        Args:
            X: Samples, in any form that skorch accepts.

        Returns:
            Labels from ``classes_``, ``[n]``.
        """
        positions = super().predict(X)
        return positions if self in self.being_fitted else self.classes_[positions]  # a fit scores encoded labels


class _IndexIterator:
    """Yields ``(x, y)`` from batches ``(x, y, i)`` and sets ``net.index_ = i``, so that callbacks see plain batches."""

    def __init__(self, loader: Any, net: Any) -> None:
        self.loader, self.net = loader, net

    def __iter__(self) -> Iterator[Any]:
        for *batch, index in self.loader:
            self.net.index_ = index
            yield batch


class _LoadedState:
    """Holds a loaded state until ``fit`` or ``partial_fit`` has the data to build a ``Vista``, which then checks it."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.state = dict(state)

    def state_dict(self) -> dict[str, Any]:
        return self.state

    @property
    def epoch(self) -> int:
        return int(self.state.get("epoch", 0))


def _check_skorch_arguments(given: Mapping[str, Any]) -> None:
    """Reject arguments of skorch that VISTA would ignore."""
    if "max_epochs" in given:
        raise ValueError(f"max_epochs is not a parameter: use epochs={given['max_epochs']}")
    if given.get("train_split") is not None:
        raise ValueError(
            f"train_split must be None, since VISTA needs the labels it validates on, got {given['train_split']}: "
            "use validation_fraction, or fit(X, y, X_val, y_val)"
        )


def _check_vista_options(names: Iterable[str], vista: Any) -> None:
    """Reject names that look like an option of the class ``vista`` and are not one, or that ``fit`` sets."""
    if not (isinstance(vista, type) and issubclass(vista, Vista)):
        raise ValueError(f"vista must be the class Vista or Posterior, with its options as vista__*, got {vista!r}")
    known = ["vista", *(f"vista__{name}" for name in signature(vista).parameters if name not in SET_BY_FIT)]
    for name in names:
        if name.startswith("vista") and not name.endswith("_") and name not in known:
            raise ValueError(
                f"{name} is not a parameter with vista={vista.__name__}; available are epochs, tau and "
                f"{', '.join(known)}"
            )


def _check_criterion(criterion: Any) -> None:
    """Reject a loss or a setting that VISTA's loss would replace; it uses the class weights only."""
    criterion = getattr(criterion, "_orig_mod", criterion)  # torch.compile wraps it
    if type(criterion) is not CrossEntropyLoss:
        raise ValueError(
            f"criterion must be CrossEntropyLoss, and the module must return logits, got {type(criterion).__name__}"
        )
    usual = CrossEntropyLoss()
    for name in ("ignore_index", "reduction", "label_smoothing"):
        if (value := getattr(criterion, name)) != (default := getattr(usual, name)):
            raise ValueError(
                f"criterion__{name} must be {default!r}, since VISTA uses criterion__weight only, got {value!r}"
            )


def _check_labels(y: Any, X_val: Any, y_val: Any) -> None:
    """Reject absent labels, which a dataset as ``X`` would hide, and missing values among them."""
    if y is None or (X_val is None) != (y_val is None):
        raise ValueError(f"{'y' if y is None else 'X_val or y_val'} is None: call fit(X, y) or fit(X, y, X_val, y_val)")
    for name, given in (("y", y), ("y_val", y_val)):
        labels = np.asarray(given)
        if given is None or labels.dtype.kind not in "fO":
            continue
        # LabelEncoder would make NaN a class of its own among floats, and could not sort it among strings.
        missing = [not isinstance(label, str) and str(label) in MISSING for label in labels.flat]
        if any(missing):
            i = missing.index(True)
            raise ValueError(f"{name}[{i}] is {MISSING[str(labels.flat[i])]}, but every sample needs a label: drop it")


def _check_validation_loader(loader: Any) -> None:
    """Reject a loader that reorders or drops samples."""
    used, samples = sum(map(len, list_batch_indices(loader))), len(loader.dataset)
    if used < samples:
        raise ValueError(
            f"iterator_valid__drop_last=True drops {samples - used} of the {samples} validation samples, but VISTA "
            "needs all of them: use iterator_valid__drop_last=False"
        )
