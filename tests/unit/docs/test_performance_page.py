"""The performance page shows the measurements of the records in `results/`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from doc_pages import DOCS, ROOT

from vista.training import fused


def result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "results" / f"{name}.json").read_text())["result"]
    return found


def figures() -> dict[str, str]:
    """The measurements as the page writes them."""
    gpu, cpu, core = result("engine-h200"), result("engine-cpu"), result("core")
    teacher, copy = core["teacher_of_176_gb_per_second"], core["copy_gb_per_second"]
    on_gpu = result("core-h200")
    return {
        "cross-entropy on the GPU": f"| {gpu['ce_images_per_second']:,.0f} images/s |",
        "VISTA over cross-entropy on the GPU": f"| {gpu['vista_over_ce']:.3f} |",
        "five runs": f"| {gpu['5_runs_images_per_second']:,.0f} images/s |",
        "checkpoints": f"| {gpu['checkpoint_every_epoch_over_none']:.3f} |",
        "VISTA over cross-entropy on the CPU": f"takes {cpu['vista_over_ce']:.2f} times as long as",
        "small sweep": f"| {core['sweep_200x5000_ms']:.2f} ms |",
        "large sweep": f"| {core['sweep_300x50000_ms']:.2f} ms |",
        "loss": f"| {core['loss_over_ce']:.2f} |",
        "teacher on the GPU": f"reads {on_gpu['teacher_of_176_gb_per_second']:,.0f} GB/s, where",
        "teacher's milliseconds": f"takes {1e3 * on_gpu['teacher_of_176_seconds']:.2f} ms of GPU time",
        "reading on the GPU": f"reads {on_gpu['read_gb_per_second']:,.0f} GB/s (",
        "one run": f"| {result('start-to-finish-h200')['seconds']:.0f} s |",
        "teacher": f"| {teacher:.2f} GB/s, a plain copy reads {copy:.2f} GB/s |",
    }


@pytest.mark.parametrize("what", figures())
def test_page_shows_the_recorded_value(what: str) -> None:
    assert figures()[what] in (DOCS / "performance.md").read_text()


def test_page_shows_the_report_pages_measurement() -> None:
    record = json.loads((ROOT / "results" / "report_page.json").read_text())
    page = " ".join((DOCS / "performance.md").read_text().split())
    size, seconds = record["bytes"] / 1e6, record["open_seconds"]["median"]
    assert f"the page has {size:.2f} MB and is drawn {seconds:.2f} s after opening" in page
    first = record["first_screen_seconds"]["median"]
    assert f"its first screen after {first:.2f} s" in page
    assert first < 1


def test_page_shows_the_step_profile() -> None:
    page = (DOCS / "performance.md").read_text()
    step = json.loads((ROOT / "results" / "step-profile-h200.json").read_text())
    kinds: dict[str, float] = step["kinds"]
    for kind, microseconds in kinds.items():
        assert f"| {kind} | {microseconds:.0f} |" in page
    assert f"Where a step's {step['step_microseconds']:,.0f} microseconds go" in page
    assert f"{sum(kinds.values()):,.0f} are kernels" in page
    convolutions = sum(kinds[kind] for kind in kinds if kind.startswith("convolution"))
    others = max(kinds[kind] for kind in kinds if not kind.startswith("convolution"))
    assert convolutions > sum(kinds.values()) / 2
    assert others < sum(kinds.values()) / 5


def tried() -> dict[str, str]:
    """Rows of the tables of what was tried, by what was measured."""
    kernels, other = (
        json.loads((ROOT / "results" / f"{name}-h200.json").read_text())
        for name in ("engine-kernels", "speed-experiments")
    )
    ours, torchs = kernels["kernels_of_vista"], kernels["kernels_of_torch"]
    one, five, ema = "ce_images_per_second", "5_runs_images_per_second", "ce_with_ema_images_per_second"
    rows = {
        "torch": f"| torch's kernels | {torchs[one]:,.0f} | {torchs[five]:,.0f} |",
        "ours": f"weight gradients on a second stream | {ours[one]:,.0f} | {ours[five]:,.0f} |",
        "one of five": f"second stream in one of five runs | | {ours[f'{five}_second_stream_in_one_only']:,.0f} |",
        "one stream": f"no second stream | {ours[f'{one}_without_second_stream']:,.0f} | |",
        "torch, average": f"torch's kernels, with an average of the weights | {torchs[ema]:,.0f} | |",
        "ours, average": f"kernels of our own, with an average of the weights | {ours[ema]:,.0f} | |",
    }
    texts = {
        "five streams of one model, kernels of our own": ("grouped_steps", "5x1", "5x1"),
        "one step of eight models": ("grouped_steps", "1x8", "5x1"),
        "two streams, each a step of four models": ("grouped_steps", "2x4", "5x1"),
        "eight runs on all processors, torch's kernels": ("partitions", "1:8", "1:8"),
        "the same with 32 hardware queues": ("partitions", "1:8+queues", "1:8"),
        "four partitions of the GPU, two runs in each": ("partitions", "4:8", "1:8"),
        "eight partitions of the GPU, one run in each": ("partitions", "8:8", "1:8"),
    }
    for text, (kind, plan, baseline) in texts.items():
        speed, usual = (other[kind][which]["images_per_second"] for which in (plan, baseline))
        rows[text] = f"| {text} | {speed:,.0f} | {speed / usual:.2f} |"
    return rows


def variants() -> dict[str, str]:
    """Rows of the table of variants of the loss."""
    texts = {
        "as it is": "as it is",
        "without checks": "without checks (`checks=False`)",
        "without the record": "without the record",
        "gradient in the forward pass": "gradient in the forward pass",
        "plain operations instead of a Function": "plain operations instead of an autograd function",
        "numpy's exp": "numpy's `exp`",
        "exp2": "`exp2` of the scaled logarithm instead of `exp`",
        "exp2 and one sum": "the same, with one sum over all losses",
    }
    measured = result("loss-variants")
    assert texts.keys() == measured.keys()
    return {name: f"| {text} | {measured[name]:.2f} |" for name, text in texts.items()}


@pytest.mark.parametrize("what", variants())
def test_page_shows_the_variants_of_the_loss(what: str) -> None:
    assert variants()[what] in (DOCS / "performance.md").read_text()


@pytest.mark.parametrize("what", tried())
def test_page_shows_what_was_tried(what: str) -> None:
    assert tried()[what] in (DOCS / "performance.md").read_text()


def test_page_says_whether_the_kernels_are_on() -> None:
    page = (DOCS / "performance.md").read_text()
    assert ("are used on Hopper GPUs" in page) is fused.ENABLED


def test_page_shows_how_far_trainings_with_the_kernels_are_from_others() -> None:
    page = (DOCS / "performance.md").read_text()
    names = {"kernels of vista, bf16": "kernels of our own", "torch, eager, float32": "torch in float32"}
    for row in json.loads((ROOT / "results" / "fused-kernels-h200.json").read_text())["distances"]:
        one, other = (names.get(row[which], row[which].removesuffix(", bf16")) for which in ("of", "from"))
        assert f"| {one} | {other} | {row['median']:.3f} | {row['largest']:.3f} |" in page


def test_page_shows_the_training_on_photos() -> None:
    page = (DOCS / "performance.md").read_text()
    record = json.loads((ROOT / "results" / "photo-training-h200.json").read_text())
    names = {"ce": "cross-entropy", "vista-light": "VISTA Light", "pixel file": "the pixel file on disk"}
    for row in record["rows"]:
        read_from = names.get(row["photos_in"], row["photos_in"])
        assert f"| {names[row['method']]} | {read_from} | {row['images_per_second']:,.0f} |" in page
    decoding = record["decoding"]
    shown = (decoding["decoding"]["seconds"], decoding["images_per_core_and_second"], decoding["starting"]["seconds"])
    text = " ".join(page.split())
    assert f"took {shown[0]:.1f} s with 16 threads, {shown[1]:.0f} images per second of processor time" in text
    assert f"took {shown[2]:.1f} s" in text
