"""The choices that VISTA leaves open, and those of its ablations: one value, checked where it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from vista import coverage, schedule, teacher
from vista.checks import real, whole
from vista.coverage import Order
from vista.schedule import Schedule
from vista.teacher import Weights

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
        schedule.check_form(self.k, self.schedule, self.value)
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
        return schedule.beta(max(epoch, 1), epochs, self.k, self.schedule, self.value)
