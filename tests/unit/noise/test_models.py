import re
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

from vista import noise
from vista.files import array_file

LABELS = np.arange(100, dtype=np.int64) % 10


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("spec", "canonical"),
    [
        ("none", "none"),
        ("symmetric:0.4", "symmetric:0.4"),
        ("symmetric:0.40", "symmetric:0.4"),
        ("asymmetric:2e-1", "asymmetric:0.2"),
        ("pairflip:.20", "pairflip:0.2"),
        ("symmetric:1.0", "symmetric:1"),
        ("human", "human"),
        ("file:a:b.csv", "file:a:b.csv"),
    ],
)
def test_a_specification_has_one_spelling(spec, canonical):
    assert noise.parse(spec).spec == canonical


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("symetric:0.4", "noise 'symetric:0.4' is unknown; did you mean 'symmetric:0.4'?"),
        ("humans", "did you mean 'human'?"),
        ("", "noise '' is unknown"),
        ("symmetric", "noise 'symmetric' has no rate; write it as 'symmetric:0.4'"),
        ("asymmetric:", "write it as 'asymmetric:0.2'"),
        ("pairflip", "write it as 'pairflip:0.2'"),
        ("symmetric:40", "noise rate must be between 0 and 1, got 40"),
        ("symmetric:-0.1", "noise rate must be between 0 and 1, got -0.1"),
        ("symmetric:1.01", "noise rate must be between 0 and 1, got 1.01"),
        ("symmetric:nan", "noise rate must be between 0 and 1, got nan"),
        ("symmetric:a", "noise rate must be a number between 0 and 1, got 'a'"),
        ("none:0.1", "'none' takes no value"),
        ("file:", "noise 'file:' names no file"),
    ],
)
def test_a_bad_specification_is_answered_with_what_would_do(spec, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        noise.parse(spec)


@pytest.mark.parametrize("rate", [0.29, np.float32(0.29), "0.29"])
def test_the_count_is_that_of_the_rate_as_written(rate):
    assert (noise.symmetric(LABELS, 10, rate, seed=0) != LABELS).sum() == 29


def test_symmetric_goes_to_every_other_class_alike():
    labels = np.full(90_000, 3)
    counts = np.bincount(noise.symmetric(labels, 10, 1.0, seed=1), minlength=10)
    assert counts[3] == 0
    others = np.delete(counts, 3)
    assert abs(others - 10_000).max() < 5 * np.sqrt(10_000)


def test_symmetric_changes_any_sample_alike():
    labels = np.zeros(100_000, dtype=np.int64)
    changed = np.flatnonzero(noise.symmetric(labels, 2, 0.4, seed=1))
    assert abs((changed < 50_000).sum() - 20_000) < 500


def test_a_higher_rate_only_adds_changes():
    low, high = (noise.symmetric(LABELS, 10, rate, seed=5) for rate in (0.2, 0.4))
    changed = low != LABELS
    assert np.array_equal(high[changed], low[changed])


def test_asymmetric_stays_in_the_group():
    groups = [0, 1, 0, 1, 0, 1, 2, 2, 2, 2]
    mapping = noise.cycle_mapping(10, groups)
    assert mapping.tolist() == [2, 3, 4, 5, 0, 1, 7, 8, 9, 6]
    given = noise.asymmetric(LABELS, 10, 0.29, 0, mapping)
    changed = given != LABELS
    assert changed.sum() == 29
    assert np.array_equal(given[changed], mapping[LABELS[changed]])


def test_without_groups_each_class_goes_to_the_next():
    assert noise.cycle_mapping(4).tolist() == [1, 2, 3, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1,), "num_classes must be at least 2, got 1"),
        ((3, [0, 0, 7]), "group 7 must have at least 2 classes, got class 2 alone"),
        ((3, [0, 0]), "groups must have 3 entries, one per class, got 2"),
    ],
)
def test_bad_groups_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        noise.cycle_mapping(*arguments)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ([1, 0, 2], "mapping[2] must be another class, got 2"),
        ([1, 1, 0], "each class 0 to 2 once"),
        ([1, 0], "each class 0 to 2 once"),
    ],
)
def test_a_mapping_must_move_every_class(mapping, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        noise.asymmetric(np.array([0, 1, 2]), 3, 0.5, 0, mapping)


def test_bad_labels_are_named():
    with pytest.raises(ValueError, match=re.escape("labels[17] must be 0 to 99, got 112")):
        noise.symmetric(np.where(np.arange(20) == 17, 112, 0), 100, 0.4, 0)
    with pytest.raises(ValueError, match=re.escape("labels[3] must be 0 to 9, got 10")):
        noise.make("none", np.array([0, 9, 1, 10]), 10, 0)
    with pytest.raises(ValueError, match=re.escape("float64 of shape (2,)")):
        noise.symmetric(np.array([0.0, 1.0]), 10, 0.4, 0)
    with pytest.raises(ValueError, match=re.escape("of shape (2, 2)")):
        noise.make("none", np.eye(2, dtype=np.int64), 2, 0)
    with pytest.raises(ValueError, match="seed must be at least 0, got -1"):
        noise.symmetric(LABELS, 10, 0.4, -1)
    with pytest.raises(ValueError, match="num_classes must be at least 2, got 1"):
        noise.symmetric(np.zeros(5, dtype=np.int64), 1, 0.4, 0)


def test_make_leaves_the_shipped_labels_alone():
    shipped = LABELS.copy()
    made = noise.make("symmetric:0.4", shipped, 10, 3)
    made.given[:] = 0
    assert np.array_equal(shipped, LABELS)
    assert np.array_equal(made.true, LABELS)
    assert noise.make("none", shipped, 10, 3).rate(np.arange(len(shipped))) == 0.0
    assert noise.make("asymmetric:0.29", shipped, 10, 3).rate(np.arange(len(shipped))) == 0.29


def test_pairflip_takes_the_next_class_whatever_the_groups():
    groups = [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    within, across = (noise.make(f"{kind}:0.3", LABELS, 10, 3, groups=groups) for kind in ("asymmetric", "pairflip"))
    wrong = across.given != LABELS
    assert wrong.mean() == 0.3
    assert np.array_equal(wrong, within.given != LABELS), "the same samples"
    assert np.array_equal(across.given[wrong], (LABELS[wrong] + 1) % 10)
    assert np.array_equal(within.given[wrong], LABELS[wrong] ^ 1)
    without = noise.make("asymmetric:0.3", LABELS, 10, 3)
    assert np.array_equal(without.given, across.given)


def test_a_label_that_is_missing_is_not_wrong():
    labels = noise.NoisyLabels(np.array([0, 2, -1, -1, 2, 0]), np.array([0, 1, 2, 0, 2, 0]), "file:a.csv", 0)
    assert labels.rate(np.arange(6)) == 0.25
    assert labels.rate(np.array([0, 2, 4])) == 0.0
    assert labels.rate(np.array([2, 3])) == 0.0, "where nothing is labelled nothing is wrong"


def test_a_label_that_the_data_lack_stays_missing_unless_a_file_has_it(tmp_path):
    """Drawn noise changes labelled samples only; a label from a file counts as the true one."""
    labels = LABELS.copy()
    labels[::10] = -1
    made = noise.make("symmetric:0.5", labels, 10, 0)
    assert np.array_equal(made.given < 0, labels < 0)
    assert np.array_equal(made.true, labels)
    assert made.rate(np.arange(len(labels))) == 0.5
    read = noise.make(f"file:{write(tmp_path / 'l.csv', 'id,label' + chr(10) + '0,7')}", labels, 10, 0)
    assert (read.given[0], read.true[0], read.given[10], read.true[10]) == (7, 7, -1, -1)


def test_the_hash_tells_artefacts_apart_and_stays_for_ever(tmp_path):
    made = noise.make("symmetric:0.4", LABELS, 10, 3)
    assert made.hash == noise.make("symmetric:0.40", LABELS, 10, 3).hash
    others = [
        noise.make("symmetric:0.4", LABELS, 10, 4),
        noise.make("symmetric:0.39", LABELS, 10, 3),
        noise.make("none", LABELS, 10, 3),
        noise.NoisyLabels(made.given, made.given, made.spec, made.seed),
        noise.NoisyLabels(made.given, made.true, "human", made.seed),
    ]
    assert len({made.hash, *(other.hash for other in others)}) == 6
    assert made.hash == "6dfe55a2e0e4f8fb58fdc834db6158a70ed9545abcf17f0fd902b7a4bff98ed2"


def test_a_label_file_counts_by_its_labels_wherever_it_lies(tmp_path):
    one, two = (write(tmp_path / name, "id,label\n3,7\n") for name in ("a.csv", "b.csv"))
    assert noise.make(f"file:{one}", LABELS, 10, 0).hash == noise.make(f"file:{two}", LABELS, 10, 0).hash


def test_saved_and_loaded_is_the_same(tmp_path):
    made = noise.make("symmetric:0.4", LABELS, 10, 3)
    made.save(tmp_path / "noise.safetensors")
    back = noise.NoisyLabels.load(tmp_path / "noise.safetensors")
    assert np.array_equal(back.given, made.given)
    assert np.array_equal(back.true, made.true)
    assert (back.spec, back.seed, back.hash) == ("symmetric:0.4", 3, made.hash)
    assert [path.name for path in tmp_path.iterdir()] == ["noise.safetensors"]


def test_a_damaged_or_foreign_artefact_is_rejected(tmp_path):
    path = tmp_path / "noise.safetensors"
    noise.make("symmetric:0.4", LABELS, 10, 3).save(path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is damaged"):
        noise.NoisyLabels.load(path)
    path.write_bytes(content[:50])
    with pytest.raises(ValueError, match=r"not a complete safetensors file"):
        noise.NoisyLabels.load(path)
    path.write_bytes(array_file.to_bytes({"given": LABELS}, "vista.noise", "1", spec="none", seed=0))
    with pytest.raises(ValueError, match=r"is damaged: 'true' is missing"):
        noise.NoisyLabels.load(path)
    path.write_bytes(array_file.to_bytes({"given": LABELS}, "vista.noise", "9"))
    with pytest.raises(ValueError, match=r"version 9, expected vista\.noise version 1"):
        noise.NoisyLabels.load(path)
    save_file({"given": LABELS}, path)
    with pytest.raises(ValueError, match="is None version None"):
        noise.NoisyLabels.load(path)


def test_the_same_labels_are_the_same_bytes_in_every_process(tmp_path):
    script = f"""
import numpy as np
from vista import noise
noise.make("symmetric:0.4", np.arange(100) % 10, 10, 3).save(r"{tmp_path}" + "/" + __import__("sys").argv[1])
"""
    for name in "ab":
        subprocess.run([sys.executable, "-c", script, name], check=True)
    noise.make("symmetric:0.4", np.arange(100) % 10, 10, 3).save(tmp_path / "c")
    assert len({(tmp_path / name).read_bytes() for name in "abc"}) == 1
