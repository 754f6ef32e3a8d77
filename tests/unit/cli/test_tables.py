"""Tables from training to prediction: a real one with categories and gaps, images by path, and texts."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vista as library
from vista.runs.folder import RunFolder
from vista.training.evaluate import evaluate

QUICK = ("--method", "vista", "--epochs", "3", "--batch-size", "32", "--device", "cpu")
USED = ("pclass", "sex", "age", "sibsp", "parch", "fare", "embarked", "survived")


@pytest.fixture
def passengers() -> list[dict[str, str]]:
    """The 1,309 passengers of the Titanic, which scikit-learn ships with its tests."""
    found = importlib.util.find_spec("sklearn")
    assert found is not None
    assert found.origin is not None
    folder = Path(found.origin).parent / "datasets" / "tests" / "data" / "openml" / "id_40945"
    files = list(folder.glob("data*.arff.gz"))
    if not files:
        pytest.skip("this scikit-learn comes without its test data")
    head, _, rows = gzip.decompress(files[0].read_bytes()).decode().partition("@data\n")
    names = [line.split("'")[1] for line in head.splitlines() if line.startswith("@attribute")]
    lines = [line for line in rows.splitlines() if line[:1] > "%"]
    np.random.default_rng(0).shuffle(lines)  # they are sorted by class and name
    return [dict(zip(names, row, strict=True)) for row in csv.reader(lines)]


def write(path: str, rows: list[dict[str, str]], columns: tuple[str, ...] = USED) -> None:
    with Path(path).open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def test_a_real_table_is_trained_evaluated_and_predicted(vista, passengers) -> None:
    for row in passengers[::10]:
        row["survived"] = ""
    write("known.csv", passengers[:1200])
    write("new.csv", passengers[1200:], tuple(reversed(USED[:-1])))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        said = vista("train", "--data", "csv:known.csv", "--label-column", "survived", *QUICK, "--out", "run")
    assert said.code == 0, said.err
    assert "120 of 984 training samples of csv:known.csv have no label" in said.err
    assert sum(RunFolder(Path("run")).labels().given < 0) == 120
    about = RunFolder(Path("run")).data()
    assert about.classes == ("0", "1")
    assert about.encoding is not None
    assert about.encoding["sex"]["values"] == ["female", "male"]
    assert about.encoding["age"]["missing"]
    assert RunFolder(Path("run")).metrics()["last"]["test"]["top1"] > 0.7, "women survived, men did not"
    again = evaluate(RunFolder(Path("run")), "last", device="cpu")
    assert again["test"]["top1"] == RunFolder(Path("run")).metrics()["last"]["test"]["top1"]
    said = vista("predict", "run", "--data", "csv:new.csv", "-o", "p.csv")
    assert said.code == 0, said.err
    with Path("p.csv").open() as file:
        predicted = [row["label"] for row in csv.DictReader(file)]
    assert len(predicted) == 109
    agree = np.mean([label == row["survived"] for label, row in zip(predicted, passengers[1200:]) if row["survived"]])
    assert agree > 0.7
    write("short.csv", passengers[1200:], USED[1:])
    said = vista("predict", "run", "--data", "csv:short.csv", "-o", "q.csv")
    assert said.code != 0
    assert "has no column 'pclass', which the training data have" in said.err
    assert vista("labels", "run").code == 0
    said = vista("predict", "run", "--data", "csv:known.csv", "-o", "own.csv")
    assert f"Wrote {about.samples['test']:,} predictions" in said.out + said.err, "of the own table, its test rows"
    assert (
        f"{about.samples['test']:,} of 1,200: the test samples of csv:known.csv; --data known.csv predicts all"
        in said.out
    )
    assert "Wrote 1,200 predictions" in vista("predict", "run", "--data", "known.csv", "-o", "own.csv").out


def test_images_named_by_a_table(vista) -> None:
    Path("photos").mkdir()
    rows, draws = [], np.random.default_rng(0)
    for number in range(30):
        width, height = (int(side) for side in draws.integers(70, 90, 2))
        Image.new("RGB", (width, height), (220 * (number % 2), 9, 9)).save(f"photos/{number}.png")
        rows.append({"file": f"photos/{number}.png", "kind": ("dark", "red")[number % 2]})
    write("t.csv", rows[:24], ("file", "kind"))
    write("new.csv", rows[24:], ("file",))
    options = ("--label-column", "kind", "--image-column", "file", "--image-size", "16", "--network", "small-cnn")
    said = vista("train", "--data", "csv:t.csv", *options, *QUICK, "--batch-size", "8", "--lr", "0.05", "--out", "run")
    assert said.code == 0, said.err
    assert vista("predict", "run", "--data", "csv:new.csv", "-o", "p.csv").code == 0
    with Path("p.csv").open() as file:
        found = list(csv.DictReader(file))
    assert [row["file"] for row in found] == [row["file"] for row in rows[24:]]
    single = vista("predict", "run", "--data", "photos/25.png", "-o", "one.csv")
    assert single.code == 0
    with Path("one.csv").open() as file:
        assert next(csv.DictReader(file))["confidence"] == found[1]["confidence"], "the same preprocessing"


NETWORK = '''
from torch import nn


class Bag(nn.Module):
    """The mean of the words' vectors."""

    def __init__(self, num_classes):
        super().__init__()
        self.words, self.head = nn.Embedding(8, 8, padding_idx=1), nn.Linear(8, num_classes)

    def forward(self, ids):
        return self.head(self.words(ids).mean(dim=1))


