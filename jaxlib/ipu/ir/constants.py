"""The values of MLIR's dense attributes as NumPy arrays."""

from __future__ import annotations

import math
import re
import struct
from fractions import Fraction
from typing import Any

import numpy as np

from jaxlib.ipu.dtypes import (
  COMPLEX,
  NARROW,
  NARROW_BITS,
  NUMPY,
  PLANE,
  SIGNED,
  UNSIGNED,
  DType,
)
from jaxlib.ipu.ir.graph import Shape

# Types that the bindings expose as buffers.
_BUFFERED = SIGNED | UNSIGNED | {DType.BOOL, DType.F16, DType.F32, DType.F64}
# ... of at most this rank, a limit of the bindings.
_MOST_BUFFERED = 32
# A limit of NumPy's.
MOST_DIMENSIONS = 64
# Exponent and mantissa bits.
_FORMAT = {
  DType.F16: (5, 10),
  DType.BF16: (8, 7),
  DType.F32: (8, 23),
  DType.F64: (11, 52),
}


def read_constant(operation: Any, shape: Shape, dtype: DType) -> np.ndarray:
  """The value of a `stablehlo.constant`; a splat stays a stride-0 view.

  `shape` may have other dimensions than the constant, but as many elements.
  Types without a buffer in the bindings are read from what MLIR prints. (Large
  arrays are not even parsed: ir/detached_arrays.py.)
  """
  if 0 in shape:
    return np.zeros(shape, NUMPY[dtype])
  if dtype not in COMPLEX:
    return read_dense(operation.attributes["value"], shape, dtype)
  # The bindings cannot even return an attribute of complex numbers.
  text = operation.get_asm(large_elements_limit=1 << 62)
  return _read_text(text, shape, dtype)


def read_dense(attribute: Any, shape: Shape, dtype: DType) -> np.ndarray:
  """The values of a dense attribute; a splat stays a stride-0 view."""
  if 0 in shape:
    return np.zeros(shape, NUMPY[dtype])
  if dtype not in _BUFFERED or attribute.type.rank > _MOST_BUFFERED:
    return _read_text(str(attribute), shape, dtype)
  if attribute.is_splat:
    # A stride-0 view: bits are preserved, those of signalling NaNs too.
    one = np.asarray(attribute)[(slice(0, 1),) * len(shape)]
    return np.broadcast_to(one.astype(NUMPY[dtype]).reshape(()), shape)
  # Not copied: the array shares the attribute's memory and keeps it alive.
  return np.asarray(attribute).astype(NUMPY[dtype], copy=False).reshape(shape)


def _read_text(text: str, shape: Shape, dtype: DType) -> np.ndarray:
  """The values between the brackets of `dense<...>`."""
  start = text.index("dense<") + len("dense<")
  body = text[start : text.index(">", start)]
  if body.startswith('"0x'):
    flat = np.frombuffer(bytes.fromhex(body[3:-1]), NUMPY[dtype])
  else:
    numbers = re.findall(r"[^\s\[\](),]+", body)
    flat = np.frombuffer(_encode(numbers, dtype), NUMPY[dtype])
  if flat.size == 1:
    return np.broadcast_to(flat.reshape(()), shape)
  return flat.reshape(shape)


def _encode(numbers: list[str], dtype: DType) -> bytes:
  """Printed numbers as the bytes of elements; `0x...` gives bits.

  Uses integers: the compiler runs on threads that flush float32 denormals, and
  most of bfloat16's denormals are also float32's.
  """
  item = NUMPY[PLANE.get(dtype, dtype)].itemsize
  form = {1: "B", 2: "H", 4: "I", 8: "Q"}[item]
  mask = (1 << 8 * item) - 1
  bits = [
    int(n, 16) if n.startswith("0x") else _bits(n, dtype) & mask
    for n in numbers
  ]
  return struct.pack(f"<{len(bits)}{form}", *bits)


def _bits(number: str, dtype: DType) -> int:
  if dtype in NARROW:
    return _narrow_bits(number, dtype)
  if number in ("true", "false"):
    return int(number == "true")
  dtype = PLANE.get(dtype, dtype)
  if dtype in SIGNED | UNSIGNED:
    return int(number)
  value = float(number)
  if dtype is DType.F64 and abs(value) < 1e-300:
    # By integers too: a denormal's bits count the smallest denormal.
    return (number.startswith("-") << 63) | _double_bits(number)
  return _float_bits(value, *_FORMAT[dtype])


def _double_bits(number: str) -> int:
  """The bits of a magnitude below 1e-300."""
  exact = abs(Fraction(number))
  exponent = -1022
  while exact >= Fraction(2) ** (exponent + 1):
    exponent += 1
  units = round(exact / Fraction(2) ** (exponent - 52))
  return ((exponent + 1022) << 52) + units


def _narrow_bits(number: str, dtype: DType) -> int:
  if not dtype.name.startswith("F"):
    return int(number) & ((1 << NARROW_BITS[dtype]) - 1)
  if dtype is DType.F8E8M0FNU:
    # Six digits of a power of two are printed, some rounded down.
    return round(math.log2(float(number))) + 127
  with np.errstate(all="ignore"):
    return int(np.float64(number).astype(NUMPY[dtype]).view(np.uint8))


def _float_bits(value: float, exponent_bits: int, mantissa_bits: int) -> int:
  """The nearest number of an IEEE 754 format; does not check for overflow."""
  bias = (1 << (exponent_bits - 1)) - 1
  sign = int(math.copysign(1.0, value) < 0) << (exponent_bits + mantissa_bits)
  if not value:
    return sign
  exponent = max(math.frexp(value)[1] - 1, 1 - bias)
  significand = round(math.ldexp(abs(value), mantissa_bits - exponent))
  return sign | (((exponent + bias - 1) << mantissa_bits) + significand)
