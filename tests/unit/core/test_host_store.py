"""The store on the host: the same numbers as on the device, from files that processes share."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save
from torch import Tensor

from vista import Vista
from vista.core import host_store
from vista.core import vista as vista_module
from vista.core.host_store import map_rows, write_rows
from vista.files.reader import map_tensors

N, M, E = 37, 24, 6
OPTIONS: dict[str, dict[str, Any]] = {
    "basic": {},
    "light": {"tau": 0.1},
    "smoothed": {"smoothing": 3},
    "from uniform": {"schedule": "fixed", "value": 0.7, "start": "uniform"},
    "top-k": {"topk": 2},
    "clean pass": {"record": "eval"},
}


def make(classes: int = 5, **options: Any) -> Vista:
    labels, val_labels = torch.arange(N) % classes, torch.arange(M) % classes
    labels[3] = -1
    return Vista(labels, num_classes=classes, epochs=E, val_labels=val_labels, **options)


def drawn(rows: int, classes: int, *seed: int) -> Tensor:
    source = torch.Generator().manual_seed(sum(s * 1000**i for i, s in enumerate(seed)))
    return torch.randn(rows, classes, generator=source)


def batches(epoch: int) -> list[Tensor]:
    """Of 8 samples, one of which comes twice; the last few samples are never seen in odd epochs."""
    order = torch.randperm(N, generator=torch.Generator().manual_seed(epoch))
    order = order[order < N - 4] if epoch % 2 else order
    return [torch.cat([part, part[:1]]) for part in order.split(8)]


def step(vista: Vista, epoch: int, number: int) -> Tensor:
    index = batches(epoch)[number]
    logits = drawn(len(index), vista.num_classes, epoch, number).requires_grad_()
    if vista.state_dict()["identity"]["record"] == "eval":
        vista.record(logits.detach(), index)
    loss = vista.loss(logits, index)
    loss.backward()
    assert logits.grad is not None
    return torch.cat([logits.grad.flatten(), loss.detach().view(1)])


def end(vista: Vista, epoch: int) -> Any:
    vista.expects_every_sample = False
    classes = vista.num_classes
    right = torch.nn.functional.one_hot(torch.arange(M) % classes, classes)
    return vista.end_epoch(drawn(M, classes, 7, epoch) + right)


def train(vista: Vista, first: int = 1, last: int = E, prefetch: bool = False) -> list[Any]:
    """Everything that a training sees, as numbers."""
    seen: list[Any] = []
    for epoch in range(first, last + 1):
        for number, index in enumerate(batches(epoch)):
            if prefetch:
                vista.prefetch(index)
            seen.append(step(vista, epoch, number))
        summary = end(vista, epoch)
        seen += [summary.anchors, summary.beta, summary.unrecorded, vista.teacher(), vista.targets(torch.arange(N))]
    return seen


def assert_equal(one: list[Any], other: list[Any]) -> None:
    assert len(one) == len(other)
    for mine, yours in zip(one, other, strict=True):
        assert torch.equal(mine, yours) if isinstance(mine, Tensor) else mine == yours


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("classes", [5, 1000])
def test_host_and_device_give_the_same_bits(name: str, classes: int, tmp_path: Path) -> None:
    on_device = train(make(classes, store="device", **OPTIONS[name]))
    host = make(classes, store="host", store_dir=tmp_path, **OPTIONS[name])
    assert_equal(train(host), on_device)
    assert not host.on_device
    assert_equal(train(make(classes, store="host", **OPTIONS[name]), prefetch=True), on_device)


@pytest.mark.parametrize("name", ["basic", "top-k"])
def test_a_store_that_no_longer_fits_moves_to_files_and_nothing_else_changes(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = train(make(store="device", **OPTIONS[name]))
    monkeypatch.setattr(vista_module, "fits_one_more", lambda size, device: vista.epoch < 2)
    vista = make(store="auto", store_dir=tmp_path, **OPTIONS[name])
    seen = train(vista, last=2)
    assert vista.on_device
    seen += train(vista, first=3, last=3)
    assert not vista.on_device
    assert len(list(tmp_path.rglob("epoch-*.safetensors"))) == len(vista.state_dict()["predictions"])
    assert_equal([*seen, *train(vista, first=4)], whole)


@pytest.mark.parametrize(("before", "after"), [("host", "host"), ("host", "device"), ("device", "host")])
@pytest.mark.parametrize("epoch", [1, 4])
@pytest.mark.parametrize("topk", [None, 2])
def test_a_state_resumes_in_either_store(before: str, after: str, epoch: int, topk: int | None) -> None:
    """In the middle of an epoch, whose first two batches are not seen again."""
    whole = make(store="device", topk=topk)
    train(whole, last=epoch - 1)
    stopped = make(store=before, topk=topk)
    train(stopped, last=epoch - 1)
    for vista in (whole, stopped):
        for number in range(2):
            step(vista, epoch, number)
    file = io.BytesIO()
    torch.save(stopped.state_dict(), file)
    stopped.close()
    file.seek(0)
    resumed = make(store=after, topk=topk)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    rest = [[step(vista, epoch, 2), end(vista, epoch).anchors, *train(vista, epoch + 1)] for vista in (whole, resumed)]
    assert_equal(*rest)


def test_a_prefetched_batch_is_that_of_its_epoch() -> None:
    vista, index = make(store="host"), batches(4)[0]
    train(vista, last=3)
    vista.prefetch(index)
    before = vista.targets(index)
    vista.prefetch(index)
    train(vista, first=4, last=4)
    expected = make(store="device")
    train(expected, last=4)
    assert not torch.equal(vista.targets(index), before)
    assert torch.equal(vista.targets(index), expected.targets(index))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("topk", [None, 3])
def test_batches_prefetched_beside_a_busy_gpu_are_those_of_the_device(topk: int | None) -> None:
    found = []
    for store in ("device", "host"):
        vista = make(1000, store=store, topk=topk, device="cuda")
        seen, busy = [], torch.randn(2048, 2048, device="cuda")
        for epoch in range(1, E + 1):
            for number, index in enumerate(batches(epoch)):
                vista.prefetch(index)
                for _ in range(20):
                    busy = torch.tanh(busy @ busy)
                vista.prefetch(batches(epoch)[(number + 1) % len(batches(epoch))])
                logits = drawn(len(index), 1000, epoch, number).cuda().requires_grad_()
                vista.loss(logits, index).backward()
                seen.append(logits.grad.cpu())
            end(vista, epoch)
        found.append(seen)
    assert_equal(*found)


# ---------------------------------------------------------------- files


def test_a_state_is_the_file_that_safetensors_would_write(tmp_path: Path) -> None:
    for number, values in enumerate((torch.rand(7, 3).half(), torch.arange(10, dtype=torch.int32).view(5, 2))):
        path, shape = tmp_path / str(number), (values.shape[0], values.shape[1])
        digest = write_rows(path, shape, values.dtype, iter(values.split(2)))
        assert path.read_bytes() == save({"values": values})
        assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
        assert torch.equal(map_rows(path, shape, values.dtype), values)


def test_a_state_may_be_larger_than_the_memory(tmp_path: Path) -> None:
    """Through the store and through a checkpoint, whose part it is."""
    path, shape = tmp_path / "rows.safetensors", (2**40, 2)
    header = {"values": {"dtype": "F16", "shape": shape, "data_offsets": [0, 2**42]}}
    text = json.dumps(header).encode().ljust(120)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + np.array([1, 2], np.float16).tobytes())
        try:
            file.truncate(8 + len(text) + 2**42)
        except OSError:
            pytest.skip("the file system has no sparse files of this size")
    for rows in (map_rows(path, shape, torch.float16), map_tensors(path)["values"]):
        assert rows[0].tolist() == [1, 2]
        assert rows.shape == shape


def test_files_are_those_of_the_kept_states_and_end_with_the_store(tmp_path: Path) -> None:
    vista = make(store="host", store_dir=tmp_path, tau=0.1)
    for epoch in range(1, E + 1):
        train(vista, epoch, epoch)
        kept = {*vista.state_dict()["states"], epoch}
        found = {int(path.stem.split("-")[1]) for path in tmp_path.rglob("epoch-*.safetensors")}
        assert found == kept, "those of the anchors, and the last predictions"
    teacher = vista.teacher()
    state = vista.state_dict()
    del vista
    assert list(tmp_path.iterdir()) == []
    assert all(bool(torch.isfinite(rows).all()) for rows in state["predictions"].values()), "mapped rows stay readable"
    assert teacher.shape == (N, 5)


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    first = make(store="host", store_dir=tmp_path)
    [own] = tmp_path.iterdir()
    dead, foreign = own.name.replace(f"-{os.getpid()}-", "-999999999-"), "vista-store-elsewhere-1-00000000"
    for name in (dead, foreign, "mine"):
        (tmp_path / name).mkdir()
    second = make(store="host", store_dir=tmp_path)
    assert {own.name, foreign, "mine"} < {path.name for path in tmp_path.iterdir()}
    assert not (tmp_path / dead).exists()
    first.close()
    second.close()


def test_a_full_disk_is_an_error_that_names_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    vista = make(store="host", store_dir=tmp_path)
    train(vista, last=1)

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(host_store, "os", SimpleNamespace(**{**vars(os), "pwrite": full}))
        with pytest.raises(OSError, match=rf"cannot be stored in {tmp_path}.*No space left.*choose another store_dir"):
            step(vista, 2, 0)
    for number in range(len(batches(2))):
        step(vista, 2, number)
    with monkeypatch.context() as patch:
        patch.setattr(host_store, "write_rows", full)
        with pytest.raises(OSError, match=rf"cannot be stored in {tmp_path}.*No space left"):
            end(vista, 2)
    assert vista.epoch == 1
    expected = make(store="device")
    train(expected, last=2)
    assert end(vista, 2).epoch == 2, "once there is space, the epoch ends"
    assert torch.equal(vista.targets(torch.arange(N)), expected.targets(torch.arange(N)))


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError, match=f"cannot be stored in {tmp_path}: Permission denied"):
        make(store="host", store_dir=tmp_path)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"predictions cannot be stored in .*file.*choose another store_dir"):
        make(store="host", store_dir=tmp_path / "file")


def test_a_store_of_another_name_is_rejected() -> None:
    with pytest.raises(ValueError, match="store must be one of auto, device, host, got 'disk'"):
        make(store="disk")


def test_of_a_repeated_sample_the_last_row_stays(tmp_path: Path) -> None:
    log = host_store.RowLog(tmp_path, 6, 2, torch.float16)
    for step_number in range(3):
        index = np.array([1, 4, 1, 5 - step_number])
        log.write(index, np.full((4, 2), step_number, np.float16) + np.arange(4, dtype=np.float16)[:, None] / 8)
    expected = {1: 2.25, 4: 2.125, 5: 0.375, 3: 2.375}
    assert log.seen().tolist() == [i in expected for i in range(6)]
    assert {i: float(log.rows(np.array([i]))[0, 0]) for i in expected} == expected
    log.close()
