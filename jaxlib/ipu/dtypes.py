"""Element types: their numbers in a program, their sizes, their NumPy types.

The numbers are PJRT's own (`PJRT_Buffer_Type`), so that a program, a buffer
and the C API agree.

Programs compute on the types of `STORED`. The others exist only in graphs and
at a program's boundary: narrow types become bytes (passes/narrow_types.py),
complex numbers pairs of real planes (passes/complex_planes.py).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np


class DType(enum.IntEnum):
  """An element type of JAX. The value is PJRT_Buffer_Type's, if it has one."""

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
  C64 = 14
  C128 = 15
  F8E5M2 = 16
  F8E4M3FN = 17
  F8E4M3B11FNUZ = 18
  F8E5M2FNUZ = 19
  F8E4M3FNUZ = 20
  I4 = 21
  U4 = 22
  I2 = 24
  U2 = 25
  F8E4M3 = 26
  F8E3M4 = 27
  F8E8M0FNU = 28
  F4E2M1FN = 29
  # PJRT has no number for these, and no buffers of them.
  F6E2M3FN = 128
  F6E3M2FN = 129


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
  DType.C64: np.dtype(np.complex64),
  DType.C128: np.dtype(np.complex128),
  DType.F8E5M2: np.dtype(ml_dtypes.float8_e5m2),
  DType.F8E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
  DType.F8E4M3B11FNUZ: np.dtype(ml_dtypes.float8_e4m3b11fnuz),
  DType.F8E5M2FNUZ: np.dtype(ml_dtypes.float8_e5m2fnuz),
  DType.F8E4M3FNUZ: np.dtype(ml_dtypes.float8_e4m3fnuz),
  DType.I4: np.dtype(ml_dtypes.int4),
  DType.U4: np.dtype(ml_dtypes.uint4),
  DType.I2: np.dtype(ml_dtypes.int2),
  DType.U2: np.dtype(ml_dtypes.uint2),
  DType.F8E4M3: np.dtype(ml_dtypes.float8_e4m3),
  DType.F8E3M4: np.dtype(ml_dtypes.float8_e3m4),
  DType.F8E8M0FNU: np.dtype(ml_dtypes.float8_e8m0fnu),
  DType.F4E2M1FN: np.dtype(ml_dtypes.float4_e2m1fn),
  DType.F6E2M3FN: np.dtype(ml_dtypes.float6_e2m3fn),
  DType.F6E3M2FN: np.dtype(ml_dtypes.float6_e3m2fn),
}

SIZE: dict[DType, int] = {d: n.itemsize for d, n in NUMPY.items()}

# As printed by MLIR, and read by the importer.
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
  "complex<f32>": DType.C64,
  "complex<f64>": DType.C128,
  "i4": DType.I4,
  "ui4": DType.U4,
  "i2": DType.I2,
  "ui2": DType.U2,
}
# MLIR writes f8E4M3FN and so on.
MLIR_NAME |= {
  "f" + d.name[1:]: d for d in DType if d.name[:2] in ("F4", "F6", "F8")
}
NAME: dict[DType, str] = {d: n for n, d in MLIR_NAME.items()}


SIGNED = frozenset({DType.I8, DType.I16, DType.I32, DType.I64})
UNSIGNED = frozenset({DType.U8, DType.U16, DType.U32, DType.U64})
INTEGERS = SIGNED | UNSIGNED
FLOATS = frozenset({DType.F16, DType.BF16, DType.F32, DType.F64})
# The type of real and imaginary parts.
PLANE = {DType.C64: DType.F32, DType.C128: DType.F64}
COMPLEX = frozenset(PLANE)
STORED = INTEGERS | FLOATS | {DType.BOOL}
# One byte per element, of which the low bits are used.
NARROW = frozenset(DType) - STORED - COMPLEX
NARROW_INTEGERS = frozenset({DType.I4, DType.U4, DType.I2, DType.U2})
# Types of values inside programs only.
UNBUFFERED = frozenset({DType.F6E2M3FN, DType.F6E3M2FN})
# Number of bits used of the byte.
NARROW_BITS = {d: int(d.name[1]) for d in NARROW}


def bits(dtype: DType) -> int:
  """Number of bits of a value, which may be fewer than its bytes have."""
  return NARROW_BITS.get(dtype, 8 * SIZE[dtype])


def stored(dtype: DType) -> DType:
  """The type in which a program's tensors store such elements: bytes, or the
  parts of complex numbers as two adjacent elements."""
  return DType.U8 if dtype in NARROW else PLANE.get(dtype, dtype)


def type_text(shape: Sequence[int], dtype: DType) -> str:
  """A tensor's type as in MLIR, without the `tensor<>`: 2x3xf32."""
  return "x".join([*map(str, shape), NAME[dtype]])
