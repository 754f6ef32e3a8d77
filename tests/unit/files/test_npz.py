"""Foreign `.npz` files of plain arrays."""

import pickle
import re
import zipfile

import numpy as np
import pytest

from vista.files.npz import names, read_arrays


def test_the_arrays_that_are_there_are_read(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(3), other=np.ones(2))
    found = read_arrays(tmp_path / "a.npz", ("x", "y"))
    assert list(found) == ["x"]
    assert found["x"].tolist() == [0, 1, 2]
    assert names(tmp_path / "a.npz") == ["x", "other"]


class Bomb:
    """A payload that unpickling would execute."""

    def __reduce__(self):
        return pytest.fail, ("a pickle was loaded",)


@pytest.mark.parametrize(
    "content", [b"", b"no zip", b"PK\x03\x04 cut short", pickle.dumps(Bomb())], ids=["empty", "text", "cut", "pickle"]
)
def test_what_is_no_npz_is_named(tmp_path, content):
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(f"{path} is not a readable .npz file of plain arrays")):
        read_arrays(path, ("x",))


@pytest.mark.parametrize("content", [b"", b"id,label\n0,1\n", pickle.dumps(Bomb())], ids=["empty", "text", "pickle"])
def test_no_message_advises_to_trust_what_is_no_archive(tmp_path, content):
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r": it is not an \.npz archive, as numpy\.savez writes it$"):
        read_arrays(path, ("x",))


def test_objects_are_never_unpickled(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([Bomb()], dtype=object))
    with pytest.raises(ValueError, match=r"a\.npz is not a readable \.npz file of plain arrays"):
        read_arrays(tmp_path / "a.npz", ("x",))


def test_a_member_that_is_not_an_array_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x", b"hello")
    with pytest.raises(ValueError, match=r"a\.npz: 'x' must be an array, got 5 bytes"):
        read_arrays(tmp_path / "a.npz", ("x",))


def test_integers_beyond_int64_are_named(tmp_path):
    np.savez(tmp_path / "a.npz", labels=np.array([0, 2**63], np.uint64), ids=np.array([2**63 - 1], np.uint64))
    with pytest.raises(ValueError, match=r"a\.npz: 'labels' must be below 2\*\*63, got 9223372036854775808"):
        read_arrays(tmp_path / "a.npz", ("labels", "ids"))
    assert read_arrays(tmp_path / "a.npz", ("ids",))["ids"].tolist() == [2**63 - 1]
