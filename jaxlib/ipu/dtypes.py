"""Element types: their numbers in a program, their sizes, their NumPy types.

The numbers are PJRT's own (`PJRT_Buffer_Type`), so that a program, a buffer
and the C API mean the same thing by the same number.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np


class DType(enum.IntEnum):
  """An element type a program can hold. The value is PJRT_Buffer_Type's."""

  BOOL = 1
  I8 = 2
  I16 = 3
  I32 = 4
  I64 = 5
  U8 = 6
  U16 = 7
  U32 = 8
  U64 = 9
  F16 = 10
  F32 = 11
  F64 = 12
  BF16 = 13


NUMPY: dict[DType, np.dtype[Any]] = {
  DType.BOOL: np.dtype(np.bool_),
  DType.I8: np.dtype(np.int8),
  DType.I16: np.dtype(np.int16),
  DType.I32: np.dtype(np.int32),
  DType.I64: np.dtype(np.int64),
  DType.U8: np.dtype(np.uint8),
  DType.U16: np.dtype(np.uint16),
  DType.U32: np.dtype(np.uint32),
  DType.U64: np.dtype(np.uint64),
  DType.F16: np.dtype(np.float16),
  DType.F32: np.dtype(np.float32),
  DType.F64: np.dtype(np.float64),
  DType.BF16: np.dtype(ml_dtypes.bfloat16),
}

SIZE: dict[DType, int] = {d: n.itemsize for d, n in NUMPY.items()}

# As MLIR prints them, which is how the importer meets them.
MLIR_NAME: dict[str, DType] = {
  "i1": DType.BOOL,
  "i8": DType.I8,
  "i16": DType.I16,
  "i32": DType.I32,
  "i64": DType.I64,
  "ui8": DType.U8,
  "ui16": DType.U16,
  "ui32": DType.U32,
  "ui64": DType.U64,
  "f16": DType.F16,
  "f32": DType.F32,
  "f64": DType.F64,
  "bf16": DType.BF16,
}
NAME: dict[DType, str] = {d: n for n, d in MLIR_NAME.items()}


def type_text(shape: Sequence[int], dtype: DType) -> str:
  """A tensor's type as MLIR writes it, without the `tensor<>`: 2x3xf32."""
  return "x".join([*map(str, shape), NAME[dtype]])


SIGNED = frozenset({DType.I8, DType.I16, DType.I32, DType.I64})
UNSIGNED = frozenset({DType.U8, DType.U16, DType.U32, DType.U64})
INTEGERS = SIGNED | UNSIGNED
FLOATS = frozenset({DType.F16, DType.BF16, DType.F32, DType.F64})
