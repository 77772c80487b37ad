"""Functions of complex numbers, in terms of their real and imaginary parts.

Every function takes an emitter and pairs (real, imaginary) of values and
returns a pair. Magnitudes are scaled, so that squares neither overflow nor
underflow, and infinities follow C's Annex G.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Value

Pair = tuple[Value, Value]


# --- Parts and magnitudes ----------------------------------------------------


def _equal(e: Emitter, a: Value, number: float) -> Value:
  return e.compare(a, number, "EQ")


def _select(e: Emitter, condition: Value, a: Pair, b: Pair) -> Pair:
  return e.select(condition, a[0], b[0]), e.select(condition, a[1], b[1])


def _copysign(e: Emitter, magnitude: Value, sign: Value) -> Value:
  """`magnitude`, not negative, with the sign bit of `sign`."""
  wide = magnitude.dtype is DType.F64
  dtype, top = (DType.U64, 63) if wide else (DType.U32, 31)
  bits = e.and_(e.bitcast_convert(sign, dtype), 1 << top)
  bits = e.or_(e.bitcast_convert(magnitude, dtype), bits)
  return e.bitcast_convert(bits, magnitude.dtype)


def _sorted(e: Emitter, z: Pair) -> Pair:
  """The larger and the smaller of the parts' magnitudes."""
  x, y = e.abs(z[0]), e.abs(z[1])
  return e.maximum(x, y), e.minimum(x, y)


def magnitude(e: Emitter, z: Pair) -> Value:
  """|z|; infinite if either part is, even if the other is NaN."""
  x, y = e.abs(z[0]), e.abs(z[1])
  large, small = e.maximum(x, y), e.minimum(x, y)
  ratio = e.divide(small, large)
  root = e.sqrt(e.add(e.multiply(ratio, ratio), 1))
  size = e.select(_equal(e, large, 0), large, e.multiply(large, root))
  infinite = e.or_(_equal(e, x, math.inf), _equal(e, y, math.inf))
  return e.select(infinite, math.inf, size)


def _log_magnitude(e: Emitter, z: Pair) -> Value:
  """log|z|, without losing digits where |z| is near 1."""
  large, small = _sorted(e, z)
  ratio = e.divide(small, large)
  far = e.log_plus_one(e.multiply(ratio, ratio))
  far = e.add(e.log(large), e.multiply(far, 0.5))
  excess = e.multiply(e.subtract(large, 1), e.add(large, 1))
  excess = e.add(excess, e.multiply(small, small))
  near = e.multiply(e.log_plus_one(excess), 0.5)
  is_near = e.and_(e.compare(large, 0.5, "GT"), e.compare(large, 2, "LT"))
  result = e.select(is_near, near, far)
  result = e.select(_equal(e, large, 0), -math.inf, result)
  infinite = e.or_(
    _equal(e, e.abs(z[0]), math.inf), _equal(e, e.abs(z[1]), math.inf)
  )
  return e.select(infinite, math.inf, result)


# --- Arithmetic --------------------------------------------------------------


def add(e: Emitter, a: Pair, b: Pair) -> Pair:
  """a + b."""
  return e.add(a[0], b[0]), e.add(a[1], b[1])


def subtract(e: Emitter, a: Pair, b: Pair) -> Pair:
  """a - b."""
  return e.subtract(a[0], b[0]), e.subtract(a[1], b[1])


def negate(e: Emitter, a: Pair) -> Pair:
  """-a."""
  return e.negate(a[0]), e.negate(a[1])


def multiply(e: Emitter, a: Pair, b: Pair) -> Pair:
  """a b."""
  (x, y), (u, v) = a, b
  return (
    e.subtract(e.multiply(x, u), e.multiply(y, v)),
    e.add(e.multiply(x, v), e.multiply(y, u)),
  )


def divide(e: Emitter, a: Pair, b: Pair) -> Pair:
  """a / b by Smith's method: scales by the divisor's larger part."""
  (x, y), (u, v) = a, b
  by_real = e.compare(e.abs(u), e.abs(v), "GE")
  large, small = e.select(by_real, u, v), e.select(by_real, v, u)
  p, q = e.select(by_real, x, y), e.select(by_real, y, x)
  ratio = e.divide(small, large)
  scale = e.add(large, e.multiply(small, ratio))
  real = e.divide(e.add(p, e.multiply(q, ratio)), scale)
  imaginary = e.divide(e.subtract(q, e.multiply(p, ratio)), scale)
  imaginary = e.select(by_real, imaginary, e.negate(imaginary))
  return _recover_quotient(e, a, b, (real, imaginary))


