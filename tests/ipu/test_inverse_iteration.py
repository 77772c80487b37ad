"""Eigenvectors by inverse iteration: the codelet on engine and interpreter, and
eigh and svd of difficult matrices."""

from __future__ import annotations

import engine_kit
import hypothesis
import ipu_test_util as util
import lowering_kit
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from program_kit import Kit
from program_strategies import TILES
from test_bisection import exact, spectra
from test_eigenvalues import check_eigh, symmetric

import jax
import jax.numpy as jnp
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.layout import grid, project
from jaxlib.ipu.program import schema


def program(d, e, w, parts=(1, 1), fields=None):
  kit = Kit(TILES, bytes_per_tile=1 << 20)
  (count, n), k = d.shape, w.shape[1]
  shape, dtype = (count, k), DType[d.dtype.name.replace("float", "F")]
  split = grid(shape, parts)
  operands = []
  for x in (d, e, w):
    whole = (*shape, x.shape[1])
    layout = project(grid(whole, (*parts, 1)), whole, (0, 2))
    placed = kit.placed(
      kit.argument(x.shape, dtype), split if x is w else layout
    )
    kit.copy(kit.move(placed))
    operands.append((placed, (0, 1 if x is w else -1)))
  r = kit.result((*shape, n), dtype, grid((*shape, n), (*parts, 1)))
  fields = fields or schema.InverseIteration(n)
  kit.execute(fields, shape, operands, [(r, (0, 1))], split)
  return kit.bytes()


def iterated(d, e, w, parts=(1, 1)):
  """The result of engine and interpreter, which agree bit by bit."""
  (found,) = engine_kit.check(program(d, e, w, parts), [d, e, w])
  return found


def check_vectors(d, e):
  """All vectors of one matrix: length and residual."""
  n, eps = len(d), np.finfo(d.dtype).eps
  w = exact(d, e).astype(d.dtype)
  x = iterated(d[None], e[None], w[None])[0].astype(np.float64)
  t = np.diag(d) + np.diag(e, 1) + np.diag(e, -1)
  np.testing.assert_allclose((x * x).sum(-1), 1, rtol=0, atol=4 * eps)
  scale = max(np.abs(w).max(), 1e-30)
  residual = np.abs(x @ t.astype(np.float64) - w[:, None] * x).max()
  assert residual <= 8 * n**0.5 * eps * scale
  return x


@pytest.mark.ipu_only
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", spectra(2))
@pytest.mark.parametrize("n", [1, 2, 21])
def test_vectors(name, n, dtype):
  x = check_vectors(*(v.astype(dtype) for v in spectra(n)[name]))
  if name in ("random", "steps"):  # values that are well separated
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(x @ x.T, np.eye(n), rtol=0, atol=1e3 * eps)
  assert np.linalg.matrix_rank(x, tol=1e-6) == n


@pytest.mark.ipu_only
@given(st.data())
@hypothesis.settings(max_examples=40)
def test_drawn_vectors(data):
  """Elements with few distinct values, so that many eigenvalues agree and
  matrices split."""
  n = data.draw(st.integers(1, 40))
  dtype = data.draw(st.sampled_from([np.float32, np.float64]))
  values = st.sampled_from([0, 1, -1, 2, 1e-3, 1e-9, 1e-30, 0.3])
  d = data.draw(st.lists(values, min_size=n, max_size=n))
  e = data.draw(st.lists(values, min_size=n - 1, max_size=n - 1))
  check_vectors(np.array(d, dtype), np.array(e, dtype))


@pytest.mark.ipu_only
def test_batches_on_tiles():
  rng = np.random.default_rng(0)
  d, e, w = (rng.normal(size=(5, n)).astype(np.float32) for n in (30, 29, 70))
  whole = iterated(d, e, w)
  assert whole.shape == (5, 70, 30)
  for parts in ((2, 2), (1, 4), (4, 1)):
    np.testing.assert_array_equal(iterated(d, e, w, parts), whole)


@pytest.mark.ipu_only
def test_nan_stays_in_its_matrix():
  d, e, w = (np.ones((3, n), np.float32) for n in (4, 3, 4))
  d[0, 2] = e[2, 0] = np.nan
  w[[0, 2]] = np.nan  # as bisection produces them
  found = iterated(d, e, w)
  assert np.isnan(found[[0, 2]]).all() and np.isfinite(found[1]).all()


@pytest.mark.ipu_only
@pytest.mark.parametrize("rows", [0, 3, 5, -1, 2**40])
def test_invalid_fields_are_refused(rows):
  d, e, w = (np.ones((2, n), np.float32) for n in (4, 3, 4))
  data = program(d, e, w, fields=schema.InverseIteration(rows))
  with pytest.raises(engine_kit.EngineError, match="InverseIteration"):
    engine_kit.run(data, [d, e, w])


# --- eigh --------------------------------------------------------------------


