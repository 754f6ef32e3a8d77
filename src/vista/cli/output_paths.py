"""Where a command may write."""

from __future__ import annotations

from pathlib import Path

from vista.training.run_folder import owner_of


def file_to_write(option: str, given: str) -> Path:
    """The file that an option names: any but a folder, or a part of a run, which would be lost."""
    path = Path(given).expanduser()
    if path.is_dir():
        raise IsADirectoryError(f"{option} is {path}, which is a folder, but a file is needed")
    run = owner_of(path)
    if run is not None:
        raise ValueError(f"{option} is {path}, which is part of the run {run}: name another file")
    return path


def folder_to_write(option: str, given: str) -> Path:
    """The folder that an option names, there or not yet."""
    path = Path(given).expanduser()
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"{option} is {path}, which is a file, but a folder is needed")
    return path
