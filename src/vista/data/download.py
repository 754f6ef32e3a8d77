"""Official archives over HTTP: resumed where they broke off, checked, unpacked, and in place only when complete."""

import contextlib
import difflib
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

Progress = Callable[[int, int | None], None]  # bytes done, bytes in all (None where the server does not say)
_CHUNK = 1 << 20
_SILENCE = 60.0  # seconds without a byte after which the connection counts as broken
_HUMAN_LABELS_SHA256 = "4784bdde3cfc0c45335f45134a4af2bc278ce40b50a23d8de9c08b45e262a29d"


@dataclass(frozen=True)
class Archive:
    """Where an archive lies, and what it becomes below the root."""

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
    # No md5 is published for this one: its labels are checked instead, once they are read.
    "cifar100n": Archive(
        "https://raw.githubusercontent.com/UCSC-REAL/cifar-10-100n/main/data", "CIFAR-100_human.pt", None,
        "cifar-100n.npz",
    ),
}  # fmt: skip


def get(name: str, root: str | Path, progress: Progress | None = None, base_url: str | None = None) -> Path:
    """Bring `name` below `root`, from `base_url` in place of the official one if given; returns where it lies.

    What is there already is left alone. A download that breaks off goes on from there at the next call.
    """
    if name not in ARCHIVES:
        nearest = difflib.get_close_matches(name, ARCHIVES, n=1, cutoff=0.0)[0]
        known = ", ".join(ARCHIVES)
        raise ValueError(f"nothing to download for {name!r}; the nearest known is {nearest!r} (known: {known})")
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
        part.unlink()  # these bytes will never be right; the next call starts anew
        raise
    part.unlink()
    return result


def _fetch(url: str, part: Path, progress: Progress | None) -> None:
    """Write what lies at `url` to `part`, going on after the bytes that `part` holds already."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"the place to download from is {url!r}, but it must begin with http:// or https://")
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity", "User-Agent": "vista"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        with urllib.request.urlopen(request, timeout=_SILENCE) as response:
            have, total = _begin(response, have)
            with part.open("ab" if have else "wb") as file:
                while chunk := response.read(_CHUNK):
                    file.write(chunk)
                    have += len(chunk)
                    if progress:
                        progress(have, total)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and have:  # nothing comes after what is there: it is all, or it is not this file
            if error.headers.get("Content-Range") != f"bytes */{have}":
                part.unlink()
                _fetch(url, part, progress)
            return
        raise ConnectionError(f"cannot download {url}: the server answers {error.code} {error.reason}") from error
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise ConnectionError(f"cannot download {url}: {reason}; {_go_on(part)}") from error
    if total is not None and have < total:
        raise ConnectionError(f"the download of {url} broke off at {have:,} of {total:,} bytes; {_go_on(part)}")


def _begin(response: http.client.HTTPResponse, have: int) -> tuple[int, int | None]:
    """How many bytes of `part` count (0 if the server sends all anew), and how many there will be."""
    length = response.headers.get("Content-Length")
    coming = int(length) if length and length.isdigit() else None
    sent = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    if response.status != 206 or sent is None or int(sent[1]) != have:
        if response.status == 206:
            raise http.client.HTTPException(f"the server sent another range than asked for (from {have})")
        return 0, coming
    return have, int(sent[2]) if sent[2] != "*" else None


def _go_on(part: Path) -> str:
    return f"the same command goes on from {part}" if part.exists() else "try again later"


def _check_md5(part: Path, archive: Archive) -> None:
    if archive.md5 is None:
        return
    with part.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != archive.md5:
        raise ValueError(f"{archive.file} is not the official archive: its md5 is {found}, expected {archive.md5}")


def _unpack(part: Path, archive: Archive, result: Path) -> None:
    """Unpack into a folder of its own, then rename; a member that is no plain file below `result` is refused."""
    with tempfile.TemporaryDirectory(prefix=f"{archive.result}.", suffix=".tmp", dir=result.parent) as scratch:
        for name, content in _members(part):
            path = PurePosixPath(name)
            if path.parts[:1] != (archive.result,) or ".." in path.parts or "\\" in name:
                raise ValueError(f"{archive.file} holds {name!r}, which lies outside of {archive.result}/")
            target = Path(scratch, *path.parts)
            if content is None:
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with content, target.open("wb") as file:
                shutil.copyfileobj(content, file, _CHUNK)
        if not Path(scratch, archive.result).is_dir():
            raise ValueError(f"{archive.file} holds no {archive.result}/")
        Path(scratch, archive.result).rename(result)


def _members(part: Path) -> Iterator[tuple[str, IO[bytes] | None]]:
    """Name and content of each file of an archive, None for a folder; links and devices are refused."""
    if part.name.endswith(".zip.part"):
        with zipfile.ZipFile(part) as packed:
            for entry in packed.infolist():
                if (entry.external_attr >> 16) & 0o170000 not in (0, 0o040000, 0o100000):
                    raise ValueError(f"{part.name} holds {entry.filename!r}, which is neither file nor folder")
                yield entry.filename, None if entry.is_dir() else packed.open(entry)
        return
    with tarfile.open(part, "r:gz") as tar:
        for member in tar:
            if not (member.isreg() or member.isdir()):
                raise ValueError(f"{part.name} holds {member.name!r}, which is neither file nor folder")
            yield member.name, tar.extractfile(member)


def _write_human_labels(part: Path, result: Path) -> None:
    """Turn the labels of CIFAR-100N, published as a torch file, into plain arrays, if they are the published ones."""
    labels = _torch_arrays(part)
    digest = hashlib.sha256()
    for key in ("clean_label", "noisy_label"):
        digest.update(labels[key].astype("<i8").tobytes())
    if digest.hexdigest() != _HUMAN_LABELS_SHA256:
        raise ValueError(f"{part.name} does not hold the published labels of CIFAR-100N")
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
    """`clean_label` and `noisy_label` of a torch file, by torch's loader that admits arrays and nothing that runs."""
    import torch
    from numpy._core.multiarray import _reconstruct

    admitted: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = [
        (_reconstruct, "numpy.core.multiarray._reconstruct"),
        (_reconstruct, "numpy._core.multiarray._reconstruct"),
        np.ndarray,
        np.dtype,
        type(np.dtype(np.int64)),
    ]
    try:
        with torch.serialization.safe_globals(admitted):
            content = torch.load(path, map_location="cpu", weights_only=True)
        return {key: np.asarray(content[key]).astype(np.int64) for key in ("clean_label", "noisy_label")}
    except Exception as error:  # torch has no one error for a file that is damaged or holds more than arrays
        raise ValueError(f"{path.name} is no torch file of label arrays: {error}") from error
