"""Operations that only move data: every bit has to arrive."""

from __future__ import annotations

import math

import ipu_test_util as util
import lowering_kit
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ipu_test_util import ALL

import jax
import jax.numpy as jnp
from jax import lax

DTYPES = st.sampled_from([np.bool_, np.int8, np.uint16, np.float16, np.float32])


@st.composite
def arrays(draw, min_rank: int = 0, max_rank: int = 4, least: int = 0):
  """Arrays of small shapes, including empty ones."""
  sizes = st.integers(least, 7)
  shape = draw(st.lists(sizes, min_size=min_rank, max_size=max_rank))
  return util.sample(draw(DTYPES), shape, special=True)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_moves_of_every_dtype(check, dtype):
  def moves(x, y):
    return {
      "transpose": x.T,
      "reshape": x.reshape(3, -1),
      "transpose and reshape": x.T.reshape(-1, 2),
      "slice": x[1:30:3, 2:],
      "reverse": lax.rev(x, (1,)),
      "pad": jnp.pad(x, ((1, 2), (0, 3)), constant_values=y[0, 0]),
      "concatenate": jnp.concatenate([x, y, x[:5]], 0),
      "broadcast": jnp.broadcast_to(x[:, None], (33, 4, 14)),
      "tile": jnp.tile(x, (2, 3)),
      "roll": jnp.roll(x, 5),
      "stack": jnp.stack([x, y], 1),
      "flip": y[::-1, ::-1],
    }

  x, y = (util.sample(dtype, (33, 14), special=True, key=i) for i in (0, 1))
  check(moves, x, y, exact=True)


@given(arrays(), st.data())
def test_transpose(check, x, data):
  axes = data.draw(st.permutations(range(x.ndim)))
  check(lambda x: lax.transpose(x, axes), x, exact=True)


@pytest.mark.parametrize("group", (2, 3, 4, 7))
@pytest.mark.parametrize("dtype", (np.int8, np.float16, np.float32))
def test_transposes_of_short_groups(check, group, dtype):
  for n, m in ((1, 9), (3, 33), (16, 16), (17, 130), (130, 8)):
    x = util.sample(dtype, (n, m, group), special=True)
    f = lambda x: [x.transpose(p) for p in ((1, 0, 2), (2, 1, 0), (1, 2, 0))]
    check(f, x, exact=True)
    check(lambda x: x.transpose(1, 2, 0), f(x)[1], exact=True)


@given(arrays(), st.data())
def test_reshape_of_a_transpose(check, x, data):
  """A reshape that no view can express requires a copy."""
  axes = data.draw(st.permutations(range(x.ndim)))
  factors = data.draw(st.permutations(x.shape))
  shapes = [tuple(factors), (x.size,), (1, x.size, 1)]
  check(
    lambda x: [lax.transpose(x, axes).reshape(s) for s in shapes],
    x,
    exact=True,
  )


@given(arrays(min_rank=1), st.data())
def test_slice(check, x, data):
  starts, limits, strides = [], [], []
  for n in x.shape:
    starts.append(data.draw(st.integers(0, n)))
    limits.append(data.draw(st.integers(starts[-1], n)))
    strides.append(data.draw(st.integers(1, 4)))
  check(lambda x: lax.slice(x, starts, limits, strides), x, exact=True)


@pytest.mark.parametrize("step", [2, 3, 4, 5])
@pytest.mark.parametrize("dtype", [np.int8, np.float32, np.complex64])
@pytest.mark.parametrize("length", [3, 48, 193, 1000])
def test_slices_of_spaced_elements(ipu, dtype, length, step):
  x = util.sample(np.float32, (2, length), low=-9, high=9).astype(dtype)
  for y in (x, x[0]):
    actual = util.run_on(ipu, lambda y: y[..., 1::step], y)
    np.testing.assert_array_equal(actual, y[..., 1::step])


@given(arrays(min_rank=1, max_rank=3, least=1), st.data())
def test_pad(check, x, data):
  """Low, high and interior padding; negative padding crops."""
  config = []
  for n in x.shape:
    interior = data.draw(st.integers(0, 3))
    extent = n + (n - 1) * interior
    low = data.draw(st.integers(-extent, 4))
    high = data.draw(st.integers(-extent - min(low, 0), 4))
    config.append((low, high if extent + low + high >= 0 else 0, interior))
  value = util.sample(x.dtype, (), key="pad")
  check(lambda x, v: lax.pad(x, v, config), x, value, exact=True)


