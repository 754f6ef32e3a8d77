"""A loop of one's own, followed by a tracker."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from vista.analysis.runs import Run
from vista.core.validation import Integers, as_integers, as_logits, check_all_named, predicted_classes
from vista.core.vista import Summary
from vista.integrations.trackers.telling import Tracker, end_with_figures, epoch_values
from vista.runs.record import VAL_GIVEN, Record


class Watch:
    """Tells a tracker of every epoch of a loop as it ends; ``close`` draws the figures.

    A loop that resumes saves ``state_dict()`` beside Vista's and loads both. Without it the epochs before are not
    known: numbers go on, but for the deviation gap, and no figure is drawn.
    """

    def __init__(self, tracker: Tracker, val_labels: Integers) -> None:
        self.tracker = tracker
        self._labels = as_integers(val_labels, "val_labels").cpu()
        self._record = Record({VAL_GIVEN: len(self._labels)})
        self._options: dict[str, Any] = {}
        self._is_whole = True  # every epoch from the first on was seen

    def epoch(self, summary: Summary, val_logits: Tensor | NDArray[Any], val_index: Integers | None = None) -> None:
        """``val_logits`` ``[m, K]`` and ``val_index`` are those that ``end_epoch`` got."""
        logits = as_logits(val_logits, "val_logits")
        classes = predicted_classes(logits, val_index, len(self._labels), logits.shape[-1], summary.epoch)
        check_all_named(classes >= 0)
        right = (classes == self._labels).numpy()
        if float(right.mean()) != summary.accuracy:
            raise ValueError(
                f"val_logits have {right.mean():.4g} of val_labels right, but those that end_epoch got had "
                f"{summary.accuracy:.4g}: give both the same, val_index too where rows come in another order"
            )
        if self._is_whole and summary.epoch != len(self._record) + 1:
            self._is_whole = False
            warnings.warn(
                f"epoch {summary.epoch} came after {len(self._record)} others: load_state_dict() brings back those of "
                "an earlier Watch; without them there is no deviation gap, and there are no figures",
                stacklevel=2,
            )
        self._options = asdict(summary.options)
        self._record.append({"epoch": summary.epoch, "anchors": len(summary.anchors)}, {}, {VAL_GIVEN: right})
        values = epoch_values(summary.beta, summary.anchors, self._record.correct(VAL_GIVEN))
        if not self._is_whole:
            del values["vista/deviation_gap"]
        self.tracker.log(summary.epoch, values)

    def state_dict(self) -> dict[str, Any]:
        """The epochs so far: tensors, numbers and text."""
        rows = torch.from_numpy(self._record.packed(VAL_GIVEN).copy())
        return {
            "samples": len(self._labels),
            "lines": list(self._record.lines),
            "rows": rows,
            "options": self._options,
            "is_whole": self._is_whole,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after the epochs of an earlier Watch over the same validation samples."""
        rows, width = state["rows"].cpu().numpy(), self._record.packed(VAL_GIVEN).shape[1]
        if state["samples"] != len(self._labels):
            raise ValueError(
                f"the state has {state['samples']} validation samples, but this Watch has {len(self._labels)}"
            )
        if rows.shape != (len(state["lines"]), width):
            raise ValueError(f"the state has rows {rows.shape} for {len(state['lines'])} epochs: it is damaged")
        lines = [dict(line) for line in state["lines"]]
        self._record = Record(self._record.sizes, lines, [{} for _ in lines], {VAL_GIVEN: list(rows)})
        self._options, self._is_whole = dict(state["options"]), bool(state["is_whole"])

    def close(self) -> None:
        record = self._record if self._is_whole else Record(self._record.sizes)
        end_with_figures(Run("this training", Path(), record, {"options": self._options}), self.tracker)
