"""Options of the method, checked on construction, and the schedule of the teacher's weight beta."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from vista.core import coverage, teacher
from vista.core.coverage import Order
from vista.core.teacher import Weights
from vista.core.validation import as_float, as_int

Schedule = Literal["exp", "linear", "cosine", "fixed"]
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
Record = Literal["train", "eval"]
Start = Literal["hard", "uniform"]

# ---------------------------------------------------------------- schedule


def beta(t: int, epochs: int, k: float = 2.0, schedule: Schedule = "exp", value: float | None = None) -> float:
    r"""Weight of the teacher made at the end of epoch ``t``, used in epoch ``t + 1``.

    With :math:`u = (t - 1) / (E - 1)`: ``exp`` is :math:`(1 - e^{-ku}) / (1 - e^{-k})`, ``linear`` is :math:`u`,
    ``cosine`` is :math:`(1 - \cos \pi u) / 2`, ``fixed`` is ``value``. The first three rise from 0 to 1.

    Args:
        t: Epoch, from 1 to ``epochs``.
        epochs: Planned number of epochs, at least 2.
        k: Curvature of the exp schedule.
        schedule: One of exp, linear, cosine, fixed.
        value: The weight under the fixed schedule.

    Returns:
        A number between 0 and 1.

    >>> beta(1, 100), beta(100, 100)
    (0.0, 1.0)
    >>> beta(51, 101, schedule="linear")
    0.5
    """
    t, epochs = as_int(t, "t"), check_epochs(epochs)
    check_form(k, schedule, value)
    k = as_float(k, "k")  # double precision, whatever the type of the argument
    if not 1 <= t <= epochs:
        raise ValueError(f"t must be an epoch from 1 to {epochs}, got {t}")
    if schedule == "fixed":
        assert value is not None
        return float(value)
    u = (t - 1) / (epochs - 1)
    if schedule == "linear":
        return u
    if schedule == "cosine":
        return (1.0 - math.cos(math.pi * u)) / 2.0
    return math.expm1(-k * u) / math.expm1(-k)


def check_epochs(epochs: int) -> int:
    """Return ``epochs`` as an int; VISTA needs a past state to learn from, so at least 2."""
    number = as_int(epochs, "epochs")
    if number < 2:
        raise ValueError(f"epochs must be at least 2, got {number}")
    return number


def check_form(k: float, schedule: str, value: float | None) -> None:
    """Check the schedule and its parameters."""
    k, value = as_float(k, "k"), None if value is None else as_float(value, "value")
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule must be one of {', '.join(SCHEDULES)}, got {schedule!r}")
    if schedule == "exp" and not (math.isfinite(k) and k > 0):
        raise ValueError(
            f"k must be finite and greater than 0 for schedule='exp' (the paper uses 2; the limit 0 is linear), got {k}"
        )
    if schedule == "fixed":
        if value is None or not 0.0 <= value <= 1.0:
            raise ValueError(f"value must be between 0 and 1 for schedule='fixed', got {value}")
    elif value is not None:
        raise ValueError(f"value must be None for schedule={schedule!r}, got {value}: use schedule='fixed'")


# ---------------------------------------------------------------- options


@dataclass(frozen=True)
class Options:
    tau: float = 0.0
    """Prune states that add at most this fraction of the validation set; 0 is Basic, 0.01 the paper's Light."""
    record: Record = "train"
    """Store predictions of the training pass itself, or of a clean pass after each epoch."""
    schedule: Schedule = "exp"
    """How the teacher's weight beta rises."""
    k: float = 2.0
    """Curvature of the exp schedule."""
    value: float | None = None
    """Beta of the fixed schedule."""
    order: Order = "accuracy"
    """Which states claim samples first."""
    weights: Weights = "coverage"
    """What a state's weight is computed from."""
    smoothing: int = 1
    """Width in epochs of the window predictions are averaged over."""
    start: Start = "hard"
    """Targets of epoch 1 under a fixed schedule: the labels, or blended with a uniform teacher."""
    topk: int | None = None
    """Keep only this many of the largest probabilities of each past prediction, and a uniform remainder."""

    def __post_init__(self) -> None:
        """Check every option; convert numbers and strings of other libraries, so that a state holds plain ones."""
        plain: dict[str, Any] = {"tau": coverage.check_tau(self.tau), "k": as_float(self.k, "k")}
        plain |= {"value": None if self.value is None else as_float(self.value, "value")}
        plain |= {"smoothing": as_int(self.smoothing, "smoothing")}
        plain |= {"topk": None if self.topk is None else as_int(self.topk, "topk")}
        plain |= {name: str(getattr(self, name)) for name in ("record", "schedule", "order", "weights", "start")}
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        check_form(self.k, self.schedule, self.value)
        choices = (
            ("record", self.record, get_args(Record)),
            ("order", self.order, coverage.ORDERS),
            ("weights", self.weights, teacher.WEIGHTS),
            ("start", self.start, get_args(Start)),
        )
        for name, given, known in choices:
            if given not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {given!r}")
        if self.smoothing < 1 or self.smoothing % 2 == 0:
            raise ValueError(f"smoothing must be odd and at least 1 (a centred window), got {self.smoothing}")
        if self.tau > 0 and self.needs_every_state:
            what = f"weights={self.weights!r}" if self.weights != "coverage" else f"smoothing={self.smoothing}"
            raise ValueError(f"tau must be 0 with {what}, which needs every past state, got {self.tau}")
        if self.topk is not None and self.topk < 1:
            raise ValueError(f"topk must be at least 1, got {self.topk}")
        if self.start == "uniform" and self.schedule != "fixed":
            raise ValueError(f"schedule must be 'fixed' with start='uniform', got {self.schedule!r}")

    @property
    def needs_every_state(self) -> bool:
        """Whether states without marginal coverage are used too, so that none may be pruned."""
        return self.weights != "coverage" or self.smoothing > 1

    def beta(self, epoch: int, epochs: int) -> float:
        """Weight of the teacher made at the end of ``epoch``; before the first epoch ends, that of epoch 1."""
        return beta(max(epoch, 1), epochs, self.k, self.schedule, self.value)
