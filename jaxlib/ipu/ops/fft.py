"""fft: Fourier transforms as matrix products, at which tiles are efficient.

A transform of length n = a * b is one of length a, a rotation, and one of
length b, over a matrix (Bailey's four steps); short ones are products with the
transform's matrix, long primes a convolution of a length that has factors
(Bluestein). Numbers are stored as (planes, rows, length, columns), planes being
real and imaginary part, so that a complex product is one real product over
both, and a rotation an element-wise step with the planes reversed; a product
writes its result in the order that the next one reads, so nothing is
transposed. Real signals have one plane; unused coefficients and zero terms are
omitted from whole steps of the products. All angles are constants computed in
double precision: sines of f32 cost tiles some 2,300 cycles each.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlib.ipu.diagnostics import invalid_argument
from jaxlib.ipu.dtypes import NUMPY, DType
from jaxlib.ipu.ir.attributes import DotDimensions, FourierMatrix, ints
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

# Lengths up to this are one product: a matrix of 64 KB in f32. Measured: from
# 64 to 128 both ways take the same cycles, `python -m benchmarks --thresholds`.
_DIRECT = 64
# The same for lengths without factors: a matrix of 256 KB. Measured: in cycles
# one product is cheaper up to 509, so the limit is the matrix's SRAM.
_DIRECT_PRIME = 128
_REAL = {DType.C64: DType.F32, DType.C128: DType.F64}
# Larger rotations are the product of two smaller tables, which is a guess of
# what SRAM a table is worth.
_LARGEST_TABLE = 1 << 14


@dataclasses.dataclass(frozen=True)
class Transform:
  """`kind`: FFT, IFFT, RFFT or IRFFT; `length` over the last dimensions."""

  kind: str
  length: tuple[int, ...]


def _read(operation: Any) -> Transform:
  a = operation.attributes
  kind = stablehlo.FftTypeAttr(a["fft_type"]).value
  length = ints(a["fft_length"])
  expected = [*length[:-1], length[-1] // 2 + 1] if kind == "IRFFT" else length
  shape = ir.RankedTensorType(operation.operands[0].type).shape
  if [*shape[-len(length) :]] != [*expected]:
    raise invalid_argument(
      f"{kind} of length {list(length)} of an array of shape {list(shape)}, "
      f"whose last dimensions must be {list(expected)}",
      operation.location,
    )
  return Transform(kind, length)


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
  n = length[-1]
  if kind == "RFFT":
    t = e.reshape(x, (1, *x.shape))
    t = _along(e, t, last, n, sign, keep=n // 2 + 1)
  else:
    t = _planes(e, x)
  for axis in outer:
    t = _along(e, t, axis, t.shape[axis], sign)
  if kind == "IRFFT":
    t = _along(e, _doubled(e, t, n), last, n, sign, out=1)
    return [e.reshape(t, result.shape)]
  if kind != "RFFT":
    t = _along(e, t, last, n, sign)
  parts = [
    e.reshape(e.slice_in_dim(t, k, k + 1, 0), result.shape) for k in (0, 1)
  ]
  types = [(result.shape, result.dtype)]
  return e.node("stablehlo.complex", parts, types)


# --- Planes ------------------------------------------------------------------


def _planes(e: Emitter, x: Value) -> Value:
  """A complex array as (2, ...); as (1, ...) if it was converted from real."""
  before = x.node
  if before is not None and before.op == "stablehlo.convert":
    (real,) = before.inputs
    if real.dtype in (DType.F32, DType.F64):
      dtype = _REAL[x.dtype]
      return e.reshape(e.convert(real, dtype), (1, *x.shape))
  parts = [
    e.reshape(e.node(f"stablehlo.{part}", [x], [(x.shape, _REAL[x.dtype])])[0],
              (1, *x.shape))
    for part in ("real", "imag")
  ]  # fmt: skip
  return e.concatenate(parts, 0)


def _doubled(e: Emitter, t: Value, n: int) -> Value:
  """The first n // 2 + 1 coefficients of a real signal as terms of a sum whose
  real part is the signal: those that stand for two are doubled."""
  count = np.full(n // 2 + 1, 2, NUMPY[t.dtype])
  count[0] = 1
  if n % 2 == 0:
    count[-1] = 1
  counts = e.broadcast_in_dim(e.constant(count), t.shape, [len(t.shape) - 1])
  return e.multiply(t, counts)


def _along(
  e: Emitter,
  t: Value,
  axis: int,
  n: int,
  sign: int,
  out: int = 2,
  keep: int | None = None,
) -> Value:
  """The transform of length n along one dimension of (planes, ...)."""
  shape = t.shape
  inner = shape[axis + 1 :]
  keep = n if keep is None else keep
  scale = 1.0 / n if sign > 0 else 1.0
  whole = (
    shape[0], math.prod(shape[1:axis]), shape[axis], math.prod(inner)
  )  # fmt: skip
  t = e.reshape(t, whole)
  t = _transform(e, t, n, sign, out, scale, keep)
  return e.reshape(t, (out, *shape[1:axis], keep, *inner))


# --- One dimension -----------------------------------------------------------


def _transform(
  e: Emitter,
  x: Value,
  n: int,
  sign: int,
  out: int = 2,
  scale: float = 1.0,
  keep: int | None = None,
) -> Value:
  """scale * sum over j of x[j] exp(sign 2 pi i j k / n), for k < keep.

  Args:
    e: gets the nodes.
    x: (planes, rows, terms, columns); one plane if all numbers are real, and
      zero from `terms` to n.
    n: the transform's length.
    sign: -1 forwards, 1 backwards.
    out: number of planes of the result.
    scale: of the result.
    keep: number of coefficients; all by default.

  Returns:
    (out, rows, keep, columns).
  """
  planes, rows, terms, columns = x.shape
  keep = n if keep is None else keep
  a = _factor(n)
  if a is None and n > _DIRECT_PRIME:
    return _chirp(e, x, n, sign, out, scale, keep)
  if a is None:
    matrix = FourierMatrix(n, sign, scale, planes, terms, out, keep)
    x = e.reshape(x, (planes, rows, terms, 1, columns))
    x = _product(e, x, matrix)
    return e.reshape(x, (out, rows, keep, columns))
  if planes == 1 and keep == n:
    a = n // a  # the second step works on both planes
  b = n // a
  padded = _padded(planes, terms, a, b)
  if terms < padded:
    x = e.pad(x, 0, (0, 0, 0, 0), (0, 0, padded - terms, 0))
  used = padded // b
  if a <= _DIRECT:
    x = e.reshape(x, (planes, rows, used, b, columns))
    x = _product(e, x, FourierMatrix(a, sign, 1.0, planes, used, 2, a))
  else:
    x = e.reshape(x, (planes, rows, used, b * columns))
    x = _transform(e, x, a, sign)
    x = e.reshape(x, (2, rows, a, b, columns))
    x = e.transpose(x, (0, 1, 3, 2, 4))
  x = _rotate(e, x, n, sign)
  x = e.reshape(x, (2, rows, b, a * columns))
  parts = -(-keep // a)
  x = _transform(e, x, b, sign, out, scale, parts)
  x = e.reshape(x, (out, rows, parts * a, columns))
  return e.slice_in_dim(x, 0, keep, 2)


def _product(e: Emitter, x: Value, matrix: FourierMatrix) -> Value:
  """(planes, rows, terms, b, columns) times (planes, terms, out, k).

  Returns:
    (out, rows, b, k, columns), written by the product in this order.
  """
  planes, rows, terms, b, columns = x.shape
  out, k = matrix.out_planes, matrix.kept
  constant = e.constant(_elements(matrix).astype(NUMPY[x.dtype]))
  # Dimensions of extent 1 would obscure which rows are the result's.
  x = e.reshape(
    x, (planes, rows, terms, b) + ((columns,) if columns > 1 else ())
  )
  d = DotDimensions((), (), (0, 2), (0, 1), fourier=matrix)
  x = e.dot_general(x, constant, d)
  order = (3, 0, 1, 4, 2) if columns > 1 else (2, 0, 1, 3)
  return e.reshape(e.transpose(x, order), (out, rows, b, k, columns))


def _padded(planes: int, terms: int, a: int, b: int) -> int:
  """The number of terms with the zeros that a transform of length a * b needs,
  of which each of b columns goes through one of length a."""
  rows = -(-terms // b)
  first = _factor(a)
  if first is not None:  # as _transform splits it
    if planes == 1:
      first = a // first
    rows = _padded(planes, rows, first, a // first)
  return rows * b


def _factor(n: int) -> int | None:
  """The factor that splits a length most evenly; None if not to be split."""
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


def _elements(f: FourierMatrix) -> np.ndarray:
  """Float64, (planes, terms, out_planes, kept)."""
  exponent = np.outer(np.arange(f.terms), np.arange(f.kept))
  w = _power(f.length, exponent, f.sign) * f.scale
  blocks = np.array([[w.real, w.imag], [-w.imag, w.real]])
  blocks = blocks[: f.planes, : f.out_planes]
  return np.ascontiguousarray(blocks.transpose(0, 2, 1, 3))


def _rotate(e: Emitter, x: Value, n: int, sign: int) -> Value:
  """(2, rows, b, a, columns) times exp(sign 2 pi i j k / n), j < b, k < a.

  A large table is the product of two small ones: j = c * q + r.
  """
  _, rows, b, a, columns = x.shape
  j, k = np.arange(b), np.arange(a)
  step = 1
  if a * b > _LARGEST_TABLE:
    root = math.isqrt(b)
    step = next((c for c in range(root, 0, -1) if b % c == 0), 1)
  if step == 1:
    return _times(e, x, _power(n, np.outer(j, k), sign), (2, 3))
  x = e.reshape(x, (2, rows, b // step, step, a, columns))
  coarse = _power(n, np.outer(j[::step], k), sign)
  fine = _power(n, np.outer(j[:step], k), sign)
  x = _times(e, _times(e, x, coarse, (2, 4)), fine, (3, 4))
  return e.reshape(x, (2, rows, b, a, columns))


def _times(
  e: Emitter, x: Value, factors: np.ndarray, dims: tuple[int, ...]
) -> Value:
  """Complex factors times planes, x's first dimension; `dims`: the factors'
  dimensions in x."""
  real = e.constant(factors.real.astype(NUMPY[x.dtype]))
  cross = np.stack([-factors.imag, factors.imag]).astype(NUMPY[x.dtype])
  real = e.broadcast_in_dim(real, x.shape, dims)
  imaginary = e.broadcast_in_dim(e.constant(cross), x.shape, (0, *dims))
  other = e.reverse(x, [0])
  return e.add(e.multiply(x, real), e.multiply(other, imaginary))


# --- Lengths without factors -------------------------------------------------


def _chirp(
  e: Emitter, x: Value, n: int, sign: int, out: int, scale: float, keep: int
) -> Value:
  """Bluestein: jk = (j**2 + k**2 - (j - k)**2) / 2 makes it a convolution."""
  planes, _, terms, _ = x.shape
  if planes == 1:
    x = e.pad(x, 0, (0, 0, 0, 0), (1, 0, 0, 0))
  m = 1 << (2 * n - 2).bit_length()
  j = np.arange(n)
  chirp = _power(2 * n, j * j, sign)
  kernel = np.zeros(m, np.complex128)
  kernel[:n] = chirp.conj()
  kernel[m - n + 1 :] = chirp[:0:-1].conj()
  x = _transform(e, _times(e, x, chirp[:terms], (2,)), m, -1)
  x = _times(e, x, np.fft.fft(kernel) / m, (2,))
  x = _transform(e, x, m, 1, keep=keep)
  x = _times(e, x, chirp[:keep] * scale, (2,))
  return e.slice_in_dim(x, 0, out, 0)


define(Operation("stablehlo.fft", read=_read, decompose=_decompose))
