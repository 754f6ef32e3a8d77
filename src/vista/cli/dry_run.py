"""``vista train --dry-run``: what a run needs here and on 8 x 8 GPUs."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
from pathlib import Path

import torch

from vista import models
from vista.cli import terminal
from vista.core.store import bytes_available, readable
from vista.runs.config import TrainConfig
from vista.training.capacity import GPUS_PER_NODE, Needs, Workload, needs
from vista.training.network import network_name
from vista.training.preflight import check_cutmix
from vista.training.recommend import measure, samples_per_second
from vista.training.resolve import choose_method, device_name

NODES = 8


def show(config: TrainConfig, out: Path, as_json: bool, argv: list[str]) -> int:
    """Print what a run needs, and train nothing; ``argv`` are the words that start it. The exit code is 0."""
    check_cutmix(config)
    device = device_name(config.device).partition(":")[0]
    work = workload(config, device)
    cluster = dataclasses.replace(work, rate=workload(config, "cuda").rate)
    found = {f"here (1 {device.upper()})": needs(work), f"{NODES} x {GPUS_PER_NODE} GPUs": needs(
        cluster, NODES * GPUS_PER_NODE)}  # fmt: skip
    free = {"memory": bytes_available(torch.device(device)), "disk": shutil.disk_usage(_existing(out)).free}
    if as_json:
        columns = {name: dataclasses.asdict(each) for name, each in found.items()}
        print(json.dumps({"run": str(out), "workload": dataclasses.asdict(work), "needs": columns, "free": free}))
        return 0
    title = f"{config.method} on {config.data}: {work.samples:,} training samples, {work.classes} classes, "
    rows = [[name, *(row(each)[name] for each in found.values())] for name in row(needs(work))]
    console = terminal.console()
    terminal.print_rows(console, ["", *found], rows, right=list(found), title=f"{title}{work.epochs} epochs")
    if work.stores:
        console.print(f"One state of predictions: {readable(needs(work).state)}.")
    memory = "unknown" if free["memory"] is None else readable(free["memory"])
    terminal.say(f"Free here: memory {memory}, disk {readable(free['disk'] or 0)} ({_existing(out)}).")
    console.print(
        "Estimates: times from counted operations; activations are not counted; samples that do not fit stay on the "
        "host. Nothing was trained."
    )
    terminal.say_next("vista", "train", *argv)
    return 0


def row(each: Needs) -> dict[str, str]:
    """The numbers of one column."""
    return {
        "samples, per device": readable(each.samples),
        "weights, gradients, momentum": readable(each.training) if each.training else "unknown",
        "predictions and targets": readable(each.predictions),
        "disk for checkpoints": readable(each.disk),
        "predictions sent per epoch": readable(each.state),
        "gradients sent per epoch": readable(each.gradients) if each.training else "unknown",
        "time per epoch": "unknown" if each.epoch is None else _time(each.epoch),
        "time of the run": "unknown" if each.run is None else _time(each.run),
    }


def _time(seconds: float) -> str:
    if seconds < 0.01:
        return "< 0.01 s"
    return f"{seconds:.2g} s" if seconds < 60 else terminal.duration(seconds)


def workload(config: TrainConfig, device: str) -> Workload:
    """The numbers of a run; a folder of images is listed, not decoded."""
    size, chosen = measure(config), choose_method(config)
    config = dataclasses.replace(config, network=network_name(config, size.shape))
    known = config.network in models.names()
    weights = 0
    if known:
        image = len(size.shape) == 3 and config.network != "mlp"
        channels, side = (size.shape[0], min(size.shape[1:])) if image else (math.prod(size.shape), 1)
        with torch.device("meta"):
            network = models.available()[config.network].factory(
                num_classes=size.classes, in_channels=channels, image_size=side
            )
        weights = sum(tensor.numel() for tensor in network.state_dict().values()) * 4
    return Workload(
        samples=size.train,
        validation=size.validation,
        classes=size.classes,
        epochs=config.epochs,
        batch_size=config.batch_size,
        sample_bytes=math.prod(size.shape) * (1 if len(size.shape) == 3 else 4),
        weights=weights,
        rate=samples_per_second(config, size, device),
        stores="tau" in chosen.options,
        tau=float(chosen.options.get("tau", 0.0)),
        kept=chosen.options.get("topk"),
    )


def _existing(path: Path) -> Path:
    """The innermost folder of a path that exists."""
    full = Path(os.path.abspath(path))
    return next(parent for parent in (full, *full.parents) if parent.is_dir())
