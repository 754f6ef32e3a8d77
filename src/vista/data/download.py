"""Download official archives over HTTP: resume, verify and unpack them; the result appears atomically."""

import contextlib
import hashlib
import http.client
import re
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np

from vista.core.validation import suggest

Progress = Callable[[int, int | None], None]  # bytes done, bytes in total (None if the server does not report it)
_CHUNK = 1 << 20
_TIMEOUT = 60.0  # seconds without data after which the connection counts as lost
_HUMAN_LABELS_SHA256 = "4784bdde3cfc0c45335f45134a4af2bc278ce40b50a23d8de9c08b45e262a29d"


@dataclass(frozen=True)
class Archive:
    """The URL of an archive, and the path of its content below the root."""

    base_url: str
    file: str
    md5: str | None
    result: str


ARCHIVES = {
    "cifar10": Archive(
        "https://www.cs.toronto.edu/~kriz", "cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a",
        "cifar-10-batches-py",
    ),
    "cifar100": Archive(
        "https://www.cs.toronto.edu/~kriz", "cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85",
        "cifar-100-python",
    ),
    "tinyimagenet": Archive(
        "http://cs231n.stanford.edu", "tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de",
        "tiny-imagenet-200",
    ),
    # No MD5 is published for this file: its labels are verified instead after reading.
    "cifar100n": Archive(
        "https://raw.githubusercontent.com/UCSC-REAL/cifar-10-100n/main/data", "CIFAR-100_human.pt", None,
        "cifar-100n.npz",
    ),
}  # fmt: skip


def get(name: str, root: str | Path, progress: Progress | None = None, base_url: str | None = None) -> Path:
    """Download a data set. An existing one is kept, and an interrupted download is resumed.

    Args:
        name: One of `ARCHIVES`.
        root: The folder below which the data set is stored.
        progress: Called with the bytes done and the total.
        base_url: A mirror to download from instead of the official site.

    Returns:
        The path of the data set.
    """
    if name not in ARCHIVES:
        raise ValueError(f"data set {name!r} cannot be downloaded; {suggest(name, list(ARCHIVES))}")
    archive = ARCHIVES[name]
    result = Path(root).expanduser() / archive.result
    if result.exists():
        return result
    result.parent.mkdir(parents=True, exist_ok=True)
    part = result.parent / f"{archive.file}.part"
    _fetch(f"{(base_url or archive.base_url).rstrip('/')}/{archive.file}", part, progress)
    try:
        _check_md5(part, archive)
        if archive.file.endswith(".pt"):
            _write_human_labels(part, result)
        else:
            _unpack(part, archive, result)
    except (ValueError, tarfile.TarError, zipfile.BadZipFile, EOFError):
        part.unlink()  # a wrong file cannot be resumed; the next call starts over
        raise
    part.unlink()
    return result