@given(arrays(), st.data())
def test_reverse(check, x, data):
  dims = data.draw(st.sets(st.integers(0, x.ndim - 1))) if x.ndim else ()
  check(lambda x: lax.rev(x, tuple(dims)), x, exact=True)


@given(arrays(min_rank=1), st.data())
def test_concatenate(check, x, data):
  axis = data.draw(st.integers(0, x.ndim - 1))
  parts = [x]
  for i in range(data.draw(st.integers(1, 4))):
    shape = list(x.shape)
    shape[axis] = data.draw(st.integers(0, 5))
    parts.append(util.sample(x.dtype, shape, key=i))
  axes = data.draw(st.permutations(range(x.ndim)))
  check(lambda *xs: lax.concatenate(xs, axis), *parts, exact=True)
  check(
    lambda *xs: lax.concatenate(xs, axis).transpose(axes), *parts, exact=True
  )


def test_blocks_are_copied_at_once(ipu, check):
  """Nested concatenations take one exchange, as one of as many parts."""
  blocks = [util.sample(np.float32, (40, 50), key=i) for i in range(4)]

  def square(a, b, c, d):
    return jnp.block([[a, b], [c, d]])

  def column(*parts):
    return jnp.concatenate(parts)

  check(square, *blocks, exact=True)
  nested, flat = (
    util.costs(ipu, f, *blocks)["ipu supersteps"] for f in (square, column)
  )
  assert nested == flat


def test_blocks_do_not_keep_what_they_are_slices_of(ipu):
  def rows(x, count: int):
    """Small blocks of large arrays, each of which is needed for one of them."""
    found = []
    for i in range(count):
      a, b = (jnp.cumsum(jnp.roll(x, i, 0), d) for d in (0, 1))
      found.append(jnp.concatenate([a[:4, :8], b[4:8, :8]], 1))
    return jnp.concatenate(found)

  x = np.ones((64, 256), np.float32)
  few, many = (
    util.costs(ipu, lambda x, n=n: rows(x, n), x, ipu_num_tiles=4)
    for n in (4, 12)
  )
  assert many["ipu peak tile bytes"] < 1.5 * few["ipu peak tile bytes"]


def test_blocks_in_blocks(check):
  """Rows that are used elsewhere, too, twice, in a region, or in a loop."""

  def f(a, b):
    row = jnp.concatenate([a, b, a], 1)
    other = jnp.concatenate([b, a, b], 1)
    third = jnp.concatenate([b, b, b * 2], 1)
    deep = jnp.stack([jnp.block([[a, b], [b, a]]), jnp.block([[b, b], [a, a]])])
    in_region = lax.cond(
      a[0, 0] > 0,
      lambda: jnp.concatenate([row, row * 2]),
      lambda: jnp.concatenate([third, row]),
    )
    loop = lax.fori_loop(
      0,
      3,
      lambda i, x: jnp.block([[x[1:]], [b[:1], x[:1, :3] * 2]]),
      other[:, :6],
    )
    return [
      jnp.concatenate([row, other]),
      other,
      jnp.concatenate([row, row]),
      deep,
      in_region,
      loop,
    ]

  a, b = (util.sample(np.float32, (2, 3), key=i) for i in (5, 6))
  check(f, a, b, exact=True)


def test_a_transposed_concatenation_moves_its_parts_once(ipu):
  parts = [jax.device_put(np.ones((4, 32, 64), np.float32), ipu)] * 3

  def f(parts):
    return jnp.stack(parts).transpose(1, 2, 0, 3) + 1

  costs = jax.jit(f).lower(parts).compile().cost_analysis()
  assert costs["ipu supersteps"] == 1


