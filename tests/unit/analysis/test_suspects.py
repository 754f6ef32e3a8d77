"""Suspected labels: the score verified by hand, the files, and the quality of the ranking."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import write_run

from vista import find_label_issues
from vista.analysis import suspect_files, suspects
from vista.noise.label_files import read_label_file
from vista.runs.folder import RunFolder

PROBS = np.array([[0.8, 0.2], [0.6, 0.4], [0.1, 0.9], [0.3, 0.7]])
GIVEN = np.array([0, 0, 0, 1])


def test_the_score_is_the_margin_and_a_share_relative_to_the_thresholds() -> None:
    score, other = suspects.scores(PROBS, GIVEN)
    own, best = np.array([0.8, 0.6, 0.1, 0.7]), np.array([0.2, 0.4, 0.9, 0.3])
    usual_own, usual_best = np.sqrt([0.5, 0.5, 0.5, 0.7]), np.sqrt([0.7, 0.7, 0.7, 0.5])
    share = (best / usual_best) / (best / usual_best + own / usual_own)
    assert score == pytest.approx(0.9 * (1 + best - own) / 2 + 0.1 * share)
    assert other.tolist() == [1, 1, 1, 0]


def test_an_unused_class_is_suggested_only_if_allowed() -> None:
    probs, given = np.array([[0.1, 0.2, 0.7], [0.2, 0.1, 0.7]]), np.array([0, 1])
    assert suspects.scores(probs, given)[1].tolist() == [1, 0]
    assert suspects.scores(probs, given, np.array([True, True, True]))[1].tolist() == [2, 2]


def test_classes_with_probability_zero_everywhere() -> None:
    probs = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    score, other = suspects.scores(probs, np.array([0, 1, 1]))
    assert other.tolist() == [1, 0, 0], "no sample is labelled 2"
    assert score.tolist() == [0.0, 1.0, 0.5]


def test_ties_keep_the_order_of_the_samples() -> None:
    given, doubtful = np.arange(200) % 2, np.arange(200) % 3 == 0
    found = find_label_issues(given, np.eye(2)[given ^ doubtful])
    assert found.ids.tolist() == [*np.flatnonzero(doubtful), *np.flatnonzero(~doubtful)]


def test_the_ranking_starts_with_the_most_suspect_and_omits_unlabelled_samples() -> None:
    probs = np.vstack([PROBS, [[0.5, 0.5]]])
    found = find_label_issues([*GIVEN, -1], probs, ids=[10, 11, 12, 13, 14], true=[0, 0, 1, 1, 0])
    assert found.ids.tolist() == [12, 11, 13, 10]
    assert found.given.tolist() == [0, 0, 1, 0]
    assert found.unjudged == {"no label": 1}
    assert found.suggested[0] == 1
    quality = found.quality()
    assert quality == {"wrong": 1, "precision_at": {"1": 1.0}, "auroc": 1.0, "average_precision": 1.0}


def test_issues_are_shown_as_a_summary_with_the_first_suspects() -> None:
    given, doubtful = np.arange(200) % 2, np.arange(200) % 3 == 0
    lines = repr(find_label_issues(given, np.eye(2)[given ^ doubtful], classes=["cat", "dog"])).splitlines()
    assert lines[0].startswith("LabelIssues(67 of 200 labels estimated wrong, ")
    assert lines[1:4] == ["  0: cat -> dog, score 1.00", "  3: dog -> cat, score 1.00", "  6: cat -> dog, score 1.00"]
    assert len(lines) == 7


def test_float16_probabilities_and_rows_of_zeros_are_accepted() -> None:
    """A teacher is stored in float16; the row of a sample that was never trained on may be zero."""
    probs = np.random.default_rng(0).dirichlet(np.full(100, 0.1), 50).astype(np.float16)
    probs[7] = 0
    found = find_label_issues(np.arange(50) % 10, probs)
    assert 7 not in found.ids
    assert found.unjudged == {"no prediction": 1}


def test_the_quality_of_a_ranking() -> None:
    quality = suspects.ranking_quality(np.array([0.9, 0.8, 0.7, 0.1]), np.array([True, False, True, False]))
    assert quality["precision_at"] == {"2": 0.5}
    assert quality["auroc"] == pytest.approx(3 / 4)
    assert quality["average_precision"] == pytest.approx((1 + 2 / 3) / 2)
    for one_side in (False, True):
        assert suspects.ranking_quality(np.array([0.1, 0.2]), np.full(2, one_side))["auroc"] is None
    wrong = np.arange(500) % 2 == 0
    many = suspects.ranking_quality(-np.arange(500.0), wrong)["precision_at"]
    assert many == {str(k): float(wrong[:k].mean()) for k in (10, 50, 100, 250, 500)}


@pytest.mark.parametrize(
    ("probs", "given", "message"),
    [
        (PROBS, [0, 0, 0, 0], "labels must contain at least 2 classes with predictions"),
        (PROBS, [0, 1, 2, 0], r"labels\[2\] is 2, but num_classes is 2"),
        (PROBS, [0, -2, 1, 0], r"labels\[1\] is -2, but num_classes is 2"),
        (PROBS, [0, 1], r"labels must be integers \[4\], got int64 of shape \(2,\)"),
        (np.where(PROBS == 0.9, np.nan, PROBS), GIVEN, r"pred_probs\[2, 1\] must be finite and at least 0, got nan"),
        (np.where(PROBS == 0.9, -0.1, PROBS), GIVEN, r"pred_probs\[2, 1\] must be finite and at least 0, got -0\.1"),
        (np.array([[0.0, np.inf], *PROBS[1:]]), GIVEN, r"pred_probs\[0, 1\] must be finite and at least 0, got inf"),
        (10 * PROBS, GIVEN, r"pred_probs\[0\] must sum to 1, got 10: pass softmax\(logits\)"),
        (PROBS / 2, GIVEN, r"pred_probs\[0\] must sum to 1, got 0\.5: pass softmax\(logits\)"),
        (PROBS[0], GIVEN[:2], r"pred_probs must be a non-empty array \[samples, classes\], got shape \(2,\)"),
        (
            np.zeros((0, 2)),
            np.zeros(0, np.int64),
            r"pred_probs must be a non-empty array \[samples, classes\], got shape \(0, 2\)",
        ),
    ],
)
def test_invalid_input_is_rejected(probs: np.ndarray, given: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_label_issues(given, probs)


def test_suspects_of_a_run_have_the_ids_of_the_original_data(tmp_path: Path) -> None:
    folder = RunFolder(write_run(tmp_path / "run", method="vista", teacher=True))
    found, labels = suspects.of_run(folder), folder.labels()
    wrong = np.flatnonzero(labels.given != labels.true)
    wrong = wrong[np.isin(wrong, folder.split().train)]
    assert sorted(found.ids[: len(wrong)]) == wrong.tolist()
    assert (found.given == labels.given[found.ids]).all()
    assert (found.suggested[: len(wrong)] == labels.true[found.ids[: len(wrong)]]).all()
    assert found.quality()["auroc"] == 1.0


def test_a_report_lists_the_estimated_number_up_to_a_limit(tmp_path: Path) -> None:
    """From the teacher, and from the list in the folder once the teacher is gone."""
    folder = RunFolder(write_run(tmp_path / "run", method="vista", teacher=True))
    found = suspects.of_run(folder)
    suspect_files.write_json(folder.path / suspect_files.LIST, found, len(found))
    shown = [suspect_files.run_report(folder, most) for most in (2, len(found))]
    assert [len(report["suspects"]) for report in shown] == [2, found.estimated]
    assert 2 < found.estimated < len(found)
    (folder.path / "teacher.safetensors").unlink()
    assert [suspect_files.run_report(folder, most) for most in (2, len(found))] == shown
    (folder.path / suspect_files.LIST).unlink()
    assert suspect_files.run_report(folder, 2) is None


def test_a_truncated_teacher_is_rejected(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", method="vista", teacher=True)
    teacher = run / "teacher.safetensors"
    teacher.write_bytes(teacher.read_bytes()[:-5])
    with pytest.raises(ValueError, match=r"run/teacher\.safetensors is damaged: it is not a complete safetensors file"):
        suspects.of_run(RunFolder(run))


def test_true_labels_are_omitted_where_they_are_unknown(tmp_path: Path) -> None:
    for noise in ("none", "file:x.csv"):
        run = write_run(tmp_path / noise.partition(":")[0], method="vista", teacher=True, noise=noise)
        assert suspects.of_run(RunFolder(run)).quality() is None


def test_csv_and_json_say_the_same(tmp_path: Path) -> None:
    found = find_label_issues(GIVEN, PROBS, classes=('a "quoted", name', "<b>"), ids=[5, 6, 7, 8])
    suspect_files.write_csv(tmp_path / "s.csv", found, 2)
    suspect_files.write_json(tmp_path / "s.json", found, 2)
    with (tmp_path / "s.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    said = json.loads((tmp_path / "s.json").read_text())["suspects"]
    assert [{k: str(v) for k, v in row.items()} for row in said] == lines
    assert said[0]["given_name"] == 'a "quoted", name'
    assert said[0]["id"] == 7
    assert len(suspect_files.rows(found, 100)) == len(found) == 4


@pytest.mark.parametrize("drop", [False, True])
def test_a_label_that_is_believed_most_is_listed_but_not_corrected(drop: bool) -> None:
    """Samples 1 and 2 are believed, and listed where all are asked for."""
    probs, given = np.array([[0.1, 0.9], [0.9, 0.1], [0.3, 0.7], [0.2, 0.8]]), np.array([0, 0, 1, 1])
    found = find_label_issues(given, probs)
    assert found.is_doubted.tolist() == [True, False, False, False]
    labels = suspect_files.corrected(given, found, len(found), drop=drop)
    assert labels.tolist() == ([-1, -1, -1, -1] if drop else [1, 0, 1, 1])


@pytest.mark.parametrize("drop", [False, True])
def test_the_corrected_file_is_read_back_as_labels(tmp_path: Path, drop: bool) -> None:
    folder = RunFolder(write_run(tmp_path / "run", method="vista", teacher=True))
    found, labels = suspects.of_run(folder), folder.labels()
    count, before = found.quality()["wrong"], labels.given.copy()
    suspect_files.write_label_file(
        tmp_path / "clean.csv", suspect_files.corrected(labels.given, found, count, drop=drop)
    )
    assert (labels.given == before).all()
    read = read_label_file(tmp_path / "clean.csv", labels.true, 3)
    train = folder.split().train
    wrong = train[labels.given[train] != labels.true[train]]
    assert (read[wrong] == (-1 if drop else labels.true[wrong])).all()
    others = np.setdiff1d(np.arange(len(read)), wrong)
    assert (read[others] == labels.given[others]).all()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"ids": [1]}, r"ids must have one number for each of 3 samples, got shape \(1,\)"),
        ({"true": [0, 1, 0, 1]}, r"true must have one number for each of 3 samples, got shape \(4,\)"),
        ({"classes": ("a",)}, "classes has 1 names, but pred_probs has 2 classes"),
    ],
)
def test_ids_true_labels_and_classes_must_match_the_samples(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_label_issues([0, 1, 0], np.full((3, 2), 0.5), **more)


SUSPECT = {"id": 0, "given": 0, "given_name": "a", "suggested": 1, "suggested_name": "b", "score": 0.9}
QUALITY = {"wrong": 1, "precision_at": {}, "auroc": 1.0, "average_precision": 1.0}
LIST = {"format": 1, "samples": 3, "estimated": 1, "quality": QUALITY, "suspects": [SUSPECT]}
LIST_WITHOUT_QUALITY = {name: value for name, value in LIST.items() if name != "quality"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1], "it must hold a JSON object, got list"),
        ({"format": 1}, "it lacks suspects, samples or estimated"),
        ({"format": 1, "samples": 3, "estimated": 2, "suspects": [{"id": 1}]}, "suspect 0 lacks one of id, given"),
        ({"format": 1, "samples": "3", "estimated": 2, "suspects": []}, "it lacks suspects, samples or estimated"),
        ({"format": 1, "samples": 3, "estimated": None, "suspects": []}, "it lacks suspects, samples or estimated"),
        (LIST_WITHOUT_QUALITY, "it lacks quality"),
        (LIST | {"quality": {}}, "quality.wrong must be a number, got None"),
        (LIST | {"quality": QUALITY | {"auroc": "x"}}, "quality.auroc must be a number, got 'x'"),
        (LIST | {"quality": {"wrong": 1}}, "quality.auroc must be a number, got None"),
        (LIST | {"suspects": [SUSPECT | {"id": "x"}]}, "id of suspect 0 must be an index, got 'x'"),
        (LIST | {"suspects": [SUSPECT | {"id": -1}]}, "id of suspect 0 must be an index, got -1"),
        (LIST | {"suspects": [SUSPECT | {"score": "x"}]}, "score of suspect 0 must be from 0 to 1, got 'x'"),
        (LIST | {"suspects": [SUSPECT | {"score": 2}]}, "score of suspect 0 must be from 0 to 1, got 2"),
    ],
)
def test_a_damaged_list_is_rejected(tmp_path: Path, content: Any, message: str) -> None:
    path = tmp_path / suspect_files.LIST
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=rf"suspected_labels\.json is damaged: {message}"):
        suspect_files.read_json(path, 3)


ROW = {"id": 7, "given": 0, "given_name": "a", "suggested": 1, "suggested_name": "b", "score": 0.9, "true": 2}
KEPT = {"format": 1, "samples": 3, "estimated": 1, "quality": None, "suspects": [ROW]}


@pytest.mark.parametrize("name", ["given", "suggested", "true"])
@pytest.mark.parametrize("value", [3, -1, True, 1.0])
def test_a_list_with_an_unknown_class_is_rejected(tmp_path: Path, name: str, value: Any) -> None:
    path = tmp_path / suspect_files.LIST
    path.write_text(json.dumps(KEPT))
    assert suspect_files.read_json(path, 3) == KEPT
    path.write_text(json.dumps({**KEPT, "suspects": [{**ROW, name: value}]}))
    with pytest.raises(ValueError, match=rf"{name} of sample 7 is {value}, but num_classes is 3"):
        suspect_files.read_json(path, 3)


def test_a_list_of_another_format_is_rejected(tmp_path: Path) -> None:
    (tmp_path / suspect_files.LIST).write_text(json.dumps({**KEPT, "format": 2}))
    with pytest.raises(ValueError, match="has format 2, but this version reads format 1"):
        suspect_files.read_json(tmp_path / suspect_files.LIST, 3)


def test_a_list_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps(LIST))
    assert suspect_files.read_json(tmp_path / "s.json", 3) == LIST
    for true in (None, GIVEN, 1 - np.array(GIVEN)):  # not known, nothing wrong, everything wrong
        found = find_label_issues(GIVEN, PROBS, true=true)
        suspect_files.write_json(tmp_path / "s.json", found, 2)
        assert suspect_files.read_json(tmp_path / "s.json", 2) == suspect_files.report(found, 2)


def test_a_class_name_like_a_formula_is_escaped_in_the_csv(tmp_path: Path) -> None:
    found = find_label_issues([1, 0, 1], np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9]]), classes=("=SUM(A1)", "plain"))
    suspect_files.write_csv(tmp_path / "a.csv", found, 1)
    (row,) = csv.DictReader((tmp_path / "a.csv").read_text().splitlines())
    assert (row["given_name"], row["suggested_name"]) == ("plain", "'=SUM(A1)")
    assert suspect_files.rows(found, 1)[0]["suggested_name"] == "=SUM(A1)"


@pytest.mark.parametrize(
    ("classes", "written"),
    [
        (("cat", "dog, brown", 'the "fox"'), [{"label": "cat"}, {"label": "dog, brown"}, {"label": 'the "fox"'}]),
        (("=cat", "-", "@\nfox"), [{"label": "'=cat"}, {"label": "'-"}, {"label": "'@\nfox"}]),
        (("0", "1", "2"), [{"label": "0"}, {"label": "1"}, {"label": "2"}]),
        (("2", "cat", "fox"), [{"number": "0"}, {"number": "1"}, {"number": "2"}]),
        (("cat", "dog", "1.0"), [{"label": "0"}, {"label": "1"}, {"label": "2"}]),
        (("=cat", "'=cat", "fox"), [{"label": "0"}, {"label": "1"}, {"label": "2"}]),
        ((" cat", "dog", "fox"), [{"label": "0"}, {"label": "1"}, {"label": "2"}]),
    ],
    ids=["quoted", "formulas", "own numbers", "other numbers", "numbers to a spreadsheet", "same quoted", "spaces"],
)
def test_a_corrected_file_has_class_names_that_are_read_back(
    tmp_path: Path, classes: tuple[str, ...], written: list[dict[str, str]]
) -> None:
    labels = np.array([0, 1, 2, -1])
    suspect_files.write_label_file(tmp_path / "l.csv", labels, ["a", "b", "c", "d"], classes)
    with (tmp_path / "l.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [{name: row[name] for name in row if name not in ("id", "file")} for row in rows[:3]] == written
    assert (rows[3]["id"], rows[3]["file"]) == ("3", "d")
    read = read_label_file(tmp_path / "l.csv", np.zeros(4, int), 3, classes, ["a", "b", "c", "d"])
    assert read.tolist() == labels.tolist()


def test_a_corrected_file_marks_its_labels_as_numbers_where_class_names_are_numbers_too(tmp_path):
    for classes, header in (
        (("1", "2", "3"), "id,number"),
        (("0", "1", "2"), "id,label"),
        (("a", "b", "c"), "id,label"),
    ):
        suspect_files.write_label_file(tmp_path / "l.csv", np.array([2, 0, -1]), None, classes)
        assert (tmp_path / "l.csv").read_text().splitlines()[0] == header
        assert read_label_file(tmp_path / "l.csv", np.zeros(3, int), 3, classes).tolist() == [2, 0, -1]


def test_scores_of_different_evidence_are_aligned_by_rank() -> None:
    """Held-out predictions are more extreme: taken as they are, their scores would fill the top of the list."""
    generator = np.random.default_rng(0)
    timid, extreme = generator.random(90) * 0.6, generator.random(30) * 0.9 + 0.1
    same, aligned = suspects.align([timid, extreme], [9.0, 3.0])
    assert np.array_equal(same, timid)
    assert np.array_equal(np.argsort(aligned, kind="stable"), np.argsort(extreme, kind="stable"))
    highest = np.argsort(-np.concatenate([timid, aligned]))[:24]
    assert (highest < 90).sum() == 18, "a quarter of all samples are a quarter of the top"
    assert not (aligned[extreme <= 0.5] > 0.5).any()
    _, fewer = suspects.align([timid, extreme], [9.0, 0.5])
    assert np.sort(fewer)[-2] < np.sort(timid)[-20], "a group with few wrong labels has few suspects"
    assert suspects.align([timid, extreme], [0.0, 0.0])[1] is extreme
