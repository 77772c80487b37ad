"""Reductions, windows, cumulative operations and sorting."""

from __future__ import annotations

import math

from . import values as types
from .block import Block, Drawn, require

_COMPUTE = ("lax.max", "lax.min", "lax.add", "lax.mul")


def total(d: Block) -> Drawn:
  v = d.value(d.numbers())
  axes = d.axes(v)
  count = math.prod(v.shape[a] for a in axes)
  keep = d.one(["", ", keepdims=True"])
  if d.flip():
    bound = count * v.bound
    text = f"jnp.sum({v.text}, {axes}, dtype={v.text}.dtype{keep})"
    return Drawn(text, (v.exact, bound))
  require(not types.is_complex(v.dtype) and (count or not axes))
  f = d.one(["jnp.max", "jnp.min", "jnp.amax"])
  return Drawn(f"{f}({v.text}, {axes}{keep})", (v.exact, v.bound))


def statistic(d: Block) -> Drawn:
  v = d.value(d.floats(), rank=(1, 4), empty=False).small(4)
  a = d.axis(v)
  rows = ["jnp.mean({x}, {a})", "jnp.var({x}, {a})", "jnp.std({x}, {a})",
          "jax.nn.softmax({x}, {a})", "jax.nn.log_softmax({x}, {a})",
          "jax.nn.logsumexp({x}, {a})", "jax.nn.standardize({x}, {a})",
          "jnp.linalg.norm({x} + 5, axis={a})", "jnp.ptp({x}, {a})",
          "jnp.average({x}, {a})", "jnp.nanmean({x}, {a})",
          "jnp.nansum({x}, {a})", "jnp.median({x}, {a})",
          "jnp.quantile({x}.astype(jnp.float32), 0.3, axis={a})"]  # fmt: skip
  row = d.one(rows)
  if "var" in row or "std" in row or "standardize" in row:
    require(v.dtype.itemsize >= 4 and "std" not in row)
  return Drawn(row.format(x=v.text, a=a), (False, 60))


def product(d: Block) -> Drawn:
  v = d.value(d.reals()).small(1)
  text = f"jnp.prod({v.text}, {d.axes(v)}, dtype={v.text}.dtype)"
  return Drawn(text, (v.exact, 2))


def logical(d: Block) -> Drawn:
  v = d.value([types.BOOL, *d.ints()])
  axes = d.axes(v)
  if v.dtype == types.BOOL:
    f = d.one(["jnp.all", "jnp.any", "jnp.sum", "jnp.count_nonzero"])
    return Drawn(f"{f}({v.text}, {axes})", (True, 400))
  f = d.one(["and", "or", "xor"])
  text = f"jnp.bitwise_{f}.reduce({v.text}, {axes})"
  return Drawn(text, (True, math.inf))


def argument_of(d: Block) -> Drawn:
  v = d.value(d.reals(), rank=(1, 4), exact=True, empty=False)
  a = d.axis(v)
  f = d.one(["jnp.argmax", "jnp.argmin", "jnp.nanargmax"])
  to = d.one(["int32", "int8", "uint32"])
  text = d.one([f"{f}({v.text}, {a})", f"lax.argmax({v.text}, {a}, jnp.{to})"])
  return Drawn(text, (True, 400))


def _leaves_out_start(v: types.Value, axes: tuple[int, ...]) -> bool:
  """Whether XLA:CPU ignores the initial value: if a single element is
  reduced."""
  return bool(axes) and math.prod(v.shape[a] for a in axes) == 1


def _least(v: types.Value, bound: int) -> str:
  """An initial value no larger than any element of magnitude up to `bound`."""
  return "0" if types.is_unsigned(v.dtype) else f"-{bound}"


def reduce(d: Block) -> Drawn:
  """A reduction by a generated function."""
  v = d.value(d.reals(), exact=True).small()
  f = d.one(["lambda a, b: a + b", "lambda a, b: jnp.maximum(a, b)",
             "lambda a, b: jnp.where(a > b, a, b)", "lax.add", "lax.bitwise_or",
             "lax.bitwise_xor", "lax.min"])  # fmt: skip
  require(types.is_int(v.dtype) or "bitwise" not in f)
  axes = d.axes(v)
  start = "0"
  if f == "lax.min":
    start = "3"
  elif ("maximum" in f or "where" in f) and _leaves_out_start(v, axes):
    start = _least(v, 3)
  zero = f"jnp.asarray({start}, {types.text(v.dtype)})"
  text = f"lax.reduce({v.text}, {zero}, {f}, {axes})"
  return Drawn(text, (True, max(v.size, 1) * v.bound))


def reduce_two(d: Block) -> Drawn:
  v = d.value(d.reals(), rank=(1, 3), exact=True).small()
  w = d.array(d.one(d.ints()), v.shape, exact=True)
  axes = d.axes(v)
  # An initial value that is visible where no element is larger.
  least = "2"
  if _leaves_out_start(v, axes):
    least = _least(v, math.ceil(max(v.bound, 3)))
  init = f"(jnp.asarray({least}, {types.text(v.dtype)}), "
  init += f"jnp.asarray(0, {types.text(w.dtype)}))"
  body = "lambda a, b: (jnp.maximum(a[0], b[0]), a[1] + b[1])"
  text = f"lax.reduce(({v.text}, {w.text}), {init}, {body}, {axes})"
  return Drawn(text, (True, max(v.bound, 3)), (True, math.inf))


