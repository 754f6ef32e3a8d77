"""``vista models``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table

from vista import models
from vista.cli import terminal
from vista.cli.arguments import parse

HELP = "list the networks with their sizes"
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
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("network", no_wrap=True)
    table.add_column("parameters", justify="right", no_wrap=True)
    table.add_column("image size", no_wrap=True)
    table.add_column("description")
    for row in rows:
        parameters = f"{row['parameters'] / 1e6:.2f} M"
        table.add_row(row["name"], parameters, row["image_sizes"], row["description"])
    out = terminal.console()
    out.print(table)
    out.print("Parameters are counted for 3x32x32 images and 100 classes.")
    out.print("A custom network: --network package.module:function")
    out.print("Next: vista train --network NAME")
    return 0
