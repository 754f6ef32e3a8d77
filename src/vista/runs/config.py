"""The configuration of a run, with a line of help per setting, and the presets."""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
import re
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Literal

from vista import noise
from vista.core.validation import IN_WORDS, as_recorded

FORMAT = 1
LearningRate = Literal["cosine", "restarts", "constant", "hold"]
Optimizer = Literal["sgd", "adamw"]
Freeze = Literal["none", "backbone"]
ClassWeights = Literal["none", "balanced"]
Augment = Literal["none", "trivial"]
Precision = Literal["auto", "bf16", "fp32", "fp64"]
# Fields that decide where and how fast a run executes, not what it computes: they are not part of its identity.
INCIDENTAL = ("root", "device", "compile", "capture", "checkpoint_seconds", "checkpoint_dir", "choice")
SMALLEST_IMAGE, LARGEST_IMAGE = 8, 1024  # pixels
MAX_SEED = 2**32 - 1  # the CPU generator uses 32 bits of it: larger seeds would repeat the draws of smaller ones


@dataclass(frozen=True)
class TrainConfig:
    """One training run."""

    data: str = "digits"
    """What to train on: digits, cifar10, cifar100, cifar100-small (1,000 images of 10 classes), tinyimagenet, or your
    own: folder:PATH (images), csv:PATH, parquet:PATH, hf:PATH (a saved dataset of Hugging Face) or npz:PATH."""
    root: str | None = None
    """Folder that holds the data sets; the environment variable VISTA_DATA if not given."""
    noise: str = "none"
    """Label noise: none, symmetric:RATE, asymmetric:RATE, pairflip:RATE, human (CIFAR-100N) or file:PATH."""
    method: str = "vista"
    """How to train; `vista methods` lists all. Options may follow: vista:tau=0.01."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the method, already resolved."""
    method_version: int = 1
    """Version of the method's computation, set when the run starts; runs of two versions are different runs."""
    network: str = "auto"
    """auto (chosen for the data), hf:NAME_OR_FOLDER (transformers), timm:NAME, a custom package.module:function, or one
    of: small-cnn, mlp, tiny-staged, vit-tiny, vit-small, resnet18, resnet34, resnet50, resnet101, preact-resnet18,
    densenet121, vgg16, vgg16-fc, vgg19, vgg19-fc."""
    pretrained: bool = True
    """Start from the pretrained weights of a network named hf: or timm:, with a new head; built-in networks have
    none."""
    epochs: int = 200
    """Passes over the training samples, at least 2."""
    batch_size: int = 64
    """Samples per step, over all processes."""
    lr: float = 0.1
    """Largest learning rate."""
    lr_schedule: LearningRate = "cosine"
    """How the learning rate falls, step by step: cosine, cosine with warm restarts, not at all, or (hold) constant at
    first and then one cosine."""
    restart_epochs: int = 40
    """Epochs between warm restarts."""
    hold_fraction: float = 0.65
    """Fraction of the epochs with a constant learning rate, for the schedule hold."""
    warmup_epochs: float = 0.0
    """Epochs over which the learning rate rises linearly to its schedule; fractions are allowed."""
    optimizer: Optimizer = "sgd"
    """sgd or adamw. AdamW has the defaults lr 0.001 and weight decay 0.01."""
    momentum: float = 0.9
    """Momentum of SGD."""
    nesterov: bool = False
    """Use Nesterov momentum."""
    weight_decay: float = 5e-4
    """Weight decay: with SGD on all parameters, with AdamW not on biases and normalisation layers."""
    clip_grad: float = 0.0
    """Scale gradients down to at most this norm over all parameters, such as 1; 0 leaves them as they are."""
    accumulate: int = 1
    """Batches per optimiser step: their gradients are averaged, as in one batch of that many samples."""
    ema: float = 0.0
    """Decay of a moving average of the weights, such as 0.999; the average is evaluated and saved instead of the
    weights, whose accuracy is recorded too. 0 keeps none."""
    freeze: Freeze = "none"
    """Parts that are not trained: none, or backbone, which is all but the head (the last linear layer)."""
    backbone_lr: float | None = None
    """Learning rate of the backbone, usually a tenth of --lr for a pretrained network; --lr if not given."""
    label_smoothing: float = 0.0
    """Share of every target that is spread evenly over all classes, such as 0.1."""
    class_weights: ClassWeights = "none"
    """none, or balanced: weight the loss of a class by the inverse of its number of given labels."""
    balanced_sampling: bool = False
    """Draw every class equally often; samples of large classes are then left out of some epochs."""
    padding: int | None = None
    """Shift images by up to this many pixels; the default of the data set if not given."""
    flip: bool | None = None
    """Mirror half of the images; the default of the data set if not given."""
    rotation: float = 0.0
    """Rotate images by up to this many degrees in either direction."""
    cutmix: float = 0.0
    """Probability that a batch is mixed by CutMix."""
    image_size: int | None = None
    """Working resolution for a folder of photos, in pixels; if not given that of an hf: or timm: network (often 224),
    else 64, or the images' own size if all have the same size of at most 64."""
    crop_scale: float = 0.35
    """Smallest share of a photo's area in the random crops of training; 1 trains on whole photos."""
    color_jitter: float = 0.0
    """Change brightness, contrast and saturation of training images by up to this share, either way."""
    augment: Augment = "none"
    """none, or trivial: apply one random operation of random strength to each training image (TrivialAugment)."""
    skip_damaged: bool = False
    """Leave out image files that cannot be decoded, instead of stopping at the first."""
    label_column: str | None = None
    """Column of a table that holds the labels, as class names or numbers; `label` if not given."""
    image_column: str | None = None
    """Column of a table that holds image paths, relative to the table."""
    text_column: str | None = None
    """Column of a table that holds texts, for --network hf:FOLDER. Without image or text column, all columns but the
    label are features."""
    tokenizer: str | None = None
    """Folder or name of the tokenizer of transformers for texts; that of the hf: network if not given."""
    max_length: int = 128
    """Most tokens of a text; the rest is cut off."""
    validation: float = 0.1
    """Share of the training set held out for validation, or, from 1 on, a number of samples."""
    labels: str | None = None
    """File of labels (.csv or .npz) that replace those of the data, test samples included; by id or file name, as class
    names or numbers."""
    split_from: str | None = None
    """Run whose split is kept: samples are found by their content, so files may have been moved."""
    fold: str | None = None
    """K/N, such as 1/5: cross-validation that tests on the Kth of N parts of all labelled samples."""
    own_validation: bool = True
    """Validate on what the data themselves hold out for it (val/, x_val) if they do, and draw nothing."""
    clean_validation: bool = False
    """Validate on half of the test set with its own labels, drawn by the split seed, and test on the other half: only
    to reproduce studies that do so, because a real task has no such labels."""
    seed: int = 0
    """Decides noise, split, initial weights and order."""
    noise_seed: int | None = None
    """Another seed for the noise alone."""
    split_seed: int | None = None
    """Another seed for the split alone."""
    device: str = "auto"
    """cpu, cuda, cuda:1 ...; auto takes CUDA where there is one."""
    precision: Precision = "auto"
    """bf16 (autocast), fp32 or fp64; auto takes bf16 on CUDA and fp32 on the CPU."""
    deterministic: bool = False
    """On CUDA, only kernels that give the same bits every time (slower); the CPU always does."""
    compile: bool = True
    """On CUDA, compile the network."""
    capture: bool = True
    """On CUDA, capture the whole step into one graph."""
    checkpoint_seconds: float = 60.0
    """Seconds of training after which a checkpoint is due; 0 takes one at every opportunity."""
    checkpoint_dir: str | None = None
    """Store checkpoints in a folder of the run's own below this one, e.g. on a scratch disk; in the run folder if not
    given."""
    choice: str = ""
    """What the preset recommended chose and why, in one line; empty if it chose nothing."""

    def __post_init__(self) -> None:
        for name, hint in _kinds().items():
            object.__setattr__(self, name, as_recorded(getattr(self, name), hint))
            _check_kind(name, getattr(self, name), hint)
        for name in ("seed", "noise_seed", "split_seed"):
            if not 0 <= (getattr(self, name) or 0) <= MAX_SEED:
                raise ValueError(f"{name} must be between 0 and {MAX_SEED}, got {getattr(self, name)}")
        positive = ("batch_size", "max_length", "lr", "restart_epochs", "validation", "accumulate", "backbone_lr")
        for name in positive:
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise ValueError(f"{name} must be greater than 0, got {getattr(self, name)}")
        for name in ("momentum", "weight_decay", "rotation", "checkpoint_seconds", "warmup_epochs", "clip_grad"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.momentum >= 1:
            raise ValueError(f"momentum must be less than 1 (0.9 is usual), got {self.momentum}")
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs a momentum greater than 0, got momentum 0")
        if self.epochs < 2:
            raise ValueError(f"epochs must be at least 2, got {self.epochs}")
        if not 0 <= self.hold_fraction < 1:
            raise ValueError(f"hold_fraction must be at least 0 and less than 1, got {self.hold_fraction}")
        if self.warmup_epochs >= self.epochs:
            raise ValueError(
                f"warmup_epochs must be less than the {self.epochs} epochs of the run, got {self.warmup_epochs:g}"
            )
        if not 0 <= self.ema < 1:
            raise ValueError(f"ema must be at least 0 and less than 1 (0.999 is usual), got {self.ema}")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(
                f"label_smoothing must be at least 0 and less than 1 (0.1 is usual), got {self.label_smoothing}"
            )
        if self.balanced_sampling and self.class_weights != "none":
            raise ValueError("balanced_sampling and class_weights both make up for rare classes: leave one of them out")
        if self.freeze == "backbone" and self.backbone_lr is not None:
            raise ValueError(f"backbone_lr is {self.backbone_lr:g}, but freeze is 'backbone': leave one of them out")
        if not 0 <= self.cutmix <= 1:
            raise ValueError(f"cutmix must be a probability between 0 and 1, got {self.cutmix}")
        if self.validation >= 1 and self.validation != int(self.validation):
            raise ValueError(f"validation must be a share below 1 or a number of samples, got {self.validation}")
        for name in ("lr_schedule", "optimizer", "freeze", "class_weights", "augment", "precision"):
            known = typing.get_args(_kinds()[name])
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")
        if self.image_size is not None and not SMALLEST_IMAGE <= self.image_size <= LARGEST_IMAGE:
            raise ValueError(
                f"image_size must be between {SMALLEST_IMAGE} and {LARGEST_IMAGE} pixels, got {self.image_size}"
            )
        if not 0 <= self.color_jitter <= 1:
            raise ValueError(f"color_jitter must be between 0 and 1, got {self.color_jitter}")
        if not 0 < self.crop_scale <= 1:
            raise ValueError(f"crop_scale must be greater than 0 and at most 1, got {self.crop_scale}")
        if self.labels is not None and self.noise != "none":
            raise ValueError(f"labels and noise cannot be combined, got noise {self.noise!r}: leave out one of them")
        if self.fold is not None:
            if self.split_from is not None:
                raise ValueError("fold and split_from cannot be combined: leave out one of them")
            parse_fold(self.fold)
        if self.checkpoint_dir == "":
            raise ValueError("checkpoint_dir must be the path of a folder, got ''")
        check_device(self.device)
        object.__setattr__(
            self, "noise", noise.parse(self.noise).spec
        )  # one spelling, so that the same labels have the same identity

    def data_seeds(self) -> tuple[int, int]:
        """The seeds of noise and split: ``seed`` where they are not given."""
        noise_seed, split_seed = (self.seed if s is None else s for s in (self.noise_seed, self.split_seed))
        return noise_seed, split_seed

    def to_json(self) -> dict[str, Any]:
        """The JSON object of ``config.json``."""
        return {"format": FORMAT, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> TrainConfig:
        """Read what :meth:`to_json` wrote; another format or an unknown field raises ``ValueError``."""
        if values.get("format") != FORMAT:
            raise ValueError(f"the configuration has format {values.get('format')!r}, but this version reads {FORMAT}")
        known = {f.name for f in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known - {"format"})
        if unknown:
            raise ValueError(
                f"the configuration has the unknown field {unknown[0]!r}; was it written by a newer version?"
            )
        return cls(**{name: value for name, value in values.items() if name in known})


def parse_fold(fold: str) -> tuple[int, int]:
    """Parse ``K/N`` with 1 <= K <= N and N at least 2.

    >>> parse_fold("2/5")
    (2, 5)
    """
    found = re.fullmatch(r"(\d{1,3})/(\d{1,3})", fold)
    number, count = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= count or count < 2:
        raise ValueError(f"fold must be K/N with K from 1 to N and N at least 2, such as 1/5, got {fold!r}")
    return number, count


def check_device(device: str) -> None:
    """Reject an unknown device."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise ValueError(f"device must be cpu, cuda, cuda:NUMBER or auto, got {device!r}")


@functools.cache
def _kinds() -> dict[str, Any]:
    """The type of each field; cached, because resolving the hints takes longer than all checks."""
    return typing.get_type_hints(TrainConfig)


def _check_kind(name: str, value: Any, hint: Any) -> None:
    """Reject a value of another type than its field, and a number that is not finite."""
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and type(None) in kinds:
        return
    kind: Any = typing.get_origin(kinds[0]) or kinds[0]
    if kind is Literal:  # checked against its choices elsewhere
        return
    accepted = {int: numbers.Integral, float: numbers.Real}.get(kind, kind)
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{name} must be {IN_WORDS[kind]}, got {value!r}")
    if kind is float and not math.isfinite(value):
        raise ValueError(f"{name} must be finite, such as {getattr(TrainConfig, name)}, got {value}")


PRESETS: dict[str, dict[str, Any]] = {
    "digits": {"epochs": 40, "batch_size": 32, "lr": 0.05, "lr_schedule": "cosine", "validation": 270},
    "clean": {"epochs": 200, "batch_size": 32, "lr": 0.01, "lr_schedule": "cosine"},
    "noisy": {"epochs": 200, "batch_size": 64, "lr": 0.1, "lr_schedule": "restarts", "restart_epochs": 40},
    "recommended": {"lr_schedule": "cosine"},  # method, network, epochs and batch: vista.training.recommend
}
PAPER_VALIDATION = 0.02  # not stated by the paper; chosen by plain training alone, then frozen


def preset_name(name: str, data: str = "digits") -> str:
    """The preset that ``auto`` means: ``digits``, ``paper`` for the other known data sets, else ``recommended``."""
    if name not in ("auto", "paper", *PRESETS):
        raise ValueError(f"preset must be one of auto, paper, {', '.join(PRESETS)}, got {name!r}")
    if name != "auto":
        return name
    return "digits" if data == "digits" else "recommended" if ":" in data else "by noise"


ADAMW: dict[str, Any] = {"lr": 1e-3, "weight_decay": 0.01}  # where they are not given: SGD's are far too large for it


def preset(name: str, data: str = "digits", noise: str = "none", optimizer: str = "sgd") -> dict[str, Any]:
    """Settings of a named protocol.

    Args:
        name: ``digits``, ``clean``, ``noisy``, ``recommended``; ``paper`` is clean or noisy by ``noise``, with 2 % of
            the training set for validation; ``auto`` is recommended for custom data such as ``folder:PATH``, digits for
            the digits, and clean or noisy by ``noise`` for the other known data sets.
        data: What is trained on.
        noise: Its label noise.
        optimizer: The optimiser; AdamW has its own learning rate and weight decay.

    Returns:
        Fields of :class:`TrainConfig`; those of ``recommended`` that depend on the data are in
        ``vista.training.recommend``.
    """
    found = preset_name(name, data)
    by_noise = PRESETS["clean" if noise == "none" else "noisy"]
    values = {**by_noise, "validation": PAPER_VALIDATION} if found == "paper" else PRESETS.get(found, by_noise)
    return {**values, **(ADAMW if optimizer == "adamw" else {})}