@given(arrays(max_rank=3), st.data())
def test_broadcast_in_dim(check, x, data):
  rank = data.draw(st.integers(x.ndim, 5))
  places = data.draw(st.permutations(range(rank)))[: x.ndim]
  dims = sorted(places)
  shape = [data.draw(st.integers(1, 5)) for _ in range(rank)]
  for n, d in zip(x.shape, dims, strict=True):
    shape[d] = n if n != 1 else shape[d]
  check(lambda x: lax.broadcast_in_dim(x, shape, dims), x, exact=True)


@given(arrays(max_rank=2), st.data())
def test_broadcasts_with_a_reshape_between_them(check, x, data):
  def broadcast(shape):  # new dimensions around each one, which may be wider
    sizes = st.lists(st.integers(1, 3), max_size=1)
    result, dims = data.draw(sizes), []
    for n in shape:
      dims.append(len(result))
      result.append(data.draw(st.integers(1, 3)) if n == 1 else n)
      result += data.draw(sizes)
    return result, dims

  def reshape(shape):  # merges dimensions, and splits one now and then
    ends = [i for i in range(1, len(shape)) if data.draw(st.booleans())]
    merged = [
      math.prod(shape[a:b])
      for a, b in zip([0, *ends], [*ends, len(shape)], strict=True)
    ]
    at = data.draw(st.integers(0, len(merged) - 1))
    parts = [k for k in (1, 2, 3) if merged[at] % k == 0]
    k = data.draw(st.sampled_from(parts))
    split = [k, merged[at] // k] if data.draw(st.booleans()) else [merged[at]]
    return [*merged[:at], *split, *merged[at + 1 :]]

  first, first_dims = broadcast(x.shape)
  middle = reshape(first)
  last, last_dims = broadcast(middle)

  def f(x):
    x = lax.broadcast_in_dim(x, first, first_dims).reshape(middle)
    return lax.broadcast_in_dim(x, last, last_dims)

  check(f, x, exact=True)


@pytest.mark.ipu_only
def test_repeats_along_two_dimensions_are_one_copy():
  x = util.sample(np.float32, (4, 6, 5, 8))

  def repeats(*axes):
    def f(x):
      for axis in axes:
        x = jnp.repeat(x, 2, axis)
      return x

    tiles = lowering_kit.phases(f, [x], 16).tiles
    return len(tiles.steps)

  assert repeats(1, 2) == repeats(1)


@given(arrays(min_rank=1, least=1), st.data())
def test_dynamic_slice_clamps_its_start(check, x, data):
  sizes = [data.draw(st.integers(0, n)) for n in x.shape]
  starts = [np.int32(data.draw(st.integers(-9, 9))) for _ in x.shape]
  check(
    lambda x, *starts: lax.dynamic_slice(x, starts, sizes),
    x,
    *starts,
    exact=True,
  )


@given(arrays(min_rank=1, least=1), st.data())
def test_dynamic_update_slice_clamps_its_start(check, x, data):
  sizes = [data.draw(st.integers(0, n)) for n in x.shape]
  starts = [np.int32(data.draw(st.integers(-9, 9))) for _ in x.shape]
  update = util.sample(x.dtype, sizes, key="update")
  check(
    lambda x, u, *starts: lax.dynamic_update_slice(x, u, starts),
    x,
    update,
    *starts,
    exact=True,
  )


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.uint32, np.int32])
def test_dynamic_slice_with_any_index_dtype(check, dtype):
  x = util.sample(np.float32, (300, 3))
  check(
    lambda x, i: [
      lax.dynamic_slice(x, (i, jnp.zeros_like(i)), (4, 2)),
      lax.dynamic_index_in_dim(x, i, keepdims=False),
    ],
    x,
    np.array(100, dtype),
    exact=True,
  )


def test_constants_and_iota(check):
  def f():
    return {
      f"{t}": [
        jnp.full((3, 2), 1, t),
        jnp.asarray(util.sample(t, (5, 4), special=True)),
        jnp.zeros((0, 3), t),
      ]
      + (
        [lax.broadcasted_iota(t, (5, 6, 7), d) for d in range(3)]
        if t != np.bool_
        else []
      )
      for t in ALL
    }

  check(f, exact=True)


def test_a_result_may_be_an_argument_or_appear_twice(check):
  def f(x, y):
    z = x + y
    return x, z, z, y, x, z.T.T, jnp.float32(3), x.reshape(-1).reshape(x.shape)

  x, y = (util.sample(np.float32, (6, 5), key=i) for i in (0, 1))
  check(f, x, y, exact=True)


