"""Griffe extension: renders the roles in docstrings, ``:math:`` as a formula and ``:func:`` and the like as code."""

from __future__ import annotations

import re
from typing import Any

import griffe

MATH = re.compile(r":math:`([^`]+)`")
REFERENCE = re.compile(r":(?:class|data|func|meth|mod):`~?([^`]+)`")


class Roles(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring:
            text = MATH.sub(r"\\(\1\\)", obj.docstring.value)
            obj.docstring.value = REFERENCE.sub(r"`\1`", text)
