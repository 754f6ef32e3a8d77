"""``vista labels runs/digits-symmetric-0.4-vista-seed0 --clean labels.csv``."""

from __future__ import annotations

import dataclasses
import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from vista.analysis import probability_files, suspect_files, suspects
from vista.analysis.joint import Labels as GivenLabels
from vista.analysis.run_predictions import EVIDENCE
from vista.analysis.suspects import LabelIssues
from vista.cli import decided_labels, label_studio, terminal
from vista.cli.arguments import Output, parse
from vista.cli.execute import execute
from vista.cli.output_paths import TABLE, Kept, file_to_write, folder_to_write, trained_on, what_it_holds
from vista.cli.review import open_finished
from vista.review import retrain, run_decisions
from vista.runs.folder import RunFolder
from vista.training.folds import fold_jobs

ABOUT = """Estimate how many labels are wrong, and rank the samples by how unlikely their given label is.

With RUN, training samples are judged by their mean prediction during training,
validation and held-out samples by the final network. With --folds, every sample is judged by a network that was not
trained on it. With --probs and --labels, any model's predictions are judged.

Ids are positions in the data as shipped: in the training part of CIFAR, in the arrays of an .npz file, in
scikit-learn's digits, among the images of a folder sorted by class and file name. The list is written to
suspected_labels.csv and .json in the run folder."""
SHOWN = 20
SHOWN_PAIRS = 5


@dataclass(frozen=True)
class Labels:
    run: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="RUN", help_behavior_hint="")] = None
    """Folder of a finished run."""
    probs: Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Instead of RUN: predicted probabilities [samples, classes] of any model, as .npy, .npz or .csv."""
    labels: Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """With --probs: the given labels, as .npy, .npz or .csv; a CSV may contain class names."""
    top: Annotated[int | None, tyro.conf.arg(metavar="K", help_behavior_hint="")] = None
    """Number of samples to list; default: the estimated number of wrong labels."""
    min_score: Annotated[float | None, tyro.conf.arg(metavar="S", help_behavior_hint="")] = None
    """List the samples with at least this score, from 0 to 1; above 0.5 another class is more likely."""
    out: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Folder for the lists; default: the run folder, or with --probs the working directory."""
    clean: Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Write all labels to a CSV file for `vista train --labels FILE --split-from RUN`, the most suspect ones corrected:
    as many as are listed, or after a caution the lower end of the interval. Validation and test labels of RUN change
    only with --decisions: suggestions of the same run would flatter it."""
    drop: bool = False
    """With --clean: mark the most suspect samples as unlabelled (-1) instead of correcting them."""
    folds: Annotated[int | None, tyro.conf.arg(metavar="K", help_behavior_hint="")] = None
    """Train K copies of the run, each without one part of the samples, and judge every sample by the copy that was not
    trained on it. Takes K times as long as the run; finished copies are kept in RUN/folds and used from then on."""
    decisions: Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Decisions of `vista review`: --clean then writes the labels as decided and all others as given, and nothing is
    judged."""
    copy_to: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """With --decisions: copy the images of a folder to DIR, sorted into the decided classes; see --apply."""
    move: bool = False
    """With --decisions: move the images of a folder into the decided classes; see --apply."""
    apply: bool = False
    """With --copy-to or --move: do it, instead of listing what would be done. --move writes a script that undoes it."""
    to_label_studio: Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Write the listed samples of RUN as tasks of Label Studio (.json) with the suggested class as prediction and the
    decisions so far as annotations, and the labelling interface beside it (.xml)."""
    from_label_studio: Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Add what was decided in Label Studio (its export as JSON) to the decisions of RUN."""
    json: bool = False
    """Print one JSON object to stdout."""


def run(argv: list[str]) -> int:
    flags = parse(Labels, argv, "labels", ABOUT)
    if flags.drop and flags.clean is None:
        raise ValueError("drop requires --clean FILE, the file in which the most suspect samples become unlabelled")
    if flags.decisions is not None:
        return _write_decided(flags)
    for name in ("to_label_studio", "from_label_studio"):
        if getattr(flags, name) is not None and flags.run is None:
            raise ValueError(f"{name} needs RUN, the run whose samples are meant")
    for name in ("copy_to", "move", "apply"):
        if getattr(flags, name):
            raise ValueError(f"{name} requires --decisions FILE, the decisions of `vista review`")
    if flags.folds is not None:
        _cross_validate(flags, flags.folds)
    found, given, kept, place = _judge(flags)
    if flags.from_label_studio is not None and flags.run is not None:
        return label_studio.read(RunFolder.open(flags.run), found, flags.from_label_studio, flags.json)
    count = _count(flags, found)
    place = folder_to_write("out", flags.out) if flags.out is not None else place
    written = [place / suspect_files.TABLE, place / suspect_files.LIST]
    for path in written:
        if (held := what_it_holds(path, kept)) is not None:
            raise ValueError(f"out must be another folder, got {place}: its {path.name} holds {held}")
    clean = None if flags.clean is None else _label_file(flags.clean, written, kept)
    place.mkdir(parents=True, exist_ok=True)
    suspect_files.write_csv(written[0], found, count)
    suspect_files.write_json(written[1], found, count)
    if flags.to_label_studio is not None and flags.run is not None:
        written += label_studio.write(RunFolder.open(flags.run), found, count, flags.to_label_studio)
    corrected = None
    if clean is not None:
        corrected = _write_corrected(flags, found, given, count, clean)
        written.append(clean)
    if flags.json:
        values = {} if corrected is None else {"clean": str(clean), **dataclasses.asdict(corrected)}
        print(json.dumps({**_source(flags), **suspect_files.report(found, count), **values}, allow_nan=False))
        return 0
    _print(found, count, written)
    if corrected is not None:
        _print_corrected(flags, found, corrected)
    if flags.run is not None:
        folder = RunFolder.open(flags.run)
        following = _say_decided(folder, found, count)
        terminal.say(f"Next: {following if clean is None else retrain.train_command(folder, clean)}")
    return 0


