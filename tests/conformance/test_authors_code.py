"""Losses and gradients equal those of the authors' public code, on random tensors.

The arrays in ``authors_code`` were computed by running that code; its ``README.md`` names repository and commit of
each. They are float64, our buffers float32: values agree to 1e-5.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from vista.methods import Method, Task, available, choose
from vista.methods.byot import compute_byot_terms
from vista.methods.dks import compute_dks_terms
from vista.methods.dlb import compute_dlb_terms
from vista.methods.frskd import Pyramid, compute_frskd_terms
from vista.methods.meta_weight_net import WEIGHER
from vista.methods.zipf_ls import compute_zipf_term

FOLDER = Path(__file__).parent / "authors_code"
# No public code, or none that computes the same thing: the reason is stated in the README of the folder.
NOT_COMPARED = {
    "ban", "ce", "ddgsd", "ema", "ewr-kd", "kf", "kf-kd", "mentornet", "posterior", "sd-dropout", "tsd", "vista",
    "vista-ema",
}  # fmt: skip


@dataclass
class Given:
    """A batch whose inputs are the logits, for the network ``nn.Identity()``."""

    x: Tensor
    index: Tensor
    partner: None = None
    share: None = None
    pairs: Tensor | None = None
    val: tuple[Tensor, Tensor] | None = None

    def view(self, number: int = 1, index: Tensor | None = None) -> Tensor:
        assert self.pairs is not None
        return self.pairs

    def same_class(self) -> Tensor:
        return self.index

    def validation(self) -> tuple[Tensor, Tensor]:
        assert self.val is not None
        return self.val


def read(name: str) -> dict[str, Tensor]:
    return load_file(FOLDER / f"{name}.safetensors")


def make(spec: str, labels: Tensor, classes: int = 7, epochs: int = 200, earlier: Any = None) -> Method:
    chosen = choose(spec)
    task = Task(
        labels=labels,
        val_labels=labels[:1],
        num_classes=classes,
        epochs=epochs,
        steps_per_epoch=1,
        batch_size=len(labels),
        device=torch.device("cpu"),
        generator=torch.Generator(),
        has_missing_labels=bool((labels < 0).any()),
        earlier=earlier or {},
    )
    return chosen.method(task, nn.Identity(), chosen.config)


def check(loss: Tensor, logits: Tensor, kept: dict[str, Tensor], which: str = "") -> None:
    (gradient,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(loss, kept[f"{which}loss"], rtol=1e-5, atol=1e-5, check_dtype=False)
    torch.testing.assert_close(gradient, kept[f"{which}gradient"], rtol=1e-5, atol=1e-5, check_dtype=False)


def test_every_method_is_compared_or_listed() -> None:
    compared = {path.stem.replace("_", "-") for path in FOLDER.glob("*.safetensors")} - {"byot-journal"}
    assert compared | NOT_COMPARED == {method.name for method in available().values()}
    assert not compared & NOT_COMPARED
    page = (FOLDER / "README.md").read_text()
    assert sorted(re.findall(r"^\| `([\w-]+)` \|", page, flags=re.MULTILINE)) == sorted(compared | NOT_COMPARED)


def test_temporal_ensembling_with_5_of_20_labels() -> None:
    kept = read("temporal_ensembling")
    method, index = make("temporal-ensembling", kept["labels"], epochs=300), torch.arange(20)
    method.begin_epoch(1)
    method.loss(nn.Identity(), Given(kept["first"], index))
    method.begin_epoch(2)
    logits = kept["logits"].requires_grad_()
    check(method.loss(nn.Identity(), Given(logits, index)), logits, kept)


@pytest.mark.parametrize(("name", "early", "late"), [("sat", 60, 61), ("selc", 20, 21)])
def test_moving_targets(name: str, early: int, late: int) -> None:
    kept = read(name)
    method, index = make(name, kept["labels"]), kept["index"]
    method.begin_epoch(early)
    loss = method.loss(nn.Identity(), Given(kept["a"], index))
    torch.testing.assert_close(loss, kept["early"], rtol=1e-5, atol=1e-5)
    method.begin_epoch(late)
    method.loss(nn.Identity(), Given(kept["b"], index))
    logits = kept["logits"].requires_grad_()
    check(method.loss(nn.Identity(), Given(logits, index)), logits, kept)
    torch.testing.assert_close(method.final_teacher(), kept["memory"], rtol=1e-5, atol=1e-5, check_dtype=False)


def test_gce() -> None:
    """The reference also subtracts the loss of its threshold, a constant while no sample is pruned."""
    kept = read("gce")
    logits = kept["logits"].requires_grad_()
    loss = make("gce", kept["labels"]).loss(nn.Identity(), Given(logits, kept["index"]))
    check(loss - kept["offset"], logits, kept)


def test_elr() -> None:
    kept = read("elr")
    method = make("elr", kept["labels"])
    method.loss(nn.Identity(), Given(kept["a"], kept["index"]))
    logits = kept["logits"].requires_grad_()
    check(method.loss(nn.Identity(), Given(logits, kept["index"])), logits, kept)
    torch.testing.assert_close(method.memory, kept["memory"], rtol=1e-5, atol=1e-5, check_dtype=False)


def test_ps_kd() -> None:
    kept = read("ps_kd")
    method = make("ps-kd", kept["labels"], epochs=300)
    method.begin_epoch(1)
    method.loss(nn.Identity(), Given(kept["a"], kept["index"]))
    method.begin_epoch(2)
    logits = kept["logits"].requires_grad_()
    check(method.loss(nn.Identity(), Given(logits, kept["index"])), logits, kept)


def test_cs_kd() -> None:
    kept = read("cs_kd")
    logits = kept["logits"].requires_grad_()
    batch = Given(logits, kept["index"], pairs=kept["partner"])
    check(make("cs-kd", kept["labels"]).loss(nn.Identity(), batch), logits, kept)


def test_dks() -> None:
    """The reference adds 1e-8 to every probability."""
    kept = read("dks")
    heads = kept["heads"].requires_grad_()
    targets = torch.eye(7, dtype=torch.float64)[kept["labels"]]
    check(sum(compute_dks_terms(heads.unbind(), targets, alpha=1.0, temperature=1.0)), heads, kept)


def test_dlb() -> None:
    kept = read("dlb")
    eye = torch.eye(7, dtype=torch.float64)
    both = torch.stack([kept["logits"], kept["again"]]).requires_grad_()
    terms = compute_dlb_terms(
        both[0],
        eye[kept["labels"]],
        both[1],
        eye[kept["last_labels"]],
        kept["previous"],
        torch.ones(6, dtype=torch.bool),
        alpha=1.0,
        temperature=3.0,
    )
    check(sum(terms), both, kept)


def test_tf_kd() -> None:
    """The reference averages the divergence over classes too; its factor is 100 (reg) or 50 (self) of 100 classes."""
    kept = read("tf_kd")
    logits = kept["logits"].requires_grad_()
    check(make("tf-kd", kept["labels"]).loss(nn.Identity(), Given(logits, kept["index"])), logits, kept)

    class Teacher(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return kept["teacher"]

    taught = make("tf-kd-self", kept["labels"], earlier={"teacher": Teacher()})
    check(taught.loss(nn.Identity(), Given(logits, kept["index"])), logits, kept, "self_")


def test_label_smoothing() -> None:
    kept = read("label_smoothing")
    logits = kept["logits"].requires_grad_()
    check(make("label-smoothing", kept["labels"]).loss(nn.Identity(), Given(logits, kept["index"])), logits, kept)


def test_zipf_ls() -> None:
    kept = read("zipf_ls")
    logits = kept["logits"].requires_grad_()
    check(compute_zipf_term(logits, kept["scores"], kept["labels"]), logits, kept)


@pytest.mark.parametrize("form", ["conference", "journal"])
def test_byot(form: str) -> None:
    """The reference has the cross-entropy with the soft target, which differs from KL by a constant entropy."""
    kept = read("byot_journal" if form == "journal" else "byot")
    config = choose("byot-journal" if form == "journal" else "byot").config
    heads, features = kept["heads"].requires_grad_(), kept["features"].requires_grad_()
    # The reference sums the squared gaps over batch and features with weight 1e-6, ours is a mean.
    beta = config.beta if form == "journal" else 1e-6 * features[0].numel()
    terms = compute_byot_terms(
        heads.unbind()[::-1],
        features.unbind()[::-1],
        torch.eye(7, dtype=torch.float64)[kept["labels"]],
        alpha=config.alpha,
        beta=beta,
        temperature=config.temperature,
        form=config.form,
    )
    loss = sum(terms) + kept["entropy"]
    (gradient,) = torch.autograd.grad(loss, features, retain_graph=True)
    torch.testing.assert_close(gradient, kept["feature_gradient"], rtol=1e-5, atol=1e-8)
    check(loss, heads, kept)


NODES = {  # the reference's modules: ours
    r"layers\.0\.lat_conv\.(\d)\.conv\.0\.": r"lateral.\1.",
    r"layers\.0\.lat_conv2\.(\d)\.conv\.0\.": r"lateral_down.\1.",
    r"layers\.0\.up_sample\.(\d)\.1\.conv\.0\.": r"up.\1.",
    r"layers\.0\.down_sample\.(\d)\.1\.conv\.0\.": r"down.\1.",
    r"layers\.0\.(up|down)_weight\.(\d)": r"fuse_\1.\2.weights",
    r"layers\.0\.(up|down)_conv\.(\d)\.conv\.0\.(\d)": r"fuse_\1.\2.refine.\3",
    r"layers\.0\.(up|down)_conv\.(\d)\.conv\.1\.(\d)": lambda m: f"fuse_{m[1]}.{m[2]}.refine.{int(m[3]) + 3}",
    r"fc\.": "head.",
}


def test_frskd() -> None:
    kept = read("frskd")
    state = {}
    for name, value in kept.items():
        if name.startswith("state."):
            theirs = name.removeprefix("state.")
            (ours,) = {re.sub(f"^{old}", new, theirs) for old, new in NODES.items()} - {theirs}
            state[ours] = value
    pyramid = Pyramid((2, 3, 4), 7, width=2, depth=2).double()
    missing = pyramid.load_state_dict(state, strict=False)
    assert not missing.unexpected_keys
    assert all("running" in name or "num_batches" in name for name in missing.missing_keys)
    maps = [kept[f"map{stage}"].requires_grad_() for stage in range(3)]
    logits = kept["logits"].requires_grad_()
    teacher, refined = pyramid(maps)
    torch.testing.assert_close(teacher, kept["teacher_logits"], rtol=1e-5, atol=1e-5)
    for stage, each in enumerate(refined):
        torch.testing.assert_close(each, kept[f"refined{stage}"], rtol=1e-5, atol=1e-5)
    config, targets = choose("frskd").config, torch.eye(7, dtype=torch.float64)[kept["labels"]]
    terms = compute_frskd_terms(
        logits,
        teacher,
        maps,
        refined,
        targets,
        alpha=config.alpha,
        beta=config.beta,
        temperature=config.temperature,
    )
    gradients = torch.autograd.grad(sum(terms), maps, retain_graph=True)
    for stage, gradient in enumerate(gradients):
        torch.testing.assert_close(gradient, kept[f"map{stage}_gradient"], rtol=1e-5, atol=1e-5)
    check(sum(terms), logits, kept)


def test_frskd_has_as_many_parameters_as_the_reference() -> None:
    pyramid = Pyramid((64, 128, 256, 512), 100, width=2, depth=2)
    assert sum(p.numel() for p in pyramid.parameters()) == int(read("frskd")["parameters"])


@pytest.mark.parametrize(("which", "rate"), [("early", 0.1), ("late", 0.01)])
def test_meta_weight_net_takes_virtual_steps_at_the_current_rate(which: str, rate: float) -> None:
    kept = read("meta_weight_net")
    network = nn.Linear(3, 7).double()
    with torch.no_grad():
        network.weight.copy_(kept["weight"])
        network.bias.copy_(kept["bias"])
    method = make("meta-weight-net:hidden=8:meta_weight_decay=0", kept["labels"]).double()
    method.learning_rate = rate
    for name in WEIGHER:
        method.get_buffer(name).copy_(kept[name])
    index = torch.arange(len(kept["labels"]))
    method.loss(network, Given(kept["x"], index, val=(kept["val"], kept["val_labels"])))
    for number, name in enumerate(WEIGHER):
        # Adam's first moment after one step is a tenth of the gradient.
        torch.testing.assert_close(
            method.get_buffer(f"{name}_mean"), 0.1 * kept[f"{which}_{number}"], rtol=1e-5, atol=1e-9
        )
