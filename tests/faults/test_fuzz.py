"""Forged and damaged files of every format: each is read, or reported as one error with its name; never anything else.

The inputs are drawn by hypothesis, the same ones every time: bits, cuts and random bytes in any file; other values,
missing keys and deep nesting in JSON and in the headers of safetensors files; other arrays in ``.npz`` files.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisWarning
from reliability import record
from safetensors import safe_open
from safetensors.numpy import save_file
from trainings import HELD_OUT, TRAINED, config, stopped, train

import vista
from vista import analysis
from vista.analysis import probability_files, suspect_files, trajectory_npz
from vista.analysis.recorder import DESCRIPTION, TrajectoryRecorder
from vista.cli import main
from vista.data import npz, table
from vista.noise import label_files
from vista.reproduce import ledger
from vista.review import decisions
from vista.runs import checkpoint, folder
from vista.runs.checkpoint import BLOBS, FOLDER, Checkpoints
from vista.runs.folder import RunFolder
from vista.runs.record import COVERAGE, EPOCHS, TIMINGS

LARGE_REPR = f"ignore:Generating overly large repr:{HypothesisWarning.__module__}.{HypothesisWarning.__name__}"
# Of a failing input: as an error it would hide the failure.
pytestmark = [pytest.mark.faults, pytest.mark.timeout(900), pytest.mark.filterwarnings(LARGE_REPR)]
INPUTS = 300  # of each format
COMMANDS = 30  # inputs of each file that commands are called on
SAMPLES = TRAINED + HELD_OUT
NEWEST = "epoch-00003-step-0000000"

# ---------------------------------------------------------------- inputs

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 300), st.sampled_from([2**31, 2**63, -(2**63), 10**30]),
    st.floats(allow_nan=True, allow_infinity=True), st.text(max_size=8),
    st.sampled_from(["", "auto", "cpu", "../../x", "/dev/zero", "x\0y", "npz:/dev/zero", "os:system", "9" * 400]),
    st.lists(st.integers(-2, 2) | st.text(max_size=2), max_size=4), st.just({}), st.just({"0": 0.5, "a": None}),
    st.sampled_from([80, 3]).map(lambda depth: json.loads("[" * depth + "]" * depth)),
)  # fmt: skip
ARRAYS = [
    np.zeros(0), np.zeros((3, 0)), np.array(1), np.array([np.nan, 1.0]), np.array([2**63], np.uint64), np.array(["a"]),
    np.array([-1, 7]), np.array([1j]), np.array(["2020-01-01"], "datetime64[D]"), np.zeros(4, bool),
    np.zeros(2, [("a", "i4")]), np.full((2, 8, 8, 3), 255, np.uint8), np.zeros((4, 3), np.float16), np.array([b"x"]),
]  # fmt: skip


def positions(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of a JSON value with every key in it."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from positions(value[key])


@st.composite
def forged_json(draw: st.DrawFn, content: bytes) -> bytes:
    """The JSON value with another value at a position, or without it."""
    value = json.loads(content)
    found = list(positions(value))
    if not found or draw(st.integers(0, 19)) == 0:
        return json.dumps(draw(VALUES)).encode()
    container, key = draw(st.sampled_from(found[:300]))
    if draw(st.integers(0, 3)) == 0:
        del container[key]
    else:
        container[key] = draw(VALUES)
    return json.dumps(value).encode()


@st.composite
def forged_lines(draw: st.DrawFn, content: bytes) -> bytes:
    lines = content.splitlines()
    number = draw(st.integers(0, len(lines) - 1))
    lines[number] = draw(forged_json(lines[number]))
    return b"\n".join(lines) + b"\n"


@st.composite
def forged_tensors(draw: st.DrawFn, content: bytes) -> bytes:
    """A safetensors file with another header, or with another description in its header."""
    length = int.from_bytes(content[:8], "little")
    header, rest = content[8 : 8 + length], content[8 + length :]
    about = json.loads(header).get("__metadata__", {})
    if about and draw(st.booleans()):
        key = draw(st.sampled_from(sorted(about)))
        forged = json.loads(header)
        inner = about[key].encode()
        forged["__metadata__"][key] = draw(forged_json(inner) if inner[:1] == b"{" else st.just(b"7")).decode()
        header = json.dumps(forged).encode()
    else:
        header = draw(forged_json(header))
    return len(header).to_bytes(8, "little") + header + rest


@st.composite
def forged_npz(draw: st.DrawFn, content: bytes) -> bytes:
    with np.load(io.BytesIO(content)) as archive:
        arrays = dict(archive)
    key = draw(st.sampled_from(sorted(arrays)))
    if draw(st.integers(0, 4)) == 0:
        del arrays[key]
    else:
        arrays[key] = draw(st.sampled_from(ARRAYS))
    np.savez(file := io.BytesIO(), **arrays)
    return file.getvalue()


@st.composite
def forged_csv(draw: st.DrawFn, content: bytes) -> bytes:
    rows = list(csv.reader(io.StringIO(content.decode())))
    row = draw(st.sampled_from(rows))
    if draw(st.integers(0, 4)) == 0:
        row.append("more")
    else:
        row[draw(st.integers(0, len(row) - 1))] = draw(st.text(max_size=6) | VALUES.map(str))
    file = io.StringIO(newline="")
    csv.writer(file).writerows(rows)
    return file.getvalue().encode(errors="surrogatepass")


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Flipped, cut, inserted, overwritten or random bytes."""
    kind, at = draw(st.sampled_from(["flip", "cut", "insert", "zeros", "random"])), draw(st.integers(0, len(content)))
    if kind == "random":
        return draw(st.binary(max_size=64))
    if kind == "cut":
        return content[:at]
    if kind == "insert":
        return content[:at] + draw(st.binary(min_size=1, max_size=8)) + content[at:]
    if kind == "zeros":
        return content[:at] + bytes(len(content[at : at + 16])) + content[at + 16 :]
    at = min(at, len(content) - 1)
    return content[:at] + bytes([content[at] ^ 1 << draw(st.integers(0, 7))]) + content[at + 1 :]


