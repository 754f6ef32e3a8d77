"""Tables as data: CSV, Parquet and saved datasets of Hugging Face, with features, images or text."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vista.data import features, load
from vista.files import atomic

ROWS = 40


def write_csv(path, columns):
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return f"csv:{path}"


@pytest.fixture
def columns():
    """A number with a missing value, a category with a missing value, and text labels."""
    age = [str(20 + row) for row in range(ROWS)]
    job = [("cook", "nurse", "smith")[row % 3] for row in range(ROWS)]
    age[3] = age[13] = "?"
    job[4] = job[14] = ""
    return {"age": age, "job": job, "label": [("yes", "no")[row % 2] for row in range(ROWS)]}


def test_numbers_are_scaled_and_categories_one_hot(tmp_path, columns):
    read = load(write_csv(tmp_path / "t.csv", columns))
    assert read.classes == ("no", "yes")
    assert read.labels[:4].tolist() == [1, 0, 1, 0]
    training = read.inputs[read.train_ids]
    assert read.inputs.dtype == np.float32
    assert read.inputs.shape == (ROWS, 2 + 4), "age and whether it is missing; three jobs and no job"
    known = training[training[:, 1] == 0, 0]
    assert abs(known.mean()) < 1e-6
    assert abs(known.std() - 1) < 1e-6
    assert read.inputs[3, :2].tolist() == [0.0, 1.0], "a missing number is the mean, and marked"
    assert np.array_equal(read.inputs[:, 2:].sum(axis=1), np.ones(ROWS))
    assert read.encoding["job"]["values"] == ["", "cook", "nurse", "smith"]
    assert len(read.test_ids) == ROWS // 5


def test_the_test_rows_do_not_decide_the_scale(tmp_path, columns):
    name = write_csv(tmp_path / "t.csv", columns)
    aside = load(name).test_ids
    changed = columns | {"age": [10**6 if row in aside else age for row, age in enumerate(columns["age"])]}
    assert load(write_csv(tmp_path / "u.csv", changed)).encoding == load(name).encoding


def test_values_that_training_rows_lack_have_no_input(tmp_path, columns):
    (tmp_path / "d").mkdir()
    write_csv(tmp_path / "d" / "train.csv", columns)
    write_csv(tmp_path / "d" / "test.csv", {"age": [30, "NA"], "job": ["pilot", "cook"], "label": ["yes", "no"]})
    read = load(f"csv:{tmp_path / 'd'}")
    assert (len(read.labels), read.test_labels.tolist()) == (ROWS, [1, 0])
    assert read.test_inputs[0, 2:].tolist() == [0, 0, 0, 0]
    assert read.test_inputs[1, :2].tolist() == [0, 1]


def test_text_that_differs_in_every_row_is_left_out(tmp_path, columns):
    columns["name"] = [f"person {row}" for row in range(ROWS)]
    with pytest.warns(UserWarning, match="column 'name' has another text in every row and is left out"):
        read = load(write_csv(tmp_path / "t.csv", columns))
    assert "name" not in read.encoding


def test_integer_classes_are_sorted_by_value(tmp_path, columns):
    columns["label"] = [(2, 10, 1)[row % 3] for row in range(ROWS)]
    read = load(write_csv(tmp_path / "t.csv", columns))
    assert read.classes == ("1", "2", "10")
    assert read.labels[:3].tolist() == [1, 2, 0]


def test_rows_without_label_are_unlabelled_and_never_tested(tmp_path, columns):
    columns["label"][::4] = [""] * (ROWS // 4)
    read = load(write_csv(tmp_path / "t.csv", columns))
    assert (read.labels[::4] == -1).all()
    assert (read.test_labels >= 0).all()
    assert len(read.test_ids) == round(0.2 * 0.75 * ROWS)


def test_parquet_keeps_types_and_equals_csv(tmp_path, columns):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    typed = {
        "age": [None if age == "?" else int(age) for age in columns["age"]],
        "job": [job or None for job in columns["job"]],
        "label": columns["label"],
    }
    pq.write_table(pa.table(typed), tmp_path / "t.parquet")
    read, expected = load(f"parquet:{tmp_path / 't.parquet'}"), load(write_csv(tmp_path / "t.csv", columns))
    assert np.array_equal(read.inputs, expected.inputs)
    assert np.array_equal(read.labels, expected.labels)
    assert read.encoding == expected.encoding
    pq.write_table(pa.table(typed | {"label": [row / 2 for row in range(ROWS)]}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"column 'label' must hold classes, got the number 0\.5"):
        load(f"parquet:{tmp_path / 't.parquet'}")
    (tmp_path / "t.parquet").write_bytes(b"no table")
    with pytest.raises(ValueError, match=r"t\.parquet is not a readable Parquet file"):
        load(f"parquet:{tmp_path / 't.parquet'}")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("age,lable\n1,a\n2,b\n", {}, "has no column 'label'; did you mean 'lable'? (set it with --label-column)"),
        ("age,label\n1,a\n2,b\n", {"image_column": "imgae"}, "has no column 'imgae'; known: age, label (set it with"),
        ("age,label\n1,a\n2,a\n", {}, "column 'label' must have at least 2 classes, got 1 (a)"),
        ("age,label\n1,\n2,\n", {}, "column 'label' must have at least 2 classes, got no label"),
        ("age,label\n1,a\n2\n", {}, "line 3: a row must have 2 fields like the header, got 1"),
        ("age,age,label\n1,1,a\n", {}, "must have a header with different column names, got 'age' twice"),
        ("age,label\n", {}, "must have at least one row below its header, got none"),
        ("", {}, "must have a header with different column names, got none"),
        ("label\n" + "a\nb\n" * 9, {}, "has no feature column besides the label"),
        ("age,label\n1,a\n2,b\n", {"image_size": 32}, "image_size is 32, but no image column is named"),
        (
            "age,label\n1,a\n2,b\n",
            {"text_column": "age", "image_column": "age"},
            "a sample is one or the other: leave out --image-column or --text-column",
        ),
    ],
)
def test_a_bad_table_is_one_sentence_with_the_remedy(tmp_path, text, options, message):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)):
        load(f"csv:{tmp_path / 't.csv'}", **options)


def test_bytes_that_are_no_utf8_are_named_by_their_line(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"age,label\n1,a\n2,\xff\n")
    with pytest.raises(ValueError, match=r"t\.csv, line 3: not readable as UTF-8"):
        load(f"csv:{tmp_path / 't.csv'}")
    with pytest.raises(FileNotFoundError, match=r"data file .*u\.csv does not exist"):
        load(f"csv:{tmp_path / 'u.csv'}")


def test_a_special_file_is_not_read(tmp_path):
    """Such as one that a forged run names: /dev/zero has no end, a FIFO may have no writer."""
    os.mkfifo(tmp_path / "fifo.csv")
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    for name in ("fifo.csv", "zero.csv"):
        with pytest.raises(ValueError, match=f"{name} must be a regular file"):
            load(f"csv:{tmp_path / name}")


def test_columns_of_other_data_are_rejected():
    with pytest.raises(ValueError, match="label_column is 'y', but digits is no table: leave out --label-column"):
        load("digits", label_column="y")


# ---------------------------------------------------------------- images


def draw(path, row):
    """A photo of another size per row, dark or bright by its class."""
    path.parent.mkdir(exist_ok=True)
    Image.new("RGB", (70 + row, 90), (200 * (row % 2), 20, 5 * row)).save(path)


def test_images_are_found_next_to_the_table(tmp_path):
    for row in range(10):
        draw(tmp_path / "photos" / f"{row}.jpg", row)
    columns = {"file": [f"photos/{row}.jpg" for row in range(10)], "kind": ["dark", "bright"] * 5}
    name = write_csv(tmp_path / "t.csv", columns)
    read = load(name, label_column="kind", image_column="file", image_size=32)
    assert read.inputs.shape == (10, 37, 37, 3)
    assert read.image_size == 32
    assert read.files == tuple(columns["file"])
    assert read.test_files == tuple(columns["file"][row] for row in read.test_ids)
    assert (tmp_path / "t.csv.32px.pixels").exists()
    assert read.inputs[0, 0, 0, 0] < 10 < 190 < read.inputs[1, 0, 0, 0]


def test_a_path_outside_of_the_folder_is_rejected(tmp_path):
    (tmp_path / "d").mkdir()
    draw(tmp_path / "secret.png", 0)
    for path in ("../secret.png", str(tmp_path / "secret.png")):
        name = write_csv(tmp_path / "d" / "t.csv", {"file": [path, path], "label": ["a", "b"]})
        with pytest.raises(ValueError, match=r"line 2: image .* must be a path inside"):
            load(name, image_column="file")
    name = write_csv(tmp_path / "d" / "t.csv", {"file": ["x.png", "y.png"], "label": ["a", "b"]})
    with pytest.raises(FileNotFoundError, match=r"line 2: image x\.png is not in .*: paths are relative to the table"):
        load(name, image_column="file")


def test_rows_with_damaged_images_are_left_out_on_request(tmp_path):
    for row in range(12):
        draw(tmp_path / f"{row}.png", row)
    (tmp_path / "3.png").write_bytes(b"no image")
    name = write_csv(tmp_path / "t.csv", {"file": [f"{row}.png" for row in range(12)], "label": ["a", "b"] * 6})
    with pytest.raises(ValueError, match=r"3\.png is not a readable image.*--skip-damaged"):
        load(name, image_column="file")
    with pytest.warns(UserWarning, match="1 of 12 images cannot be read and is left out"):
        read = load(name, image_column="file", skip_damaged=True)
    assert len(read.labels) == 11
    assert read.files[3] == "4.png"
    assert read.labels[3] == 0


# ---------------------------------------------------------------- saved datasets of Hugging Face


@pytest.fixture
def datasets():
    library = pytest.importorskip("datasets")
    library.disable_progress_bars()
    return library


def test_a_saved_dataset_with_features_and_splits(tmp_path, datasets):
    features = datasets.Features(
        {"size": datasets.Value("float32"), "label": datasets.ClassLabel(names=["dog", "cat"])}
    )
    part = datasets.Dataset.from_dict({"size": [1.0, 2.0, 3.0, 4.0], "label": [0, 1, 0, -1]}, features=features)
    splits = {"train": part, "validation": part.select([0, 1]), "test": part.select([1, 2])}
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "d")
    read = load(f"hf:{tmp_path / 'd'}")
    assert read.classes == ("cat", "dog")
    assert read.labels.tolist() == [1, 0, 1, -1, 1, 0], "the validation samples follow"
    assert read.validation.tolist() == [4, 5]
    assert read.test_labels.tolist() == [0, 1]
    assert load(f"hf:{tmp_path / 'd'}", own_validation=False).validation is None
    with pytest.raises(ValueError, match="is not a dataset that save_to_disk wrote"):
        load(f"hf:{tmp_path}")


def test_a_saved_dataset_with_images(tmp_path, datasets):
    rows = []
    for row in range(10):
        draw(tmp_path / f"{row}.png", row)
        rows.append(str(tmp_path / f"{row}.png"))
    made = datasets.Dataset.from_dict({"image": rows, "label": ["a", "b"] * 5}).cast_column("image", datasets.Image())
    made.save_to_disk(tmp_path / "photos")  # embeds the images
    read = load(f"hf:{tmp_path / 'photos'}", image_column="image", image_size=32)
    assert read.inputs.shape == (10, 37, 37, 3)
    assert read.inputs[0, 0, 0, 0] < 10 < 190 < read.inputs[1, 0, 0, 0]
    small = made.map(lambda row: {"image": row["image"].resize((16, 16))})
    small.save_to_disk(tmp_path / "small")
    assert load(f"hf:{tmp_path / 'small'}", image_column="image").inputs.shape == (10, 16, 16, 3), "used unchanged"


# ---------------------------------------------------------------- text


@pytest.fixture
def tokenizer(tmp_path):
    """A folder with a tokenizer of whole words."""
    transformers, tokenizers = pytest.importorskip("transformers"), pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"[UNK]": 0, "[PAD]": 1, "good": 2, "bad": 3, "film": 4}, unk_token="[UNK]")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")
    made.save_pretrained(tmp_path / "network")
    return tmp_path / "network"


def test_text_is_tokenised_once_with_the_networks_tokenizer(tmp_path, tokenizer):
    columns = {"review": ["good film", "bad", "good good film film", "", "odd film"] * 4, "label": ["a", "b"] * 10}
    name = write_csv(tmp_path / "t.csv", columns)
    read = load(name, text_column="review", network=f"hf:{tokenizer}")
    assert read.inputs.dtype == np.int32
    assert read.inputs[:5].tolist() == [[2, 4, 1, 1], [3, 1, 1, 1], [2, 2, 4, 4], [1, 1, 1, 1], [0, 4, 1, 1]]
    assert read.tokenizer == {"name": str(tokenizer), "max_length": 128, "pad_id": 1}
    short = load(name, text_column="review", network=f"hf:{tokenizer}", max_length=2)
    assert short.inputs[2].tolist() == [2, 2]
    with pytest.raises(
        ValueError, match=r"network is 'auto', but text needs a network with a tokenizer: use --network hf"
    ):
        load(name, text_column="review")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"has no readable tokenizer .*place tokenizer\.json"):
        load(name, text_column="review", network=f"hf:{tmp_path / 'empty'}")


def test_an_encoding_read_from_json_gives_the_same_inputs() -> None:
    """JSON objects are written with sorted keys: a table whose columns are not sorted was encoded in another order."""
    columns = {"z": [1.0, None, 3.0], "a": ["x", "y", "x"], "m": [5.0, 6.0, 8.0]}
    encoding = features.fit(Path("t.csv"), columns, np.arange(3))
    stored = json.loads(atomic.json_bytes(encoding))
    assert list(stored) != list(encoding)
    assert np.array_equal(
        features.encode(Path("t.csv"), columns, stored), features.encode(Path("t.csv"), columns, encoding)
    )


def test_a_missing_image_is_named_by_the_line_of_its_file(tmp_path):
    """The header counts, and so do blank lines and line breaks inside a field."""
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "t.csv").write_text('image,label\na.png,"x\ny"\n\na.png,z\nb.png,z\n')
    with pytest.raises(FileNotFoundError, match=r"t\.csv, line 6: image b\.png is not in"):
        load(f"csv:{tmp_path / 't.csv'}", image_column="image")
    for part, second in (("train", "a"), ("test", "../b")):
        (tmp_path / f"{part}.csv").write_text(f"image,label\na.png,x\n{second}.png,y\n")
    with pytest.raises(ValueError, match=r"test\.csv, line 3: image '\.\./b\.png' must be a path inside"):
        load(f"csv:{tmp_path}", image_column="image")


def test_a_missing_image_of_a_parquet_file_is_named_by_its_row_from_1(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"image": ["b.png", "b.png"], "label": ["x", "y"]}), tmp_path / "t.parquet")
    with pytest.raises(FileNotFoundError, match=r"t\.parquet, row 1: image b\.png is not in"):
        load(f"parquet:{tmp_path / 't.parquet'}", image_column="image")
