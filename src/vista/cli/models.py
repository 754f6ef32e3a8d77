"""``vista models``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from vista import models
from vista.cli import terminal
from vista.cli.arguments import parse

ABOUT = "List the networks that `--network` accepts. Parameters are counted for 3x32x32 images and 100 classes."


@dataclass(frozen=True)
class Models:
    json: bool = False
    """Print one JSON object to stdout."""


def run(argv: list[str]) -> int:
    flags = parse(Models, argv, "models", ABOUT)
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "description": network.description,
            "image_sizes": network.image_sizes,
            "parameters": models.count_parameters(name),
        }
        for name, network in models.available().items()
    ]
    if flags.json:
        print(json.dumps({"networks": rows}))
        return 0
    cells = [(r["name"], f"{r['parameters'] / 1e6:.2f} M", r["image_sizes"], r["description"]) for r in rows]
    out = terminal.console()
    terminal.print_rows(out, ("network", "parameters", "image size", "description"), cells, right=("parameters",))
    out.print("Parameters are counted for 3x32x32 images and 100 classes.")
    out.print("From 128 pixels on, a resnet has the stem of ImageNet: 7x7, stride 2, pooling.")
    out.print("Pretrained: --network hf:NAME_OR_FOLDER (transformers), --network timm:NAME")
    out.print("A custom network: --network package.module:function")
    terminal.say_next("vista", "train", "--network", "NAME")
    return 0
