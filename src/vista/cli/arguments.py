"""Command-line options from dataclasses, with the preset's values as defaults and the method's options as flags."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import re
import shutil
import sys
import textwrap
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import docstring_parser
import tyro

from vista.core.validation import suggest
from vista.methods import Chosen
from vista.runs.config import TrainConfig, preset

Preset = Literal["auto", "recommended", "paper", "digits", "clean", "noisy"]
T = TypeVar("T")
# Where to train: the option --on.
On = Annotated[str | None, tyro.conf.arg(metavar="ray[:ADDRESS]|slurm[:PARTITION]", help_behavior_hint="")]
# Metavars of options that are empty by default.
METAVARS = {
    "root": "DIR", "checkpoint_dir": "DIR", "padding": "N", "flip": "True|False", "noise_seed": "N", "split_seed": "N",
    "labels": "FILE", "split_from": "RUN", "fold": "K/N",
    "label_column": "NAME", "image_column": "NAME", "text_column": "NAME", "tokenizer": "FOLDER",
    "backbone_lr": "RATE",
}  # fmt: skip
BASIC = ("data", "root", "noise", "method", "network", "epochs", "batch_size", "lr", "seed", "device")
# The method's options are flags of their own, its version is that of the code, a protocol belongs to
# `reproduce`, and the choice is what `auto` explains.
NO_FLAGS = ("options", "method_version", "clean_validation", "choice")
ADVANCED = tuple(field.name for field in dataclasses.fields(TrainConfig) if field.name not in (*BASIC, *NO_FLAGS))


@dataclass(frozen=True)
class Output:
    """What is printed and written."""

    quiet: bool = False
    """Print the result only."""
    json: bool = False
    """Print one JSON object to stdout; progress goes to stderr."""
    fresh: bool = False
    """Replace existing runs in the same folder instead of resuming them; each is deleted once the new run starts."""
    tensorboard: bool = False
    """Write scalars per epoch for TensorBoard, to the folder tensorboard/ of each run."""


def parse(kind: type[T], argv: Sequence[str], command: str, about: str, default: T | None = None) -> T:
    """Parse ``argv`` into the dataclass ``kind``; ``--help`` raises SystemExit, invalid options ValueError."""
    given: dict[str, Any] = {} if default is None else {"default": default}
    marks, printed, shown = (tyro.conf.OmitArgPrefixes,), io.StringIO(), _Terminal()
    name = f"vista {command}"
    try:
        with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(shown):
            read: T = tyro.cli(
                typing.cast("type[T]", _with_help(kind)),  # type: ignore[arg-type]
                args=list(argv),
                prog=name,
                description=about,
                config=marks,
                **given,
            )
    except SystemExit as error:
        if not error.code:  # --help
            print(_wrapped(shown.getvalue()), end="")
            raise
        raise ValueError(f"{_parser_error(kind, printed.getvalue())} (see `vista {command} --help`)") from None
    return read


class _Terminal(io.StringIO):
    """A buffer for the help, which has the characters and colours that the terminal can show."""

    encoding = property(lambda self: getattr(sys.__stdout__, "encoding", None))

    def isatty(self) -> bool:
        return sys.__stdout__ is not None and sys.__stdout__.isatty()


def _wrapped(text: str) -> str:
    """The help with usage and description wrapped at words; the parser wraps only what it puts into boxes."""
    columns = shutil.get_terminal_size().columns
    lines = (
        textwrap.fill(line, columns) if line[:1].isalpha() or line[:1] in "`-" else line for line in text.splitlines()
    )
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines) + "\n")


@functools.cache
def _with_help(kind: type) -> type:
    """Annotate the fields of a dataclass of options, and of its groups, with their docstrings as single lines.

    The parser finds the docstrings itself, but keeps the line breaks of the source. An empty default is not shown.
    """
    hints = typing.get_type_hints(kind, include_extras=True)
    for hint in hints.values():
        if dataclasses.is_dataclass(hint):
            _with_help(typing.cast(type, hint))
    empty = {field.name for field in dataclasses.fields(kind) if field.default in (None, ())}
    for name, text in explanations(kind).items():
        default = "" if name in empty else None  # "(default: None)" says less than nothing
        kind.__annotations__[name] = Annotated[hints[name], tyro.conf.arg(help=text, help_behavior_hint=default)]
    return kind


def explanations(kind: type) -> dict[str, str]:
    """The docstring of each field of a dataclass and of its bases, in one line each."""
    documented = [docstring_parser.parse_from_object(base) for base in reversed(kind.__mro__[:-1])]
    fields = [param for one in documented for param in one.params]
    return {field.arg_name: " ".join((field.description or "").split()) for field in fields}


def _parser_error(kind: type, box: str) -> str:
    """The message in the parser's box, in one line; an unknown option gets a suggestion."""
    lines = [line.strip("│ ") for line in re.sub(r"\x1b\[[0-9;]*m", "", box).splitlines()]
    rules = [number for number, line in enumerate(lines) if line.startswith(("─", "╰"))]
    first = next((number for number, line in enumerate(lines) if line.startswith("╭")), -1)
    message = " ".join(lines[first + 1 : rules[0] if rules else None]).rstrip(".") or "invalid options"
    if missing := re.match(r"Missing from [^:]*: (\S+)", message):
        return f"{missing[1]} is missing"
    if number := re.match(
        r"Error parsing (\S+): .*?(invalid literal for int|could not convert string to float).*?: (.*)", message
    ):
        return f"{number[1]} must be a {'whole number' if 'int' in number[2] else 'number'}, got {number[3]}"
    if choice := re.match(r"invalid choice (.*) for argument '(.*)'. Expected one of \((.*?),?\)", message):
        names = [name for name in choice[3].replace("'", "").split(", ") if name != "None"]
        if "True" in names:  # in the order of a set
            names.sort(reverse=True)
        return f"{choice[2]} must be one of {', '.join(names)}, got {choice[1]}"
    unknown = re.match(r"Unrecognized options: ([^\s,]+)", message)
    if unknown is None:
        return message[0].lower() + message[1:]
    name, known = unknown[1].partition("=")[0], list(_flags(kind))
    if not name.startswith("-"):
        return f"unexpected argument {name!r}"
    advice = suggest(name, known)
    return f"option {name!r} is unknown" + (f"; {advice}" if advice.startswith("did") else "")


