"""Linear algebra on complex matrices, against XLA:CPU or by definition."""

from __future__ import annotations

from collections.abc import Callable

import lowering_kit
import numpy as np
import pytest
from ipu_test_util import rng_of, run_on
from test_eigenvalues import check_eigh

import jax
import jax.numpy as jnp
from jax.scipy import linalg
from jaxlib.ipu.program import schema


def sample(*shape: int) -> np.ndarray:
  parts = rng_of("linalg", shape).normal(size=(*shape, 2)).astype(np.float32)
  return parts.view(np.complex64).reshape(shape)


def hermitian(*shape: int) -> np.ndarray:
  """A positive definite matrix."""
  a = sample(*shape)
  identity = np.eye(shape[-1], dtype=np.complex64)
  return a @ np.swapaxes(a.conj(), -1, -2) + 3 * identity


def adjoint(a: jax.Array) -> jax.Array:
  return jnp.swapaxes(a.conj(), -1, -2)


@pytest.fixture
def check_norm(ipu, cpu) -> Callable[..., None]:
  """The largest error, relative to the largest number."""

  def check(f, *args, tol=2e-5):
    got, want = (jax.tree.leaves(run_on(d, f, *args)) for d in (ipu, cpu))
    for a, b in zip(got, want, strict=True):
      assert (a.dtype, a.shape) == (b.dtype, b.shape)
      if b.dtype == bool:
        np.testing.assert_array_equal(a, b)
        continue
      assert np.abs(a - b).max(initial=0.0) <= tol * np.abs(b).max(initial=1.0)

  return check


SIZES = ((1, 1), (5, 5), (2, 6, 6), (70, 70))


@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_cholesky(check_norm, shape):
  check_norm(jnp.linalg.cholesky, hermitian(*shape))


@pytest.mark.parametrize("shape", (*SIZES, (2, 6, 4), (4, 7)), ids=str)
def test_singular_values_alone(ipu, shape):
  a = sample(*shape)
  s = run_on(ipu, lambda a: jnp.linalg.svd(a, compute_uv=False), a)
  expected = np.linalg.svd(a.astype(np.complex128), compute_uv=False)
  assert np.abs(s - expected).max() <= 1e-6 * expected.max()


@pytest.mark.ipu_only
def test_singular_values_alone_take_no_vectors():
  a = np.zeros((9, 9), np.complex64)
  for values in (True, False):
    f = lambda a: jnp.linalg.svd(a, compute_uv=not values)
    steps = lowering_kit.phases(f, [a], 1472).program.steps
    fields = [getattr(s, "fields", None) for s in steps]
    assert any(isinstance(x, schema.Bisect) for x in fields)
    vectors = any(isinstance(x, schema.InverseIteration) for x in fields)
    assert vectors != values


def test_cholesky_of_matrices_that_are_not_positive_definite(check_norm):
  check_norm(lambda a: jnp.isnan(jnp.linalg.cholesky(a)), -hermitian(5, 5))


@pytest.mark.parametrize("lower", (True, False))
@pytest.mark.parametrize("trans", (0, 1, 2))
def test_triangular_solve(check_norm, lower, trans):
  a = sample(70, 70) / 20 + 2 * np.eye(70, dtype=np.complex64)
  f = lambda a, b: linalg.solve_triangular(a, b, lower=lower, trans=trans)
  check_norm(f, a, sample(70, 3))


def test_solve_and_inverse(check_norm):
  a = sample(2, 6, 6) + 3 * np.eye(6, dtype=np.complex64)

  def f(a, b):
    return (
      jnp.linalg.solve(a, b), jnp.linalg.inv(a), jnp.linalg.det(a),
      linalg.expm(a[0] / 4), jnp.linalg.slogdet(a),
    )  # fmt: skip

  check_norm(f, a, sample(2, 6, 3))


@pytest.mark.parametrize(
  "shape", ((5, 5), (2, 9, 4), (4, 9), (80, 70)), ids=str
)
def test_qr(ipu, shape):
  a = sample(*shape)
  q, r = run_on(ipu, jnp.linalg.qr, a)
  np.testing.assert_allclose(q @ r, a, atol=3e-5)
  gram = adjoint(q) @ q
  np.testing.assert_allclose(gram, np.eye(q.shape[-1]) + 0 * gram, atol=1e-5)
  assert (np.tril(r, -1) == 0).all()


