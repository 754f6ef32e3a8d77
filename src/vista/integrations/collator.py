"""Batches of dicts, as the Hugging Face tools make them, with each sample's index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class IndexCollator:
    """A data collator that carries each sample's ``index`` past another collator, which need not know it."""

    def __init__(self, inner: Callable[[list[Any]], dict[str, Any]]) -> None:
        self.inner = inner

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        index = [int(feature["index"]) for feature in features if "index" in feature]
        batch = self.inner([{k: v for k, v in feature.items() if k != "index"} for feature in features])
        return {**batch, "index": torch.tensor(index)} if index else batch
