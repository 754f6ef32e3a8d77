"""A command printed for pasting works, wherever the run is stored."""

from __future__ import annotations

import json
import shlex
import signal
from pathlib import Path

import pytest

from vista.cli import errors
from vista.runs.folder import RunFolder
from vista.training.events import Interrupted
from vista.training.network import check_code_is_trusted

from .conftest import Vista

ODD = ["a b", "-d x", "it's $HOME"]


def words_of(command: str) -> list[str]:
    """The arguments as a shell splits them, without the program's name."""
    program, *words = shlex.split(command)
    assert program == "vista"
    return words


@pytest.mark.filterwarnings("default")  # a finished run has no checkpoint left: it starts anew, and says so
@pytest.mark.parametrize("name", ODD)
def test_how_to_go_on_can_be_pasted(vista: Vista, trained: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    trained.rename(name)
    Path(name, "metrics.json").unlink()
    assert errors.report_stop(Interrupted(Path(name), signal.SIGINT)) == 128 + signal.SIGINT
    commands = [
        capfd.readouterr().err.partition("To resume: ")[2],
        vista("evaluate", f"./{name}").err.split("`")[1],
        vista("reproduce", "--add", f"./{name}").out.split("`")[1],
    ]
    Path(name, "best.safetensors").rename("weights")
    commands.append(vista("export", f"./{name}", "--to", "net.safetensors").err.split("`")[1])
    Path("weights").rename(Path(name, "best.safetensors"))
    assert [words_of(command) for command in commands] == 4 * [["resume", f"./{name}" if name[0] == "-" else name]]
    assert vista(*words_of(commands[0]), "--quiet").code == 0
    assert Path(name, "metrics.json").exists()


def test_how_to_name_a_network_can_be_pasted(trained: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = json.loads((trained / "config.json").read_text())
    (trained / "config.json").write_text(json.dumps({**config, "network": "my nets:f"}))
    errors.report_stop(Interrupted(trained, signal.SIGINT))
    command = capfd.readouterr().err.partition("To resume: ")[2]
    assert words_of(command) == ["resume", "trained", "--network", "my nets:f"]
    with pytest.raises(ValueError, match="if you trust it, add --network 'my nets:f' "):
        check_code_is_trusted(RunFolder(trained).config(), None)


@pytest.mark.parametrize("root", ODD)
def test_how_to_get_data_can_be_pasted(vista: Vista, root: str) -> None:
    rows = json.loads(vista("data", f"--root={root}", "--json").out)["data"]
    command = next(row["place"] for row in rows if row["name"] == "cifar10")
    assert words_of(command) == ["data", "get", "cifar10", "--root", f"./{root}" if root[0] == "-" else root]
    said = vista("data", "get", "cifar10").err
    command = said.split("`")[1]
    assert words_of(command) == ["data", "get", "cifar10", "--root", "DIR"]