def _recover_quotient(e: Emitter, a: Pair, b: Pair, result: Pair) -> Pair:
  """Zero and infinite operands, where Smith's method gives NaN (C, Annex G).

  Infinity over a finite number is infinite, a finite number over infinity zero:
  both the product of a and the conjugate of b, of which infinite ones count as
  their directions, times infinity or zero.
  """
  both_nan = e.and_(*[e.compare(part, part, "NE") for part in result])
  # Division by 0, where Smith's method gives NaN too, is infinite.
  zero = e.and_(_equal(e, b[0], 0), _equal(e, b[1], 0))
  huge = _copysign(e, e.constant(math.inf, b[0].dtype, b[0].shape), b[0])
  over_zero = e.multiply(huge, a[0]), e.multiply(huge, a[1])
  a_infinite, top = _direction(e, a)
  b_infinite, bottom = _direction(e, b)
  product = multiply(e, top, (bottom[0], e.negate(bottom[1])))
  nan = e.constant(math.nan, a[0].dtype, a[0].shape)
  size = e.select(
    a_infinite,
    e.select(b_infinite, nan, math.inf),
    e.select(b_infinite, 0, nan),
  )
  recovered = e.multiply(product[0], size), e.multiply(product[1], size)
  recovered = _select(e, zero, over_zero, recovered)
  return _select(e, both_nan, recovered, result)


def _direction(e: Emitter, z: Pair) -> tuple[Value, Pair]:
  """Whether z is infinite, and z; if it is, with +-1 for infinite parts and +-0
  for others, NaN as well.
  """
  infinite = [_equal(e, e.abs(part), math.inf) for part in z]
  either = e.or_(*infinite)
  x, y = (
    e.select(either, _copysign(e, e.convert(i, part.dtype), part), part)
    for part, i in zip(z, infinite)
  )
  return either, (x, y)


def sign(e: Emitter, z: Pair) -> Pair:
  """z / |z|, 0 for 0."""
  size = magnitude(e, z)
  zero = _equal(e, size, 0)
  real, imaginary = (e.divide(p, size) for p in z)
  return _select(e, zero, z, (real, imaginary))


# --- Exponentials and logarithms ---------------------------------------------


def exponential(e: Emitter, z: Pair) -> Pair:
  """exp(z); the magnitude is applied in halves, to overflow later."""
  half = e.exponential(e.multiply(z[0], 0.5))
  return _polar(e, half, z[0], z[1])


def _polar(e: Emitter, root: Value, power: Value, angle: Value) -> Pair:
  """root**2 (cos(angle) + i sin(angle)), where root**2 is exp(power)."""
  real = e.multiply(e.multiply(root, e.cosine(angle)), root)
  imaginary = e.multiply(e.multiply(root, e.sine(angle)), root)
  size = e.multiply(root, root)
  # Real arguments stay real, at infinity too; exp(-inf + i y) is 0.
  imaginary = e.select(_equal(e, angle, 0), angle, imaginary)
  real = e.select(_equal(e, angle, 0), size, real)
  vanishes = _equal(e, power, -math.inf)
  return (
    e.select(vanishes, 0, real),
    e.select(vanishes, 0, imaginary),
  )


def exponential_minus_one(e: Emitter, z: Pair) -> Pair:
  """exp(z) - 1, exact near 0."""
  x, y = z
  less = e.exponential_minus_one(x)
  s = e.sine(e.multiply(y, 0.5))
  # cos(y) - 1 = -2 sin(y/2)**2
  real = e.subtract(
    e.multiply(less, e.cosine(y)), e.multiply(e.multiply(s, s), 2)
  )
  real = e.select(_equal(e, y, 0), less, real)
  return real, exponential(e, z)[1]


def log(e: Emitter, z: Pair) -> Pair:
  """The principal logarithm."""
  return _log_magnitude(e, z), e.atan2(z[1], z[0])


def log_plus_one(e: Emitter, z: Pair) -> Pair:
  """log(1 + z), exact near 0."""
  x, y = z
  more = e.add(x, 1)
  square = e.add(e.multiply(x, e.add(x, 2)), e.multiply(y, y))
  near = e.multiply(e.log_plus_one(square), 0.5)
  large, _ = _sorted(e, z)
  is_near = e.compare(large, 0.5, "LT")
  real = e.select(is_near, near, _log_magnitude(e, (more, y)))
  return real, e.atan2(y, more)


