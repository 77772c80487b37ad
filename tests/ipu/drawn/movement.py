"""Operations that move elements without changing them."""

from __future__ import annotations

from . import values as types
from .block import Block, Drawn, require


def _moved(v: types.Value, text: str) -> Drawn:
  return Drawn(text, (v.exact, v.bound))


def transpose(d: Block) -> Drawn:
  v = d.value(d.all())
  return _moved(v, f"jnp.transpose({v.text}, {d.order(v.rank)})")


def reshape(d: Block) -> Drawn:
  v = d.value(d.all(), empty=False)
  inner = d.one([k for k in range(1, v.size + 1) if v.size % k == 0])
  left = v.size // inner
  outer = d.one([k for k in range(1, left + 1) if left % k == 0])
  shape = d.one([(left, inner), (outer, left // outer, inner), (v.size,)])
  return _moved(v, f"{v.text}.reshape({shape})")


def cut(d: Block) -> Drawn:
  v = d.value(d.all(), rank=(1, 4))
  index = []
  for extent in v.shape:
    begin = d.integer(0, extent)
    end = d.integer(begin, extent)
    index.append(f"{begin}:{end}:{d.integer(1, 3)}")
  return _moved(v, f"{v.text}[{', '.join(index)}]")


def reverse(d: Block) -> Drawn:
  v = d.value(d.all())
  return _moved(v, f"lax.rev({v.text}, {d.axes(v)})")


def pad(d: Block) -> Drawn:
  v = d.value(d.all())
  rows = [
    (d.integer(-2, 3), d.integer(-2, 3), d.integer(0, 2)) for _ in v.shape
  ]
  for n, (low, high, interior) in zip(v.shape, rows):
    require(n + max(n - 1, 0) * interior + low + high >= 0)
  value = f"jnp.ones((), {types.text(v.dtype)})"
  return Drawn(
    f"lax.pad({v.text}, {value}, {rows})", (v.exact, max(v.bound, 1))
  )


def numpy_pad(d: Block) -> Drawn:
  v = d.value(d.computing(), rank=(1, 3), empty=False)
  widths = tuple((d.integer(0, 2), d.integer(0, 3)) for _ in v.shape)
  mode = d.one(["edge", "wrap", "reflect", "symmetric", "constant"])
  return _moved(v, f'jnp.pad({v.text}, {widths}, mode="{mode}")')


def concatenate(d: Block) -> Drawn:
  v = d.value(d.all(), rank=(1, 4))
  axis = d.axis(v)
  parts, exact, bound = [v.text], v.exact, v.bound
  for _ in range(d.integer(1, 2)):
    shape = list(v.shape)
    shape[axis] = d.integer(0, 5)
    other = d.array(v.dtype, tuple(shape))
    parts.append(other.text)
    exact, bound = exact and other.exact, max(bound, other.bound)
  text = f"jnp.concatenate([{', '.join(parts)}], {axis})"
  return Drawn(text, (exact, bound))


def broadcast(d: Block) -> Drawn:
  v = d.value(d.all(), rank=(0, 3))
  rank = v.rank + d.integer(0, 2)
  places = sorted(d.order(rank)[: v.rank])
  shape = [d.integer(0, 4) for _ in range(rank)]
  for p, n in zip(places, v.shape):
    shape[p] = d.integer(1, 4) if n == 1 and d.flip() else n
  text = f"lax.broadcast_in_dim({v.text}, {tuple(shape)}, {tuple(places)})"
  return _moved(v, text)


def numpy_moves(d: Block) -> Drawn:
  v = d.value(d.computing(), rank=(1, 3))
  a, n = d.axis(v), d.integer(-3, 5)
  rows = ["jnp.roll({x}, {n}, {a})", "jnp.flip({x}, {a})",
          "jnp.repeat({x}, 2, {a})", "jnp.tile({x}, 2)", "jnp.ravel({x})",
          "jnp.expand_dims({x}, {a})", "jnp.moveaxis({x}, {a}, 0)",
          "jnp.swapaxes({x}, {a}, -1)", "jnp.stack([{x}, {x}], {a})",
          "jnp.atleast_2d({x}).T", "jnp.diag(jnp.ravel({x})[:5], {k})",
          "lax.squeeze(jnp.expand_dims({x}, {a}), ({a},))",
          "jnp.array_split({x}, 2, {a})[1]", "jnp.dstack([{x}, {x}])",
          "lax.optimization_barrier({x})",
          "lax.slice_in_dim({x}, 0, 1, axis={a})",
          "jnp.rollaxis({x}, {a})", "lax.reshape({x}, {f}, {p})"]  # fmt: skip
  if v.rank > 1:
    rows += ["jnp.tril({x}, {k})", "jnp.triu({x}, {k})", "jnp.rot90({x})",
             "jnp.diagonal({x}, {k})", "jnp.fliplr({x})"]  # fmt: skip
  row = d.one(rows)
  require(v.shape[a] or "slice_in_dim" not in row)
  text = row.format(x=v.text, a=a, n=n, k=d.integer(-1, 1),
                    f=(v.size,), p=d.order(v.rank))  # fmt: skip
  return _moved(v, text)


def dynamic_slice(d: Block) -> Drawn:
  v = d.value(d.all(), rank=(1, 4))
  sizes = tuple(d.integer(0, n) for n in v.shape)
  starts = d.array(d.one(d.ints()), (v.rank,), exact=True)
  text = f"lax.dynamic_slice({v.text}, [*{starts.text}], {sizes})"
  return _moved(v, text)


def dynamic_update(d: Block) -> Drawn:
  v = d.value(d.all(), rank=(1, 4))
  u = d.array(v.dtype, tuple(d.integer(0, n) for n in v.shape))
  starts = d.array(d.one(d.ints()), (v.rank,), exact=True)
  text = f"lax.dynamic_update_slice({v.text}, {u.text}, [*{starts.text}])"
  return Drawn(text, (v.exact and u.exact, max(v.bound, u.bound)))


OPERATIONS = (
  transpose, reshape, cut, reverse, pad, numpy_pad, concatenate, broadcast,
  numpy_moves, dynamic_slice, dynamic_update,
)  # fmt: skip
