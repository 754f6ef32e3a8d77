"""VISTA's state in one safetensors file."""

import pytest
import torch
from safetensors.torch import save_file

from vista.integrations.state_file import read_state, write_state


def test_the_file_gives_back_every_part_of_the_state(task, plain, tmp_path):
    state = plain.state_dict()
    write_state(tmp_path / "vista.safetensors", state)
    again = read_state(tmp_path / "vista.safetensors")
    assert again.keys() == state.keys()
    vista = task.vista()
    vista.load_state_dict(again)
    assert torch.equal(vista.teacher(), plain.teacher())
    assert [p.name for p in tmp_path.iterdir()] == ["vista.safetensors"]


def test_what_is_no_state_is_refused_by_name(tmp_path):
    path = tmp_path / "vista.safetensors"
    with pytest.raises(FileNotFoundError, match=r"vista\.safetensors is not there"):
        read_state(path)
    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match=r"but this version reads vista\.state version 1"):
        read_state(path)
    path.write_bytes(b"\x00" * 20)
    with pytest.raises(ValueError, match="damaged or cut short"):
        read_state(path)
