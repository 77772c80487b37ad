"""The encoding of a report's columns in JSON.

A column is an object {"dtype", "shape", "data"}: the base64 text of its
little-endian bytes in row-major order. A column of text has the dtype "text";
its data are u32 positions in the report's list of `strings`, which holds every
text once. Everything that is not a column is plain JSON.
"""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

TEXT = "text"
DTYPES = {
  name: np.dtype(name).newbyteorder("<")
  for name in (
    "uint8",
    "uint16",
    "uint32",
    "int32",
    "float32",
    "float64",
  )
}
_NARROWED = ("uint8", "uint16", "uint32", "int32")


class FormatError(ValueError):
  """A file that is not a report of a version that can be read."""


def encode(tree: Any, strings: dict[str, int]) -> Any:
  """A tree of dicts and lists with NumPy columns as plain JSON.

  Args:
    tree: its integers may be of any width; they take the narrowest dtype that
      holds them. Columns of objects are text.
    strings: gets every text of a column, with its position.
  """
  if isinstance(tree, dict):
    return {name: encode(value, strings) for name, value in tree.items()}
  if isinstance(tree, list | tuple):
    return [encode(value, strings) for value in tree]
  if not isinstance(tree, np.ndarray):
    return tree.item() if isinstance(tree, np.generic) else tree
  if tree.dtype == object:
    positions = [strings.setdefault(x, len(strings)) for x in tree.flat]
    return _column(TEXT, np.array(positions, "<u4"), tree.shape)
  name = _narrowest(tree)
  return _column(name, np.ascontiguousarray(tree, DTYPES[name]), tree.shape)


def _column(dtype: str, data: Array, shape: tuple[int, ...]) -> dict[str, Any]:
  text = base64.b64encode(data.tobytes()).decode()
  return {"dtype": dtype, "shape": list(shape), "data": text}


def _narrowest(column: Array) -> str:
  """The dtype of a column in a file: floats keep theirs."""
  if column.dtype.kind == "f":
    return column.dtype.name
  low = int(column.min(initial=0))
  high = int(column.max(initial=0))
  for name in _NARROWED:
    info = np.iinfo(name)
    if info.min <= low and high <= info.max:
      return name
  return "float64"  # exact up to 2^53, more than a machine has bytes


def decode(tree: Any, strings: list[str]) -> Any:
  """The inverse of `encode`.

  Raises:
    FormatError: a column of an unknown dtype, or whose data do not have its
      shape.
  """
  if isinstance(tree, list):
    return [decode(value, strings) for value in tree]
  if not isinstance(tree, dict):
    return tree
  if tree.keys() != {"dtype", "shape", "data"}:
    return {name: decode(value, strings) for name, value in tree.items()}
  name, shape = tree["dtype"], tuple(tree["shape"])
  if name != TEXT and name not in DTYPES:
    raise FormatError(
      f"a column of dtype {name!r}: expected {', '.join([*DTYPES, TEXT])}"
    )
  dtype = DTYPES["uint32" if name == TEXT else name]
  data = base64.b64decode(tree["data"])
  if len(data) != math.prod(shape) * dtype.itemsize:
    raise FormatError(
      f"a column of shape {shape} and dtype {name} has {len(data):,} bytes"
    )
  column = np.frombuffer(data, dtype).reshape(shape)
  if name != TEXT:
    return column
  return np.array(strings, object)[column] if strings else column.astype(object)
