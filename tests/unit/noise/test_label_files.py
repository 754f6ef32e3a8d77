"""Labels from a file: foreign CSV and NPZ files, and the human labels of CIFAR-100N."""

import re

import numpy as np
import pytest

from vista import noise
from vista.noise import label_files

LABELS = np.arange(100, dtype=np.int64) % 10


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_csv_changes_the_named_samples_only(tmp_path):
    path = write(tmp_path / "l.csv", "\ufeffid,label\r\n3,7\r\n\r\n99, -1\r\n")
    given = label_files.read_label_file(path, LABELS, 10)
    expected = LABELS.copy()
    expected[3], expected[99] = 7, -1
    assert np.array_equal(given, expected)
    assert given.dtype == np.int64


def test_npz_gives_all_labels_or_those_of_its_ids(tmp_path):
    np.savez(tmp_path / "all.npz", labels=(LABELS + 1).astype(np.uint8) % 10)
    assert np.array_equal(label_files.read_label_file(tmp_path / "all.npz", LABELS, 10), (LABELS + 1) % 10)
    np.savez(tmp_path / "some.npz", labels=np.array([5, -1]), ids=np.array([98, 0]))
    given = label_files.read_label_file(tmp_path / "some.npz", LABELS, 10)
    assert (given[98], given[0]) == (5, -1)
    assert np.array_equal(given[1:98], LABELS[1:98])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,label\n3,1\n4,1\n3,2\n", "line 4: id 3 has a label already"),
        ("id,label\n100,1\n", "line 2: id must be 0 to 99, got 100"),
        ("id,label\n-1,1\n", "line 2: id must be 0 to 99, got -1"),
        ("id,label\n1,10\n", "line 2: label must be 0 to 9, or -1 for no label, got 10"),
        ("id,label\n1,-2\n", "line 2: label must be 0 to 9, or -1 for no label, got -2"),
        ("id,label\n1,2.0\n", "line 2: '2.0' is no class and no class number"),
        ("id,label\n1,a b\n", "line 2: 'a b' is no class and no class number; known: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9"),
        ("id,number\n1,a b\n", "line 2: 'a b' is not an integer"),
        ("id,label\n1_0,2\n", "line 2: '1_0' is not an integer"),
        ("id,label\n1\n", "line 2: a row must have 2 fields (id,label), got 1"),
        ("id,label\n1,2,3\n", "line 2: a row must have 2 fields (id,label), got 3"),
        ("label,name\n1,2\n", "line 1: header must have a column label and a column id or file, got 'label,name'"),
        ("id,name\n1,2\n", "line 1: header must have a column label and a column id or file, got 'id,name'"),
        ("id,label,class\n1,2,3\n", "header must have a column label and a column id or file"),
        ("", "line 1: header must have a column label and a column id or file, got ''"),
        ("file,label\na.png,2\n", "line 2: the samples of these data are not files: use a column id"),
        ("id,label\n", "must have at least one label, got none"),
    ],
)
def test_a_bad_csv_is_named_by_its_line(tmp_path, text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        label_files.read_label_file(write(tmp_path / "l.csv", text), LABELS, 10)


CLASSES = ("ant", "bee", "cat", "=dog")
FILES = [f"{name}/{number}.png" for number, name in enumerate(CLASSES)]


def read(path, text, **changes):
    known = {"files": FILES, "classes": CLASSES, "count": len(FILES)} | changes
    return label_files.read_labels(write(path / "l.csv", text), **known).tolist()


def test_labels_are_class_names_or_numbers(tmp_path):
    """Names as in the data, or as a spreadsheet-safe file quotes them; empty means no label."""
    assert read(tmp_path, "id,label\n0,cat\n1, bee \n2,0\n3,\n") == [2, 1, 0, -1]
    assert read(tmp_path, "id,label\n0,'=dog\n1,=dog\n2,-1\n") == [3, 3, -1, -1]
    with pytest.raises(ValueError, match=r"line 2: 'cta' is no class and no class number; did you mean 'cat'\?"):
        read(tmp_path, "id,label\n0,cta\n")


def test_samples_are_named_by_file_in_any_order_of_columns(tmp_path):
    text = "annotator,label,file\nme,cat,bee/1.png\nyou,1,'=dog/3.png\nme,ant,./cat/2.png\n"
    assert read(tmp_path, text) == [-1, 2, 0, 1]
    assert read(tmp_path, "file,label\n1.png,cat\n") == [-1, 2, -1, -1], "a bare name is enough where it is unique"
    with pytest.raises(ValueError, match=r"line 2: file '1\.png' is not in the data"):
        read(tmp_path, "file,label\n1.png,cat\n", files=["a/1.png", "b/1.png", "c", "d"])
    with pytest.raises(ValueError, match=r"line 2: file 'be/1\.png' is not in the data; did you mean 'bee/1\.png'\?"):
        read(tmp_path, "file,label\nbe/1.png,cat\n")
    with pytest.raises(ValueError, match=r"line 3: ant/0\.png \(id 0\) has a label already"):
        read(tmp_path, "file,label\nant/0.png,cat\nant/0.png,bee\n")


def test_class_names_that_are_numbers_must_be_marked(tmp_path):
    """Classes 1, 2, 3 have the numbers 0, 1, 2: a plain label 1 could be either."""
    numbered = {"classes": ("1", "2", "3"), "files": None, "count": 2}
    with pytest.raises(ValueError, match="label 1 is the number of class '2' and the name of class number 0"):
        read(tmp_path, "id,label\n0,1\n", **numbered)
    assert read(tmp_path, "id,class\n0,1\n1,3\n", **numbered) == [0, 2]
    assert read(tmp_path, "id,number\n0,1\n1,0\n", **numbered) == [1, 0]
    assert read(tmp_path, "id,label\n0,3\n", **numbered) == [2, -1], "no class has the number 3"
    same = numbered | {"classes": ("0", "1", "2")}
    assert read(tmp_path, "id,label\n0,2\n", **same) == [2, -1]


def test_an_npz_file_may_hold_names(tmp_path):
    np.savez(tmp_path / "l.npz", labels=np.array(["cat", ""]), files=np.array(["bee/1.png", "cat/2.png"]))
    read = label_files.read_labels(
        tmp_path / "l.npz", files=FILES, classes=CLASSES, count=4, otherwise=np.zeros(4, dtype=np.int64)
    )
    assert read.tolist() == [0, 2, -1, 0]


def test_a_binary_file_is_no_csv(tmp_path):
    (tmp_path / "l.csv").write_bytes(b"id,label\n\xff\xfe\x00")
    with pytest.raises(ValueError, match="not readable as CSV"):
        label_files.read_label_file(tmp_path / "l.csv", LABELS, 10)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"label": LABELS}, "has no key 'labels'"),
        ({"labels": LABELS[:5]}, "'labels' must have 100 entries, one per sample (the key 'ids' may name some), got 5"),
        ({"labels": LABELS[:5], "ids": LABELS[:4]}, "'labels' must have 4 entries, as many as 'ids', got 5"),
        ({"labels": LABELS.astype(np.float64)}, "'labels' must be integers or text of shape [n], got float64"),
        ({"labels": LABELS[None]}, "got int64, (1, 100)"),
        ({"labels": LABELS[:2], "ids": np.array([7, 7])}, "row 1: id 7 has a label already"),
        ({"labels": LABELS + 1}, "row 9: label must be 0 to 9, or -1 for no label, got 10"),
        ({"labels": np.array([object()])}, "not a readable .npz file of plain arrays"),
    ],
)
def test_a_bad_npz_is_named(tmp_path, arrays, message):
    np.savez(tmp_path / "l.npz", **arrays)
    with pytest.raises(ValueError, match=re.escape(message)):
        label_files.read_label_file(tmp_path / "l.npz", LABELS, 10)


