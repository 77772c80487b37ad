"""svd and eigh of graded and decoupled matrices: accuracy relative to what a
singular value or a block is, not only to the largest one. The truth is f64."""

from __future__ import annotations

import ipu_test_util as util
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jaxlib.ipu.ops import _spectral

GRADES = np.array([1e6, 1, 1e-6])


def draw(*shape, seed=0):
  return np.random.default_rng([seed, *shape]).normal(size=shape)


def orthogonal(n):
  return np.linalg.qr(draw(n, n))[0]


def unitary(n):
  return np.linalg.qr(draw(n, n) + 1j * draw(n, n, seed=1))[0]


def well(m, n, vectors=orthogonal):
  """A matrix whose singular values are between 1 and 2."""
  k = min(m, n)
  return vectors(m)[:, :k] * np.linspace(2, 1, k) @ vectors(n)[:k]


def products():
  """Well-conditioned matrices times diagonal ones: rotations of sorted rows
  find all singular values to high relative accuracy."""
  wide = np.random.default_rng(0).permutation(np.logspace(8, -8, 40))
  return {
    "diagonal": np.diag([1e6, 1, 1e-3]),
    "far diagonal": np.diag([1, 1e-25, 1e-12]),
    "columns": well(3, 3) * GRADES,
    "columns, upwards": well(3, 3) * GRADES[::-1],
    "columns, tall": well(7, 3) * GRADES,
    "rows": GRADES[:, None] * well(3, 3),
    "rows, upwards": GRADES[::-1, None] * well(3, 3),
    "rows, wide": GRADES[:, None] * well(3, 7),
    "many columns": well(50, 40) * wide,
    "many rows": wide[:, None] * well(40, 40),
    "complex": (well(9, 9) + 1j * np.eye(9)) * np.logspace(6, -6, 9),
    "complex, upwards": well(9, 9, unitary) * np.logspace(-6, 6, 9),
    "complex, short": well(9, 9, unitary) * np.logspace(0, -30, 9),
    "complex rows": np.logspace(6, -6, 9)[:, None] * well(9, 9, unitary),
    "complex, tall": well(12, 5, unitary) * np.logspace(6, -6, 5),
    "complex, wide": np.logspace(6, -6, 5)[:, None] * well(5, 12, unitary),
    "batch": np.stack([np.diag(GRADES), well(3, 3), well(3, 3) * GRADES]),
  }


def narrow(a):
  return a.astype(np.complex64 if np.iscomplexobj(a) else np.float32)


def decompositions(ipu, a):
  """U, S, V^H, and S of the call without vectors."""
  f = lambda a: jnp.linalg.svd(a, full_matrices=False)
  u, s, vt = util.run_on(ipu, f, a)
  g = lambda a: jnp.linalg.svd(a, compute_uv=False)
  return u, s, vt, util.run_on(ipu, g, a)


def check_factors(a, u, s, vt):
  """Orthonormal vectors, and A = U S V^H."""
  size, eps = max(a.shape[-2:]), np.finfo(s.dtype).eps
  double = np.complex128 if np.iscomplexobj(a) else np.float64
  for x in (u.mT.conj() @ u, vt @ vt.mT.conj()):
    assert np.abs(x - np.eye(x.shape[-1])).max() <= 4 * size * eps
  product = (u.astype(double) * s[..., None, :]) @ vt.astype(double)
  most = s[..., :1, None].astype(np.float64)
  assert (np.abs(product - a) <= 4 * size * eps * most).all()


@pytest.mark.parametrize("name", products())
def test_small_singular_values_are_relatively_accurate(ipu, name):
  a = narrow(products()[name])
  u, s, vt, alone = decompositions(ipu, a)
  check_factors(a, u, s, vt)
  expected = exact_values(a)
  rtol = 8 * max(a.shape[-2:]) * np.finfo(np.float32).eps
  for values in (s, alone):
    np.testing.assert_allclose(values, expected, rtol=rtol, atol=0)