FORGED = {
    ".json": forged_json, ".jsonl": forged_lines, ".safetensors": forged_tensors, ".npz": forged_npz,
    ".csv": forged_csv,
}  # fmt: skip


@dataclass(frozen=True)
class Input:
    """The content of a file; a failing one is shown in part."""

    content: bytes

    def __repr__(self) -> str:
        return repr(self.content[:400])


def inputs(path: Path) -> st.SearchStrategy[Input]:
    """Forged and damaged versions of a file."""
    content = path.read_bytes()
    forged = FORGED.get(path.suffix)
    drawn = [damaged(content)] if forged is None else [damaged(content), forged(content), forged(content)]
    return st.one_of(drawn).map(Input)


# ---------------------------------------------------------------- every format


@dataclass(frozen=True)
class Format:
    """A file, relative to the folder of :func:`written`, and what reads it."""

    path: str
    read: Callable[[Path], object]


def run_of(path: Path) -> RunFolder:
    return RunFolder(next(parent for parent in path.parents if (parent / folder.CONFIG).exists()))


def load_checkpoint(path: Path) -> object:
    return Checkpoints(run_of(path).path).load(NEWEST)


def subject() -> decisions.Subject:
    return decisions.Subject("run", None, tuple("0123456789"), np.zeros(SAMPLES, dtype=np.int64))


def read_state(path: Path) -> object:
    from vista.integrations import huggingface  # takes seconds

    return huggingface.read_state(path)


FORMATS = [
    Format(f"run/{folder.CONFIG}", lambda path: run_of(path).config()),
    Format(f"run/{folder.ENVIRONMENT}", lambda path: (run_of(path).environment(), run_of(path).threads())),
    Format(f"run/{folder.DATA}", lambda path: run_of(path).data()),
    Format(f"run/{folder.METRICS}", lambda path: (run_of(path).metrics(), run_of(path).temperature("best"))),
    Format(f"run/{folder.LABELS}", lambda path: run_of(path).labels()),
    Format(f"run/{folder.SPLIT}", lambda path: run_of(path).split()),
    Format(f"run/{folder.CONTENT}", lambda path: run_of(path).content_hashes()),
    Format(f"run/{folder.TEACHER}", lambda path: run_of(path).teacher()),
    Format(f"run/{folder.PREDICTIONS}", lambda path: run_of(path).predictions()),
    Format(f"run/{folder.WEIGHTS['best']}", lambda path: vista.load_model(run_of(path).path)),
    Format(f"run/{EPOCHS}", lambda path: analysis.read_run(path.parent).anchor_weights),
    Format(f"run/{TIMINGS}", lambda path: run_of(path).seconds()),
    Format(f"run/{COVERAGE}", lambda path: analysis.read_run(path.parent)),
    Format(f"checked/{folder.MANIFEST}", lambda path: run_of(path).metrics()),
    Format(f"stopped/{FOLDER}/{NEWEST}/{checkpoint.MANIFEST}", load_checkpoint),
    Format(f"stopped/{FOLDER}/{NEWEST}/{checkpoint.STATE}", load_checkpoint),
    Format(f"stopped/{FOLDER}/{NEWEST}/{checkpoint.TENSORS}", load_checkpoint),
    Format(f"stopped/{BLOBS}/*.safetensors", load_checkpoint),
    Format(f"recorded/{DESCRIPTION}", lambda path: analysis.read_run(path.parent)),
    Format(f"recorded/{EPOCHS}", lambda path: analysis.read_run(path.parent)),
    Format("results/runs/*.json", ledger.read_record),
    Format("suspects.json", lambda path: suspect_files.read_json(path, 10)),
    Format("decisions.jsonl", lambda path: decisions.read_lines(path, subject())),
    Format("trajectory.npz", trajectory_npz.read_npz),
    Format("digits.npz", npz.load),
    Format("labels.npz", lambda path: label_files.read_labels(path, files=None, classes=tuple("0123456789"), count=4)),
    Format("labels.csv", lambda path: label_files.read_labels(path, files=None, classes=tuple("0123456789"), count=4)),
    Format("probs.npy", probability_files.read_probabilities),
    Format("probs.csv", probability_files.read_probabilities),
    Format("vista.safetensors", read_state),
    Format("without checksum.safetensors", read_state),
    Format("table.csv", table.read_csv),
    Format("table.parquet", table.read_parquet),
]


