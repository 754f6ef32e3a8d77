"""A trained network is exported as a plain model, whose predictions without vista are those of `vista predict`."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from safetensors import safe_open
from safetensors.torch import load_file

import vista
from vista import load_model, models
from vista.cli import main
from vista.data import features, source
from vista.runs.config import TrainConfig
from vista.runs.folder import RunFolder
from vista.training.scheduler import Job, run_jobs


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    job = Job(
        TrainConfig(data="digits", noise="symmetric:0.4", epochs=2, network="small-cnn", device="cpu"),
        tmp_path_factory.mktemp("runs") / "run",
    )
    run_jobs([job], lambda job, event: None)
    assert job.error is None
    return job.out


def onnxruntime():
    pytest.importorskip("onnxscript", reason="needs vista-distill[onnx]")
    return pytest.importorskip("onnxruntime", reason="needs vista-distill[onnx]")


@pytest.fixture(scope="module")
def images():
    data = source.load("digits")
    x = torch.from_numpy(data.test_inputs[:33]).permute(0, 3, 1, 2).float() / 255
    return (x - torch.tensor(data.mean).view(1, -1, 1, 1)) / torch.tensor(data.std).view(1, -1, 1, 1)


@pytest.mark.parametrize("which", ["best", "last"])
def test_safetensors_logits_are_equal_to_the_last_bit(run, images, tmp_path, which):
    path = tmp_path / "model.safetensors"
    assert main(["export", str(run), "--to", str(path), "--which", which]) == 0
    with safe_open(path, framework="pt") as file:
        about = file.metadata()
    shape = json.loads(about["sample_shape"])
    network = models.build(
        about["network"],
        num_classes=len(json.loads(about["classes"])),
        in_channels=shape[0],
        image_size=shape[1],
        seed=9,
    )
    network.load_state_dict(load_file(path))
    with torch.no_grad():
        assert torch.equal(network.eval()(images), load_model(run, which)(images))


@pytest.mark.parametrize("raw", [False, True])
def test_onnx_logits_are_close_at_any_batch_size_and_calibrated_unless_raw(run, images, tmp_path, raw):
    runtime = onnxruntime()
    path = tmp_path / "model.onnx"
    assert main(["export", str(run), "--to", str(path), *(["--raw"] if raw else [])]) == 0
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]  # the weights are inside
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["classes"]) == [str(digit) for digit in range(10)]
    temperature = RunFolder(run).temperature("best")
    assert temperature is not None
    assert about.get("temperature") == (None if raw else json.dumps(temperature))
    pixels = source.load("digits").test_inputs
    for count in (1, 33):
        with torch.no_grad():
            expected = load_model(run, calibrated=not raw)(images[:count])
        logits, probabilities = session.run(["logits", "probabilities"], {"image": pixels[:count]})
        np.testing.assert_allclose(logits, expected.numpy(), atol=1e-4)
        np.testing.assert_allclose(probabilities, expected.softmax(dim=1).numpy(), atol=1e-5)


@pytest.mark.parametrize("raw", [False, True])
def test_safetensors_keep_the_weights_with_the_temperature_as_metadata(run, tmp_path, capfd, raw):
    path = tmp_path / "model.safetensors"
    assert main(["export", str(run), "--to", str(path), *(["--raw"] if raw else [])]) == 0
    weights, expected = load_file(path), load_file(run / "best.safetensors")
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    temperature = RunFolder(run).temperature("best")
    with safe_open(path, framework="pt") as file:
        assert file.metadata().get("temperature") == (None if raw else json.dumps(temperature))
    assert ("Calibrated: weights unchanged" in capfd.readouterr().out) is not raw


@pytest.mark.parametrize("which", ["best", "last"])
def test_a_calibrated_model_divides_its_logits_by_the_temperature(run, images, which):
    with torch.no_grad():
        plain, calibrated = load_model(run, which)(images), load_model(run, which, calibrated=True)(images)
    assert torch.equal(calibrated, plain / RunFolder(run).temperature(which))
    assert not load_model(run, which, calibrated=True).training


def test_unknown_file_extensions_are_rejected(run, capfd):
    assert main(["export", str(run), "--to", "model.pt"]) == 2
    assert "must end in .safetensors or .onnx, or be a folder (model.pt/), got model.pt" in capfd.readouterr().err


# ---------------------------------------------------------------- photos, texts and tables


def run_readme(folder, capfd, monkeypatch, old, new):
    """Run the code in a README in its folder, with some text replaced; returns the printed label and probability."""
    code = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0]
    assert old in code
    monkeypatch.chdir(folder)
    capfd.readouterr()
    exec(compile(code.replace(old, new), "README.md", "exec"), {})
    label, probability = capfd.readouterr().out.split()
    return label, float(probability)


def write_photo(path, colour, size, draws, mode="RGB", **options):
    pixels = (np.array(colour) + draws.integers(-60, 60, (size[1] // 6, size[0] // 6, 3))).clip(0, 255)
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(pixels.astype(np.uint8)).resize(size, Image.Resampling.BICUBIC)
    image.convert(mode).save(path, **options)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A run on photos with a network of transformers, and new photos of every kind."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("photos")
    draws = np.random.default_rng(0)
    for number in range(150):
        name, colour = (("blue", (90, 90, 150)), ("red", (150, 90, 90)))[number % 2]
        write_photo(folder / "own" / name / f"{number}.png", colour, draws.integers(40, 80, 2).tolist(), draws)
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated
    write_photo(folder / "new/a.png", (150, 90, 90), (101, 60), draws)
    write_photo(folder / "new/b.jpg", (90, 90, 150), (300, 410), draws, quality=95)
    write_photo(folder / "new/c.webp", (120, 90, 120), (64, 40), draws)
    write_photo(folder / "new/d.jpg", (120, 90, 120), (90, 60), draws, exif=exif)
    write_photo(folder / "new/e.png", (90, 90, 150), (50, 50), draws, mode="L")
    architecture = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"
    )  # fmt: skip
    with models.seed_context(0):
        transformers.ResNetForImageClassification(architecture).save_pretrained(folder / "network")
    processor = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.3, 0.4]}
    (folder / "network/preprocessor_config.json").write_text(json.dumps(processor))
    config = TrainConfig(
        data=f"folder:{folder / 'own'}", network=f"hf:{folder / 'network'}", image_size=32, epochs=3, batch_size=16,
        lr=0.05, validation=60, device="cpu", noise="symmetric:0.1",
    )  # fmt: skip
    job = Job(config, folder / "run")
    run_jobs([job], lambda job, event: None)
    assert job.error is None
    assert RunFolder(job.out).temperature("best") is not None
    return folder


def as_shown(path):
    return ImageOps.exif_transpose(Image.open(path)).convert("RGB")


def test_onnx_takes_decoded_photos_of_any_size(photos, tmp_path):
    runtime = onnxruntime()
    assert main(["export", str(photos / "run"), "--to", str(tmp_path / "m.onnx")]) == 0
    session = runtime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
    expected = vista.predict(photos / "run", photos / "new", device="cpu")
    assert expected.temperature is not None
    for file, label, probabilities in zip(expected.files, expected.labels, expected.probabilities, strict=True):
        image = np.asarray(as_shown(photos / "new" / file))
        (found,) = session.run(["probabilities"], {"image": np.stack([image, image])})
        assert classes[found[0].argmax()] == label
        exact = not any((a - b) % 2 for a, b in [image.shape[:2]]) and file.endswith("png")
        np.testing.assert_allclose(found, np.stack([probabilities] * 2), atol=1e-5 if exact else 0.02, err_msg=file)


def test_from_pretrained_loads_the_folder(photos, tmp_path, capfd, monkeypatch):
    transformers = pytest.importorskip("transformers")
    words = ["export", str(photos / "run"), "--to", str(tmp_path / "out")]
    assert main(words) == 0
    assert main(words) == 0, "an earlier export is replaced"
    folder = tmp_path / "out"
    assert json.loads((folder / "labels.json").read_text()) == {"0": "blue", "1": "red"}
    _, info = transformers.AutoModelForImageClassification.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        assert file.metadata()["temperature"] == json.dumps(RunFolder(photos / "run").temperature("best"))
    expected = vista.predict(photos / "run", photos / "new", device="cpu")
    raw = vista.predict(photos / "run", photos / "new", raw=True, device="cpu")
    classify = transformers.pipeline("image-classification", model=str(folder), device="cpu")
    for number, file in enumerate(expected.files):
        label, probability = run_readme(folder, capfd, monkeypatch, "photo.jpg", str(photos / "new" / file))
        assert label == expected.labels[number]
        assert probability == pytest.approx(expected.confidences[number], abs=0.02)
        best = classify(str(photos / "new" / file))[0]
        assert best["label"] == raw.labels[number]
        assert best["score"] == pytest.approx(raw.confidences[number], abs=0.02)
    (folder / "notes.txt").touch()
    assert main(words) == 2
    assert f"to must be a new folder, got {folder}: it contains notes.txt" in capfd.readouterr().err


def test_predict_takes_paths_images_and_arrays(photos):
    run, new = photos / "run", photos / "new"
    expected = vista.predict(run, str(new), device="cpu")
    files = [new / name for name in expected.files]
    for data in (files, [str(file) for file in files]):
        assert np.array_equal(vista.predict(run, data, device="cpu").probabilities, expected.probabilities)
    images = vista.predict(run, [Image.open(file) for file in files], device="cpu").probabilities
    for number, file in enumerate(files):  # JPEG files are decoded at a reduced scale
        tolerance = 0.02 if file.suffix == ".jpg" else 0.0
        np.testing.assert_allclose(images[number], expected.probabilities[number], atol=tolerance, rtol=0)
    array = vista.predict(run, np.asarray(as_shown(new / "a.png"))[None], device="cpu")
    np.testing.assert_allclose(array.probabilities, expected.probabilities[:1], atol=1e-6)
    assert repr(array) == f"Predictions(1 sample: {array.labels[0]} 1; calibrated, temperature {array.temperature:.3g})"
    raw = vista.predict(run, files, raw=True, device="cpu")
    assert raw.temperature is None
    scaled = raw.probabilities ** (1 / expected.temperature)
    np.testing.assert_allclose(scaled / scaled.sum(1, keepdims=True), expected.probabilities, atol=1e-6)
    for wrong, message in (
        ([], "data is empty"),
        (["nowhere.png"], "image file nowhere.png does not exist"),
        ("nowhere.png", "nowhere.png does not exist"),
        (np.zeros((2, 4)), r"data must be images, uint8 \[n, H, W, C\]"),
        ({"a": [1]}, "data are columns of a table, but the run was trained on folder:"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            vista.predict(run, wrong, device="cpu")


def test_texts_and_their_tokenizer(tmp_path, capfd, monkeypatch):
    transformers, tokenizers = pytest.importorskip("transformers"), pytest.importorskip("tokenizers")
    runtime = onnxruntime()
    monkeypatch.chdir(tmp_path)
    words = {"[UNK]": 0, "[PAD]": 1, "good": 2, "bad": 3, "film": 4, "plot": 5}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=model, pad_token="[PAD]", unk_token="[UNK]")
    config = transformers.BertConfig(
        vocab_size=6, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=16, pad_token_id=1,
    )  # fmt: skip
    transformers.BertForSequenceClassification(config).save_pretrained("bert")
    made.save_pretrained("bert")
    texts = [f"{('good', 'bad')[n % 2]} film" + " plot" * (n % 3) for n in range(40)]
    Path("t.csv").write_text("text,kind\n" + "".join(f"{text},{'+-'[n % 2]}\n" for n, text in enumerate(texts)))
    options = ["--text-column", "text", "--label-column", "kind", "--network", "hf:bert", "--epochs", "2", "--quiet"]
    assert main(["train", "--data", "csv:t.csv", *options, "--batch-size", "8", "--device", "cpu", "--out", "run"]) == 0
    expected = vista.predict("run", ["good plot", "bad film film plot plot"], device="cpu")
    assert main(["export", "run", "--to", "out"]) == 0
    label, probability = run_readme(tmp_path / "out", capfd, monkeypatch, "a text", "good plot")
    assert (label, probability) == (expected.labels[0], pytest.approx(expected.confidences[0], abs=1e-5))
    monkeypatch.chdir(tmp_path)
    assert main(["export", "run", "--to", "m.onnx"]) == 0
    session = runtime.InferenceSession("m.onnx", providers=["CPUExecutionProvider"])
    ids = made(["good plot", "bad film film plot plot"], padding="max_length", max_length=4, truncation=True)
    (found,) = session.run(["probabilities"], {"x": np.array(ids["input_ids"])})
    np.testing.assert_allclose(found, expected.probabilities, atol=1e-5)


def test_tables_export_their_features(tmp_path, capfd, monkeypatch):
    runtime = onnxruntime()
    monkeypatch.chdir(tmp_path)
    rows = [f"{n % 2 + n / 100},{'xy'[n % 2]},{'no' if n % 2 else 'yes'}" for n in range(60)]
    Path("t.csv").write_text("\n".join(["a,b,kind", *rows]) + "\n")
    options = ["--label-column", "kind", "--epochs", "2", "--quiet", "--device", "cpu", "--out", "run"]
    assert main(["train", "--data", "csv:t.csv", *options]) == 0
    expected = vista.predict("run", {"a": [0.5, 1.5], "b": ["x", "y"]}, raw=True, device="cpu")
    for to in ("m.onnx", "out"):
        assert main(["export", "run", "--to", to, "--raw"]) == 0
    session = runtime.InferenceSession("m.onnx", providers=["CPUExecutionProvider"])
    about = RunFolder(Path("run")).data()
    x = features.encode(Path("new"), {"a": [0.5, 1.5], "b": ["x", "y"]}, about.encoding)
    (found,) = session.run(["probabilities"], {"x": x})
    np.testing.assert_allclose(found, expected.probabilities, atol=1e-5)
    assert json.loads(session.get_modelmeta().custom_metadata_map["encoding"]) == about.encoding
    x_line = f"torch.tensor([{x[0].tolist()}])"
    label, probability = run_readme(tmp_path / "out", capfd, monkeypatch, f"torch.zeros(1, {x.shape[1]})", x_line)
    assert (label, probability) == (expected.labels[0], pytest.approx(expected.confidences[0], abs=1e-5))