def test_unused_arguments(check):
  x, y = (util.sample(np.float32, (6, 5), key=i) for i in (0, 1))
  check(lambda x, y: y, x, y, exact=True)
  check(lambda x, y: jnp.arange(5), x, y, exact=True)
  check(lambda x, y: (), x, y, exact=True)


def test_large_moves(check):
  """More than fits on a tile, in sizes that no tile count divides."""

  def moves(x):
    y = x.reshape(997, 31, 17)
    return [
      y.transpose(2, 0, 1),
      y.transpose(1, 2, 0)[3::2, ::-1],
      x[::-7],
      jnp.concatenate([x[1000:], x[:1000]]),
      jnp.pad(y, ((1, 1), (0, 0), (2, 0)), mode="reflect"),
    ]

  check(moves, util.sample(np.float32, (997 * 31 * 17,)), exact=True)


def test_optimization_barrier(check):
  x = util.sample(np.float32, (6, 5))
  check(lambda x: lax.optimization_barrier((x * 2, x[0])), x, exact=True)


@pytest.mark.parametrize("rank", range(7))
def test_every_rank(check, rank):
  x = util.sample(np.int32, (2,) * rank)
  check(lambda x: [x.T, x + 1, x.reshape(-1), x[..., None] * x], x)


def test_rotate_and_interleave(check):
  def f(x):
    even, odd = x[..., ::2], x[..., 1::2]
    return {
      "rotate half": jnp.concatenate([-odd, even], -1),
      "interleave": jnp.stack([odd, even], -1).reshape(x.shape),
      "space to depth": x.reshape(4, 3, 2, 3, 2, 4)
      .transpose(0, 1, 3, 2, 4, 5)
      .reshape(4, 3, 3, 16),
      "split": jnp.split(x, 3, 2),
      "swap": jnp.swapaxes(x, 0, 3),
      "repeat": jnp.repeat(x, 3, 1),
      "triangle": jnp.tril(x[0, 0]),
      "diagonal": jnp.diagonal(x[0]),
    }

  check(f, util.sample(np.float32, (4, 6, 6, 4)), exact=True)


@pytest.mark.ipu_only
@pytest.mark.parametrize("f", [
  lambda x: jnp.stack([x[:, i] for i in range(4)], 1),
  lambda x: jnp.concatenate([x[:17], x[17:18], x[18:]]),
  lambda x: jnp.concatenate([x[:5], x[5:5], x[5:]]),
  lambda x: jnp.stack(list(x[::-1]))[::-1],
  lambda x: jnp.stack([x[:, 0]] * 4, 1),
])  # fmt: skip
def test_reassembled_parts_do_not_move(check, f):
  x = util.sample(np.float32, (40, 4))
  check(lambda x: f(x) * 2, x, exact=True)
  program = lowering_kit.phases(lambda x: f(x) * 2, [x], 16).program
  for step in program.steps:
    for move in getattr(step, "moves", ()):
      assert program.tensors[move.destination].root != move.destination


@given(st.data())
def test_parts_in_any_order(check, data):
  x = util.sample(np.int32, (6, 5))
  axis = data.draw(st.integers(0, 1))
  cuts = st.integers(0, x.shape[axis])
  step = st.sampled_from([1, 2, -1])
  parts = data.draw(st.lists(st.tuples(cuts, cuts, step), min_size=1))

  def f(x):
    y = jnp.moveaxis(x, axis, 0)
    return lax.concatenate([y[a:b:s] for a, b, s in parts], 0)

  check(f, x, exact=True)


def test_device_copies(ipu, cpu):
  """Arrays survive transfers in any memory order."""
  for dtype in ALL:
    x = util.sample(dtype, (5, 6, 7), special=True)
    for view in (x, x.T, x[::-1, ::2], np.asfortranarray(x), x[:0], x[0, 0, 0]):
      there = jax.device_put(view, ipu)
      back = jax.device_put(there, cpu)
      fault = util.difference(np.asarray(back), np.asarray(view), exact=True)
      assert fault is None, f"{dtype}: {fault}"
