"""Random JAX programs: interpreter, engine and XLA:CPU agree.

They compute with small integers, which are exact in every float type and in
every order of summation, so results are bit-identical.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis
import ipu_test_util as util
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lowering_kit import TILES, check

import jax
import jax.numpy as jnp
from jax import lax

pytestmark = pytest.mark.ipu_only

DTYPES = (
  np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.uint8),
  np.dtype(np.int16), np.dtype(np.float16), np.dtype(jnp.bfloat16),
  np.dtype(np.bool_),
)  # fmt: skip
_MOST = 400  # elements of a value


def small(x: jax.Array) -> jax.Array:
  """Integers small enough for exact products and sums of a few."""
  if x.dtype == jnp.bool_:
    return x
  low = 0 if jnp.issubdtype(x.dtype, jnp.unsignedinteger) else -3
  return jnp.clip(x, jnp.asarray(low, x.dtype), jnp.asarray(3, x.dtype))


class Drawn:
  """Adds one random operation at a time; its state is the values so far."""

  def __init__(self, data: st.DataObject) -> None:
    self.draw = data.draw

  def one(self, options: Any) -> Any:
    return self.draw(st.sampled_from(list(options)))

  def integer(self, low: int, high: int) -> int:
    return self.draw(st.integers(low, max(low, high)))

  def dimensions(self, x: jax.Array) -> tuple[int, ...]:
    return tuple(
      sorted(self.draw(st.sets(st.integers(0, x.ndim - 1), min_size=1)))
    )


def cast(d, x):
  to = d.one(DTYPES)
  return lambda x: small(x).astype(to)


def unary(d, x):
  if x.dtype == jnp.bool_:
    return jnp.logical_not
  return d.one([jnp.negative, jnp.abs, jnp.sign, lambda x: x * x - x])


def binary_with_itself(d, x):
  if x.dtype == jnp.bool_:
    f = d.one([jnp.logical_and, jnp.logical_xor])
  else:
    f = d.one([jnp.add, jnp.multiply, jnp.minimum, jnp.maximum])
  if x.size and x.ndim and d.draw(st.booleans()):
    axis = d.integer(0, x.ndim - 1)
    return lambda x: f(x, lax.slice_in_dim(x, 0, 1, axis=axis))
  return lambda x: f(x, x[::-1] if x.ndim else x)


def compare(d, x):
  f = d.one([jnp.less, jnp.greater_equal, jnp.equal])
  return lambda x: f(x, x.reshape(-1)[0] if x.size else jnp.zeros((), x.dtype))


def choose(d, x):
  return lambda x: jnp.where(x > jnp.zeros((), x.dtype), x, x[..., ::-1])


def transpose(d, x):
  order = d.draw(st.permutations(range(x.ndim)))
  return lambda x: jnp.transpose(x, order)


def reshape(d, x):
  n = x.size
  inner = d.one([k for k in range(1, n + 1) if n % k == 0] or [1])
  return lambda x: x.reshape((n // inner, inner) if n else x.shape)


def cut(d, x):
  index = []
  for extent in x.shape:
    begin = d.integer(0, extent)
    end = d.integer(begin, extent)
    index.append(slice(begin, end, d.integer(1, 3)))
  return lambda x: x[tuple(index)]


def reverse(d, x):
  axes = d.dimensions(x)
  return lambda x: lax.rev(x, axes)


def pad(d, x):
  config = [
    (d.integer(-1, 2), d.integer(-1, 2), d.integer(0, 1)) for _ in x.shape
  ]
  for extent, (low, high, interior) in zip(x.shape, config, strict=True):
    if extent + max(extent - 1, 0) * interior + low + high < 0:
      return None
  return lambda x: lax.pad(x, jnp.ones((), x.dtype), config)


def concatenate(d, x):
  axis = d.integer(0, x.ndim - 1)
  return lambda x: jnp.concatenate([x, x, x[:]], axis)


def broadcast(d, x):
  n = d.integer(1, 4)
  return lambda x: jnp.broadcast_to(
    x[..., None, :], (*x.shape[:-1], n, x.shape[-1])
  )


def total(d, x):
  axes = d.dimensions(x)
  if x.dtype == jnp.bool_:
    f = d.one([jnp.all, jnp.any])
  else:
    f = d.one([lambda x, a: jnp.sum(small(x), a, dtype=x.dtype)]
              + [jnp.max, jnp.min] * bool(x.size))  # fmt: skip
  return lambda x: f(x, axes)


def argument(d, x):
  if not x.size or x.dtype == jnp.bool_:
    return None
  f, axis = d.one([jnp.argmax, jnp.argmin]), d.integer(0, x.ndim - 1)
  return lambda x: f(x, axis)


def product(d, x):
  if x.dtype == jnp.bool_ or x.ndim < 2:
    return None
  f = d.one([lambda x: x @ jnp.swapaxes(x, -1, -2),
             lambda x: jnp.swapaxes(x, -1, -2) @ x,
             lambda x: jnp.einsum("...i,...i->...", x, x)])  # fmt: skip
  return lambda x: f(small(x))


def take(d, x):
  n, axis = d.integer(0, 5), d.integer(0, x.ndim - 1)
  if not x.size:
    return None
  indices = [d.integer(-1, x.shape[axis] + 2) for _ in range(n)]
  mode = d.one(["clip", "wrap"])
  return lambda x: jnp.take(x, jnp.array(indices, jnp.int32), axis, mode=mode)


def scatter(d, x):
  if not x.size or x.dtype == jnp.bool_:
    return None
  rows = [d.integer(-2, x.shape[0] + 1) for _ in range(d.integer(1, 4))]
  how = d.one(["add", "max", "min", "multiply"])
  return lambda x: getattr(small(x).at[jnp.array(rows)], how)(
    jnp.asarray(2, x.dtype)
  )


def moving_slice(d, x):
  sizes = [d.integer(0, extent) for extent in x.shape]
  starts = [d.integer(-2, extent + 1) for extent in x.shape]
  return lambda x: lax.dynamic_slice(x, [jnp.int32(s) for s in starts], sizes)


def moving_update(d, x):
  starts = [d.integer(-2, extent + 1) for extent in x.shape]
  return lambda x: lax.dynamic_update_slice(
    x, x[tuple(slice(0, (n + 1) // 2) for n in x.shape)][::-1],
    [jnp.int32(s) for s in starts],
  )  # fmt: skip


def repeated(d, x):
  trips = d.integer(0, 3)
  return lambda x: lax.fori_loop(
    0, trips, lambda i, c: jnp.where(i % 2 == 0, c[::-1], small(c)), x
  )


def scanned(d, x):
  return lambda x: lax.scan(lambda c, r: (small(c) | r if c.dtype == bool
                            else small(c + r), c), x[0], x)[1]  # fmt: skip


def decided(d, x):
  return lambda x: lax.cond(
    x.reshape(-1)[0] > jnp.zeros((), x.dtype), lambda v: v[::-1], small, x
  )


OPERATIONS = (
  cast, unary, binary_with_itself, compare, choose, transpose, reshape, cut,
  reverse, pad, concatenate, broadcast, total, argument, product, take,
  scatter, moving_slice, moving_update, repeated, scanned, decided,
)  # fmt: skip
_NOT_EMPTY = (scanned, decided, reverse, repeated, choose, moving_update)


@given(st.data())
@hypothesis.settings(max_examples=60)
def test_random_programs(cpu, data):
  d = Drawn(data)
  shape = tuple(data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
  dtype = d.one(DTYPES)
  argument_ = util.sample(dtype, shape, low=0, high=3)
  if util.is_float(dtype):
    argument_ = np.round(argument_.astype(np.float32)).astype(dtype)
  chain: list[Callable[[jax.Array], jax.Array]] = []
  kept: list[int] = []
  current = jax.ShapeDtypeStruct(shape, dtype)
  for _ in range(d.integer(1, 6)):
    make = d.one(OPERATIONS)
    if not current.ndim and make not in (cast, unary, compare):
      continue
    if not current.size and make in _NOT_EMPTY:
      continue
    f = make(d, current)
    if f is None:
      continue
    after = jax.eval_shape(f, current)
    if after.size > _MOST:
      continue
    chain.append(f)
    current = after
    if d.draw(st.integers(0, 3)) == 0:
      kept.append(len(chain))

  def program(x):
    outputs = []
    for n, f in enumerate(chain):
      x = f(x)
      if n + 1 in kept:
        outputs.append(x)
    return [*outputs, x]

  check(cpu, program, [argument_], d.one(TILES[:3]))
