"""Loops whose state is single elements or short vectors, which the engine runs
from a tape: random recurrences, whose carries of several dtypes are permuted in
each iteration."""

from __future__ import annotations

import ipu_test_util as util
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lowering_kit import phases

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu.program import container, schema

# How an iteration updates a carry x, given another carry y converted to x's
# dtype: one operation, so that it is rounded once, whatever is fused.
STEPS = {
  "as it is": lambda x, y, i: x,
  "the other": lambda x, y, i: y,
  "the smaller": lambda x, y, i: jnp.minimum(x, y),
  "the larger": lambda x, y, i: jnp.maximum(x, y),
  "one of the two": lambda x, y, i: jnp.where(i % 3 == 1, x, y),
  "the sum": lambda x, y, i: x ^ y if x.dtype == bool else x + y,
  "the product": lambda x, y, i: x & y if x.dtype == bool else x * y,
  "a constant": lambda x, y, i: jnp.ones_like(x),
  "the counter": lambda x, y, i: (i + jnp.zeros(x.shape, i.dtype)).astype(
    x.dtype
  ),
}


@st.composite
def recurrences(draw):
  """The dtypes of the carries and, for each, a step and the other carry."""
  dtypes = draw(st.lists(st.sampled_from(util.ALL), min_size=1, max_size=6))
  others = st.integers(0, len(dtypes) - 1)
  steps = [(draw(st.sampled_from(sorted(STEPS))), draw(others)) for _ in dtypes]
  return dtypes, steps


def convert(x, dtype):
  """Converts to a dtype, avoiding undefined cases: NaN and overflow to
  integers."""
  if util.is_float(x.dtype) and not util.is_float(dtype):
    x = jnp.where((x >= 0) & (x <= 100), x, jnp.zeros_like(x))
  return x.astype(dtype)


@given(
  recurrence=recurrences(),
  shape=st.sampled_from([(), (1,), (1, 1), (2,), (3,), (4,), (8,), (2, 8)]),
  trips=st.integers(0, 9),
  fixed=st.booleans(),
)
def test_a_random_recurrence(check, recurrence, shape, trips, fixed):
  dtypes, steps = recurrence

  def f(n, *carries):
    def iteration(i, carries):
      return tuple(
        STEPS[step](x, convert(carries[other], x.dtype), i)
        for x, (step, other) in zip(carries, steps, strict=True)
      )

    return lax.fori_loop(0, trips if fixed else n, iteration, carries)

  carries = [
    util.sample(d, shape, low=0, high=3, key=k) for k, d in enumerate(dtypes)
  ]
  check(f, np.int32(trips), *carries, rtol=0)


@given(
  dtype=st.sampled_from(util.ALL),
  n=st.integers(2, 5),
  places=st.lists(st.integers(0, 4), min_size=10, max_size=10),
  reversed_=st.booleans(),
)
def test_short_vectors_that_are_sliced_and_stacked(
  check, dtype, n, places, reversed_
):
  """Elements of vectors next to the vectors themselves."""
  step = STEPS["the smaller" if dtype == np.dtype(bool) else "the sum"]

  def f(trips, x, y):
    def iteration(i, carry):
      x, y = carry
      z = jnp.stack([step(x[p % n], y[q % n], i)
                     for p, q in zip(places[:n], places[5:])])  # fmt: skip
      w = jnp.where(x > z, y, z)
      return step(x[::-1] if reversed_ else x, w, i), jnp.minimum(w, z)

    return lax.fori_loop(0, trips, iteration, (x, y))

  x, y = (util.sample(dtype, (n,), low=0, high=3, key=k) for k in (1, 2))
  check(f, np.int32(4), x, y, rtol=0)


@given(
  dtype=st.sampled_from(util.ALL),
  index=st.sampled_from([np.int32, np.uint32, np.int8, np.uint8]),
  width=st.integers(1, 34),
  starts=st.lists(st.integers(-3, 90), min_size=1, max_size=6),
)
def test_windows_copied_between_run_time_starts(
  check, dtype, index, width, starts
):
  """Windows of every size, copied from the start of one iteration to that of
  the next; starts out of bounds are clamped."""

  def f(table, starts):
    def iteration(i, table):
      start = starts[i]
      window = lax.dynamic_slice(table, (start,), (width,))
      to = (start + index(3),)
      return lax.dynamic_update_slice(table, window, to)

    return lax.fori_loop(0, starts.shape[0], iteration, table)

  starts = np.array(starts).astype(index)
  check(f, util.sample(dtype, (80,)), starts, rtol=0)


