import re

import pytest

from vista.data import load, names


def test_an_unknown_name_is_answered_with_the_nearest():
    assert names() == ("digits", "cifar10", "cifar100", "tinyimagenet", "folder:PATH", "npz:PATH")
    with pytest.raises(ValueError, match=re.escape("data 'cifar-100' is unknown; the nearest known is 'cifar100'")):
        load("cifar-100")
    with pytest.raises(ValueError, match="the nearest known is 'folder:PATH'"):
        load("foldr:x")
    with pytest.raises(ValueError, match="data 'npz:' names no path"):
        load("npz:")


@pytest.mark.parametrize(
    ("name", "folder"),
    [("cifar10", "cifar-10-batches-py"), ("cifar100", "cifar-100-python"), ("tinyimagenet", "tiny-imagenet-200")],
)
def test_data_that_is_not_there_says_where_it_was_sought(name, folder, tmp_path, monkeypatch):
    monkeypatch.delenv("VISTA_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=f"vista data get {name} --root DIR"):
        load(name)
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path / folder))):
        load(name, tmp_path)
    monkeypatch.setenv("VISTA_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path / folder))):
        load(name)
