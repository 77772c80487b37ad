"""Element-wise operations, conversions and constants."""

from __future__ import annotations

import math

from . import values as types
from .block import Block, Drawn, require
from .values import Value

_ANY = ("-{x}", "{x} + {x}", "{x} * {x} - {x}", "jnp.sign({x})",
        "jnp.abs({x})", "jnp.square({x})", "jnp.conj({x})",
        "jnp.positive({x})", "jnp.nan_to_num({x})")  # fmt: skip
_INT = ("~{x}", "lax.population_count({x})", "lax.clz({x})", "{x} << 1",
        "{x} >> 2", "lax.shift_right_logical({x}, lax.full_like({x}, 1))",
        "jnp.bitwise_count({x})", "lax.integer_pow({x}, 3)")  # fmt: skip
_WHOLE = ("jnp.floor({x})", "jnp.ceil({x})", "jnp.trunc({x})",
          "jnp.round({x})", "jnp.rint({x})", "lax.round({x})",
          "lax.integer_pow({x}, 3)", "jnp.signbit({x})", "jnp.isfinite({x})",
          "jnp.isnan({x})", "lax.reduce_precision({x}, 5, 8)",
          "jnp.frexp({x})[1]", "jnp.heaviside({x}, 1)")  # fmt: skip
# Of elements no larger than 4; not near points with infinite derivatives.
_FUNCTIONS = (
  "jnp.sin({x})", "jnp.cos({x})", "jnp.tan({x} / 4)", "jnp.tanh({x})",
  "jnp.exp({x})", "jnp.expm1({x})", "jnp.exp2({x})",
  "jnp.log(jnp.abs({x}) + 1)", "jnp.log2(jnp.abs({x}) + 1)",
  "jnp.log10(jnp.abs({x}) + 1)", "jnp.log1p(jnp.abs({x}))",
  "jnp.sqrt(jnp.abs({x}) + 1)", "lax.rsqrt(jnp.abs({x}) + 1)",
  "jnp.cbrt(jnp.abs({x}) + 1)", "1 / (jnp.abs({x}) + 1)",
  "jnp.reciprocal(jnp.abs({x}) + 2)", "jnp.arcsin({x} / 8)",
  "jnp.arccos({x} / 8)", "jnp.arctan({x})", "jnp.sinh({x})", "jnp.cosh({x})",
  "jnp.arcsinh({x})", "jnp.arccosh(jnp.abs({x}) + 2)", "jnp.arctanh({x} / 8)",
  "jax.nn.sigmoid({x})", "jax.nn.softplus({x})", "jax.nn.silu({x})",
  "jax.nn.gelu({x})", "jax.nn.gelu({x}, approximate=False)",
  "jax.nn.elu({x})", "jax.nn.selu({x})", "jax.nn.log_sigmoid({x})",
  "jax.nn.leaky_relu({x})", "jax.nn.soft_sign({x})", "jax.nn.celu({x})",
  "jax.nn.hard_tanh({x})", "jax.nn.hard_swish({x})", "jax.nn.relu6({x})",
  "lax.erf({x})", "lax.erfc({x})", "lax.erf_inv({x} / 8)",
  "lax.lgamma(jnp.abs({x}) + 1)", "lax.digamma(jnp.abs({x}) + 1)",
  "lax.bessel_i0e({x})", "lax.bessel_i1e({x})", "jnp.sinc({x})",
  "jnp.i0({x})", "jax.scipy.stats.norm.cdf({x})",
  "jax.scipy.stats.norm.logpdf({x})", "jax.scipy.special.logit({x} / 16 + 0.5)",
  "jax.scipy.special.entr(jnp.abs({x}) + 1)", "jnp.deg2rad({x})",
  "lax.logistic({x})", "jnp.power(jnp.abs({x}) + 1, 1.5)", "{x} ** -2.0 * 0",
)  # fmt: skip
_COMPLEX = (
  "jnp.exp({x} / 4)", "jnp.sin({x} / 4)", "jnp.cos({x} / 4)",
  "jnp.tanh({x} / 8)", "jnp.sqrt({x} + 9)", "jnp.log({x} + 9)",
  "1 / ({x} + 9)", "jnp.angle({x} + 9)", "{x} ** 2", "{x} * 1j",
  "jnp.log1p({x} / 8)", "jnp.expm1({x} / 8)", "lax.rsqrt({x} + 9)",
  "jnp.real({x})", "jnp.imag({x})", "jnp.abs({x} + 9)", "jnp.arctan({x} / 9)",
)  # fmt: skip
_TWO_FLOATS = (
  "{x} / (jnp.abs({y}) + 1)", "jnp.arctan2({x}, jnp.abs({y}) + 1)",
  "jnp.power(jnp.abs({x}) + 1, {y} / 2)", "jnp.hypot({x}, jnp.abs({y}) + 1)",
  "jnp.logaddexp({x}, {y})", "{x} * jnp.exp({y} / 4)",
  "jax.scipy.special.xlogy({x}, jnp.abs({y}) + 1)",
  "jax.scipy.stats.norm.pdf({x}, {y}, 1)",
)  # fmt: skip
_SLOW_FLOATS = (
  "lax.igamma(jnp.abs({x}) + 1, jnp.abs({y}) + 1)",
  "lax.igammac(jnp.abs({x}) + 1, jnp.abs({y}) + 1)",
  "jax.scipy.special.betainc(jnp.abs({x}) + 1, jnp.abs({y}) + 1, 0.5)",
  "jax.scipy.special.zeta(jnp.abs({x}) + 2, jnp.abs({y}) + 1)",
  "jax.scipy.special.polygamma(1, jnp.abs({x}) + jnp.abs({y}) + 1)",
)  # fmt: skip
_TWO_INTS = (
  "jnp.floor_divide({x}, {y})", "jnp.mod({x}, {y})", "lax.rem({x}, {y})",
  "lax.div({x}, {y})", "{x} & {y}", "{x} | {y}", "{x} ^ {y}",
  "lax.shift_left({x}, {y})", "lax.shift_right_arithmetic({x}, {y})",
  "lax.shift_right_logical({x}, {y})", "jnp.gcd({x}, {y})",
)  # fmt: skip
_COMPARE = ("==", "!=", "<", "<=", ">", ">=")