def test_a_value_that_is_two_outputs_of_a_map(check):
  """Two products convert the same operand, in one map; each run has another."""

  def f(x, grid):
    def iteration(_, grid):
      for _ in range(2):
        product = lax.dot_general(
          jnp.minimum(x, 3), grid[:1, 0], (((), ()), ((), ())),
          preferred_element_type=jnp.int32,
        )  # fmt: skip
        grid = jnp.broadcast_to(product % 5, grid.shape).astype(grid.dtype)
      return grid

    return lax.fori_loop(0, 2, iteration, grid)

  for x in (2, 3, 1):
    grid = np.full((4, 5), x + 1, np.int16)
    check(f, np.full(1, x, np.int16), grid, rtol=0)


@pytest.mark.ipu_only
def test_equal_outputs_of_a_map_are_merged():
  """Likewise two conversions of one operand, by as many products."""

  def f(x, y, z):
    products = (
      lax.dot_general(x, other, (((), ()), ((), ())),
                      preferred_element_type=np.int32)
      for other in (y, z)
    )  # fmt: skip
    return [jnp.broadcast_to(p, (4, 5)) for p in products]

  x = np.ones(1, np.int16)
  program, _ = container.read(phases(f, [x, x, x], 16).data)
  maps = [s.fields for s in program.steps if isinstance(s, schema.Execute)]
  assert any(len(m.outputs) > 1 for m in maps)
  assert all(len({*m.outputs}) == len(m.outputs) for m in maps)


def test_permuted_carries(check):
  def f(n, a, b, c):
    def iteration(i, carries):
      a, b, c = carries
      return b * 1, c + 0, a

    return lax.fori_loop(0, n, iteration, (a, b, c))

  for n in range(5):
    check(f, np.int32(n), np.int32(1), np.int32(2), np.int32(3))


def test_bisection(check):
  """Bisection: the test and both halves read what an iteration writes."""

  def root(x):
    def more(s):
      low, high, _ = s
      return high - low > 1

    def halve(s):
      low, high, trips = s
      middle = (low + high) // 2
      below = middle * middle <= x
      return (
        jnp.where(below, middle, low),
        jnp.where(below, high, middle),
        trips + 1,
      )

    return lax.while_loop(more, halve, (0, x + 1, 0))

  for x in (0, 1, 2, 99, 100, 125_000_000):
    check(root, np.int32(x))


def test_a_loop_of_many_carries(check):
  """More values than the engine keeps ready at once."""

  def f(n, *carries):
    def iteration(i, carries):
      return (*carries[1:], carries[0] + i)

    return lax.fori_loop(0, n, iteration, carries)

  check(f, np.int32(301), *(np.float32(k) for k in range(300)))


def with_one_nan(tree):
  """Bits are compared, but which NaN an operation gives is not defined."""

  def of(x):
    x = np.array(x)
    if util.is_float(x.dtype):
      x[np.isnan(x)] = np.nan
    return x

  return jax.tree.map(of, tree)


def vector_step(i, state):
  """Each kind of operation, on vectors and scalars that change places."""
  x, y, flags, total = state
  low, high = jnp.minimum(x, y), jnp.maximum(x, total)
  chosen = jnp.where(flags, low, x)
  chosen = jnp.where(i % 2 == 0, chosen, high)
  if x.dtype == bool:
    return x ^ y, chosen, x & ~y, total | (i == 3)
  half = x.dtype.type(0.5) if util.is_float(x.dtype) else x.dtype.type(3)
  z = abs(chosen) * half - y + total
  narrow = z.astype(jnp.float32).astype(jnp.bfloat16)
  return (
    jnp.sign(z) + chosen,
    z,
    (narrow > jnp.bfloat16(0.25)) | (x != x),
    total + half if x.size == 0 else (x.reshape(-1)[0] + total).astype(x.dtype),
  )