def _flags(kind: type) -> Iterator[str]:
    """The names of all options of a dataclass."""
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        marks = getattr(hints[field.name], "__metadata__", ())
        plain = hints[field.name].__origin__ if marks else hints[field.name]
        if dataclasses.is_dataclass(plain):
            yield from _flags(typing.cast(type, plain))
        elif tyro.conf.Fixed not in marks:
            renamed = next((mark.name for mark in marks if getattr(mark, "name", None)), field.name)
            yield "--" + renamed.replace("_", "-")


def peek(argv: Sequence[str], name: str, default: str) -> str:
    """The value of an option that decides which other options exist, read before parsing."""
    value = default
    for index, word in enumerate(argv):
        if word == f"--{name}" and index + 1 < len(argv):
            value = argv[index + 1]
        elif word.startswith(f"--{name}="):
            value = word.partition("=")[2]
    return value


# ---------------------------------------------------------------- options of the training


def training_flags(argv: Sequence[str], without: Sequence[str] = ()) -> list[tuple[str, Any, Any]]:
    """Fields for ``make_dataclass``: the basic and the advanced options of the training, with the preset's defaults.

    Args:
        argv: The command line, which names preset, data and noise.
        without: Fields of TrainConfig that the command does not have.
    """
    name = peek(argv, "preset", "auto")
    known = name if name in typing.get_args(Preset) else "auto"  # the parser rejects an unknown one
    values = preset(known, *(peek(argv, name, getattr(TrainConfig, name)) for name in ("data", "noise", "optimizer")))
    groups = {
        "basic": ("Data, noise, network and the length of the training.", BASIC),
        "advanced": ("Optimizer, augmentation, validation, precision and checkpoints.", ADVANCED),
    }
    flags = {
        title: _group(title, about, [name for name in names if name not in without])
        for title, (about, names) in groups.items()
    }
    return [(title, kind, kind(**values)) for title, kind in flags.items()]