def window(d: Block) -> Drawn:
  v = d.value(d.reals(), rank=(1, 4))
  compute = d.one(_COMPUTE)
  v = v.small(1 if compute == "lax.mul" else 3)
  sizes = tuple(d.integer(1, 3) if d.flip() else 1 for _ in v.shape)
  steps = tuple(d.integer(1, 3) for _ in v.shape)
  base = tuple(d.integer(1, 2) for _ in v.shape)
  holes = tuple(d.integer(1, 2) for _ in v.shape)
  low = -1 if d.rarely() else 0
  padding = tuple((d.integer(low, 2), d.integer(low, 2)) for _ in v.shape)
  for n, b, (p, q) in zip(v.shape, base, padding):
    require((n - 1) * b + 1 + p + q >= 0 and n)
  init = {"lax.max": "-3", "lax.min": "3", "lax.add": "0", "lax.mul": "1"}
  start = init[compute]
  if types.is_unsigned(v.dtype) and compute == "lax.max":
    start = "0"
  count = math.prod(sizes)
  bound = 3 + (count * v.bound if compute == "lax.add" else v.bound)
  text = (
    f"lax.reduce_window({v.text}, jnp.asarray({start}, {types.text(v.dtype)}), "
    f"{compute}, {sizes}, {steps}, {padding}, {base}, {holes})"
  )
  return Drawn(text, (v.exact, bound))


def cumulative(d: Block) -> Drawn:
  v = d.value(d.reals(), rank=(1, 3))
  a = d.axis(v)
  f = d.one(["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"])
  exact, bound = v.exact, v.bound
  if f == "cumsum":
    bound = v.bound * max(v.shape[a], 1)
  elif f == "cumprod":
    v = v.small(1)
    bound = 2
  elif f == "cumlogsumexp":
    require(types.is_float(v.dtype))
    v = v.small(4)
    exact, bound = False, 12
  text = f"lax.{f}({v.text}, {a}, reverse={d.flip()})"
  return Drawn(text, (exact, bound))


def associative(d: Block) -> Drawn:
  v = d.value(d.reals(), rank=(1, 3), empty=False).small()
  a = d.axis(v)
  f = d.one(["jnp.add", "jnp.maximum", "lambda a, b: jnp.minimum(a, b)"])
  text = f"lax.associative_scan({f}, {v.text}, {d.flip()}, {a})"
  return Drawn(text, (v.exact, v.bound * v.shape[a]))


def sort(d: Block) -> Drawn:
  v = d.value(d.computing(), rank=(1, 3), exact=True)
  require(not types.is_complex(v.dtype))
  a = d.axis(v)
  text = d.one([f"lax.sort({v.text}, {a})", f"jnp.sort({v.text}, {a})",
                f"jnp.sort({v.text}, {a}, descending=True)"])  # fmt: skip
  return Drawn(text, (v.exact, v.bound))


def sort_several(d: Block) -> Drawn:
  keys = d.integer(1, 2)
  v = d.value(d.reals(), rank=(1, 3), exact=True)
  others = [
    d.array(d.one(d.computing()), v.shape, exact=True)
    for _ in range(d.integer(keys - 1, 2))
  ]
  require(not any(types.is_complex(o.dtype) for o in others[: keys - 1]))
  operands = ", ".join(o.text for o in (v, *others))
  a = d.axis(v)
  text = f"lax.sort(({operands},), dimension={a}, num_keys={keys})"
  return Drawn(text, *((o.exact, o.bound) for o in (v, *others)))


def order_of(d: Block) -> Drawn:
  v = d.value(d.reals(), rank=(1, 3), exact=True)
  a = d.axis(v)
  text = d.one([f"jnp.argsort({v.text}, {a})",
                f"jnp.argsort({v.text}, {a}, descending=True)",
                f"jnp.lexsort(({v.text}, {v.text}), {a})"])  # fmt: skip
  return Drawn(text, (True, 400))


def top_k(d: Block) -> Drawn:
  v = d.value(d.reals(), rank=(1, 3), exact=True)
  k = d.integer(0, min(v.shape[-1], 5))
  text = f"lax.top_k({v.text}, {k})"
  return Drawn(text, (True, v.bound), (True, 400))


def of_sets(d: Block) -> Drawn:
  v = d.value([t for t in d.reals() if t.itemsize >= 2],
              rank=(1, 2), exact=True, empty=False).small()  # fmt: skip
  require(types.is_int(v.dtype) or v.dtype.itemsize >= 4)
  flat = f"jnp.ravel({v.text})"
  rows = ["jnp.unique({x}, size=4, fill_value=1)",
          "jnp.searchsorted(jnp.sort({x}), {x})",
          "jnp.searchsorted(jnp.sort({x}), {x}, side='right', method='sort')",
          "jnp.isin({x}, {x}[:2])", "jnp.nonzero({x}, size=5)[0]",
          "jnp.bincount(jnp.abs({x}).astype(jnp.int32), length=5)",
          "jnp.digitize({x}, jnp.arange(-2, 3).astype({x}.dtype))",
          "jnp.partition({x}, {x}.size // 2)[{x}.size // 2]",
          "jnp.argwhere({x}, size=3)", "jnp.flatnonzero({x}, size=4)",
          "jax.nn.one_hot({x}, 4, dtype=jnp.int8)",
          "jnp.histogram({x}, jnp.arange(-3.0, 5.0))[0]"]  # fmt: skip
  return Drawn(d.one(rows).format(x=flat), (True, 400))


OPERATIONS = (
  total, statistic, product, logical, argument_of, reduce, reduce_two, window,
  cumulative, associative, sort, sort_several, order_of, top_k, of_sets,
)  # fmt: skip
