"""The tables of measurements in docs/photos.md and docs/your-data.md equal their records.

python tests/unit/docs/test_photos_tables.py     # rewrites the tables
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from doc_pages import DOCS, ROOT

PHOTOS = DOCS / "photos.md"


def record(name: str) -> Any:
    return json.loads((ROOT / "results" / f"{name}.json").read_text())


def cell(value: dict[str, float], sign: str = "") -> str:
    return f"{value['mean']:{sign}.1f} ± {value['se']:.1f}"


def misfiled() -> list[str]:
    """Accuracy of the default and of cross-entropy, and their difference."""
    lines = ["| epochs | method | last epoch | best epoch | last epoch, minus cross-entropy |", "|---|---|---|---|---|"]
    for row in record("misfiled_folder")["rows"]:
        is_default = row["method"] == "default"
        name = f"default (`{row['trained']}`)" if is_default else "cross-entropy"
        difference = cell(row["last_minus_ce"], "+") if is_default else ""
        lines.append(f"| {row['epochs']} | {name} | {cell(row['last'])} | {cell(row['best'])} | {difference} |")
    return lines


def decoding() -> list[str]:
    """Rates of decoding and the time of a start."""
    found = record("decoding")
    lines = ["| `--image-size` | photos per core and second | pixel file | start of " + f"{found['photos']:,} photos |"]
    lines.append("|---|---|---|---|")
    for row in found["rows"]:
        size, rate = row["image_size"], row["images_per_core_and_second"]
        lines.append(
            f"| {size} | {rate:.0f} | {row['pixel_file_bytes'] / 1e6:,.0f} MB | {row['starting']['seconds']:.1f} s |"
        )
    return lines


def noisy() -> list[str]:
    """Accuracy of the default and of cross-entropy on a table and on texts."""
    lines = ["| data | method | last epoch | best epoch | last epoch, minus cross-entropy |", "|---|---|---|---|---|"]
    for kind in ("table", "text"):
        for row in record(f"noisy_{kind}")["rows"]:
            is_default = row["method"] == "default"
            name = f"default (`{row['trained']}`)" if is_default else "cross-entropy"
            difference = cell(row["last_minus_ce"], "+") if is_default else ""
            lines.append(f"| {kind} | {name} | {cell(row['last'])} | {cell(row['best'])} | {difference} |")
    return lines


TABLES = {(DOCS / "your-data.md", "noisy"): noisy, (PHOTOS, "misfiled"): misfiled, (PHOTOS, "decoding"): decoding}


def between(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<=<!-- {name} -->\n).*?(?=<!-- end -->)", re.DOTALL)


@pytest.mark.parametrize(("page", "name"), TABLES, ids=lambda value: getattr(value, "stem", value))
def test_the_table_equals_the_record(page: Path, name: str) -> None:
    found = between(name).search(page.read_text())
    assert found is not None
    assert found[0].split("\n") == ["", *TABLES[page, name](), "", ""]


def test_the_misfiled_record_is_of_three_seeds_and_its_default_is_not_below_cross_entropy() -> None:
    found = record("misfiled_folder")
    assert found["seeds"] == [0, 1, 2]
    assert found["environment"]["commit"]
    for row in found["rows"]:
        assert row["last_minus_ce"]["mean"] >= -2 * row["last_minus_ce"]["se"]


if __name__ == "__main__":
    for (page, name), table in TABLES.items():
        lines = "\n".join(["", *table(), "", ""])
        page.write_text(between(name).sub(lines, page.read_text(), count=1))