@settings(max_examples=15)
@given(
  dtype=st.sampled_from(util.ALL),
  size=st.one_of(st.integers(0, 130), st.integers(0, 16)),
  trips=st.integers(1, 5),
)
def test_a_loop_has_the_bits_of_its_steps(ipu, dtype, size, trips):
  """Values stay in registers, or go through memory from step to step."""
  x, y = (util.sample(dtype, (size,), special=True, key=k) for k in "xy")
  if util.is_float(dtype) and size > 2:
    y[1] = np.ldexp(np.float64(ml_dtypes.finfo(dtype).tiny), -1).astype(dtype)
  state = x, y, np.arange(size) % 3 == 1, util.sample(dtype, key="total")
  with jax.enable_x64(True):
    step = jax.jit(vector_step)
    loop = jax.jit(lambda n, s: lax.fori_loop(0, n, vector_step, s))
    at = jax.device_put
    one_by_one = at(state, ipu)
    for i in range(trips):
      one_by_one = step(at(np.int32(i), ipu), one_by_one)
    whole = loop(at(np.int32(trips), ipu), at(state, ipu))
    util.check_equal(with_one_nan(whole), with_one_nan(one_by_one), exact=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint64])
def test_sums_and_products_of_every_small_size(ipu, dtype):
  def step(i, state):
    x, a = state
    y = a @ x
    total, squares = y.sum(), (y * y).sum()
    if util.is_float(x.dtype):
      return y / jnp.sqrt(squares) + total * x.dtype.type(1e-3), a
    return y + (total % 7 - squares).astype(x.dtype), a

  with jax.enable_x64(True):
    states = [
      (
        util.sample(dtype, (n,), low=0, high=5, key=n),
        util.sample(dtype, (n, n), low=0, high=5, key=-n),
      )
      for n in (1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17)
    ]
    run = jax.jit(
      lambda n, states: [lax.fori_loop(0, n, step, s)[0] for s in states]
    )
    actual = run(*jax.device_put((np.int32(4), states), ipu))
    once = jax.jit(lambda states: [step(0, s) for s in states])
    expected = jax.device_put(states, ipu)
    for _ in range(4):
      expected = once(expected)
    # The same kernels, in a loop and outside of one.
    util.check_equal(
      [np.asarray(x) for x in actual],
      [np.asarray(x) for x, _ in expected],
      exact=True,
    )
    if not util.is_float(dtype):
      return
    # In any order.
    for (x, a), after in zip(states, actual, strict=True):
      for _ in range(4):
        y = a.astype(np.float64) @ x
        x = y / np.sqrt((y * y).sum()) + y.sum() * 1e-3
      rtol = 1e-12 if dtype == np.float64 else 1e-5
      np.testing.assert_allclose(after, x, rtol=rtol)


def test_a_loop_of_more_values_than_registers(check):
  """Vectors and scalars that are all alive at once, with functions between."""

  def step(i, xs):
    shifted = [b * 0.5 + a * 0.25 for a, b in zip(xs, xs[1:] + xs[:1])]
    total = sum(x.sum() for x in shifted) * 1e-3
    return [jnp.where(x > total, x - total, jnp.tanh(x) + 1) for x in shifted]

  xs = [
    util.sample(np.float32, s, key=k)
    for k, s in enumerate([(8,), (), (5,)] * 8)
  ]
  xs = [x if x.shape == (8,) else np.resize(x, 8) for x in xs]
  check(lambda n, xs: lax.fori_loop(0, n, step, xs), np.int32(7), xs, rtol=1e-4)


@pytest.mark.parametrize("shape", [(1,), (2,), (5,), (8,), (3, 4), (2, 2, 9)])
def test_indices_in_a_loop(check, shape):
  """Also of elements that are recorded one by one."""

  def step(_, x):
    index = lax.broadcasted_iota(x.dtype, x.shape, len(shape) - 1)
    return x * (index + 1) + index

  x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
  check(lambda x: lax.fori_loop(0, 3, step, x), x)


def _grid_loop(step):
  return lambda n, *xs: lax.fori_loop(0, n, lambda i, xs: step(*xs), xs)


@pytest.mark.parametrize("shape", [(6, 4), (3, 9), (4, 16), (5, 3)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint32], ids=str)
def test_loops_over_small_grids(check, dtype, shape):
  """Of whole numbers, so that no order of additions matters."""

  def step(x, y):
    row, column = x.max(1, keepdims=True), y.sum(0)
    low = jnp.minimum(x.T[: shape[0], : shape[0]].min(), 3)
    return (row - x + low) % 7, (y[::-1, ::-1] + column - row) % 5

  x, y = (
    util.sample(np.dtype(dtype), shape, low=0, high=7, key=k) for k in "xy"
  )
  x, y = np.round(x), np.round(y)
  check(_grid_loop(step), np.int32(9), x, y, rtol=0)


