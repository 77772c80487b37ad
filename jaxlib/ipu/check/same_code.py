"""Compares the bodies of calls (`schema.Call`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.program import schema

# What calls of one function may differ in.
_OF_CALLS = ("cost", "location")


def of(steps: Sequence[schema.Step]) -> Any:
  """The steps but for costs, locations and the constants of register programs:
  lists of steps for which it is equal can share a function."""
  return _plain(steps)


def _plain(value: Any) -> Any:
  if dataclasses.is_dataclass(value):
    named = (
      (f.name, getattr(value, f.name)) for f in dataclasses.fields(value)
    )
    return type(value).__name__, *(
      v.abstract if n == "code" and isinstance(v, Code) else _plain(v)
      for n, v in named
      if n not in _OF_CALLS
    )
  if isinstance(value, Code):
    return value
  if isinstance(value, list | tuple):
    return tuple(map(_plain, value))
  return value