def wilkinson(n):
  """Its eigenvalues come in pairs that agree to all digits."""
  w = np.abs(np.arange(n) - n // 2) * 1.0
  return np.diag(w) + np.eye(n, k=1) + np.eye(n, k=-1)


def glued(blocks, glue):
  a = np.kron(np.eye(blocks), wilkinson(21))
  for i in range(21, 21 * blocks, 21):
    a[i - 1, i] = a[i, i - 1] = glue
  return a


def hard(dtype, n=42):
  rng = np.random.default_rng(n)
  eps = np.finfo(dtype).eps
  q = np.linalg.qr(rng.normal(size=(n, n)))[0]
  half = np.arange(n) < n // 2
  low = rng.normal(size=(n, 3))
  general = rng.normal(size=(n, n))
  general += general.T
  graded = 10.0 ** -np.linspace(0, 30, n)
  found = {
    "identity": np.eye(n),
    "multiple": 3 * np.eye(n),
    "diagonal": np.diag(rng.permutation(n) % 7 - 2.0),
    "zero": np.zeros((n, n)),
    "ones": np.ones((n, n)),
    "rank one": np.outer(low[:, 0], low[:, 0]),
    "low rank": low @ low.T,
    "low rank and noise": low @ low.T + eps * general,
    "projector": q * half @ q.T,
    "reflection": q * np.where(half, 1, -1) @ q.T,
    "Wilkinson": wilkinson(21),
    "glued": glued(2, 1e-3),
    "glued weakly": glued(3, eps),
    "apart": glued(2, 0.0),
    "graded": np.diag(graded) + 1e-12,
    "scaled": graded[:, None] ** 0.5 * general * graded**0.5,
    "huge": general * (1e30 if dtype == np.float32 else 1e250),
    "tiny": general * (1e-30 if dtype == np.float32 else 1e-250),
    "spread": q * 10.0 ** np.linspace(-12, 0, n) @ q.T,
    "neighbours": q * (1 + eps * np.arange(n)) @ q.T,
    "close": q * (1 + eps**0.5 * np.arange(n) / n) @ q.T,
    "three clusters": q * np.repeat([1, 2, 3.0], n // 3) @ q.T,
    "reversal": np.eye(n)[::-1],
    "second difference": 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1),
    "one": q * np.append(np.full(n - 1, 1e-9), 1) @ q.T,
  }
  return {k: ((a + a.T) / 2).astype(dtype) for k, a in found.items()}


@pytest.mark.parametrize("name", hard(np.float32))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_eigh_of_hard_matrices(ipu, check, name, dtype):
  with jax.enable_x64(dtype == np.float64):
    check_eigh(ipu, check, hard(dtype)[name])


@pytest.mark.parametrize("shape", [(3, 5, 5), (2, 2, 17, 17), (130, 130)])
def test_eigh_of_batches_and_panels(ipu, check, shape):
  check_eigh(ipu, check, symmetric(*shape))


@pytest.mark.parametrize("n", [3, 6, 15])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_eigh_of_sparse_and_badly_scaled_matrices(ipu, check, n, dtype):
  """Blocks of a few rows, of all sizes; many eigenvalues are zero."""
  rng, count = np.random.default_rng(n), 300
  size = rng.choice([0, 0, 0, -3, -8, -16, -25], size=(count, n, n))
  a = rng.normal(size=(count, n, n)) * 10.0**size
  sparse = rng.choice([0, 0.3, 0.6, 0.9], size=(count, 1, 1))
  a[rng.random(a.shape) < sparse] = 0
  scale = 10.0 ** rng.choice([0, 0, -1, -4, -9], size=(count, n, 1))
  a *= scale * scale.mT
  a[::3] = np.round(a[::3])
  with jax.enable_x64(dtype == np.float64):
    check_eigh(ipu, check, (a + a.mT).astype(dtype))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_eigh_of_nan_and_infinity(ipu, bad):
  a = np.stack([symmetric(20, 20)] * 2)
  a[0, 3, 4] = a[0, 4, 3] = bad
  for x in util.run_on(ipu, jnp.linalg.eigh, a):
    assert np.isnan(x[0]).all() and np.isfinite(x[1]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_svd_of_hard_matrices(ipu, dtype):
  names, matrices = zip(*hard(dtype).items(), strict=True)
  names = [k for k, a in zip(names, matrices) if a.shape == (42, 42)]
  a = np.stack([hard(dtype)[k] for k in names])
  a[::2] = a[::2] @ np.linalg.qr(symmetric(42, 42))[0]
  with jax.enable_x64(dtype == np.float64):
    found = util.run_on(ipu, jnp.linalg.svd, a)
  scale = np.abs(a).max((1, 2), keepdims=True).astype(np.float64)
  scale[scale == 0] = 1
  u, s, vt = (x.astype(np.float64) for x in found)
  a, s = a / scale, s / scale[..., 0]
  expected = np.linalg.svd(a, compute_uv=False)
  bound = 8 * (1 + 42**0.5) * np.finfo(dtype).eps
  unit = np.eye(42)
  for k, name in enumerate(names):
    most = bound * max(expected[k, 0], 1)
    assert (s[k] >= 0).all() and (np.diff(s[k]) <= 0).all(), name
    assert np.abs(s[k] - expected[k]).max() <= most, name
    assert np.abs((u[k] * s[k]) @ vt[k] - a[k]).max() <= most, name
    for x in (u[k].T @ u[k], vt[k] @ vt[k].T):
      assert np.abs(x - unit).max() <= bound, name


@pytest.mark.ipu_only
@pytest.mark.parametrize("f", [jnp.linalg.eigh, jnp.linalg.svd])
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_many_small_matrices_use_jacobi_rotations(f, dtype):
  for shape, expected in (((9, 9), True), ((100_000, 4, 4), False)):
    a = np.zeros(shape, dtype)
    steps = lowering_kit.phases(f, [a], 1472).program.steps
    fields = [getattr(s, "fields", None) for s in steps]
    found = any(isinstance(x, schema.InverseIteration) for x in fields)
    assert found == expected