@pytest.fixture(scope="module")
def written(data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a valid file of every format."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from vista.integrations import huggingface

    root = tmp_path_factory.mktemp("written")
    train(config(data), root / "checked")
    RunFolder(root / "checked").write_content_hashes(["00" * 32] * SAMPLES)
    shutil.copytree(root / "checked", root / "run")
    (root / "run" / folder.MANIFEST).unlink()  # or the checksums would be all that is read
    stopped(config(data), root / "stopped", 3, 0)
    ledger.add(RunFolder(root / "checked"), root / "results", with_bits=True)
    assert main(["labels", str(root / "run")]) == 0
    shutil.copy(root / "run" / suspect_files.LIST, root / "suspects.json")
    recorder = TrajectoryRecorder(root / "recorded", [0, 1, 2, 1], config={"epochs": 2}, classes=["a", "b", "c"])
    for _ in range(2):
        recorder.end_epoch(np.eye(4, 3))
    line = {"format": decisions.FORMAT, "id": 0, "given": 0, "decision": "accept", "label": 1, "file": "a.png"}
    (root / "decisions.jsonl").write_text(f"{json.dumps(line)}\n" * 2)
    shutil.copy(data.removeprefix("npz:"), root / "digits.npz")
    np.savez(root / "trajectory.npz", correct=np.eye(3, 4, dtype=bool), labels=np.arange(4), classes=list("abcd"))
    np.savez(root / "labels.npz", labels=np.arange(3), ids=np.arange(1, 4))
    (root / "labels.csv").write_text("id,label\n0,3\n2,-1\n3,9\n")
    state = vista.Vista([0, 1, 1], num_classes=2, epochs=2, val_labels=[0]).state_dict()
    huggingface.write_state(root / "vista.safetensors", state)
    with safe_open(root / "vista.safetensors", "np") as file:
        metadata, arrays = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(arrays, root / "without checksum.safetensors", {**metadata, "version": huggingface.WITHOUT_CHECKSUM})
    np.save(root / "probs.npy", np.full((4, 2), 0.5))
    (root / "probs.csv").write_text("id,cat,dog\n0,0.5,0.5\n1,0.25,0.75\n")
    (root / "table.csv").write_text('age,text,label\n31,"a, b",yes\n,c,no\n')
    pq.write_table(pa.table({"age": [31, None], "label": ["yes", "no"]}), root / "table.parquet")
    return root


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.path)
def test_any_content_is_read_or_reported_by_name(written: Path, form: Format) -> None:
    path = min(written.glob(form.path))
    original, tried, rejected = path.read_bytes(), [0], [0]

    @settings(max_examples=INPUTS, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(tried_input=inputs(path))
    def try_content(tried_input: Input) -> None:
        path.write_bytes(tried_input.content)
        tried[0] += 1
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                form.read(path)
        except (ValueError, OSError) as error:
            rejected[0] += 1
            message = str(error)
            assert path.name in message or path.parent.name in message, message
            assert len(message) < 2000
            assert "\n" not in message

    form.read(path)
    try:
        try_content()
    finally:
        path.write_bytes(original)
    assert rejected[0]
    record(f"fuzzing of {form.path}", inputs=tried[0], rejected=rejected[0], read=tried[0] - rejected[0])


@pytest.mark.parametrize("name", [folder.CONFIG, folder.ENVIRONMENT, folder.DATA, folder.METRICS, EPOCHS])
def test_commands_report_a_forged_file(
    written: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In a foreign run whose files are valid JSON; `vista runs` still lists the other runs."""
    monkeypatch.chdir(tmp_path)
    for run in ("forged", "other"):
        shutil.copytree(written / "run", run)
    path, tried, failed = tmp_path / "forged" / name, [0], [0]
    original = path.read_bytes()
    commands = ("runs", "."), ("report", "forged"), ("labels", "forged"), ("export", "forged", "--to", "a.safetensors")

    @settings(max_examples=COMMANDS, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(forged=FORGED[path.suffix](original).map(Input))
    def try_content(forged: Input) -> None:
        path.write_bytes(forged.content)
        for words in commands:
            capfd.readouterr()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                code = main(list(words))
            said = capfd.readouterr()
            tried[0] += 1
            failed[0] += code != 0
            assert code in (0, 1, 2), said.err
            assert "Traceback" not in said.err
            assert code == 0 or said.err.count("vista: error: ") == 1, said.err
            if words[0] == "runs":
                assert "other" in said.out

    try_content()
    record(f"commands on a forged {name}", calls=tried[0], reported=failed[0])
