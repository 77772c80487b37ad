"""Products and convolutions."""

from __future__ import annotations

import math

from . import values as types
from .block import Block, Drawn, require


def matmul(d: Block) -> Drawn:
  x = d.value(d.numbers(), rank=(1, 3)).small()
  k, n = x.shape[-1], d.one([1, 2, 5, 8, 17, 0])
  shape = d.one([(k,), (k, n), (*x.shape[:-2], k, n)] if x.rank > 1 else
                [(k,), (k, n)])  # fmt: skip
  y = d.array(x.dtype, shape).small()
  factor = 2 if types.is_complex(x.dtype) else 1
  bound = factor * k * x.bound * y.bound
  return Drawn(f"{x.text} @ {y.text}", (x.exact and y.exact, bound))


def dot_general(d: Block) -> Drawn:
  dtype = d.one(d.numbers())
  batch, contract = d.shape(0, 1), d.shape(0, 2)
  free_x, free_y = d.shape(0, 1), d.shape(0, 1)

  def side(free: tuple[int, ...]) -> tuple[types.Value, list[int], list[int]]:
    dims = [*batch, *contract, *free]
    order = d.order(len(dims))
    v = d.array(dtype, tuple(dims[o] for o in order)).small()
    place = {o: i for i, o in enumerate(order)}
    batches = [place[i] for i in range(len(batch))]
    contracted = [place[len(batch) + i] for i in range(len(contract))]
    return v, batches, contracted

  x, bx, cx = side(free_x)
  y, by, cy = side(free_y)
  require(max(x.size, y.size) <= types.MOST)
  preferred = ""
  if types.is_float(dtype) and dtype.itemsize < 4 and d.flip():
    preferred = ", preferred_element_type=jnp.float32"
  if types.is_int(dtype) and d.flip():
    sign = "uint32" if types.is_unsigned(dtype) else "int32"
    if dtype.itemsize < 4:
      preferred = f", preferred_element_type=jnp.{sign}"
  text = f"lax.dot_general({x.text}, {y.text}, (({cx}, {cy}), ({bx}, {by}))"
  factor = 2 if types.is_complex(dtype) else 1
  bound = factor * math.prod(contract) * x.bound * y.bound
  return Drawn(f"{text}{preferred})", (x.exact and y.exact, bound))


def einsum(d: Block) -> Drawn:
  dtype = d.one(d.numbers())
  sizes = {c: d.integer(1, 5) for c in "abcd"}
  row, count = d.one([
    ("ab,bc->ac", 2), ("ab,ab->", 2), ("aab->b", 1), ("abc,cd->dba", 2),
    ("ab,bc,cd->ad", 3), ("ab->ba", 1), ("a,b->ab", 2), ("abc,abd->acd", 2),
    ("abc,c->ab", 2), ("ab,ac,ad->bcd", 3),
  ])  # fmt: skip
  parts, exact, bound = [], True, 1.0
  for letters in row.split("->")[0].split(","):
    v = d.array(dtype, tuple(sizes[c] for c in letters)).small(2)
    parts.append(v.text)
    exact, bound = exact and v.exact, bound * v.bound * 2
  text = f'jnp.einsum("{row}", {", ".join(parts)})'
  return Drawn(text, (exact, bound * math.prod(sizes.values())))


def numpy_products(d: Block) -> Drawn:
  x = d.value(d.numbers(), rank=(1, 2), empty=False).small()
  y = d.array(x.dtype, x.shape).small()
  rows = ["jnp.outer({x}, {y})", "jnp.kron({x}, {y})", "jnp.vdot({x}, {y})",
          "jnp.inner({x}, {y})", "jnp.tensordot({x}, {y}, {r})",
          "jnp.linalg.multi_dot([{x}.T, {y}])",
          "jnp.convolve(jnp.ravel({x}), jnp.ravel({y})[:4])",
          "jnp.correlate(jnp.ravel({x}), jnp.ravel({y})[:3], mode='same')",
          "jnp.polyval(jnp.ravel({x})[:3], {y})"]  # fmt: skip
  row = d.one(rows)
  require("multi_dot" not in row or x.rank == 2)
  text = row.format(x=x.text, y=y.text, r=x.rank)
  factor = 2 if types.is_complex(x.dtype) else 1
  bound = factor * x.size * max(x.bound, 1) * max(y.bound, 1) * 10
  return Drawn(text, (x.exact and y.exact, bound))


def convolution(d: Block) -> Drawn:
  dtype = d.one([*d.floats(), *d.complexes(), types.INTS[0], types.INTS[1]])
  rank = d.one([1, 2, 0, 3])
  groups, batch_groups = 1, 1
  if d.rarely():
    groups = d.integer(2, 3)
  elif d.rarely():
    batch_groups = d.integer(2, 3)
  per_group, out = d.integer(1, 3), d.integer(1, 3)
  batch = d.integer(1, 2) * batch_groups
  window = [d.integer(1, 3) for _ in range(rank)]
  extent = [d.integer(1, 6 if rank < 3 else 3) for _ in range(rank)]
  steps = tuple(d.integer(1, 3) for _ in range(rank))
  base = tuple(d.integer(1, 2) if d.flip() else 1 for _ in range(rank))
  holes = tuple(d.integer(1, 2) if d.flip() else 1 for _ in range(rank))
  low = -1 if d.rarely() else 0
  padding = [(d.integer(low, 2), d.integer(low, 2)) for _ in range(rank)]
  for n, b, (p, q) in zip(extent, base, padding):
    require((n - 1) * b + 1 + p + q >= 0)

  def permuted(dims: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A shape with permuted dimensions, and the position of each of them."""
    order = d.order(len(dims))
    return tuple(dims[o] for o in order), tuple(
      order.index(i) for i in range(len(dims))
    )

  x_shape, x_spec = permuted([batch, per_group * groups, *extent])
  w_shape, w_spec = permuted([out * groups * batch_groups, per_group, *window])
  out_spec = d.order(rank + 2)
  x = d.array(dtype, x_shape).small(2)
  w = d.array(dtype, w_shape).small(2)
  numbers = f"lax.ConvDimensionNumbers({x_spec}, {w_spec}, {out_spec})"
  text = (
    f"lax.conv_general_dilated({x.text}, {w.text}, {steps}, {padding}, "
    f"{base}, {holes}, {numbers}, {groups}, {batch_groups})"
  )
  factor = 2 if types.is_complex(dtype) else 1
  bound = factor * per_group * math.prod(window) * x.bound * w.bound
  return Drawn(text, (x.exact and w.exact, bound))


OPERATIONS = (matmul, dot_general, einsum, numpy_products, convolution)