def _say_decided(folder: RunFolder, found: LabelIssues, count: int) -> str:
    """Say how many of the listed samples that look wrong are decided; returns the command that follows."""
    doubted = found.ids[:count][found.is_doubted[:count]].tolist()
    decided = run_decisions.count_decided(folder, doubted)
    if decided is not None:
        terminal.say(f"Decided: {decided:,} of the {len(doubted):,} listed samples with a score above 0.5")
    return run_decisions.next_command(folder, decided is not None and decided == len(doubted))


@dataclass(frozen=True)
class Corrected:
    """What ``--clean`` did: labels considered, changed, and those among them that stay as given."""

    most_suspect: int
    changed: int
    validation_labels_kept: int
    test_labels_kept: int


def _write_corrected(flags: Labels, found: LabelIssues, given: GivenLabels, count: int, clean: Path) -> Corrected:
    """Write the label file for ``--clean``.

    Validation and test labels stay: the run's own suggestions would select and score a network by what it predicts.
    """
    if found.caution is not None and flags.top is None and flags.min_score is None:
        count = found.interval[0]
    val = test = np.array([], dtype=np.int64)
    if flags.run is not None:
        split = RunFolder.open(flags.run).split()
        val = split.val
        test = np.setdiff1d(np.flatnonzero(given >= 0), np.concatenate([split.train, val]))
    labels = suspect_files.corrected(given, found, count, drop=flags.drop, kept=np.concatenate([val, test]))
    suspect_files.write_label_file(clean, labels, found.files, found.classes)
    validated, tested = (int(np.isin(found.ids[:count], own).sum()) for own in (val, test))
    changed = int((labels != given).sum())
    if believed := count - validated - tested - changed:
        warnings.warn(
            f"{believed:,} of the {count:,} most suspect samples keep their label: no other class is more likely",
            stacklevel=2,
        )
    return Corrected(count, changed, validated, tested)


def _print_corrected(flags: Labels, found: LabelIssues, made: Corrected) -> None:
    why = ""
    if flags.top is None and flags.min_score is None:
        number = "estimate" if found.caution is None else "lower end of the interval, because of the caution"
        why = f" (the {number}; --top K takes another number)"
    counts = {"validation labels": made.validation_labels_kept, "test labels": made.test_labels_kept}
    kept = " and ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    if kept:
        kept = (
            f"; {kept} among them stay as given: suggestions of the same run would flatter it. "
            "`vista review` decides about them"
        )
    terminal.say(
        f"{'Dropped' if flags.drop else 'Corrected'} {made.changed:,} of the {made.most_suspect:,} most suspect "
        f"labels{why}{kept}"
    )


def _cross_validate(flags: Labels, count: int) -> None:
    """Train the runs of a cross-validation that are not finished."""
    if flags.run is None or flags.probs is not None or flags.labels is not None:
        raise ValueError("folds needs RUN, the run to repeat, without --probs and --labels")
    jobs = fold_jobs(open_finished(flags.run), count)
    if jobs:
        execute(jobs, Output(json=flags.json))
    for job in jobs:
        if job.error is not None:
            raise job.error


def _write_decided(flags: Labels) -> int:
    """Turn decisions into labels."""
    if flags.run is None or flags.probs is not None or flags.labels is not None:
        raise ValueError("decisions needs RUN, the run that they were made for, without --probs and --labels")
    for name in ("top", "min_score", "out", "drop", "folds", "to_label_studio", "from_label_studio"):
        if getattr(flags, name):
            raise ValueError(f"{name} cannot be combined with decisions: they say which labels change")
    if flags.apply and flags.copy_to is None and not flags.move:
        raise ValueError("apply requires --copy-to DIR or --move")
    if flags.copy_to is not None and flags.move:
        raise ValueError("copy_to and move cannot be combined: give one of them")
    return decided_labels.write(RunFolder.open(flags.run), flags)