def _fetch(url: str, part: Path, progress: Progress | None) -> None:
    """Download `url` to `part`, resuming after the bytes that `part` already has."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"the download URL must begin with http:// or https://, got {url!r}")
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity", "User-Agent": "vista"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
            have, total = _begin(response, have)
            with part.open("ab" if have else "wb") as file:
                while chunk := response.read(_CHUNK):
                    file.write(chunk)
                    have += len(chunk)
                    if progress:
                        progress(have, total)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and have:  # the range is empty: the part is complete, or of another file
            if error.headers.get("Content-Range") != f"bytes */{have}":
                part.unlink()
                _fetch(url, part, progress)
            return
        raise ConnectionError(f"cannot download {url}: the server replied {error.code} {error.reason}") from error
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise ConnectionError(f"cannot download {url}: {reason}; {_resume_advice(part)}") from error
    if total is not None and have < total:
        done = f"{have:,} of {total:,} bytes"
        raise ConnectionError(f"the download of {url} was interrupted at {done}; {_resume_advice(part)}")


def _begin(response: http.client.HTTPResponse, have: int) -> tuple[int, int | None]:
    """Return how many bytes of `part` to keep (0 if the server sends everything), and the total."""
    length = response.headers.get("Content-Length")
    coming = int(length) if length and length.isdigit() else None
    sent = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    if response.status != 206 or sent is None or int(sent[1]) != have:
        if response.status == 206:
            raise http.client.HTTPException(f"the server sent another range than the one requested (from {have})")
        return 0, coming
    return have, int(sent[2]) if sent[2] != "*" else None


def _resume_advice(part: Path) -> str:
    return f"run the same command again to resume from {part}" if part.exists() else "try again later"


def _check_md5(part: Path, archive: Archive) -> None:
    if archive.md5 is None:
        return
    with part.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != archive.md5:
        raise ValueError(f"{archive.file} is not the official archive: expected md5 {archive.md5}, got {found}")


def _unpack(part: Path, archive: Archive, result: Path) -> None:
    """Unpack into a temporary folder, then rename; members that are not plain files below `result` are rejected."""
    with tempfile.TemporaryDirectory(prefix=f"{archive.result}.", suffix=".tmp", dir=result.parent) as scratch:
        for name, content in _members(part):
            path = PurePosixPath(name)
            if path.parts[:1] != (archive.result,) or ".." in path.parts or "\\" in name:
                raise ValueError(f"{archive.file} contains {name!r}, which is outside of {archive.result}/")
            target = Path(scratch, *path.parts)
            if content is None:
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with content, target.open("wb") as file:
                shutil.copyfileobj(content, file, _CHUNK)
        if not Path(scratch, archive.result).is_dir():
            raise ValueError(f"{archive.file} does not contain {archive.result}/")
        Path(scratch, archive.result).rename(result)


def _members(part: Path) -> Iterator[tuple[str, IO[bytes] | None]]:
    """Yield name and content of each file of an archive, None for a folder; links and devices are rejected."""
    if part.name.endswith(".zip.part"):
        with zipfile.ZipFile(part) as packed:
            for entry in packed.infolist():
                if (entry.external_attr >> 16) & 0o170000 not in (0, 0o040000, 0o100000):
                    raise ValueError(f"{part.name} contains {entry.filename!r}, which is neither file nor folder")
                yield entry.filename, None if entry.is_dir() else packed.open(entry)
        return
    with tarfile.open(part, "r:gz") as tar:
        for member in tar:
            if not (member.isreg() or member.isdir()):
                raise ValueError(f"{part.name} contains {member.name!r}, which is neither file nor folder")
            yield member.name, tar.extractfile(member)


def _write_human_labels(part: Path, result: Path) -> None:
    """Verify the labels of CIFAR-100N, published as a torch file, and save them as plain arrays."""
    labels = _torch_arrays(part)
    digest = hashlib.sha256()
    for key in ("clean_label", "noisy_label"):
        digest.update(labels[key].astype("<i8").tobytes())
    if digest.hexdigest() != _HUMAN_LABELS_SHA256:
        raise ValueError(f"{part.name} does not contain the published labels of CIFAR-100N")
    scratch = result.with_name(f"{result.name}.tmp")
    try:
        with scratch.open("wb") as file:
            np.savez_compressed(file, clean_label=labels["clean_label"], noisy_label=labels["noisy_label"])
        scratch.replace(result)
    except BaseException:
        with contextlib.suppress(OSError):
            scratch.unlink()
        raise


def _torch_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read `clean_label` and `noisy_label` of a torch file with a loader that allows arrays only, no code."""
    import torch
    from numpy._core.multiarray import _reconstruct

    allowed: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = [
        (_reconstruct, "numpy.core.multiarray._reconstruct"),
        (_reconstruct, "numpy._core.multiarray._reconstruct"),
        np.ndarray,
        np.dtype,
        type(np.dtype(np.int64)),
    ]
    try:
        with torch.serialization.safe_globals(allowed):
            content = torch.load(path, map_location="cpu", weights_only=True)
        return {key: np.asarray(content[key]).astype(np.int64) for key in ("clean_label", "noisy_label")}
    except Exception as error:  # torch raises many types for a damaged file or one with other objects
        raise ValueError(f"{path.name} is not a torch file of label arrays: {error}") from error