def test_a_missing_or_broken_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        noise.make(f"file:{tmp_path / 'l.csv'}", LABELS, 10, 0)
    with pytest.raises(ValueError, match=r"label file must be a \.csv or \.npz file, but .* is a folder"):
        noise.make(f"file:{tmp_path}", LABELS, 10, 0)
    write(tmp_path / "l.npz", "no zip")
    with pytest.raises(ValueError, match="not a readable"):
        label_files.read_label_file(tmp_path / "l.npz", LABELS, 10)


def test_human_labels_are_found_below_the_root(tmp_path, monkeypatch):
    noisy = (LABELS + 1) % 10
    (tmp_path / "deeper").mkdir()
    np.savez(tmp_path / "deeper" / label_files.HUMAN_FILE, clean_label=LABELS, noisy_label=noisy)
    assert np.array_equal(noise.make("human", LABELS, 10, 0, root=tmp_path).given, noisy)
    monkeypatch.setenv("VISTA_DATA", str(tmp_path))
    assert np.array_equal(noise.make("human", LABELS, 10, 0).given, noisy)


def test_human_labels_of_other_data_are_rejected(tmp_path, monkeypatch):
    monkeypatch.delenv("VISTA_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="vista data get cifar100n"):
        noise.make("human", LABELS, 10, 0)
    with pytest.raises(FileNotFoundError, match=re.escape(f"is not in {tmp_path}")):
        noise.make("human", LABELS, 10, 0, root=tmp_path)
    np.savez(tmp_path / label_files.HUMAN_FILE, clean_label=LABELS[::-1], noisy_label=LABELS)
    with pytest.raises(ValueError, match="another order: 100 of its true labels differ"):
        noise.make("human", LABELS, 10, 0, root=tmp_path)
    np.savez(tmp_path / label_files.HUMAN_FILE, clean_label=LABELS)
    with pytest.raises(ValueError, match=r"cifar-100n\.npz has no key 'noisy_label'"):
        noise.make("human", LABELS, 10, 0, root=tmp_path)
    np.savez(tmp_path / label_files.HUMAN_FILE, clean_label=LABELS[:9], noisy_label=LABELS[:9])
    with pytest.raises(ValueError, match="'clean_label' must have 100 entries, got 9"):
        noise.make("human", LABELS, 10, 0, root=tmp_path)


def test_a_byte_that_is_no_text_is_named_by_its_line(tmp_path):
    (tmp_path / "l.csv").write_bytes(b"id,label\n3,1\n4,\xff\n5,1\n")
    with pytest.raises(ValueError, match=r"l\.csv, line 3: not readable as CSV"):
        label_files.read_label_file(tmp_path / "l.csv", LABELS, 10)


def test_a_line_that_is_about_another_file_than_its_id_is_rejected(tmp_path):
    """Ids are positions: after a file was added or removed they name other samples."""
    files = [f"ant/{number}.png" for number in range(len(LABELS))]
    files[2] = "=bee/2.png"
    path = write(tmp_path / "l.csv", "id,label,file\n1,3,ant/1.png\n2,4,'=bee/2.png\n")
    given = label_files.read_label_file(path, LABELS, 10, files=files)
    assert given[1:3].tolist() == [3, 4]
    assert np.array_equal(label_files.read_label_file(path, LABELS, 10), given), "of no files nothing is known"
    message = r"l\.csv, line 2: id 1 must be ant/0\.png, got ant/1\.png: files were added or removed"
    with pytest.raises(ValueError, match=message):
        label_files.read_label_file(path, LABELS, 10, files=["new.png", *files])