def bag(num_classes):
    return Bag(num_classes)
'''


def test_texts_are_tokenised_for_training_and_prediction(vista, monkeypatch) -> None:
    transformers, tokenizers = pytest.importorskip("transformers"), pytest.importorskip("tokenizers")
    words = {"[UNK]": 0, "[PAD]": 1, "good": 2, "bad": 3, "film": 4, "plot": 5}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=model, pad_token="[PAD]", unk_token="[UNK]")
    made.save_pretrained("words")
    Path("words_network.py").write_text(NETWORK)
    rows = [
        {"text": f"{('good', 'bad')[n % 2]} {('film', 'plot')[n // 2 % 2]}", "label": ("liked", "hated")[n % 2]}
        for n in range(60)
    ]
    write("t.csv", rows, ("text", "label"))
    write("new.csv", [{"text": "film film film bad"}, {"text": "good"}], ("text",))
    monkeypatch.syspath_prepend(".")
    options = ("--text-column", "text", "--tokenizer", "words", "--network", "words_network:bag")
    said = vista("train", "--data", "csv:t.csv", *options, *QUICK, "--batch-size", "4", "--lr", "0.5", "--out", "run")
    assert said.code == 0, said.err
    assert RunFolder(Path("run")).data().tokenizer == {"name": "words", "max_length": 128, "pad_id": 1}
    assert RunFolder(Path("run")).metrics()["last"]["test"]["top1"] == 1.0
    said = vista("predict", "run", "--data", "csv:new.csv", "--network", "words_network:bag", "-o", "p.csv")
    assert said.code == 0, said.err
    assert Path("p.csv").read_text().splitlines()[2].startswith("1,liked")
    said = vista("train", "--data", "csv:t.csv", "--text-column", "text", *QUICK, "--out", "other")
    assert "use --network hf:FOLDER" in said.err
    assert not Path("other").exists()


def test_a_dataset_object_is_saved_once(tmp_path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    made = datasets.Dataset.from_dict({"x": list(range(40)), "label": ["low"] * 20 + ["high"] * 20})
    options = {"method": "ce", "epochs": 2, "batch_size": 8, "device": "cpu"}
    results = [library.train(data=made, out=tmp_path / name, **options) for name in ("a", "b", "a")]
    saved = list((tmp_path / "datasets").iterdir())
    assert len(saved) == 1
    assert results[0].config.data == f"hf:{saved[0]}"
    assert results[0].metrics == results[2].metrics
