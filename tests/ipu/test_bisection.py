"""Eigenvalues of tridiagonal matrices by bisection: the engine against the
interpreter, LAPACK against both."""

from __future__ import annotations

import engine_kit
import numpy as np
import pytest
from program_kit import Kit
from program_strategies import TILES

from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.layout import grid, project
from jaxlib.ipu.program import schema

pytestmark = pytest.mark.ipu_only


def bisected(d, e, first=0, parts=(1, 1)):
  """The result of engine and interpreter, which agree bit by bit."""
  kit = Kit(TILES, bytes_per_tile=1 << 20)
  count, n = d.shape
  shape, dtype = (count, n - first), DType[d.dtype.name.replace("float", "F")]
  split = grid(shape, parts)
  operands = []
  for x in (d, e):
    whole = (*shape, x.shape[1])
    layout = project(grid(whole, (*parts, 1)), whole, (0, 2))
    placed = kit.placed(kit.argument(x.shape, dtype), layout)
    kit.copy(kit.move(placed))
    operands.append((placed, (0, -1)))
  r = kit.result(shape, dtype, split)
  kit.execute(schema.Bisect(n, first), shape, operands, [(r, (0, 1))], split)
  (found,) = engine_kit.check(kit.bytes(), [d, e])
  return found


def exact(d, e):
  """In double precision, whatever the types of d and e."""
  full = np.diag(d.astype(np.float64))
  return np.linalg.eigvalsh(
    full + np.diag(e.astype(np.float64), 1) + np.diag(e.astype(np.float64), -1)
  )


def spectra(n: int):
  """Diagonals and off-diagonals."""
  rng = np.random.default_rng(n)
  d, e = rng.normal(size=n), rng.normal(size=n - 1)
  w = np.abs(np.arange(n) - n // 2)
  return {
    "random": (d, e),
    "spread": (10.0 ** -np.arange(n), 0 * e),
    "clustered": (1 + 0 * d, 1e-4 * e),
    "split": (d, np.where(np.arange(n - 1) % 3, e, 0)),
    "zero": (0 * d, 0 * e),
    "no diagonal": (0 * d, e),
    "pairs": (
      w * 1.0,
      1 + 0 * e,
    ),  # Wilkinson's: eigenvalues agree to all digits
    "steps": (0 * d + 2, -1 + 0 * e),
  }


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", spectra(2))
@pytest.mark.parametrize("n", [1, 2, 21])
def test_bisection(name, n, dtype):
  d, e = (x.astype(dtype) for x in spectra(n)[name])
  found = bisected(d[None], e[None])[0]
  eps = np.finfo(dtype).eps
  expected = exact(d, e)
  assert (np.diff(found) >= 0).all()
  atol = 16 * eps * max(np.abs(expected).max(), 1e-30)
  np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
  if name == "spread":  # blocks that do not interact are exact
    np.testing.assert_array_equal(found, np.sort(d))


def test_bisection_of_batches_on_tiles():
  rng = np.random.default_rng(0)
  d, e = (rng.normal(size=(5, n)).astype(np.float32) for n in (150, 149))
  whole = bisected(d, e)
  for parts in ((2, 2), (1, 4), (4, 1)):
    np.testing.assert_array_equal(bisected(d, e, 130, parts), whole[:, 130:])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "first"), [(1, 0), (3, 0), (4, 1), (31, 6)])
def test_bisection_of_many_small_matrices(n, first, dtype):
  """Several share a vector; none of them sees the others."""
  rng = np.random.default_rng(n)
  d, e = (rng.normal(size=(45, k)).astype(dtype) for k in (n, n - 1))
  d[7, n // 2] = np.nan
  found = bisected(d, e, first)
  for matrix in range(45):
    alone = bisected(d[matrix : matrix + 1], e[matrix : matrix + 1], first)
    np.testing.assert_array_equal(found[matrix], alone[0])
    if matrix != 7:
      expected = exact(d[matrix], e[matrix])
      atol = 16 * np.finfo(dtype).eps * np.abs(expected).max()
      np.testing.assert_allclose(alone[0], expected[first:], rtol=0, atol=atol)
  assert np.isnan(found[7]).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_bisection_of_nan_and_infinity(bad):
  d, e = np.ones((3, 4), np.float32), np.ones((3, 3), np.float32)
  d[0, 2] = e[2, 0] = bad
  found = bisected(d, e)
  assert np.isnan(found[[0, 2]]).all() and np.isfinite(found[1]).all()
