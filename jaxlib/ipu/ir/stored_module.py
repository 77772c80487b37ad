"""The canonical module as a program stores it: bytecode in which large arrays
are left out, as they are among the program's constants."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence

import numpy as np

from jaxlib.ipu.ir import detached_arrays
from jaxlib.ipu.ir.bytecode import Bytes
from jaxlib.ipu.program import schema
from jaxlib.mlir import ir

# Bytes of a constant that are worth an `Omission`, and that are compared at
# once; both a guess. Smaller ones take little in a report's module.
_LARGE, _STEP = 1 << 12, 1 << 20


def bytecode(
  module: ir.Module,
  arrays: detached_arrays.Arrays,
  constants: Sequence[Bytes],
) -> tuple[bytes, list[schema.Omission], list[Bytes]]:
  """The canonical module as MLIR bytecode, without locations, and without large
  arrays, which are found among a program's constants.

  Args:
    module: the module.
    arrays: those that it has marks of.
    constants: the pieces of the program's constants.

  Returns:
    The bytecode; the places of the omitted arrays in it and in the constants;
    the arrays that are not among the constants and have to follow them.

  Raises:
    ValueError, IndexError: the arrays cannot be put into it.
  """
  out = io.BytesIO()
  module.operation.write_bytecode(out)
  if not arrays and all(len(c) < _LARGE for c in constants):
    return out.getvalue(), [], []
  pieces: Sequence[Bytes] = [out.getbuffer()]
  with contextlib.nullcontext() if arrays else _left_as_it_is:
    pieces = detached_arrays.attach(pieces[0], arrays, _LARGE)
  known: dict[tuple[int, bytes], list[tuple[int, Bytes]]] = {}
  address = 0
  for constant in constants:
    known.setdefault(_start(constant), []).append((address, constant))
    address += len(constant)
  kept: list[Bytes] = []
  more: list[Bytes] = []
  omissions, position = [], 0
  for piece in pieces:
    if len(piece) >= _LARGE:
      same = (a for a, c in known.get(_start(piece), ()) if _equal(piece, c))
      if (found := next(same, None)) is None:
        found = address
        more.append(piece)
        address += len(piece)
      omissions.append(schema.Omission(position, found, len(piece)))
    else:
      kept.append(piece)
      position += len(piece)
  return b"".join(kept), omissions, more


# Bytecode that is not understood is stored whole.
_left_as_it_is = contextlib.suppress(ValueError, IndexError)


def _start(piece: Bytes) -> tuple[int, bytes]:
  """A key that equal pieces share."""
  return len(piece), bytes(piece[:64])


def _equal(a: Bytes, b: Bytes) -> bool:
  """Whether two pieces of the same length are equal."""
  x, y = np.frombuffer(a, np.uint8), np.frombuffer(b, np.uint8)
  return x.ctypes.data == y.ctypes.data or all(
    np.array_equal(x[i : i + _STEP], y[i : i + _STEP])
    for i in range(0, x.size, _STEP)
  )
