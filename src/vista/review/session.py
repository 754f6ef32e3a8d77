"""A review in progress: the suspects of a run in their order, what was decided, and the pages that are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vista.analysis.suspects import LabelIssues
from vista.review import decisions
from vista.review.decisions import Decision, DecisionLog
from vista.review.samples import SampleViewer
from vista.runs.folder import RunFolder
from vista.runs.predictions import FILE as PREDICTIONS

MOST_ROWS = 200
MOST_PAIRS = 200
STATUS = ("undecided", *decisions.KINDS[:-1])  # a position is the number of the status
DEFAULT_SCORE = 0.5


@dataclass(frozen=True)
class Filter:
    """Which suspects are shown; None means all."""

    given: int | None = None
    suggested: int | None = None
    low: float = DEFAULT_SCORE
    high: float = 1.0
    status: str | None = None


class Conflict(ValueError):
    """A decision about a sample that was decided elsewhere since it was shown."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        super().__init__("decided elsewhere in the meantime")
        self.rows = rows


class Session:
    """The state of one review.

    Args:
        folder: The run.
        found: Its judged samples, most suspect first.
        log: The decisions so far.
        viewer: Reads the samples.
        author: Name that is written with each decision.
    """

    def __init__(
        self, folder: RunFolder, found: LabelIssues, log: DecisionLog, viewer: SampleViewer, author: str
    ) -> None:
        self.folder, self.found, self.log, self.viewer, self.author = folder, found, log, viewer, author
        self.rank = {sample: rank for rank, sample in enumerate(found.ids.tolist())}
        self.status = np.zeros(len(found), dtype=np.int8)
        for sample, each in log.current.items():
            if sample in self.rank:
                self.status[self.rank[sample]] = STATUS.index(each.decision)
        self._history, self._position = self._predicted_classes()

    def _predicted_classes(self) -> tuple[NDArray[Any] | None, dict[int, int]]:
        """Class predicted in each epoch ``[epochs, N]``, and the column of each training sample."""
        if not (self.folder.path / PREDICTIONS).exists():
            return None, {}
        ids = self.folder.split().train.tolist()
        return self.folder.predictions().classes, {sample: column for column, sample in enumerate(ids)}

    # ------------------------------------------------------------ what is shown

    def start(self) -> dict[str, Any]:
        """What the page needs once."""
        found = self.found
        return {
            "run": self.folder.path.name,
            "data": self.folder.data().name,
            "classes": list(found.classes),
            "samples": len(found),
            "estimated": found.estimated,
            "interval": list(found.interval),
            "is_image": self.viewer.is_image,
            "epochs": 0 if self._history is None else len(self._history),
            "pairs": self._pairs(),
            "caution": found.caution,
        }

    def _pairs(self) -> list[dict[str, int]]:
        """Pairs of given and suggested class, those with the most samples in the list first."""
        listed = self._mask(Filter())
        pairs = np.stack([self.found.given[listed], self.found.suggested[listed]], axis=1)
        kinds, counts = np.unique(pairs, axis=0, return_counts=True)
        order = np.argsort(-counts, kind="stable")[:MOST_PAIRS]
        return [{"given": int(kinds[k, 0]), "suggested": int(kinds[k, 1]), "count": int(counts[k])} for k in order]

    def rows(self, which: Filter, *, after: int = -1, before: int | None = None, limit: int = 20) -> dict[str, Any]:
        """Suspects after a rank, or the ones before it, that pass a filter, and how many there are in all."""
        mask = self._mask(which)
        passing = np.flatnonzero(mask)
        limit = max(0, min(limit, MOST_ROWS))
        if before is not None:
            end = int(np.searchsorted(passing, before))
            chosen = passing[max(0, end - limit) : end]
        else:
            begin = int(np.searchsorted(passing, after, side="right"))
            chosen = passing[begin : begin + limit]
        whole = self._mask(Filter(which.given, which.suggested, which.low, which.high))
        skipped = self.status == STATUS.index(decisions.SKIP)
        return {
            "rows": [self.row(int(rank)) for rank in chosen],
            "matching": len(passing),
            "total": int(whole.sum()),
            "decided": int((whole & (self.status > 0) & ~skipped).sum()),
            "skipped": int((whole & skipped).sum()),
        }

    def row(self, rank: int) -> dict[str, Any]:
        """One suspect."""
        found, sample = self.found, int(self.found.ids[rank])
        current = self.log.current.get(sample)
        row: dict[str, Any] = {
            "rank": rank,
            "id": sample,
            "file": None if found.files is None else found.files[sample],
            "given": int(found.given[rank]),
            "suggested": int(found.suggested[rank]),
            "score": round(float(found.score[rank]), 4),
            "evidence": None if found.evidence is None else str(found.evidence[rank]),
            "status": STATUS[self.status[rank]],
            "label": None if current is None else current.label,
            "seen": self.log.revisions[sample],
            "history": self._epochs_of(sample),
        }
        if not self.viewer.is_image:
            row |= self.viewer.content(sample)
        return row

    def _epochs_of(self, sample: int) -> list[dict[str, Any]]:
        """The classes predicted during training, most frequent first, with their epochs."""
        column = self._position.get(sample)
        if self._history is None or column is None:
            return []
        predicted = np.asarray(self._history[:, column])
        classes, counts = np.unique(predicted[predicted >= 0], return_counts=True)
        order = np.argsort(-counts, kind="stable")[:6]
        return [
            {"class": int(classes[k]), "epochs": (np.flatnonzero(predicted == classes[k]) + 1).tolist()} for k in order
        ]

    def _mask(self, which: Filter) -> NDArray[np.bool_]:
        found = self.found
        mask = (found.score >= which.low) & (found.score <= which.high)
        if which.given is not None:
            mask &= found.given == which.given
        if which.suggested is not None:
            mask &= found.suggested == which.suggested
        if which.status is not None:
            mask &= self.status == STATUS.index(which.status)
        return np.asarray(mask)

    # ------------------------------------------------------------ decisions

    def decide(self, wanted: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Write decisions to the disk and return the rows as they are now.

        Args:
            wanted: Objects with ``id``, ``decision``, ``label`` (for ``other``) and ``seen``, the revision of the
                sample that the reviewer saw.

        Raises:
            Conflict: If a sample was decided elsewhere since; then nothing is written.
            OSError: If the decisions cannot be written; then none of them counts.
        """
        taken = [self._decision(each) for each in wanted]
        changed = [
            self.row(self.rank[made.id])
            for made, each in zip(taken, wanted, strict=True)
            if each.get("seen") != self.log.revisions[made.id]
        ]
        if changed:
            raise Conflict(changed)
        self.log.append(taken)
        for made in taken:
            kind = STATUS[0] if made.decision == decisions.UNDO else made.decision
            self.status[self.rank[made.id]] = STATUS.index(kind)
        return [self.row(self.rank[made.id]) for made in taken]

    def _decision(self, wanted: dict[str, Any]) -> Decision:
        sample, kind, label = wanted.get("id"), wanted.get("decision"), wanted.get("label")
        if type(sample) is not int or sample not in self.rank:
            raise ValueError(f"id must be a judged sample, got {sample!r}")
        if kind not in decisions.KINDS:
            raise ValueError(f"decision must be one of {', '.join(decisions.KINDS)}, got {kind!r}")
        rank = self.rank[sample]
        chosen = None
        if kind == decisions.OTHER:
            chosen = decisions.class_number(label, self.found.classes, f"sample {sample}")
        elif kind in (decisions.ACCEPT, decisions.KEEP):
            chosen = int((self.found.suggested if kind == decisions.ACCEPT else self.found.given)[rank])
        return Decision(
            sample,
            kind,
            chosen,
            int(self.found.given[rank]),
            None if self.found.files is None else self.found.files[sample],
            self.viewer.content_hash(sample),
            decisions.now(),
            self.author,
        )
