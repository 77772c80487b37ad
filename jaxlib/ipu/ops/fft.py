"""fft: Fourier transforms as matrix products, which is what tiles do well.

A transform of length n = a * b is one of length a, a rotation, and one of
length b, over a matrix (Bailey's four steps); short ones are products with the
transform's matrix, long primes a convolution of a length that has factors
(Bluestein). Numbers are kept as (rows, planes, length), planes being real and
imaginary part, so that a complex product is one real product over both, and a
rotation an element-wise step with the planes reversed. All angles are constants
from double precision: sines of f32 cost tiles some 2,300 cycles each.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlib.ipu.dtypes import NUMPY, DType
from jaxlib.ipu.ir.attributes import DotDimensions
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.mlir.dialects import stablehlo

# One product up to this length: a matrix of 64 KB in f32.
_DIRECT = 64
# The same for lengths without factors.
_DIRECT_PRIME = 128
# Rotations of more elements are made of two smaller tables.
_LARGEST_TABLE = 1 << 14


@dataclasses.dataclass(frozen=True)
class Transform:
  """`kind`: FFT, IFFT, RFFT or IRFFT; `length` over the last dimensions."""

  kind: str
  length: tuple[int, ...]


def _read(operation: Any) -> Transform:
  a = operation.attributes
  kind = stablehlo.FftTypeAttr(a["fft_type"]).value
  return Transform(kind, tuple(a["fft_length"]))


def _decompose(e: Emitter, node: Node) -> Sequence[Value]:
  (x,) = node.inputs
  result = node.results[0]
  transform: Transform = node.attributes
  kind, length = transform.kind, transform.length
  if 0 in result.shape:
    return [e.constant(0, result.dtype, result.shape)]
  last = len(x.shape)  # of planes and x's dimensions
  outer = range(last + 1 - len(length), last)
  sign = 1 if kind in ("IFFT", "IRFFT") else -1
  if kind == "RFFT":
    t = _along(e, e.reshape(x, (1, *x.shape)), last, sign)
    t = e.slice_in_dim(t, 0, length[-1] // 2 + 1, last)
  else:
    t = _planes(e, x)
  for axis in outer:
    t = _along(e, t, axis, sign)
  if kind == "IRFFT":
    t = _mirrored(e, t, length[-1])
    return [e.reshape(_along(e, t, last, sign, out=1), result.shape)]
  if kind != "RFFT":
    t = _along(e, t, last, sign)
  parts = [
    e.reshape(e.slice_in_dim(t, k, k + 1, 0), result.shape) for k in (0, 1)
  ]
  types = [(result.shape, result.dtype)]
  return e.node("stablehlo.complex", parts, types)


# --- Planes ------------------------------------------------------------------


def _planes(e: Emitter, x: Value) -> Value:
  """A complex array as (2, ...)."""
  dtype = DType.F32 if x.dtype is DType.C64 else DType.F64
  parts = [
    e.reshape(e.node(f"stablehlo.{part}", [x], [(x.shape, dtype)])[0],
              (1, *x.shape))
    for part in ("real", "imag")
  ]  # fmt: skip
  return e.concatenate(parts, 0)


def _mirrored(e: Emitter, t: Value, n: int) -> Value:
  """All n coefficients of a real signal from its first n // 2 + 1."""
  last = len(t.shape) - 1
  rest = e.reverse(e.slice_in_dim(t, 1, (n + 1) // 2, last), [last])
  signs = e.constant(np.array([1, -1], NUMPY[t.dtype]))
  signs = e.broadcast_in_dim(signs, rest.shape, [0])
  return e.concatenate([t, e.multiply(rest, signs)], last)


def _along(e: Emitter, t: Value, axis: int, sign: int, out: int = 2) -> Value:
  """The transform along one dimension of (planes, ...)."""
  rank = len(t.shape)
  others = [d for d in range(1, rank) if d != axis]
  order = [*others, 0, axis]
  t = e.transpose(t, order)
  shape = t.shape
  n = shape[-1]
  rows = math.prod(shape[:-2])
  scale = 1.0 / n if sign > 0 else 1.0
  t = _transform(e, e.reshape(t, (rows, shape[-2], n)), sign, out, scale)
  t = e.reshape(t, (*shape[:-2], out, n))
  back = [order.index(d) for d in range(rank)]
  return e.transpose(t, back)


# --- One dimension -----------------------------------------------------------


def _transform(
  e: Emitter, x: Value, sign: int, out: int = 2, scale: float = 1.0
) -> Value:
  """scale * sum over j of x[j] exp(sign 2 pi i j k / n).

  Args:
    e: gets the nodes.
    x: (rows, planes, n); one plane if all numbers are real.
    sign: -1 forwards, 1 back.
    out: how many planes of the result are wanted.
    scale: what it is multiplied by.

  Returns:
    (rows, out, n).
  """
  rows, planes, n = x.shape
  a = _factor(n)
  if a is None:
    if n > _DIRECT_PRIME:
      return _chirp(e, x, sign, out, scale)
    matrix = e.constant(_matrix(n, sign, planes, out, scale, x.dtype))
    return e.dot_general(x, matrix, DotDimensions((), (), (1, 2), (0, 1)))
  b = n // a
  x = e.transpose(e.reshape(x, (rows, planes, a, b)), (0, 3, 1, 2))
  x = _transform(e, e.reshape(x, (rows * b, planes, a)), sign)
  x = e.reshape(x, (rows, b, 2, a))
  x = _rotate(e, x, n, sign)
  x = e.reshape(e.transpose(x, (0, 3, 2, 1)), (rows * a, 2, b))
  x = _transform(e, x, sign, out, scale)
  x = e.transpose(e.reshape(x, (rows, a, out, b)), (0, 2, 3, 1))
  return e.reshape(x, (rows, out, n))


def _factor(n: int) -> int | None:
  """The factor that splits a length most evenly; None: do not split it."""
  if n <= _DIRECT:
    return None
  return next((a for a in range(math.isqrt(n), 1, -1) if n % a == 0), None)


@functools.lru_cache(maxsize=256)
def _roots(n: int) -> np.ndarray:
  """exp(2 pi i k / n) for k below n, complex128; exact at eighths."""
  k = np.arange(n)
  eighth, rest = np.divmod(8 * k, n)
  # Angles of at most an eighth of a turn, counted from the nearest quarter.
  turn = np.where(eighth & 1, n - rest, rest) * (np.pi / 4 / n)
  c, s = np.cos(turn), np.sin(turn)
  odd = (eighth + 1) & 2 != 0  # nearer to the imaginary axis
  real, imaginary = np.where(odd, s, c), np.where(odd, c, s)
  real = np.where((eighth >= 2) & (eighth < 6), -real, real)
  return real + 1j * np.where(eighth >= 4, -imaginary, imaginary)


def _power(n: int, exponent: np.ndarray, sign: int) -> np.ndarray:
  """exp(sign 2 pi i exponent / n)."""
  roots = _roots(n)[exponent % n]
  return roots if sign > 0 else roots.conj()


def _matrix(
  n: int, sign: int, planes: int, out: int, scale: float, dtype: DType
) -> np.ndarray:
  """The transform as a real matrix (planes, n, out, n)."""
  k = np.arange(n)
  w = _power(n, np.outer(k, k), sign) * scale
  blocks = np.array([[w.real, w.imag], [-w.imag, w.real]])
  used = blocks[:planes, :out].transpose(0, 2, 1, 3)
  return np.ascontiguousarray(used, NUMPY[dtype])


def _rotate(e: Emitter, x: Value, n: int, sign: int) -> Value:
  """(rows, b, 2, a) times exp(sign 2 pi i j k / n) for j < b, k < a.

  A large table is the product of two small ones: j = c * q + r.
  """
  rows, b, _, a = x.shape
  j, k = np.arange(b), np.arange(a)
  step = 1
  if a * b > _LARGEST_TABLE:
    root = math.isqrt(b)
    step = next((c for c in range(root, 0, -1) if b % c == 0), 1)
  if step == 1:
    return _times(e, x, _power(n, np.outer(j, k), sign), (1, 3))
  x = e.reshape(x, (rows, b // step, step, 2, a))
  coarse = _power(n, np.outer(j[::step], k), sign)
  fine = _power(n, np.outer(j[:step], k), sign)
  x = _times(e, _times(e, x, coarse, (1, 4)), fine, (2, 4))
  return e.reshape(x, (rows, b, 2, a))


def _times(
  e: Emitter, x: Value, factors: np.ndarray, dims: tuple[int, ...]
) -> Value:
  """Complex factors times planes; `dims`: where the factors' dimensions are.

  The planes are the dimension before the last.
  """
  plane = len(x.shape) - 2
  real = e.constant(factors.real.astype(NUMPY[x.dtype]))
  cross = np.stack([-factors.imag, factors.imag]).astype(NUMPY[x.dtype])
  real = e.broadcast_in_dim(real, x.shape, dims)
  imaginary = e.broadcast_in_dim(e.constant(cross), x.shape, (plane, *dims))
  other = e.reverse(x, [plane])
  return e.add(e.multiply(x, real), e.multiply(other, imaginary))


# --- Lengths without factors -------------------------------------------------


def _chirp(e: Emitter, x: Value, sign: int, out: int, scale: float) -> Value:
  """Bluestein: jk = (j**2 + k**2 - (j - k)**2) / 2 makes it a convolution."""
  rows, planes, n = x.shape
  if planes == 1:
    x = e.pad(x, 0, (0, 0, 0), (0, 1, 0))
  m = 1 << (2 * n - 2).bit_length()
  j = np.arange(n)
  chirp = _power(2 * n, j * j, sign)
  kernel = np.zeros(m, np.complex128)
  kernel[:n] = chirp.conj()
  kernel[m - n + 1 :] = chirp[:0:-1].conj()
  x = e.pad(_times(e, x, chirp, (2,)), 0, (0, 0, 0), (0, 0, m - n))
  x = _times(e, _transform(e, x, -1), np.fft.fft(kernel) / m, (2,))
  x = e.slice_in_dim(_transform(e, x, 1), 0, n, 2)
  x = _times(e, x, chirp * scale, (2,))
  return e.slice_in_dim(x, 0, out, 1)


define(Operation("stablehlo.fft", read=_read, decompose=_decompose))
