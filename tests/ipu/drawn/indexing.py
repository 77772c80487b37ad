"""Gathers and scatters, of arrays and in XLA's general form."""

from __future__ import annotations

import math

from . import values as types
from .block import Block, Drawn, require

_MODES = ("clip", "fill", "promise_in_bounds")


def _indices(
  d: Block, shape: tuple[int, ...], inside: int | None = None
) -> str:
  """An integer expression, below `inside` if that is given."""
  signed = [t for t in d.ints() if not types.is_unsigned(t)]
  v = d.array(d.one(signed), shape, exact=True)
  if inside is None:
    return v.text
  return f"jnp.abs({v.text} % {inside})"


def take(d: Block) -> Drawn:
  v = d.value(d.all(), rank=(1, 3), empty=False)
  mode = d.one(["clip", "wrap"])
  text = f"jnp.take({v.text}, {_indices(d, d.shape(0, 2))}, {d.axis(v)}"
  return Drawn(f'{text}, mode="{mode}")', (v.exact, v.bound))


def take_along(d: Block) -> Drawn:
  v = d.value(d.computing(), rank=(1, 3), empty=False)
  a = d.axis(v)
  shape = list(v.shape)
  shape[a] = d.integer(0, 4)
  index = _indices(d, tuple(shape))
  text = f'jnp.take_along_axis({v.text}, {index}, {a}, mode="clip")'
  return Drawn(text, (v.exact, v.bound))


def index(d: Block) -> Drawn:
  """NumPy's advanced indexing."""
  v = d.value(d.all(), rank=(1, 4), empty=False)
  shape = d.shape(0, 2)
  parts = []
  for n in v.shape:
    how = d.one(["array", "slice", "all", "number", "array"])
    if how == "array":
      parts.append(_indices(d, shape))
    elif how == "slice":
      parts.append(d.one(["::-1", "1:", ":2", "::2"]))
    elif how == "all":
      parts.append(":")
    else:
      parts.append(str(d.integer(-n, n - 1)))
  if d.rarely():
    parts.insert(0, "None")
  return Drawn(f"{v.text}[{', '.join(parts)}]", (v.exact, v.bound))


def update(d: Block) -> Drawn:
  v = d.value(d.numbers(), rank=(1, 3), empty=False).small()
  rows = d.integer(0, 4)
  index = _indices(d, (rows,))
  how = d.one(["add", "max", "min", "multiply", "set"])
  mode = d.one(["drop", "clip", "fill"])
  if how == "set":  # any of several writes to one element may win
    index = f"(({index})[:1])"
    rows = min(rows, 1)
  require(not types.is_complex(v.dtype) or how in ("add", "set"))
  u = d.array(v.dtype, d.one([(), (rows, *v.shape[1:])])).small()
  text = f'{v.text}.at[{index}].{how}({u.text}, mode="{mode}")'
  bound = v.bound + 4 * u.bound
  if how == "multiply":
    bound = v.bound * max(u.bound, 1) ** 4
  return Drawn(text, (v.exact and u.exact, bound))


def segments(d: Block) -> Drawn:
  v = d.value(d.reals(), rank=(1, 3)).small()
  ids = _indices(d, (v.shape[0],))
  f = d.one(["sum", "max", "min", "prod"])
  if f == "prod":
    v = v.small(1)
  # An empty segment has the type's smallest value, or infinity.
  text = f"jax.ops.segment_{f}({v.text}, {ids}, 4)"
  if f in ("max", "min") and types.is_float(v.dtype):
    text = f"jnp.clip({text}, -4, 4)"
  return Drawn(text, (v.exact, max(4, v.bound * max(v.shape[0], 1))))


def gather(d: Block) -> Drawn:
  v = d.value(d.all(), rank=(1, 4), empty=False)
  batch = d.shape(0, 2)
  indexed = tuple(a for a in range(v.rank) if d.flip())
  collapsed = tuple(a for a in range(v.rank) if d.rarely())
  sizes = tuple(
    1 if a in collapsed else d.integer(0, n) for a, n in enumerate(v.shape)
  )
  rank = len(batch) + v.rank - len(collapsed)
  offset = tuple(sorted(d.order(rank)[: v.rank - len(collapsed)]))
  order = d.permuted(indexed)
  numbers = f"lax.GatherDimensionNumbers({offset}, {collapsed}, {order})"
  mode = d.one(_MODES[:2])
  start = _indices(d, (*batch, len(indexed)))
  fill = ", fill_value=1" if mode == "fill" else ""
  text = (
    f'lax.gather({v.text}, {start}, {numbers}, {sizes}, mode="{mode}"{fill})'
  )
  return Drawn(text, (v.exact, max(v.bound, 1)))


def scatter(d: Block) -> Drawn:
  v = d.value(d.numbers(), rank=(1, 4), empty=False).small(2)
  batch = d.shape(0, 2)
  # Without an indexed dimension XLA:CPU merges several updates into one.
  indexed = tuple(a for a in range(v.rank) if d.flip()) or (0,)
  inserted = tuple(a for a in range(v.rank) if d.rarely())
  window = [d.integer(0, n) for a, n in enumerate(v.shape) if a not in inserted]
  rank = len(batch) + len(window)
  places = sorted(d.order(rank)[: len(window)])
  shape, outer, inner = [], list(batch), list(window)
  for p in range(rank):
    shape.append(inner.pop(0) if p in places else outer.pop(0))
  order = d.permuted(indexed)
  numbers = f"lax.ScatterDimensionNumbers({tuple(places)}, {inserted}, {order})"
  how = d.one(["add", "min", "max", "mul"])
  require(not types.is_complex(v.dtype) or how == "add")
  u = d.array(v.dtype, tuple(shape)).small(2)
  mode = d.one(["clip", "fill"])
  start = _indices(d, (*batch, len(indexed)))
  text = (
    f'lax.scatter_{how}({v.text}, {start}, {u.text}, {numbers}, mode="{mode}")'
  )
  count = math.prod(batch)
  bound = v.bound + u.bound * count
  if how == "mul":
    require(count <= 6 or types.is_int(v.dtype))
    bound = v.bound * max(u.bound, 1) ** min(count, 40)
  return Drawn(text, (v.exact and u.exact, bound))


OPERATIONS = (
  take, take_along, index, update, segments, gather, scatter,
)  # fmt: skip
