"""The shared library: PJRT's functions, and those that the compiler calls."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIBRARY = Path(__file__).with_name("libjaxipu.so")

# What a function returns if there is not enough memory; otherwise a negative
# number says that it has been called with what it does not know.
_NO_MEMORY = -2


@functools.cache
def _library() -> ctypes.CDLL:
  return ctypes.CDLL(str(LIBRARY))


@functools.cache
def function(name: str, *arguments: Any) -> Any:
  """A function of the library that returns an int64, and runs without the GIL.

  Args:
    name: its name.
    *arguments: their types, of `ctypes`.
  """
  found = _library()[name]
  found.argtypes, found.restype = arguments, ctypes.c_int64
  return found


def checked(status: int, question: Callable[[], str]) -> int:
  """Returns what such a function has returned, unless it has failed.

  Raises:
    ValueError: the function does not know what it was asked; says `question`.
    MemoryError: the host is out of memory.
  """
  if status == _NO_MEMORY:
    raise MemoryError
  if status < 0:
    raise ValueError(question())
  return status