def sqrt(e: Emitter, z: Pair) -> Pair:
  """The square root with nonnegative real part."""
  x, y = z
  size = magnitude(e, z)
  part = e.add(e.multiply(e.abs(x), 0.5), e.multiply(size, 0.5))
  part = e.sqrt(part)  # the larger part of the root
  other = e.divide(e.multiply(e.abs(y), 0.5), part)
  right = e.compare(x, 0, "GE")
  real = e.select(right, part, other)
  imaginary = _copysign(e, e.select(right, other, part), y)
  zero = _equal(e, part, 0)
  real = e.select(zero, 0, real)
  imaginary = e.select(zero, y, imaginary)
  # Infinities: an infinite y gives two infinite parts, an infinite x one.
  tall = _equal(e, e.abs(y), math.inf)
  real = e.select(tall, math.inf, real)
  imaginary = e.select(tall, y, imaginary)
  finite = e.is_finite(y)
  left = e.and_(_equal(e, x, -math.inf), finite)
  real = e.select(left, 0, real)
  nothing = e.constant(0, y.dtype, y.shape)
  far = e.and_(_equal(e, x, math.inf), finite)
  return real, e.select(far, _copysign(e, nothing, y), imaginary)


def rsqrt(e: Emitter, z: Pair) -> Pair:
  """1 / sqrt(z)."""
  x, y = sqrt(e, z)
  size = magnitude(e, z)
  real, imaginary = e.divide(x, size), e.divide(e.negate(y), size)
  infinite = _equal(e, size, math.inf)
  zero = _equal(e, size, 0)
  real = e.select(infinite, 0, e.select(zero, math.inf, real))
  nothing = e.constant(0, y.dtype, y.shape)
  small = _copysign(e, nothing, e.negate(y))
  imaginary = e.select(infinite, small, e.select(zero, math.nan, imaginary))
  return real, imaginary


def power(e: Emitter, a: Pair, b: Pair) -> Pair:
  """a ** b on the principal branch; a ** 0 is 1 for all a."""
  (c, d), size = b, magnitude(e, a)
  angle = e.atan2(a[1], a[0])
  logarithm = _log_magnitude(e, a)
  decay = e.exponential(e.negate(e.multiply(d, angle)))
  scale = e.multiply(e.power(size, c), decay)
  turn = e.add(e.multiply(c, angle), e.multiply(d, logarithm))
  result = e.multiply(scale, e.cosine(turn)), e.multiply(scale, e.sine(turn))
  to_nothing = e.and_(_equal(e, c, 0), _equal(e, d, 0))
  of_nothing = e.and_(_equal(e, size, 0), e.compare(c, 0, "GT"))
  real, imaginary = (e.select(of_nothing, 0, p) for p in result)
  return e.select(to_nothing, 1, real), e.select(to_nothing, 0, imaginary)


def cbrt(e: Emitter, z: Pair) -> Pair:
  """z ** (1 / 3) on the principal branch."""
  third = e.constant(1 / 3, z[0].dtype, z[0].shape)
  return power(e, z, (third, e.constant(0, z[0].dtype, z[0].shape)))


def _greater(e: Emitter, a: Pair, b: Pair) -> Value:
  """Lexicographic order: by real parts, then by imaginary parts."""
  same = e.and_(e.compare(a[0], b[0], "EQ"), e.compare(a[1], b[1], "GT"))
  return e.or_(e.compare(a[0], b[0], "GT"), same)


def maximum(e: Emitter, a: Pair, b: Pair) -> Pair:
  """The maximum in lexicographic order."""
  return _select(e, _greater(e, a, b), a, b)


def minimum(e: Emitter, a: Pair, b: Pair) -> Pair:
  """The minimum in lexicographic order."""
  return _select(e, _greater(e, b, a), a, b)


# --- Trigonometry ------------------------------------------------------------


def clamp(e: Emitter, low: Pair, z: Pair, high: Pair) -> Pair:
  """Clamps in the order of real parts only, as XLA does; NaN gives `high`."""

  def whole(bound: Pair) -> Pair:
    x, y = (
      part
      if part.shape == z[0].shape
      else e.broadcast_in_dim(part, z[0].shape, ())
      for part in bound
    )
    return x, y

  low, high = whole(low), whole(high)
  z = _select(e, e.compare(low[0], z[0], "GE"), low, z)
  return _select(e, e.compare(z[0], high[0], "LE"), z, high)