def _broadcastable(d: Block, v: Value) -> tuple[int, ...]:
  """A shape that broadcasts to v's, by NumPy's rules."""
  if d.flip():
    return v.shape
  shape = tuple(1 if d.rarely() else n for n in v.shape)
  return shape[d.integer(0, v.rank) :]


def cast(d: Block) -> Drawn:
  v = d.value(d.all())
  to = d.one(d.all())
  coarse = types.is_int(to) or to == types.BOOL or to in types.NARROW
  require(v.exact or not coarse)
  v = v.cast(to)
  return Drawn(v.text, (v.exact, v.bound))


def exact_unary(d: Block) -> Drawn:
  v = d.value(d.computing())
  if v.dtype == types.BOOL:
    return Drawn(f"~{v.text}", (True, 1))
  rows = list(_ANY)
  if types.is_int(v.dtype):
    rows += _INT
  row = d.one(rows)
  if types.is_complex(v.dtype):
    require("sign" not in row and "nan_to_num" not in row)
    # The magnitude is rounded.
    exact = v.exact and "abs" not in row
    return Drawn(row.format(x=v.text), (exact, 2 * v.bound**2 + v.bound))
  exact = v.exact or types.is_int(v.dtype)
  require(exact or "sign" not in row)
  return Drawn(row.format(x=v.text), (exact, v.bound**2 + 2 * v.bound))


def whole(d: Block) -> Drawn:
  v = d.value(d.floats(), exact=True).small(6)
  return Drawn(d.one(_WHOLE).format(x=v.text), (True, 300))


def function(d: Block) -> Drawn:
  v = d.value(d.floats()).small(4)
  return Drawn(d.one(_FUNCTIONS).format(x=v.text), (False, 60))


def of_complex(d: Block) -> Drawn:
  v = d.value(d.complexes()).small(4)
  return Drawn(d.one(_COMPLEX).format(x=v.text), (False, 40))


def make_complex(d: Block) -> Drawn:
  types_ = [t for t in d.floats() if t.itemsize >= 4]
  x = d.value(types_)
  y = d.array(x.dtype, x.shape)
  exact, bound = x.exact and y.exact, math.hypot(x.bound, y.bound)
  return Drawn(f"lax.complex({x.text}, {y.text})", (exact, bound))


def binary(d: Block) -> Drawn:
  x = d.value(d.computing())
  y = d.array(x.dtype, _broadcastable(d, x))
  if d.flip():
    x, y = y, x
  if x.dtype == types.BOOL:
    op = d.one(["&", "|", "^", "==", "<="])
    return Drawn(f"{x.text} {op} {y.text}", (True, 1))
  rows = ["{x} + {y}", "{x} - {y}", "{x} * {y}"]
  if not types.is_complex(x.dtype):
    rows += ["jnp.maximum({x}, {y})", "jnp.minimum({x}, {y})",
             "jnp.fmax({x}, {y})"]  # fmt: skip
  factor = 2 if types.is_complex(x.dtype) else 1
  bound = max(x.bound + y.bound, factor * x.bound * y.bound)
  exact = x.exact and y.exact or types.is_int(x.dtype)
  return Drawn(d.one(rows).format(x=x.text, y=y.text), (exact, bound))