def exact_values(a):
  """Singular values to high relative accuracy: with rows and columns sorted,
  f64 has the digits for these matrices."""
  double = np.complex128 if np.iscomplexobj(a) else np.float64
  a = a.astype(double)
  rows = -np.abs(a).max(-1)
  a = np.take_along_axis(a, np.argsort(rows)[..., None], -2)
  columns = -np.abs(a).max(-2)
  a = np.take_along_axis(a, np.argsort(columns)[..., None, :], -1)
  return np.linalg.svd(a, compute_uv=False)


def others():
  """Matrices whose small singular values the input's rounding moves."""
  low = draw(30, 3) @ draw(3, 30)
  return {
    "rank three": low,
    "rank three, complex": low[:, :20] * (1 + np.arange(20) * 1j),
    "clustered, complex": unitary(20) * (1 + 1e-6 * np.arange(20)),
    "zero, complex": np.zeros((4, 3), complex),
    "rank three, graded": low * np.logspace(4, -4, 30),
    "both": GRADES[::-1, None] * well(3, 3) * GRADES,
    "repeated": orthogonal(20) * np.repeat([1, 1e-2], 10) @ orthogonal(20),
    "clustered": orthogonal(20) * (1 + 1e-6 * np.arange(20)),
    "hidden": orthogonal(30) * np.logspace(0, -12, 30) @ orthogonal(30).T,
    "blocks": np.kron(np.diag([1e6, 1, 1e-6]), well(4, 4)),
    "zero": np.zeros((4, 3)),
    "zero columns": well(6, 6) * np.array([0, 1, 0, 1e-8, 1e8, 0]),
    "tiny": well(6, 4) * 1e-30,
    "huge": well(4, 6) * 1e30,
    "general": draw(64, 64),
    "tall": draw(200, 5),
  }


@pytest.mark.parametrize("name", others())
def test_singular_values_agree_with_and_without_vectors(ipu, name):
  a = narrow(others()[name])
  u, s, vt, alone = decompositions(ipu, a)
  check_factors(a, u, s, vt)
  expected = exact_values(a)
  atol = 2 * max(a.shape) * np.finfo(np.float32).eps * expected[0]
  np.testing.assert_allclose(s, expected, rtol=0, atol=atol)
  np.testing.assert_allclose(alone, expected, rtol=0, atol=atol)


def test_double_precision(ipu):
  a = well(6, 6) * np.logspace(0, -60, 6)
  with jax.enable_x64(True):
    u, s, vt, alone = decompositions(ipu, a)
  check_factors(a, u, s, vt)
  # The columns differ so much that their angles give the values.
  expected = np.abs(np.diag(np.linalg.qr(a)[1]))
  for values in (s, alone):
    np.testing.assert_allclose(values, expected, rtol=1e-13, atol=0)


def test_least_squares_of_scaled_columns(ipu):
  a = narrow(well(8, 3) * np.array([1e5, 1, 1]))
  x = np.array([1, 1, 1], np.float32)
  b = (a.astype(np.float64) @ x).astype(np.float32)
  found = util.run_on(ipu, lambda a, b: jnp.linalg.lstsq(a, b)[0], a, b)
  # The right-hand side is rounded relative to the long column.
  expected = np.linalg.lstsq(a.astype(np.float64), b.astype(np.float64))[0]
  error = np.abs(found - expected) * np.array([1e5, 1, 1])
  assert error.max() <= 16 * np.finfo(np.float32).eps * np.abs(b).max()


def block_diagonal(*blocks):
  n = sum(len(b) for b in blocks)
  found = np.zeros((n, n), np.result_type(*blocks))
  begin = 0
  for b in blocks:
    found[begin : begin + len(b), begin : begin + len(b)] = b
    begin += len(b)
  return found


