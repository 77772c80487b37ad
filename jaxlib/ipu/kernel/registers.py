"""Elements in the registers of register programs, as NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from jaxlib.ipu.dtypes import NUMPY, DType
from jaxlib.ipu.kernel.isa import RegisterType

Array = npt.NDArray[Any]

NUMPY_REGISTER: dict[RegisterType, np.dtype[Any]] = {
  RegisterType.F32: np.dtype(np.float32),
  RegisterType.F64: np.dtype(np.float64),
  RegisterType.I32: np.dtype(np.int32),
  RegisterType.U32: np.dtype(np.uint32),
  RegisterType.I64: np.dtype(np.int64),
  RegisterType.U64: np.dtype(np.uint64),
}


def load(values: Array, type_: RegisterType) -> Array:
  """Loads elements into registers."""
  return convert(_widen(values), type_)


def store(values: Array, dtype: DType) -> Array:
  """Stores registers as elements: narrower types wrap or round."""
  if dtype == DType.BOOL:
    return values != 0
  if dtype in (DType.F16, DType.BF16):
    return narrow_half(NUMPY[dtype])(values)
  with np.errstate(all="ignore"):
    return values.astype(NUMPY[dtype])


def _widen(values: Array) -> Array:
  kind = values.dtype.kind
  if kind in "biu" and values.dtype.itemsize < 4:
    return values.astype(np.int32 if kind == "i" else np.uint32)
  if kind in "fV" and values.dtype.itemsize < 4:
    return widen_half(values)
  return values


# A 16-bit float that is only moved keeps all of its bits. Conversions by NumPy
# may make a signalling NaN quiet.
def widen_half(values: Array) -> Array:
  """f16 or bf16 values as f32."""
  bits = values.view(np.uint16).astype(np.uint32)
  if values.dtype != np.float16:
    return (bits << 16).view(np.float32)
  wide = values.astype(np.float32)
  nan = (bits & 0x8000) << 16 | 0x7F800000 | bits << 13 & 0x7FFFFF
  return np.where(np.isnan(wide), nan, wide.view(np.uint32)).view(np.float32)


def narrow_half(dtype: np.dtype[Any]) -> Callable[[Array], Array]:
  """A function that rounds f32 to f16 or bf16."""

  def narrow(values: Array) -> Array:
    with np.errstate(all="ignore"):
      half = values.astype(dtype)
    shift = 13 if dtype == np.float16 else 16
    mantissa = (1 << 23 - shift) - 1
    wide = values.view(np.uint32)
    fits = np.isnan(values) & (wide & ((1 << shift) - 1) == 0)
    bits = half.view(np.uint16)
    nan = (bits & ~np.uint16(mantissa)) | (wide >> shift & mantissa)
    return np.where(fits, nan, bits).astype(np.uint16).view(dtype)

  return narrow


def convert(values: Array, type_: RegisterType) -> Array:
  """Converts between register types; floats saturate to integers, NaN becomes
  0."""
  to = NUMPY_REGISTER[type_]
  if values.dtype == to:
    return values
  with np.errstate(all="ignore"):
    if values.dtype.kind != "f" or to.kind == "f":
      return values.astype(to)
    limits = np.iinfo(to)
    wide = np.trunc(np.nan_to_num(values.astype(np.float64), nan=0.0))
    # float(limits.max) may be too large by one: compare, do not clip.
    inside = np.clip(wide, float(limits.min), np.nextafter(limits.max, 0))
    out = inside.astype(to)
    out = np.where(wide >= float(limits.max), to.type(limits.max), out)
    return np.where(wide <= float(limits.min), to.type(limits.min), out)
