"""Element types of random programs, and known properties of values."""

from __future__ import annotations

import dataclasses
import math

import ml_dtypes
import numpy as np

import jax.numpy as jnp


def _types(*names: str) -> tuple[np.dtype, ...]:
  return tuple(np.dtype(name) for name in names)


BOOL = np.dtype(np.bool_)
FLOATS = _types("float32", "float16", "bfloat16")
INTS = _types("int32", "int8", "uint8", "int16", "uint16", "uint32")
COMPLEX = _types("complex64")
# Storage types; values are cast before they are computed with.
NARROW = _types("int4", "uint4", "int2", "uint2", "float8_e4m3fn",
                "float8_e5m2", "float8_e4m3b11fnuz", "float8_e3m4",
                "float4_e2m1fn")  # fmt: skip
WIDE_FLOATS = _types("float64")
WIDE_INTS = _types("int64", "uint64")
WIDE_COMPLEX = _types("complex128")

MOST = 400  # elements of a value
_TAME = 1000.0  # larger values are clipped before they are used


def is_float(dtype: np.dtype) -> bool:
  return jnp.issubdtype(dtype, jnp.floating)


def is_int(dtype: np.dtype) -> bool:
  return jnp.issubdtype(dtype, jnp.integer)


def is_unsigned(dtype: np.dtype) -> bool:
  return jnp.issubdtype(dtype, jnp.unsignedinteger)


def is_complex(dtype: np.dtype) -> bool:
  return jnp.issubdtype(dtype, jnp.complexfloating)


def text(dtype: np.dtype) -> str:
  """The type as programs write it."""
  return "bool" if dtype == BOOL else f"jnp.{dtype.name}"


def part(dtype: np.dtype) -> np.dtype:
  """The type of a complex number's parts; other types are unchanged."""
  return np.zeros((), dtype).real.dtype if is_complex(dtype) else dtype


def whole(dtype: np.dtype) -> float:
  """All integers up to this one are exact in the type."""
  if is_int(dtype) or dtype == BOOL:
    return math.inf  # they wrap around, the same everywhere
  return 2.0 ** (ml_dtypes.finfo(part(dtype)).nmant + 1)


def reach(dtype: np.dtype) -> float:
  """No element of the type is larger."""
  if dtype == BOOL:
    return 1.0
  if is_int(dtype):
    return float(ml_dtypes.iinfo(dtype).max) + 1
  return math.inf


@dataclasses.dataclass(frozen=True)
class Value:
  """An expression of a program.

  Attributes:
    text: a name, or an expression that can be used as an operand.
    shape: its shape.
    dtype: its element type.
    exact: whether its elements are integers that are the same whatever the
      order of additions; discontinuous functions (comparisons, rounding,
      indices) are only generated for these.
    bound: no element's magnitude is larger, up to rounding.
  """

  text: str
  shape: tuple[int, ...]
  dtype: np.dtype
  exact: bool
  bound: float

  @property
  def rank(self) -> int:
    return len(self.shape)

  @property
  def size(self) -> int:
    return math.prod(self.shape)

  def small(self, bound: float = 3) -> Value:
    """The value with elements clipped to `bound`, if any may be larger."""
    if self.bound <= bound or self.dtype == BOOL:
      return self
    if is_complex(self.dtype):
      change = f"({self.text} / (1 + jnp.abs({self.text})))"
      return dataclasses.replace(self, text=change, exact=False, bound=1.0)
    low = 0 if is_unsigned(self.dtype) else -bound
    change = f"jnp.clip({self.text}, {low:g}, {bound:g})"
    return dataclasses.replace(self, text=change, bound=float(bound))

  def tame(self) -> Value:
    """The value with elements that further operations do not make infinite."""
    if is_int(self.dtype):
      return self
    return self if self.bound <= _TAME else self.small(4)

  def cast(self, dtype: np.dtype) -> Value:
    """The value as another type; it must be exact if that type is of a coarser
    kind (from floats to integers or bool)."""
    if dtype == self.dtype:
      return self
    v = self
    if is_complex(v.dtype) and not is_complex(dtype):
      v = dataclasses.replace(
        v, text=f"jnp.real({v.text})", dtype=part(v.dtype)
      )
    if dtype == BOOL:
      return dataclasses.replace(
        v, text=f"({v.text} != 0)", dtype=dtype, bound=1.0
      )
    if dtype in NARROW or v.dtype in NARROW:
      low, high = (-2, 1) if dtype.name == "int2" else (-3, 3)
      low = 0 if is_unsigned(dtype) or is_unsigned(v.dtype) else low
      if v.dtype not in NARROW and v.dtype != BOOL:
        inner = f"jnp.clip({v.text}, {low}, {high})"
        v = dataclasses.replace(v, text=inner)
      bound = 3.0
    elif is_int(dtype) and is_unsigned(dtype) and is_float(v.dtype):
      v, bound = dataclasses.replace(
        v, text=f"jnp.clip({v.text}, 0, 3)"
      ), 3.0  # fmt: skip
    elif v.dtype == BOOL:
      bound = 1.0
    elif is_int(v.dtype) and is_int(dtype):
      bound = reach(dtype)
    else:
      v = v.small(3) if v.bound > 100 else v
      bound = v.bound
    return dataclasses.replace(
      v, text=f"{v.text}.astype({text(dtype)})", dtype=dtype, bound=bound
    )