def hermitian(n, seed=0, turned=0):
  a = draw(n, n, seed=seed)
  if turned:
    a = a + 1j * draw(n, n, seed=seed + 1)
  return a + a.T.conj()


def decoupled():
  return {
    "axes": [[[1e6]], [[1.0]], [[0.5]]],
    "far axes": [[[1e8]], [[1.0]], [[0.5]], [[3.0]]],
    "one and two": [[[1e6]], hermitian(2)],
    "three": [1e5 * hermitian(3), hermitian(5), 1e-5 * hermitian(4)],
    "large": [1e6 * hermitian(10), hermitian(40)],
    "equal": [1e6 * np.eye(3), np.eye(3), 1e-3 * np.eye(2)],
    "complex": [1e6 * hermitian(3, 0, 1), hermitian(5, 2, 1)],
  }


@pytest.mark.parametrize("rotations", (False, True))
@pytest.mark.parametrize("name", decoupled())
def test_eigenvectors_of_decoupled_matrices(ipu, monkeypatch, name, rotations):
  """Each pair is as accurate as the block of its own allows; by rotations, as
  used for many small matrices, and by the tridiagonal form."""
  monkeypatch.setattr(_spectral, "suits", lambda *_: not rotations)
  blocks = [np.array(b) for b in decoupled()[name]]
  a = narrow(block_diagonal(*blocks))
  w, v = util.run_on(ipu, lambda a: tuple(jnp.linalg.eigh(a)), a)
  check_pairs(a, blocks, w, v)
  alone = util.run_on(ipu, jnp.linalg.eigvalsh, a)
  check_pairs(a, blocks, alone, v)


def check_pairs(a, blocks, w, v):
  """Eigenpairs of a matrix of diagonal blocks, relative to these."""
  n, eps = len(a), np.finfo(np.float32).eps
  assert np.abs(v.T.conj() @ v - np.eye(n)).max() <= 4 * n * eps
  v = v.astype(np.complex128)
  residual = np.linalg.norm(a @ v - v * w, axis=0)
  begin = 0
  for b in blocks:
    own = slice(begin, begin + len(b))
    begin += len(b)
    mine = np.linalg.norm(v[own], axis=0) > 0.5
    assert mine.sum() == len(b)
    bound = 8 * n * eps * np.linalg.norm(b, 2)
    assert residual[mine].max() <= bound
    expected = np.linalg.eigvalsh(a[own, own].astype(v.dtype))
    np.testing.assert_allclose(w[mine], expected, rtol=0, atol=bound)


def test_eigenvectors_of_a_batch_of_graded_and_other_matrices(ipu):
  batch = [[1e5 * hermitian(6), hermitian(6)], [hermitian(12)]]
  a = narrow(np.stack([block_diagonal(*blocks) for blocks in batch]))
  w, v = util.run_on(ipu, lambda a: tuple(jnp.linalg.eigh(a)), a)
  for found in zip(a, batch, w, v, strict=True):
    check_pairs(*found)


def coupled():
  """Matrices of large and small elements, for which errors are relative to the
  largest eigenvalue."""
  q = np.random.default_rng(0).permutation(12)
  three = block_diagonal(*[np.array(b) for b in decoupled()["three"]])
  grades = np.logspace(3, -3, 30)
  return {
    "permuted": three[np.ix_(q, q)],
    "upwards": three[::-1, ::-1],
    "graded": grades[:, None] * hermitian(30) * grades,
    "graded upwards": (grades[:, None] * hermitian(30) * grades)[::-1, ::-1],
    "arrow": np.diag([1e6, 1, 1, 1e-3]) + 1e-4 * hermitian(4),
    "indefinite": np.kron(np.eye(5), [[0, 1], [1, 0]]),
    "rank two": draw(20, 2) @ draw(20, 2).T + draw(20, 2) @ draw(20, 2).T,
  }


