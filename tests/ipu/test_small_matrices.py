"""Factors and solutions of many small matrices, and of small complex ones,
element-wise over the batch (ops/_matrices.py)."""

from __future__ import annotations

import lowering_kit
import numpy as np
import pytest
from ipu_test_util import rng_of, run_on

import jax
import jax.numpy as jnp
from jax import lax

MANY = 3000  # more than twice as many as there are tiles
TYPES = (np.float32, np.float64, np.complex64, np.complex128)


def draw(dtype, *shape: int) -> np.ndarray:
  rng = rng_of("small matrices", shape)
  x = rng.normal(size=shape)
  if np.dtype(dtype).kind == "c":
    x = x + 1j * rng.normal(size=shape)
  return x.astype(dtype)


def tolerance(dtype) -> float:
  return 3e4 * np.finfo(dtype).eps


def check_lu(a: np.ndarray, lu, pivots, order) -> None:
  """That they are factors, with no multiplier above 1."""
  *_, m, n = a.shape
  k = min(m, n)
  lower = np.tril(lu[..., :k], -1) + np.eye(m, k)
  upper = np.triu(lu[..., :k, :])
  rows = np.take_along_axis(a, order[..., None], -2)
  bound = tolerance(a.dtype)
  np.testing.assert_allclose(lower @ upper, rows, rtol=bound, atol=bound)
  assert np.abs(lower).max() <= 1 + bound
  swapped = np.broadcast_to(np.arange(m), order.shape).copy()
  for j in range(k):
    at = pivots[..., j : j + 1].astype(int)
    assert (at >= j).all()
    mine = swapped[..., j].copy()
    swapped[..., j] = np.take_along_axis(swapped, at, -1)[..., 0]
    np.put_along_axis(swapped, at, mine[..., None], -1)
  np.testing.assert_array_equal(swapped, order)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", ((2, 2), (3, 4), (4, 3), (4, 4)), ids=str)
@pytest.mark.parametrize("count", (5, MANY))
def test_lu(ipu, dtype, shape, count):
  with jax.enable_x64(True):
    a = draw(dtype, count, *shape)
    a[:2] = 0  # rows of equal size
    a[1] += 1
    lu, pivots, order = run_on(ipu, lax.linalg.lu, a)
    check_lu(a, lu, pivots, order)
    assert (pivots[:2] == np.arange(min(shape))).all()


@pytest.mark.parametrize("count", (1, MANY))
def test_lu_of_numbers_that_are_none(check, count):
  for value in (np.nan, 0, 1e30):
    a = np.full((count, 4, 4), value, np.float32)
    check(lax.linalg.lu, a)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", (2, 3, 4, 7, 8))
@pytest.mark.parametrize("unit", (False, True))
def test_triangular_solve(ipu, dtype, n, unit):
  with jax.enable_x64(True):
    for count, m in ((4, n), (MANY, 1), (MANY, 3)):
      a = draw(dtype, count, n, n) / n + (2 * np.eye(n)).astype(dtype)
      b = draw(dtype, count, n, m)
      x = run_on(
        ipu,
        lambda a, b: lax.linalg.triangular_solve(
          a, b, left_side=True, lower=True, unit_diagonal=unit
        ),
        a,
        b,
      )
      lower = np.tril(a, -1 if unit else 0) + unit * np.eye(n)
      bound = tolerance(dtype)
      np.testing.assert_allclose(lower @ x, b, rtol=bound, atol=bound)


@pytest.mark.parametrize("left", (False, True))
@pytest.mark.parametrize("lower", (False, True))
@pytest.mark.parametrize("transpose", (False, True))
def test_sides_and_triangles(ipu, cpu, left, lower, transpose):
  f = lambda a, b: lax.linalg.triangular_solve(
    a,
    b,
    left_side=left,
    lower=lower,
    transpose_a=transpose,
    conjugate_a=transpose,
  )
  for dtype, batch, n in (
    (np.complex64, (), 3), (np.complex64, (2, 3), 4), (np.float32, (MANY,), 5)
  ):  # fmt: skip
    a = draw(dtype, *batch, n, n) / n + (2 * np.eye(n)).astype(dtype)
    b = draw(dtype, *batch, *((n, 2) if left else (2, n)))
    found, expected = (run_on(device, f, a, b) for device in (ipu, cpu))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_nothing_to_solve(check):
  f = lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True)
  check(f, draw(np.complex64, 0, 3, 3), draw(np.complex64, 0, 3, 2))
  check(f, draw(np.complex64, 2, 3, 3), draw(np.complex64, 2, 3, 0))
  check(f, draw(np.float32, MANY, 3, 3), draw(np.float32, MANY, 3, 0))
  check(lax.linalg.lu, draw(np.complex64, 0, 3, 3))


@pytest.mark.ipu_only
def test_on_tiles(cpu):
  """More matrices than tiles, and fewer; also in the interpreter."""
  solve = lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True)
  for tiles in (1, 5, 16):
    for dtype in (np.float32, np.complex64):
      a = draw(dtype, 12, 3, 3) + (4 * np.eye(3)).astype(dtype)
      b = draw(dtype, 12, 3, 2)
      lowering_kit.check(cpu, solve, [a, b], tiles, ulps=1 << 10)
      lowering_kit.check(cpu, lax.linalg.lu, [a], tiles, ulps=1 << 10)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("count", (1, 500))
def test_eigh_of_two_rows(ipu, dtype, count):
  a = draw(dtype, count + 7, 2, 2)
  a[:7] = np.array([
    [[1, 0], [0, 1]], [[0, 0], [0, 0]], [[3, 0], [0, -1]], [[-1, 0], [0, 3]],
    [[0, 1], [1, 0]], [[1e30, 1], [1, 1e-20]], [[7e37, 7e37], [7e37, 7e37]],
  ])  # fmt: skip
  with jax.enable_x64(True):
    f = lambda a: (*lax.linalg.eigh(a), jnp.linalg.eigvalsh(a))
    a = (a / 2 + np.swapaxes(a / 2, -1, -2).conj()).astype(dtype)
    v, w, alone = run_on(ipu, f, a)
  wide = np.complex128 if a.dtype.kind == "c" else np.float64
  a, v = a.astype(wide), v.astype(wide)
  expected = np.linalg.eigvalsh(a)
  size = np.abs(expected).max(-1, keepdims=True) + (expected == 0).all(
    -1, keepdims=True
  )
  bound = 16 * np.finfo(dtype).eps
  for found in (w, alone):
    assert np.abs((found - expected) / size).max() <= bound
    assert (np.diff(found) >= 0).all()
  gram = np.swapaxes(v, -1, -2).conj() @ v
  assert np.abs(gram - np.eye(2)).max() <= bound
  size = size[..., None]
  assert np.abs((a / size) @ v - v * (w[:, None] / size)).max() <= bound


@pytest.mark.parametrize("dtype", (np.float32, np.complex64))
def test_eigh_of_two_rows_with_nan_is_nan(ipu, dtype):
  a = np.tile(np.eye(2, dtype=dtype), (3, 1, 1))
  a[0, 0, 0] = a[1, 0, 1] = a[1, 1, 0] = a[2, 1, 1] = np.nan
  for x in run_on(ipu, jnp.linalg.eigh, a):
    assert np.isnan(x).all()
