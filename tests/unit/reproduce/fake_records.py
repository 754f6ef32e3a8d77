"""Ledger records with made-up results."""

from __future__ import annotations

import json
from pathlib import Path

from vista.reproduce import ledger, protocol


def fake(results: Path, method: str, changes: dict, seed: int, best: float, last: float) -> Path:
    """Write a record with these accuracies, in percent."""
    config = protocol.make_config(method, changes, seed)
    report = {"top5": 0.9, "nll": 1.0, "ece": 0.1, "aurc": 0.05}
    metrics = {
        "best": {"epoch": 3, "test": {"top1": best / 100, **report}},
        "last": {"epoch": 4, "test": {"top1": last / 100, **report}},
        "deviation_gap": {"val_given": 0.05, "val_true": 0.1, "test": 0.2},
        "anchors_max": 12,
    }
    environment = {"device": "a GPU", "torch": "2.13.0", "commit": "abc"}
    path = ledger.record_path(config, results)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"format": 1, "config": config.to_json(), "data": {}, "environment": environment, "metrics": metrics}
    path.write_text(json.dumps({**content, "seconds": 1.0, "epochs": []}))
    return path