@pytest.mark.parametrize("rotations", (False, True))
@pytest.mark.parametrize("name", coupled())
def test_eigenvectors_of_coupled_matrices(ipu, monkeypatch, name, rotations):
  monkeypatch.setattr(_spectral, "suits", lambda *_: not rotations)
  a = coupled()[name]
  a = narrow((a + a.T) / 2)
  bound = 4 * len(a) * np.finfo(np.float32).eps
  w, v = util.run_on(ipu, lambda a: tuple(jnp.linalg.eigh(a)), a)
  assert np.abs(v.T @ v - np.eye(len(a))).max() <= bound
  expected = np.linalg.eigvalsh(a.astype(np.float64))
  scale = np.abs(expected).max()
  assert np.abs(w - expected).max() <= bound * scale
  v = v.astype(np.float64)
  assert np.abs(a @ v - v * w).max() <= bound * scale


@pytest.mark.parametrize("dtype", (np.float32, np.complex64, np.float64))
@pytest.mark.parametrize("n", (2, 5, 50))
def test_vectors_of_diagonal_matrices_are_exact(ipu, n, dtype):
  """Whichever elements are equal, as all those of an identity matrix are."""

  def both(a):
    return (*jnp.linalg.eigh(a), *jnp.linalg.svd(a))

  batch = np.stack([np.eye(n), np.diag(-1.0 - np.arange(n) % 3), well(n, n)])
  batch[2] += batch[2].T
  with jax.enable_x64(dtype is np.float64):
    found = util.run_on(ipu, both, batch.astype(dtype))
  for a, w, v, u, s, vh in zip(batch[:2], *found):
    np.testing.assert_array_equal(w, np.sort(np.diag(a)))
    np.testing.assert_array_equal(a @ v, v * w)
    np.testing.assert_array_equal(s, np.sort(-np.abs(np.diag(a))) * -1)
    np.testing.assert_array_equal(u * s @ vh, a)
    for x in (v, u, vh):
      np.testing.assert_array_equal(x.conj().T @ x, np.eye(n))


@pytest.mark.parametrize("dtype", (np.complex64, np.complex128))
@pytest.mark.parametrize("count", (1, 3000))
def test_vectors_of_nearly_diagonal_matrices_are_orthogonal(ipu, count, dtype):
  """Rotations meet elements that are denormal, as converging ones become: few
  bits are left of them, but rotations by their phases have to be unitary."""
  info = np.finfo(dtype)
  sizes = [info.smallest_subnormal * k for k in (1, 2, 3, 5, 1000)]
  sizes += [info.tiny, 2 * info.tiny, float(info.tiny) ** 0.5]
  tiny = np.array(sizes) * (1 + 1j)
  a = np.zeros((count, len(sizes), 2, 2), dtype)
  a[..., 0, 0], a[..., 1, 1] = 1, 2
  a[..., 0, 1], a[..., 1, 0] = tiny, tiny.conj()
  with jax.enable_x64(dtype is np.complex128):
    found = util.run_on(ipu, jnp.linalg.eigh, a)[1:]
    found += util.run_on(ipu, jnp.linalg.svd, a)[::2]
  for x in found:
    unit = x @ x.conj().swapaxes(-1, -2)
    assert np.abs(unit - np.eye(2)).max() <= 4 * info.eps


@pytest.mark.ipu_only
@pytest.mark.parametrize("f", (jnp.linalg.eigh, jnp.linalg.svd))
def test_cycles_of_ordinary_matrices_are_the_counted_ones(ipu, f):
  """No sweep runs, and no refinement; the cost analysis hardly counts any."""
  a = jax.device_put(narrow(hermitian(64)), ipu)
  compiled = jax.jit(f).lower(a).compile()
  jax.block_until_ready(compiled(a))
  run = ipu.ipu_last_run()
  assert [trips for _, trips in run.trips] == [0, 0]
  counted = compiled.cost_analysis()["ipu cycles"]
  assert run.cycles <= counted <= 1.05 * run.cycles
