"""Recreate a run folder from its record in the ledger, for figures and pages; without weights and timings."""

from __future__ import annotations

from pathlib import Path

from vista.analysis.suspect_files import LIST
from vista.files import array_file, atomic, reader
from vista.reproduce.ledger import LedgerRecord
from vista.runs import folder as run_folder
from vista.runs import record
from vista.runs.folder import RunFolder
from vista.runs.record import Record
from vista.training.samples import labels_and_split, load_source


def restore(kept: LedgerRecord, out: Path, root: str | None = None) -> RunFolder:
    """Recreate the folder of a run.

    The ledger does not hold labels and split. They are computed again from the data and must have the recorded hashes.

    Args:
        kept: The record; its trajectory must be in the ledger too.
        out: Parent of the new folder.
        root: Folder that holds the data sets; VISTA_DATA by default.

    Returns:
        The new run folder.
    """
    if not kept.bits.exists():
        raise FileNotFoundError(f"{kept.path} has no trajectory ({kept.bits.name}) beside it, so it cannot be drawn")
    folder = out / kept.path.stem
    if folder.exists():
        raise FileExistsError(f"{folder} already exists; choose another --out")
    data = load_source(kept.config, root)
    labels, split = labels_and_split(kept.config, data, root)
    for name, found in (("labels_hash", labels.hash), ("split_hash", split.hash)):
        if found != kept.data.get(name):
            raise ValueError(f"{kept.path} has {name} {kept.data.get(name)}, but the data give {found}")
    rows, about = array_file.read(kept.bits, record.FORMAT, record.VERSION)
    folder.mkdir(parents=True)
    labels.save(folder / run_folder.LABELS)
    split.save(folder / run_folder.SPLIT)
    Record(about["sizes"], kept.epochs, [], {name: list(bits) for name, bits in rows.items()}).write(folder)
    if kept.suspects.exists():
        atomic.write(folder / LIST, reader.read_bytes(kept.suspects))
    atomic.write_json(folder / run_folder.DATA, kept.data)
    atomic.write_json(folder / run_folder.ENVIRONMENT, kept.environment)
    atomic.write_json(folder / run_folder.CONFIG, kept.config.to_json())
    atomic.write_json(folder / run_folder.METRICS, kept.metrics)
    return RunFolder(folder)
