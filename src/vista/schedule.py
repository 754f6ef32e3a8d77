"""How far the target moves from the label to the teacher: the blending weight beta."""

from __future__ import annotations

import math
from typing import Literal, get_args

from vista.checks import real, whole

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