@pytest.mark.parametrize(
  "batch, rows", [(5, 3), (2, 4), (1, 5), (7, 1), (0, 3)]
)
def test_batched_products_in_loops(check, batch, rows):
  def step(a, x):
    return a, jnp.einsum("bij,bj->bi", a, x) % 8

  a = np.arange(batch * rows * rows).reshape(batch, rows, rows) % 5
  x = np.arange(batch * rows).reshape(batch, rows) % 3
  for dtype in (np.float32, np.int32):
    check(
      _grid_loop(step), np.int32(6), a.astype(dtype), x.astype(dtype), rtol=0
    )


UPDATES = {
  "set": lambda at, x: at.set(x),
  "add": lambda at, x: at.add(x),
  "multiply": lambda at, x: at.multiply(x),
  "min": lambda at, x: at.min(x),
  "max": lambda at, x: at.max(x),
}


@given(
  dtype=st.sampled_from(util.ALL),
  shape=st.sampled_from([(7,), (5, 3), (4, 3, 2)]),
  row=st.sampled_from([(), (1,), (2,), (4,), (5,), (8,), (16,), (33,)]),
  update=st.sampled_from(sorted(UPDATES)),
  points=st.sampled_from([(), (1,), (3,), (20,)]),
)
def test_tables_at_indices_of_each_iteration(
  check, dtype, shape, row, update, points
):
  """Elements or rows at as many indices as the table has other dimensions, some
  of them out of bounds: read from one place, written to another."""
  if np.dtype(dtype).kind == "b" and update in ("add", "multiply"):
    update = "set"

  def f(table, starts):
    def step(table, start):
      at = tuple(start[d] for d in range(len(shape)))
      other = tuple(start[d] * 2 - 1 for d in range(len(shape)))
      value = table[other]
      return UPDATES[update](table.at[at], value), value

    return lax.scan(step, table, starts)

  starts = util.sample(np.int32, (5, len(shape), *points), low=-3, high=6)
  # Updates of one element by several points of an iteration come in any order.
  if points and update == "set":
    starts[:, 0] = np.arange(np.prod(points)).reshape(points)
  table = util.sample(dtype, shape + row, low=0, high=2, key=1)
  check(f, table, starts, rtol=0)


def test_loops_within_loops(check):
  """Sets that are joined; also trip counts of zero."""

  def f(a, b):
    def root(parents, x):
      return lax.while_loop(lambda x: parents[x] != x, lambda x: parents[x], x)

    def join(i, parents):
      u, v = root(parents, a[i]), root(parents, b[i])
      return parents.at[jnp.maximum(u, v)].set(jnp.minimum(u, v))

    return lax.fori_loop(0, a.shape[0], join, jnp.arange(40))

  a, b = (util.sample(np.int32, (30,), low=0, high=39, key=k) for k in (1, 2))
  check(f, a, b)


@given(counts=st.lists(st.integers(0, 4), min_size=3, max_size=3))
def test_branches_and_loops_at_every_depth(check, counts):
  def f(counts, x):
    def inner(i, s):
      x, n = s
      x = lax.switch(
        n % 3, [lambda x: x * 3, lambda x: x + 7, lambda x: x - 1], x
      )
      return lax.fori_loop(0, 2, lambda _, x: x * 5 + i, x), n + 1

    def middle(i, s):
      x, n = lax.fori_loop(0, counts[i % 3], inner, s)
      x = lax.fori_loop(0, 0, lambda _, x: x * 2, x)
      return lax.cond(n % 2 == 0, lambda x: x ^ 5, lambda x: x, x), n

    def outer(s):
      x, n, k = s
      return *lax.fori_loop(0, 3, middle, (x, n)), k + 1

    return lax.while_loop(lambda s: s[2] < 4, outer, (x, 0, 0))

  check(f, np.array(counts, np.int32), np.int32(3))


def test_a_loop_with_operations_of_any_size(check):
  """Sorts, solves, prefix sums and products among single elements."""

  def step(s, x):
    a, i = s
    v = jnp.sort(a[i % 4] * x)
    y = jnp.linalg.solve(a @ a.T + 9 * jnp.eye(4), v)
    big = jnp.broadcast_to(y, (300, 4)).cumsum(0)
    a = a.at[(i + 1) % 4, i % 3].set(y[0] + big[i, 1] * 0.1)
    return (a, i + 1), jnp.searchsorted(v, x)

  a, xs = util.sample(np.float32, (4, 4)), util.sample(np.float32, (9,), key=1)
  check(lambda a, xs: lax.scan(step, (a, 0), xs), a, xs, rtol=1e-4)