def mixed(d: Block) -> Drawn:
  """Types that JAX promotes."""
  x = d.value(d.computing())
  y = d.array(d.one(d.computing()), x.shape)
  exact = x.exact and y.exact
  require(exact or not types.is_int(x.dtype) and not types.is_int(y.dtype))
  # 32-bit integers are not exact in f32.
  x, y = (v.cast(t) if types.is_int(v.dtype) and v.dtype.itemsize > 1 else v
          for v, t in ((x, types.INTS[1]), (y, types.INTS[2])))  # fmt: skip
  factor = 2 * max(x.bound * y.bound, x.bound + y.bound)
  op = d.one(["+", "*"])
  return Drawn(f"{x.text} {op} {y.text}", (exact, factor))


def two_ints(d: Block) -> Drawn:
  x = d.value(d.ints())
  y = d.array(x.dtype, x.shape)
  return Drawn(d.one(_TWO_INTS).format(x=x.text, y=y.text), (True, math.inf))


def two_floats(d: Block) -> Drawn:
  x = d.value(d.floats()).small(4)
  y = d.array(x.dtype, _broadcastable(d, x)).small(4)
  rows = _TWO_FLOATS
  if d.rarely() and x.dtype.name == "float32":
    rows = _SLOW_FLOATS
  return Drawn(d.one(rows).format(x=x.text, y=y.text), (False, 80))


def float_remainder(d: Block) -> Drawn:
  x = d.value(d.floats(), exact=True).small(16)
  y = d.array(x.dtype, x.shape, exact=True)
  f = d.one(["jnp.mod", "lax.rem", "jnp.fmod"])
  return Drawn(f"{f}({x.text}, jnp.abs({y.text}) + 1)", (True, 20))


def compare(d: Block) -> Drawn:
  x = d.value(d.computing(), exact=True)
  y = d.array(x.dtype, _broadcastable(d, x), exact=True)
  require(y.exact)
  op = d.one(_COMPARE[:2] if types.is_complex(x.dtype) else _COMPARE)
  return Drawn(f"{x.text} {op} {y.text}", (True, 1))


def select(d: Block) -> Drawn:
  x = d.value(d.computing())
  y = d.array(x.dtype, _broadcastable(d, x))
  c = d.array(types.BOOL, _broadcastable(d, x), exact=True)
  text = f"jnp.where({c.text}, {x.text}, {y.text})"
  return Drawn(text, (x.exact and y.exact, max(x.bound, y.bound)))


def clamp(d: Block) -> Drawn:
  x = d.value(d.reals())
  low, high = (d.array(x.dtype, d.one([(), x.shape])) for _ in range(2))
  exact = x.exact and low.exact and high.exact
  bound = max(x.bound, low.bound, high.bound)
  return Drawn(f"lax.clamp({low.text}, {x.text}, {high.text})", (exact, bound))


def bits(d: Block) -> Drawn:
  v = d.value([t for t in d.reals() if t.itemsize <= 4], exact=True).small()
  to = d.one([f"int{8 * v.dtype.itemsize}", "uint8", "int16", "uint32"])
  require(v.dtype.itemsize <= 4 and (v.rank or to.endswith(str(
    8 * v.dtype.itemsize))))  # fmt: skip
  size = {"8": 1, "6": 2, "2": 4}[to[-1]]
  text = v.text
  if size > v.dtype.itemsize:  # the last dimension becomes one element
    n = size // v.dtype.itemsize
    require(v.rank)
    text = d.resize(v, (*v.shape[:-1], n)).text
  # -0 and 0 compare equal, but their bits differ.
  zero = f"({text} + 0)" if types.is_float(v.dtype) else text
  return Drawn(f"lax.bitcast_convert_type({zero}, jnp.{to})", (True, math.inf))


def constant(d: Block) -> Drawn:
  dtype, shape = d.one(d.reals()), d.shape(1, 3)
  name = types.text(dtype)
  row = d.one(["jnp.zeros({s}, {t})", "jnp.ones({s}, {t})",
               "jnp.full({s}, 2, {t})", "lax.iota({t}, {n})",
               "lax.broadcasted_iota({t}, {s}, {a})", "jnp.eye({n}, 4, 1, {t})",
               "jnp.tri({n}, 3, dtype={t})"])  # fmt: skip
  n = shape[0] if shape else 3
  axis = d.integer(0, len(shape) - 1)
  text = row.format(s=shape, t=name, n=n, a=axis)
  return Drawn(text, (True, max(shape)))


OPERATIONS = (
  exact_unary, binary, function, cast, whole, of_complex, make_complex, mixed,
  two_ints, two_floats, float_remainder, compare, select, clamp, bits,
  constant,
)  # fmt: skip
