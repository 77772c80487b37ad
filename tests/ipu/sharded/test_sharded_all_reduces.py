"""All-reduces that leave loops, and those that are combined."""

from __future__ import annotations

import re

import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

X = np.arange(64, dtype=np.int32).reshape(16, 4) % 7


def compiled(mesh, f, x):
  grid = mesh("ipu", {"x": 4, "y": 2}, [3, 1, 4, 0, 5, 2, 6, 7])
  spec = P("x")
  mapped = jax.shard_map(
    f, mesh=grid, in_specs=spec, out_specs=spec, check_vma=False
  )
  x = jax.device_put(x, NamedSharding(grid, spec))
  program = jax.jit(mapped).lower(x).compile()
  parts = np.asarray(x).reshape(4, -1, *x.shape[1:])
  return program, np.asarray(program(x)).reshape(parts.shape), parts


def all_reduces(text):
  """How many there are in all, and in the bodies of loops."""
  return text.count(" all-reduce("), text.partition("ENTRY")[0].count(
    " all-reduce("
  )


def test_sums_of_a_loop_are_summed_over_devices_after_it(mesh):
  def f(x):
    return lax.fori_loop(0, 5, lambda i, y: y + lax.psum(x * i, "x"), x)

  program, y, x = compiled(mesh, f, X)
  assert all_reduces(program.as_text()) == (1, 0)
  np.testing.assert_array_equal(y, x + 10 * x.sum(0))


@pytest.mark.parametrize("dtype", ["complex64", "float16", "uint8"])
def test_sums_of_other_types_leave_loops(mesh, dtype):
  def f(x):
    return lax.fori_loop(
      0, 3, lambda i, y: y + lax.psum(x * i.astype(dtype), "x"), x
    )

  program, y, x = compiled(mesh, f, X.astype(dtype))
  assert all_reduces(program.as_text())[1] == 0
  np.testing.assert_array_equal(y, x + 3 * x.sum(0, dtype=dtype))


def test_gradients_of_microbatches_are_summed_once(mesh):
  def f(x):
    def step(total, row):
      return total + lax.psum(row * 2, "x"), row

    total, rows = lax.scan(step, jnp.ones(4, x.dtype), x)
    return total + rows

  program, y, x = compiled(mesh, f, X.astype(np.float32))
  assert all_reduces(program.as_text()) == (1, 0)
  # Whole numbers: in any order the same.
  np.testing.assert_array_equal(y, x + 1 + 2 * x.sum((0, 1)))


def test_what_does_not_change_is_summed_before_the_loop(mesh):
  def f(x):
    w = x * 3
    return lax.fori_loop(
      0, 4, lambda i, y: y * 2 + lax.psum(jnp.maximum(w, 2), "x"), x
    )

  program, y, x = compiled(mesh, f, X)
  assert all_reduces(program.as_text()) == (1, 0)
  np.testing.assert_array_equal(y, 16 * x + 15 * np.maximum(3 * x, 2).sum(0))


def test_operations_before_a_loop_are_copied_once(mesh):
  """Each is needed several times: 3^40 paths lead to the first."""

  def f(x):
    def step(_, y):
      w = x
      for _ in range(40):
        w = w * w + w
      return y * 2 + lax.psum(w, "x")

    return lax.fori_loop(0, 2, step, x)

  program, y, x = compiled(mesh, f, X)
  assert all_reduces(program.as_text()) == (1, 0)
  w = x
  for _ in range(40):
    w = w * w + w
  np.testing.assert_array_equal(y, 4 * x + 3 * w.sum(0, dtype=w.dtype))


STAYS = {
  "a value that is read in the loop": lambda x: lax.fori_loop(
    0, 3, lambda i, y: y + lax.psum(y * i, "x"), x
  ),
  "a maximum": lambda x: lax.fori_loop(
    0, 3, lambda i, y: y + lax.pmax(x * i, "x"), x
  ),
  "a trip count of data": lambda x: lax.fori_loop(
    0, 1 + lax.pmax(x[0, 0], ("x", "y")), lambda i, y: y + lax.psum(x, "x"), x
  ),
  "no iteration": lambda x: lax.while_loop(
    lambda s: s[0] < s[1].sum() * 0,
    lambda s: (s[0] + 1, s[1] + lax.psum(x, "x")),
    (0, x),
  )[1],
}


@pytest.mark.parametrize("name", STAYS)
def test_others_stay_in_the_loop(mesh, name):
  program, _, _ = compiled(mesh, STAYS[name], X)
  assert all_reduces(program.as_text())[1] == 1


def test_small_ones_are_combined(mesh):
  def f(x):
    a, b = lax.psum(x, "x"), lax.psum(x[:1] * 2, "x")
    c = lax.psum(a + b + x, "x")  # needs both
    return a * c + b + lax.psum(x, "y") + lax.pmax(x, "x")

  program, y, x = compiled(mesh, f, X)
  # Of a and b; of c; the groups and the operation of the others differ.
  assert all_reduces(program.as_text())[0] == 4
  a, b = x.sum(0), 2 * x.sum(0)[:1]
  c = 4 * (a + b) + a
  np.testing.assert_array_equal(y, a * c + b + 2 * x + x.max(0))


def test_large_ones_are_not(mesh):
  def f(x):
    return lax.psum(x, "x") + lax.psum(jnp.sin(x), "x")

  x = np.ones((4 << 10, 1 << 10), np.float32)
  assert all_reduces(compiled(mesh, f, x)[0].as_text())[0] == 2


def test_combining_costs_less(mesh):
  def each(n):
    return lambda x: sum(lax.psum(x * i, "x") for i in range(1, n + 1))

  costs = [
    compiled(mesh, each(n), X)[0].cost_analysis()["ipu link cycles"]
    for n in (1, 4)
  ]
  assert costs[0] < costs[1] < 2 * costs[0]


def test_products_write_gradients_as_updates_read_them(mesh):
  """Autodiff makes the product for a weight's gradient transposed."""
  grid = mesh("ipu", {"x": 8}, range(8))
  x = np.arange(16 * 24, dtype=np.float32).reshape(16, 24) % 5
  w = np.arange(24 * 40, dtype=np.float32).reshape(24, 40) % 3

  def f(w, x):
    return w - jax.grad(lambda w: ((x @ w) ** 2).sum() / 2)(w)

  args = jax.device_put(
    (w, x), tuple(NamedSharding(grid, s) for s in (P(), P("x")))
  )
  program = jax.jit(f, out_shardings=NamedSharding(grid, P())).lower(*args)
  program = program.compile()
  reduced = re.findall(r"(\S+) all-reduce\(", program.as_text())
  assert [r.partition("{")[0] for r in reduced] == ["f32[24,40]"]
  np.testing.assert_array_equal(program(*args), w - x.T @ (x @ w))
