"""Griffe extension: renders the roles in docstrings, ``:math:`` as a formula and ``:func:`` and the like as code, and
examples (``>>>``) as code blocks."""

from __future__ import annotations

import re
from typing import Any

import griffe

MATH = re.compile(r":math:`([^`]+)`")
REFERENCE = re.compile(r":(?:class|data|func|meth|mod):`~?([^`]+)`")


EXAMPLE = re.compile(r"^( *)>>> .*(?:\n *\S.*)*", re.MULTILINE)  # up to the next empty line


def as_code(example: re.Match[str]) -> str:
    """The example as a fenced block, without the directives of doctest."""
    code = re.sub(r" *# doctest: .*", "", example[0])
    return f"{example[1]}```pycon\n{code}\n{example[1]}```"


class Roles(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring:
            text = MATH.sub(r"\\(\1\\)", obj.docstring.value)
            obj.docstring.value = EXAMPLE.sub(as_code, REFERENCE.sub(r"`\1`", text))
