"""The choices that VISTA leaves open, and those of its ablations: one value, checked where it is made."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from vista.core import coverage, teacher
from vista.core.coverage import Order
from vista.core.teacher import Weights
from vista.core.validation import real, whole

Schedule = Literal["exp", "linear", "cosine", "fixed"]
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)


def beta(t: int, epochs: int, k: float = 2.0, schedule: Schedule = "exp", value: float | None = None) -> float:
    r"""Weight of the teacher made at the end of epoch ``t``, used in epoch ``t + 1``.

    With :math:`u = (t - 1) / (E - 1)`: ``exp`` is :math:`(1 - e^{-ku}) / (1 - e^{-k})`, ``linear`` is :math:`u`,
    ``cosine`` is :math:`(1 - \cos \pi u) / 2`, ``fixed`` is ``value``. The first three rise from 0 to 1.
    """
    t, epochs = whole(t, "t"), check_epochs(epochs)
    check_form(k, schedule, value)
    k = real(k, "k")  # in double precision, whatever came
    if not 1 <= t <= epochs:
        raise ValueError(f"t is {t}, but epochs are counted from 1 to {epochs}")
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
    """``epochs`` as a plain int; a training in which no state could teach another is refused."""
    number = whole(epochs, "epochs")
    if number < 2:
        raise ValueError(f"epochs is {number}, but a teacher needs a past: at least 2")
    return number


def check_form(k: float, schedule: str, value: float | None) -> None:
    """Refuse a schedule that could not run, naming the argument."""
    k, value = real(k, "k"), None if value is None else real(value, "value")
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule is {schedule!r}, but it must be one of {', '.join(SCHEDULES)}")
    if schedule == "exp" and not (math.isfinite(k) and k > 0):
        raise ValueError(
            f"k is {k}, but the exp schedule needs a finite k > 0 (2 is the paper's; linear is the limit 0)"
        )
    if schedule == "fixed":
        if value is None or not 0.0 <= value <= 1.0:
            raise ValueError(f"value is {value}, but schedule='fixed' needs a value between 0 and 1")
    elif value is not None:
        raise ValueError(f"value is {value}, but schedule={schedule!r} takes none: use schedule='fixed'")


Record = Literal["train", "eval"]
Start = Literal["hard", "uniform"]


@dataclass(frozen=True)
class Options:
    tau: float = 0.0
    """Prune states that add at most this fraction of the validation set; 0 is Basic, 0.01 the paper's Light."""
    record: Record = "train"
    """Remember predictions of the training pass itself, or of a clean pass after each epoch."""
    schedule: Schedule = "exp"
    """How the teacher's weight beta rises."""
    k: float = 2.0
    """Curvature of the exp schedule."""
    value: float | None = None
    """Beta of the fixed schedule."""
    order: Order = "accuracy"
    """Which states claim samples first."""
    weights: Weights = "coverage"
    """What a state's weight comes from."""
    smoothing: int = 1
    """Width in epochs of the window predictions are averaged over."""
    start: Start = "hard"
    """Targets of epoch 1 under a fixed schedule: the labels, or blended with a uniform teacher."""

    def __post_init__(self) -> None:
        """Refuse what could not run, naming the argument, the value and what would do.

        Numbers and words of other libraries become plain ones, so that a saved state holds nothing else.
        """
        plain: dict[str, Any] = {"tau": real(self.tau, "tau"), "k": real(self.k, "k")}
        plain |= {"value": None if self.value is None else real(self.value, "value")}
        plain |= {"smoothing": whole(self.smoothing, "smoothing")}
        plain |= {name: str(getattr(self, name)) for name in ("record", "schedule", "order", "weights", "start")}
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        check_form(self.k, self.schedule, self.value)
        coverage.check_tau(self.tau)
        choices = (
            ("record", self.record, get_args(Record)),
            ("order", self.order, coverage.ORDERS),
            ("weights", self.weights, teacher.WEIGHTS),
            ("start", self.start, get_args(Start)),
        )
        for name, given, known in choices:
            if given not in known:
                raise ValueError(f"{name} is {given!r}, but it must be one of {', '.join(known)}")
        if self.smoothing < 1 or self.smoothing % 2 == 0:
            raise ValueError(f"smoothing is {self.smoothing}, but a centred window needs an odd width of at least 1")
        if self.tau > 0 and self.needs_every_state:
            what = f"weights={self.weights!r}" if self.weights != "coverage" else f"smoothing={self.smoothing}"
            raise ValueError(f"tau is {self.tau}, but {what} needs every past state: use tau=0")
        if self.start == "uniform" and self.schedule != "fixed":
            raise ValueError(f"start='uniform' belongs to schedule='fixed', but schedule is {self.schedule!r}")

    @property
    def needs_every_state(self) -> bool:
        """Whether states without marginal coverage count too: nothing may be pruned then."""
        return self.weights != "coverage" or self.smoothing > 1

    def beta(self, epoch: int, epochs: int) -> float:
        """Weight of the teacher made at the end of ``epoch``; before the first one as after it."""
        return beta(max(epoch, 1), epochs, self.k, self.schedule, self.value)
