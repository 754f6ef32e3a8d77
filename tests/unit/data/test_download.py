import hashlib
import io
import os
import re
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import torch

from vista.data import download
from vista.data.download import Archive, get

CONTENT = bytes(np.random.default_rng(0).integers(0, 256, 300_000, dtype=np.uint8))


def tar(members):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for member, content in members:
            info = member if isinstance(member, tarfile.TarInfo) else tarfile.TarInfo(member)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def link(name, target):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    return info


class Server(ThreadingHTTPServer):
    """Serves `content` at every path; closes the connection once after `break_after` bytes."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = b""
        self.break_after = None
        self.ranges = True
        self.asked = []
        self.status = None


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *args):
        pass

    def do_GET(self):
        server, content = self.server, self.server.content
        wanted = self.headers.get("Range")
        server.asked.append((self.path, wanted))
        if server.status:
            self.send_error(server.status)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and server.ranges else 0
        if start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end, server.break_after = server.break_after, None
        self.wfile.write(content[start:] if end is None else content[start : start + end])


@pytest.fixture
def server(monkeypatch):
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield running
        running.shutdown()
        thread.join()


def offer(server, monkeypatch, content, name="cifar100", md5=None):
    """Serve `content` as the official archive of `name`; returns the base URL."""
    known = download.ARCHIVES[name]
    md5 = md5 or hashlib.md5(content).hexdigest()
    monkeypatch.setitem(download.ARCHIVES, name, Archive("http://127.0.0.1:9", known.file, md5, known.result))
    server.content = content
    return f"http://127.0.0.1:{server.server_port}/some/path/"


GOOD = tar([("cifar-100-python/train", CONTENT), ("cifar-100-python/deep/meta", b"meta")])


def test_an_archive_is_downloaded_and_unpacked_once(server, monkeypatch, tmp_path):
    url = offer(server, monkeypatch, GOOD)
    seen = []
    result = get("cifar100", tmp_path / "new", lambda done, total: seen.append((done, total)), base_url=url)
    assert result == tmp_path / "new" / "cifar-100-python"
    assert (result / "train").read_bytes() == CONTENT
    assert (result / "deep" / "meta").read_bytes() == b"meta"
    assert list(result.parent.iterdir()) == [result]
    assert seen[-1] == (len(GOOD), len(GOOD))
    assert server.asked == [("/some/path/cifar-100-python.tar.gz", None)]
    get("cifar100", tmp_path / "new", base_url=url)
    assert len(server.asked) == 1


def test_an_interrupted_download_is_resumed(server, monkeypatch, tmp_path):
    url = offer(server, monkeypatch, GOOD)
    server.break_after = 100_000
    with pytest.raises(ConnectionError, match="run the same command again to resume from"):
        get("cifar100", tmp_path, base_url=url)
    assert [path.name for path in tmp_path.iterdir()] == ["cifar-100-python.tar.gz.part"]
    seen = []
    result = get("cifar100", tmp_path, lambda done, total: seen.append((done, total)), base_url=url)
    assert [wanted for _, wanted in server.asked] == [None, "bytes=100000-"]
    assert seen[0][0] > 100_000
    assert seen[-1] == (len(GOOD), len(GOOD))
    assert (result / "train").read_bytes() == CONTENT
    assert list(tmp_path.iterdir()) == [result]


def test_a_server_without_range_support_sends_everything(server, monkeypatch, tmp_path):
    url = offer(server, monkeypatch, GOOD)
    (tmp_path / "cifar-100-python.tar.gz.part").write_bytes(b"old bytes")
    server.ranges = False
    assert (get("cifar100", tmp_path, base_url=url) / "train").read_bytes() == CONTENT


@pytest.mark.parametrize("extra", [b"", b"too much"])
def test_a_complete_or_oversized_part_is_handled(server, monkeypatch, tmp_path, extra):
    url = offer(server, monkeypatch, GOOD)
    (tmp_path / "cifar-100-python.tar.gz.part").write_bytes(GOOD + extra)
    assert (get("cifar100", tmp_path, base_url=url) / "train").read_bytes() == CONTENT
    assert len(server.asked) == (2 if extra else 1)


def test_a_wrong_md5_is_rejected_and_leaves_no_files(server, monkeypatch, tmp_path):
    url = offer(server, monkeypatch, GOOD, md5="0" * 32)
    with pytest.raises(ValueError, match=f"expected md5 {'0' * 32}, got [0-9a-f]{{32}}"):
        get("cifar100", tmp_path, base_url=url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "members",
    [
        [("cifar-100-python/a", b"1"), ("cifar-100-python/../../evil", b"2")],
        [("../evil", b"2")],
        [("/evil", b"2")],
        [("other/evil", b"2")],
        [("cifar-100-python/..\\evil", b"2")],
        [(link("cifar-100-python/l", ".."), b""), ("cifar-100-python/l/evil", b"2")],
        [(link("cifar-100-python", "/tmp"), b"")],
    ],
)
def test_an_archive_member_outside_its_folder_is_rejected(server, monkeypatch, tmp_path, members):
    url = offer(server, monkeypatch, tar(members))
    with pytest.raises(ValueError, match=r"which (is outside of|is neither file nor folder)"):
        get("cifar100", tmp_path / "root", base_url=url)
    assert list((tmp_path / "root").iterdir()) == []
    assert not list(tmp_path.rglob("*evil*"))


@pytest.mark.parametrize("content", [b"not an archive", GOOD[:-50_000], tar([])], ids=["not one", "cut short", "empty"])
def test_a_corrupt_archive_is_rejected_and_leaves_no_files(server, monkeypatch, tmp_path, content):
    url = offer(server, monkeypatch, content)
    with pytest.raises((ValueError, tarfile.TarError, EOFError)):
        get("cifar100", tmp_path, base_url=url)
    assert list(tmp_path.iterdir()) == []


def zipped(members):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in members:
            archive.writestr(name, content)
    return packed.getvalue()


def test_zip_members_are_checked_too(server, monkeypatch, tmp_path):
    good = [("tiny-imagenet-200/", b""), ("tiny-imagenet-200/empty/", b""), ("tiny-imagenet-200/val/a.JPEG", CONTENT)]
    url = offer(server, monkeypatch, zipped(good), "tinyimagenet")
    result = get("tinyimagenet", tmp_path / "a", base_url=url)
    assert (result / "val" / "a.JPEG").read_bytes() == CONTENT
    assert (result / "empty").is_dir()
    outside = zipfile.ZipInfo("tiny-imagenet-200/link")
    outside.external_attr = 0o120777 << 16
    for bad in ([*good, ("tiny-imagenet-200/../evil", b"2")], [("/evil", b"2")], [*good, (outside, b"/etc")]):
        url = offer(server, monkeypatch, zipped(bad), "tinyimagenet")
        with pytest.raises(ValueError, match=r"which (is outside of|is neither file nor folder)"):
            get("tinyimagenet", tmp_path / "b", base_url=url)
        assert list((tmp_path / "b").iterdir()) == []


def human_file(clean, noisy):
    packed = io.BytesIO()
    torch.save({"clean_label": clean, "noisy_label": noisy, "noisy_coarse_label": noisy}, packed)
    return packed.getvalue()


def test_human_labels_are_saved_as_plain_arrays(server, monkeypatch, tmp_path):
    clean, noisy = np.arange(50) % 10, np.arange(50)[::-1] % 10
    url = offer(server, monkeypatch, human_file(clean, noisy), "cifar100n")
    with pytest.raises(ValueError, match="does not contain the published labels"):
        get("cifar100n", tmp_path, base_url=url)
    assert list(tmp_path.iterdir()) == []
    digest = hashlib.sha256(clean.astype("<i8").tobytes() + noisy.astype("<i8").tobytes()).hexdigest()
    monkeypatch.setattr(download, "_HUMAN_LABELS_SHA256", digest)
    result = get("cifar100n", tmp_path, base_url=url)
    assert list(tmp_path.iterdir()) == [result]
    assert result.name == "cifar-100n.npz"
    with np.load(result, allow_pickle=False) as arrays:
        assert np.array_equal(arrays["clean_label"], clean)
        assert np.array_equal(arrays["noisy_label"], noisy)


class Runs:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_human_labels_that_would_run_code_are_rejected(server, monkeypatch, tmp_path):
    url = offer(server, monkeypatch, human_file(Runs(tmp_path / "it ran"), np.arange(3)), "cifar100n")
    with pytest.raises(ValueError, match="is not a torch file of label arrays"):
        get("cifar100n", tmp_path, base_url=url)
    assert list(tmp_path.iterdir()) == []


def test_errors_name_what_cannot_be_downloaded(server, monkeypatch, tmp_path):
    with pytest.raises(ValueError, match=r"data set 'cifar1000' cannot be downloaded; did you mean 'cifar100n?'\?"):
        get("cifar1000", tmp_path)
    with pytest.raises(ValueError, match="data set 'mnist' cannot be downloaded; known: cifar10, cifar100, "):
        get("mnist", tmp_path)
    with pytest.raises(ValueError, match=re.escape("must begin with http:// or https://")):
        get("cifar100", tmp_path, base_url="file:///etc")
    url = offer(server, monkeypatch, GOOD)
    server.status = 404
    with pytest.raises(ConnectionError, match="the server replied 404"):
        get("cifar100", tmp_path, base_url=url)
    server.server_close()
    with pytest.raises(ConnectionError, match="cannot download"):
        get("cifar100", tmp_path, base_url="http://127.0.0.1:9")
    assert list(tmp_path.iterdir()) == []