def _judge(flags: Labels) -> tuple[LabelIssues, GivenLabels, Kept, Path]:
    """The judged samples, all given labels, the files that must not be overwritten, and the folder for the lists."""
    if flags.run is not None and flags.probs is None and flags.labels is None:
        folder = RunFolder.open(flags.run)
        return suspects.of_run(folder), folder.labels().given, list(trained_on(folder.config())), folder.path
    if flags.run is not None or flags.probs is None or flags.labels is None:
        raise ValueError("labels needs either RUN, or both --probs FILE and --labels FILE")
    probs_path, labels_path = Path(flags.probs).expanduser(), Path(flags.labels).expanduser()
    probs, classes = probability_files.read_probabilities(probs_path)
    given = probability_files.read_labels(labels_path, classes)
    kept = [(probs_path, "the predicted probabilities"), (labels_path, "the given labels")]
    return suspects.find_label_issues(given, probs, classes=classes), given, kept, Path()


def _source(flags: Labels) -> dict[str, Any]:
    if flags.run is None:
        return {"probs": flags.probs, "labels": flags.labels}
    folder = RunFolder(Path(flags.run))
    config = {name: getattr(folder.config(), name) for name in ("data", "noise", "network", "method", "epochs", "seed")}
    return {
        "run": str(folder.path),
        "config": {**config, "folds": len(folder.folds())},
        "environment": folder.environment(),
    }


def _label_file(given: str, lists: list[Path], kept: Kept) -> Path:
    """The file for the corrected labels, which must not be one of the lists."""
    path = file_to_write("clean", given, TABLE, kept)
    if path.resolve() in [each.resolve() for each in lists]:
        raise ValueError(f"clean must be another file, got {path}: the list of suspected labels is written there")
    return path


def _count(flags: Labels, found: LabelIssues) -> int:
    """The number of samples to list."""
    if flags.top is not None and flags.min_score is not None:
        raise ValueError("top and min_score cannot be combined: give one of them")
    if flags.top is not None:
        if not 1 <= flags.top <= len(found):
            raise ValueError(f"top must be between 1 and {len(found)}, the number of judged samples, got {flags.top}")
        return flags.top
    if flags.min_score is not None:
        if not 0 <= flags.min_score <= 1:
            raise ValueError(f"min_score must be between 0 and 1, got {flags.min_score}")
        return int((found.score >= flags.min_score).sum())
    return found.estimated


def _title(found: LabelIssues, count: int) -> str:
    all_of_them, wrong = f"{len(found):,} labels", f"{found.estimated:,}"
    if count == found.estimated:
        return f"{wrong} of {all_of_them} look wrong"
    return f"the {count:,} most suspect of {all_of_them}, of which about {wrong} look wrong"


def _print_estimate(found: LabelIssues) -> None:
    """The number of wrong labels, the most frequent confusions, and what was judged by what."""
    out = terminal.console()
    low, high = found.interval
    out.print(
        f"Estimated wrong labels: {found.estimated:,} of {len(found):,} (95 % interval {low:,} to {high:,})\n"
        f"Estimated noise rate: {100 * found.noise_rate:.1f} %"
    )
    pairs = [
        f"{found.classes[given]} → {found.classes[true]} {count:.0f}"
        for given, true, count in found.pairs()[:SHOWN_PAIRS]
        if round(count)
    ]
    if pairs:
        out.print(f"Most frequent (given → true): {', '.join(pairs)}", markup=False)
    if found.evidence is not None:
        kinds = [f"{kind} {(found.evidence == kind).sum():,}" for kind in EVIDENCE if kind in found.evidence]
        out.print(f"Judged by: {', '.join(kinds)}")
    missing = ", ".join(f"{count:,} ({reason})" for reason, count in found.unjudged.items())
    out.print(f"Not judged: {missing or 'none'}")
    if found.caution is not None:
        out.print(f"Caution: {found.caution}")


def _print(found: LabelIssues, count: int, written: list[Path]) -> None:
    _print_estimate(found)
    out = terminal.console()
    columns = (("true", found.true), ("file", found.files), ("evidence", found.evidence))
    more = [name for name, known in columns if known is not None]
    rows = []
    for row in suspect_files.rows(found, min(count, SHOWN)):
        cells = [str(row["id"]), row["given_name"], row["suggested_name"], f"{row['score']:.3f}"]
        if found.true is not None:
            cells.append(found.classes[row["true"]])
        cells += [row[name] for name in ("file", "evidence") if name in row]
        rows.append(cells)
    if count:
        terminal.print_rows(
            out, ("id", "given", "suggested", "score", *more), rows, ("id", "score"), _title(found, count)
        )
    else:
        out.print("No label has such a score." if found.estimated else "No label looks wrong.")
    if count > SHOWN:
        out.print(f"... and {count - SHOWN:,} more in the files")
    quality = found.quality()
    if quality is not None and quality["auroc"] is not None:
        precision = ", ".join(f"{share:.3f} at {k}" for k, share in quality["precision_at"].items())
        out.print(
            f"{quality['wrong']:,} labels are truly wrong: AUROC {quality['auroc']:.4f}, "
            f"average precision {quality['average_precision']:.4f}, precision {precision}"
        )
    for path in written:
        out.print(f"Wrote {path}", soft_wrap=True)