@pytest.mark.parametrize("n", (1, 5, 8))
def test_eigh(check_norm, n):
  def f(a):
    w, v = jnp.linalg.eigh(a)
    return w, v @ (w[..., None] * adjoint(v)), adjoint(v) @ v

  check_norm(f, hermitian(2, n, n))


def test_eigh_of_multiple_eigenvalues(check_norm):
  q, _ = np.linalg.qr(sample(6, 6))
  a = (q * np.array([2, 2, 2, 1, 1, -1])) @ adjoint(q)

  def f(a):
    w, v = jnp.linalg.eigh(a)
    return w, v @ (w[..., None] * adjoint(v)), adjoint(v) @ v

  check_norm(f, np.asarray(a, np.complex64))


def hard(dtype, n: int = 33) -> dict[str, np.ndarray]:
  """Hermitian matrices with eigenvalues that coincide or nearly do, and others
  that are hard."""
  rng, eps = np.random.default_rng(n), np.finfo(dtype).eps

  def draw(*shape):
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)

  q = np.linalg.qr(draw(n, n))[0]
  low, general = draw(n, 3), draw(n, n)
  general += general.T.conj()
  half = np.arange(n) < n // 2
  graded = 10.0 ** -np.linspace(0, 30, n)[:, None]
  beside = np.eye(n, k=1)
  double = np.finfo(dtype).bits == 64
  found = {
    "general": general,
    "identity": np.eye(n),
    "diagonal": np.diag(rng.permutation(n) % 7 - 2.0),
    "zero": np.zeros((n, n)),
    "rank one": low[:, :1] @ low[:, :1].conj().T,
    "low rank": low @ low.conj().T,
    "low rank and noise": low @ low.conj().T + eps * general,
    "projector": q * half @ q.conj().T,
    "reflection": q * np.where(half, 1, -1) @ q.conj().T,
    "neighbours": q * (1 + eps * np.arange(n)) @ q.conj().T,
    "close": q * (1 + eps**0.5 * np.arange(n) / n) @ q.conj().T,
    "clusters": q * np.repeat([1, 2, 3.0], n // 3) @ q.conj().T,
    "spread": q * 10.0 ** np.linspace(-12, 0, n) @ q.conj().T,
    "huge": general * (1e250 if double else 1e30),
    "tiny": general * (1e-250 if double else 1e-30),
    "scaled": graded**0.5 * general * graded.T**0.5,
    "real": general.real,
    "imaginary": 1j * general.imag,
    "hopping": 1j * (beside - beside.T),
    # Too small to be squared.
    "hardly imaginary": np.eye(n) + 1e-25j * (beside - beside.T),
  }
  return {k: ((a + a.conj().T) / 2).astype(dtype) for k, a in found.items()}


@pytest.mark.parametrize("name", hard(np.complex64))
@pytest.mark.parametrize("dtype", (np.complex64, np.complex128))
def test_eigh_of_hard_matrices(ipu, check, name, dtype):
  with jax.enable_x64(dtype == np.complex128):
    check_eigh(ipu, check, hard(dtype)[name])


@pytest.mark.parametrize(
  "shape", ((1, 1), (2, 2), (3, 3), (2, 3, 7, 7), (80, 80)), ids=str
)
def test_eigh_of_sizes_and_batches(ipu, check, shape):
  check_eigh(ipu, check, hermitian(*shape))


@pytest.mark.parametrize("part", (np.tril, np.triu))
def test_eigh_reads_one_triangle(check_norm, part):
  a, uplo = hermitian(6, 6), "L" if part is np.tril else "U"
  a = np.where(part(np.ones((6, 6))) > 0, a, np.nan)

  def f(a):
    w, v = jnp.linalg.eigh(a, UPLO=uplo, symmetrize_input=False)
    return w, v[:, :2] @ adjoint(v[:, :2])

  check_norm(f, a)


@pytest.mark.parametrize("bad", (np.nan, np.inf, 1j * np.nan))
def test_eigh_of_nan_and_infinity(ipu, bad):
  a = hermitian(2, 9, 9)
  a[0, 3, 4], a[0, 4, 3] = bad, np.conj(bad)
  for x in run_on(ipu, jnp.linalg.eigh, a):
    assert np.isnan(x[0]).all() and np.isfinite(x[1]).all()


def test_gradients_of_eigenvectors(check_norm):
  def f(a):
    w, v = jnp.linalg.eigh(a)
    return (w**3).sum() + jnp.abs((v * jnp.sin(w)) @ adjoint(v)).sum()

  check_norm(jax.grad(f), hermitian(7, 7), tol=2e-4)


@pytest.mark.ipu_only
def test_cycles_of_loops_over_columns(ipu):
  """Cycles of loops over 64 columns, which before took 1.4 and 1.1 million."""
  like = jax.ShapeDtypeStruct((64, 64), np.complex64)
  for f, most in ((jax.lax.linalg.tridiagonal, 1.1e6), (jnp.linalg.qr, 1e6)):
    with jax.default_device(ipu):
      compiled = jax.jit(f).lower(like).compile()
    assert compiled.cost_analysis()["ipu cycles"] < most


@pytest.mark.ipu_only
@pytest.mark.parametrize(
  ("f", "most"), ((jnp.linalg.svd, 240), (jnp.linalg.eigh, 145))
)
def test_supersteps_of_small_decompositions(ipu, f, most):
  """208 and 127; with factors made from reflectors afterwards 323 and 191."""
  like = jax.ShapeDtypeStruct((8, 8), np.complex64)
  with jax.default_device(ipu):
    compiled = jax.jit(f).lower(like).compile()
  assert compiled.cost_analysis()["ipu supersteps"] < most


@pytest.mark.parametrize("dtype", (np.complex64, np.complex128))
def test_svd_of_hard_matrices(ipu, dtype):
  a = np.stack(list(hard(dtype).values()))
  a[::2] = a[::2] @ np.linalg.qr(sample(33, 33))[0]
  with jax.enable_x64(dtype == np.complex128):
    u, s, vt = run_on(ipu, jnp.linalg.svd, a)
  scale = np.abs(a).max((1, 2), keepdims=True)
  scale[scale == 0] = 1
  a, s = (a / scale).astype(np.complex128), s / scale[..., 0]
  expected = np.linalg.svd(a, compute_uv=False)
  bound = 8 * (1 + 33**0.5) * np.finfo(dtype).eps
  most = bound * np.maximum(expected[:, :1], 1)
  assert (s >= 0).all() and (np.diff(s) <= 0).all()
  assert (np.abs(s - expected) <= most).all()
  assert (np.abs((u * s[:, None]) @ vt - a) <= most[..., None]).all()
  for x in (u.mT.conj() @ u, vt @ vt.mT.conj()):
    assert np.abs(x - np.eye(33)).max() <= bound


@pytest.mark.parametrize("shape", ((5, 5), (2, 7, 3), (3, 7)), ids=str)
@pytest.mark.parametrize("full", (True, False))
def test_svd(check_norm, shape, full):
  def f(a):
    u, s, v = jnp.linalg.svd(a, full_matrices=full)
    k = s.shape[-1]
    whole = (u[..., :k] * s[..., None, :]) @ v[..., :k, :]
    return s, whole, adjoint(u) @ u, v @ adjoint(v)

  check_norm(f, sample(*shape))


def test_functions_based_on_svd(check_norm):
  def f(a, b):
    return (
      jnp.linalg.pinv(a), jnp.linalg.lstsq(a, b)[0], jnp.linalg.cond(a),
      jnp.linalg.matrix_rank(a), jnp.linalg.norm(a, "nuc"),
    )  # fmt: skip

  check_norm(f, sample(6, 4), sample(6, 2))


def test_gradients(check_norm):
  def f(a):
    value = lambda a: (
      jnp.linalg.cholesky(a).real.sum() + (jnp.linalg.eigvalsh(a) ** 3).sum()
    )
    return jax.grad(value)(a)

  check_norm(f, hermitian(5, 5), tol=1e-4)