def _group(title: str, about: str, shown: Sequence[str]) -> Any:
    """A dataclass with the fields of TrainConfig of which only some are options."""
    hints = typing.get_type_hints(TrainConfig)
    fields: list[Any] = []
    for field in dataclasses.fields(TrainConfig):
        if field.name not in shown:
            hint: Any = Annotated[hints[field.name], tyro.conf.Suppress, tyro.conf.Fixed]
        else:
            hint = _without_none(hints[field.name], METAVARS.get(field.name))
        fields.append((field.name, hint, _copy(field)))
    # Values are checked when all of them are known: see train_config.
    body = {"__post_init__": lambda self: None, "__doc__": about}
    return dataclasses.make_dataclass(title.title(), fields, bases=(TrainConfig,), frozen=True, namespace=body)


def _copy(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=field.default_factory)
    return dataclasses.field(default=field.default)


def _without_none(hint: Any, metavar: str | None = None, name: str | None = None) -> Any:
    """The type of an option; one that may be None is shown without ``{None}|`` and without a default."""
    kinds = typing.get_args(hint)
    if type(None) not in kinds:
        return hint if name is None else Annotated[hint, tyro.conf.arg(name=name)]
    shown = metavar or getattr(kinds[0], "__name__", "value").upper()
    return Annotated[hint, tyro.conf.arg(name=name, metavar=shown, help_behavior_hint="")]


def train_config(flags: Any, **changes: Any) -> TrainConfig:
    """The checked configuration from the parsed groups ``basic`` and ``advanced``."""
    values = {name: getattr(flags.basic, name) for name in BASIC}
    values |= {name: getattr(flags.advanced, name) for name in ADVANCED}
    return TrainConfig(**{**values, **changes})


def given_fields(argv: Sequence[str]) -> set[str]:
    """The fields of TrainConfig that a command line sets."""
    words = {word.partition("=")[0].removeprefix("--").replace("_", "-") for word in argv if word.startswith("--")}
    names = {field.name: field.name.replace("_", "-") for field in dataclasses.fields(TrainConfig)}
    return {name for name, flag in names.items() if words & {flag, f"no-{flag}"}}


# ---------------------------------------------------------------- options of the method


def method_flags(chosen: Chosen) -> Any:
    """The method's options as a dataclass of flags, without defaults that depend on other options."""
    config = chosen.method.Config
    hints = typing.get_type_hints(config, include_extras=True)
    fields: list[Any] = []
    for field in dataclasses.fields(config):
        flag = method_flag(chosen, field.name)
        renamed = flag if flag != field.name.replace("_", "-") else None
        if renamed or type(None) in typing.get_args(hints[field.name]):
            fields.append((field.name, _without_none(hints[field.name], name=renamed), _copy(field)))
    unchecked = {"__post_init__": lambda self: None}  # choose() checks them, with our own messages
    kind = dataclasses.make_dataclass("MethodFlags", fields, bases=(config,), frozen=True, namespace=unchecked)
    return kind(**chosen.given)


def method_flag(chosen: Chosen, option: str) -> str:
    """``tau``; an option with the name of a training option is prefixed with the method: ``elr-momentum``."""
    taken = {field.name for kind in (TrainConfig, Output) for field in dataclasses.fields(kind)} | {"preset", "out"}
    flag = option.replace("_", "-")
    return f"{chosen.method.name}-{flag}" if option in taken else flag