def _hyperbolic(e: Emitter, x: Value) -> Pair:
  """(cosh(x), sinh(x)), the latter exact near 0."""
  up, down = e.exponential(x), e.exponential(e.negate(x))
  cosh = e.multiply(e.add(up, down), 0.5)
  less = e.exponential_minus_one(x)
  near = e.multiply(e.add(less, e.divide(less, e.add(less, 1))), 0.5)
  far = e.multiply(e.subtract(up, down), 0.5)
  return cosh, e.select(e.compare(e.abs(x), 1, "LT"), near, far)


def sine(e: Emitter, z: Pair) -> Pair:
  """sin(x + iy) = sin x cosh y + i cos x sinh y."""
  cosh, sinh = _hyperbolic(e, z[1])
  imaginary = e.multiply(e.cosine(z[0]), sinh)
  flat = _equal(e, z[1], 0)
  return (
    e.multiply(e.sine(z[0]), cosh),
    e.select(flat, z[1], imaginary),
  )


def cosine(e: Emitter, z: Pair) -> Pair:
  """cos(x + iy) = cos x cosh y - i sin x sinh y."""
  cosh, sinh = _hyperbolic(e, z[1])
  imaginary = e.negate(e.multiply(e.sine(z[0]), sinh))
  flat = e.or_(_equal(e, z[1], 0), _equal(e, z[0], 0))
  nothing = e.negate(e.multiply(e.sign(z[0]), e.sign(z[1])))
  return (
    e.multiply(e.cosine(z[0]), cosh),
    e.select(flat, nothing, imaginary),
  )


def tanh(e: Emitter, z: Pair) -> Pair:
  """tanh(z) by Kahan's method; +-1 for large real parts."""
  x, y = z
  _, sinh = _hyperbolic(e, x)
  t = e.tan(y)
  beta = e.add(e.multiply(t, t), 1)
  rho = e.sqrt(e.add(e.multiply(sinh, sinh), 1))
  scale = e.add(e.multiply(beta, e.multiply(sinh, sinh)), 1)
  real = e.divide(e.multiply(beta, e.multiply(rho, sinh)), scale)
  imaginary = e.divide(t, scale)
  steep = e.compare(e.abs(t), 1e16, "GT")  # at pi/2: tanh = coth
  real = e.select(steep, e.divide(rho, sinh), real)
  size = e.abs(x)
  limit = 20.0 if x.dtype is DType.F64 else 10.0
  far = e.compare(size, limit, "GT")
  one = e.constant(1, x.dtype, x.shape)
  decay = e.exponential(e.multiply(size, -2))
  tail = e.multiply(e.multiply(e.sine(y), e.cosine(y)), e.multiply(decay, 4))
  tail = e.select(_equal(e, size, math.inf), 0, tail)
  return (
    e.select(far, _copysign(e, one, x), real),
    e.select(_equal(e, y, 0), y, e.select(far, tail, imaginary)),
  )


def tan(e: Emitter, z: Pair) -> Pair:
  """tan(z) = -i tanh(iz)."""
  u, v = tanh(e, (e.negate(z[1]), z[0]))
  return v, e.negate(u)


def atan2(e: Emitter, y: Pair, x: Pair) -> Pair:
  """-i log((x + iy) / sqrt(x^2 + y^2))."""
  turned = e.subtract(x[0], y[1]), e.add(x[1], y[0])
  squares = add(e, multiply(e, x, x), multiply(e, y, y))
  u, v = log(e, divide(e, turned, sqrt(e, squares)))
  return v, e.negate(u)


def logistic(e: Emitter, z: Pair) -> Pair:
  """1 / (1 + exp(-z))."""
  x, y = exponential(e, negate(e, z))
  one = e.constant(1, x.dtype, x.shape)
  nothing = e.constant(0, x.dtype, x.shape)
  return divide(e, (one, nothing), (e.add(x, 1), y))


FUNCTIONS: dict[str, Callable[..., Pair]] = {
  f"stablehlo.{f.__name__}": f
  for f in (
    add, subtract, negate, multiply, divide, sign, exponential,
    exponential_minus_one, log, log_plus_one, sqrt, rsqrt, power, cbrt,
    maximum, minimum, clamp, sine, cosine, tan, tanh, atan2, logistic,
  )
}  # fmt: skip
