"""The values of MLIR's dense attributes as NumPy arrays."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from jaxlib.ipu.dtypes import NUMPY, DType
from jaxlib.ipu.ir.graph import Shape


def read_dense(attribute: Any, shape: Shape, dtype: DType) -> np.ndarray:
  """The values of a dense attribute; a splat stays a stride-0 view."""
  if 0 in shape:
    return np.zeros(shape, NUMPY[dtype])
  if attribute.is_splat:
    return np.broadcast_to(_splat(attribute, len(shape), dtype), shape)
  if dtype is not DType.BF16:
    return np.array(attribute).astype(NUMPY[dtype], copy=False).reshape(shape)
  return _read_bfloat16(str(attribute)).reshape(shape)


def _splat(attribute: Any, rank: int, dtype: DType) -> np.ndarray:
  """The one value of a splat, of shape (); the splat is never laid out."""
  if dtype is DType.BF16:
    return _read_bfloat16(str(attribute)).reshape(())
  # A view whose strides are 0: bits stay as they are, signalling NaNs too.
  one = np.asarray(attribute)[(slice(0, 1),) * rank]
  return one.astype(NUMPY[dtype]).reshape(())


def _read_bfloat16(text: str) -> np.ndarray:
  """The bindings have no buffer for bf16: read what MLIR prints."""
  body = text[text.index("<") + 1 : text.rindex(">")]
  body = body[: body.rindex(">")] if body.count(">") else body
  if body.startswith('"0x'):
    raw = bytes.fromhex(body[3 : body.rindex('"')])
    return np.frombuffer(raw, ml_dtypes.bfloat16)
  items = body.replace("[", " ").replace("]", " ").replace(",", " ").split()
  bits = [
    int(item, 16) if item.startswith("0x") else _bfloat16_bits(float(item))
    for item in items
  ]
  return np.array(bits, np.uint16).view(ml_dtypes.bfloat16)


def _bfloat16_bits(value: float) -> int:
  """The nearest bfloat16, by integers: the compiler runs on threads that
  flush small float32 numbers to zero, and most of bfloat16's small numbers
  are such."""
  sign = 0x8000 if math.copysign(1.0, value) < 0 else 0
  if not value:
    return sign
  exponent = max(math.frexp(value)[1] - 1, -126)
  significand = round(math.ldexp(abs(value), 7 - exponent))
  return sign | (((exponent + 126) << 7) + significand)
