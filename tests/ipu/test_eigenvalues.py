"""eigh and svd: values are compared with XLA:CPU, vectors checked by
definition."""

from __future__ import annotations

import ipu_test_util as util
import numpy as np
import pytest
from test_linalg import F32, matrices, on_tiles, positive

import jax
import jax.numpy as jnp
from jax import lax


def symmetric(*shape, dtype=F32):
  a = matrices(*shape, dtype=dtype)
  return a + np.swapaxes(a, -1, -2)


def largest(x) -> float:
  return float(np.abs(x).max(initial=0)) or 1.0


def norm(a) -> float:
  """The largest spectral norm."""
  return float(
    np.linalg.norm(a / largest(a), 2, (-2, -1)).max(initial=0) or 1
  ) * largest(a)


def check_eigh(ipu, check, a, **options):
  """Ascending eigenvalues, orthonormal vectors, A V = V diag(w)."""
  eps = np.finfo(a.dtype).eps * 8 * (1 + a.shape[-1] ** 0.5)
  atol = eps * norm(a)

  def f(a):
    return lax.linalg.eigh(a, **options)

  check(lambda a: f(a)[1], a, rtol=0, atol=atol)
  v, w = util.run_on(ipu, f, a)
  assert (np.diff(w) >= 0).all()
  unit = np.eye(a.shape[-1])
  np.testing.assert_allclose(v.mT.conj() @ v, unit + 0 * v, atol=eps)
  np.testing.assert_allclose(a @ v, v * w[..., None, :], atol=atol, rtol=0)


@pytest.mark.parametrize(
  "shape", [(1, 1), (2, 2), (3, 3), (2, 3, 6, 6), (33, 33), (80, 80), (0, 0)]
)
def test_eigh(ipu, check, shape):
  check_eigh(ipu, check, symmetric(*shape))


def special(n=6):
  low_rank = matrices(n, 2)
  return {
    "zero": np.zeros((n, n)),
    "identity": np.eye(n),
    "diagonal": np.diag([3, -1, 2, 2, 0, 5.0]),
    "ones": np.ones((n, n)),
    "low rank": low_rank @ low_rank.T,
    "huge": symmetric(n, n) * 1e30,
    "tiny": symmetric(n, n) * 1e-30,
    "graded": np.diag(10.0 ** -np.arange(n)) + 1e-7,
  }


@pytest.mark.parametrize("name", special())
def test_eigh_of_special_matrices(ipu, check, name):
  check_eigh(ipu, check, special()[name].astype(F32))


def test_eigh_reads_one_triangle(check):
  a = symmetric(5, 5)
  for lower, part in ((True, np.tril), (False, np.triu)):
    other = np.where(part(np.ones((5, 5))) > 0, a, 7).astype(F32)

    def f(a, lower=lower):
      return lax.linalg.eigh(a, lower=lower, symmetrize_input=False)[1]

    check(f, other, rtol=1e-5, atol=1e-5)


def test_eigh_of_nan_is_nan(ipu):
  a = symmetric(4, 4)
  a[2, 1] = a[1, 2] = np.nan
  for x in util.run_on(ipu, jnp.linalg.eigh, a):
    assert np.isnan(x).all()


def test_eigh_gradients(check):
  def f(a):
    w, v = jnp.linalg.eigh(a)
    return (w**3).sum() + (v * jnp.sin(w) @ v.T).sum()

  check(jax.grad(f), symmetric(5, 5), rtol=2e-3, atol=2e-3)
  check(jax.grad(lambda a: jnp.linalg.eigvalsh(a)[0]), symmetric(5, 5),
        rtol=1e-3, atol=1e-4)  # fmt: skip


def test_vmapped(check):
  f = jax.vmap(lambda a: jnp.linalg.eigvalsh(a) + jnp.linalg.norm(a, 2))
  check(f, symmetric(3, 4, 4), rtol=1e-5, atol=1e-5)


def test_double_precision(ipu, check):
  with jax.enable_x64(True):
    check_eigh(ipu, check, symmetric(9, 9, dtype=np.float64))
    check_svd(ipu, check, matrices(9, 5, dtype=np.float64))


@pytest.mark.ipu_only
def test_narrow_floats(ipu):
  """XLA:CPU has no kernel for these types: computed in f32 and rounded once."""
  a = symmetric(5, 5).astype(jnp.bfloat16)
  try:
    jax.eval_shape(lax.linalg.eigh, a)
  except TypeError as error:
    pytest.skip(f"JAX {jax.__version__} itself refuses it: {error}")
  v, w = util.run_on(ipu, lax.linalg.eigh, a)
  assert v.dtype == w.dtype == a.dtype
  expected = np.linalg.eigvalsh(a.astype(F32))
  np.testing.assert_allclose(w.astype(F32), expected, rtol=1e-2, atol=1e-2)


# --- svd -------------------------------------------------------------------


def check_svd(ipu, check, a):
  """Descending values, orthonormal vectors, A = U diag(s) V^T."""
  *_, m, n = a.shape
  k = min(m, n)
  eps = np.finfo(a.dtype).eps * 16 * (1 + max(m, n) ** 0.5)

  def values(a):
    return jnp.linalg.svd(a, compute_uv=False)

  check(values, a, rtol=0, atol=eps * largest(a))
  for full in (True, False):
    f = lambda a: jnp.linalg.svd(a, full_matrices=full)
    u, s, vt = util.run_on(ipu, f, a)
    assert u.shape[-1] == (m if full else k)
    assert vt.shape[-2] == (n if full else k)
    assert (np.diff(s) <= 0).all() and (s >= 0).all()
    for x in (u.mT @ u, vt @ vt.mT):
      np.testing.assert_allclose(x, np.eye(x.shape[-1]) + 0 * x, atol=eps)
    product = (u[..., :k] * s[..., None, :]) @ vt[..., :k, :]
    np.testing.assert_allclose(product, a, atol=eps * largest(a), rtol=0)


@pytest.mark.parametrize(
  "shape",
  [
    (1, 1),
    (2, 2),
    (5, 3),
    (3, 5),
    (2, 3, 4, 4),
    (33, 20),
    (70, 70),
    (1, 4),
    (4, 1),
  ],
)
def test_svd(ipu, check, shape):
  check_svd(ipu, check, matrices(*shape))


@pytest.mark.parametrize("name", special())
def test_svd_of_special_matrices(ipu, check, name):
  check_svd(ipu, check, special()[name].astype(F32))
  check_svd(ipu, check, special()[name].astype(F32)[:, :4])


@pytest.mark.ipu_only  # XLA:CPU flushes denormals
def test_denormals(ipu):
  least = np.finfo(F32).smallest_subnormal
  a = np.diag([3000, 0, 5000]).astype(F32) * least

  def f(a):
    return jnp.linalg.svd(a)[1], jnp.linalg.eigh(a)[0]

  s, w = util.run_on(ipu, f, a)
  np.testing.assert_array_equal(s / least, [5000, 3000, 0])
  np.testing.assert_array_equal(w / least, [0, 3000, 5000])


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 0)])
def test_empty_svd(check, shape):
  check(jnp.linalg.svd, np.zeros(shape, F32))


def test_svd_gradients(check):
  def f(a):
    u, s, vt = jnp.linalg.svd(a, full_matrices=False)
    return (s**3).sum() + (u * jnp.sin(s) @ vt).sum()

  check(jax.grad(f), matrices(5, 4), rtol=2e-3, atol=2e-3)


def test_functions_based_on_svd(check):
  a = matrices(6, 4)
  functions = {
    "pinv": jnp.linalg.pinv,
    "lstsq": lambda a: jnp.linalg.lstsq(a, a[:, :2] * 2)[0],
    "cond": jnp.linalg.cond,
    "rank": jnp.linalg.matrix_rank,
    "rank of a low one": lambda a: jnp.linalg.matrix_rank(a[:, :2] @ a[:2]),
    "spectral norm": lambda a: jnp.linalg.norm(a, 2),
    "nuclear norm": lambda a: jnp.linalg.norm(a, "nuc"),
    "polar": lambda a: jax.scipy.linalg.polar(a)[0],
  }
  check(lambda a: {k: f(a) for k, f in functions.items()}, a,
        rtol=1e-4, atol=1e-5)  # fmt: skip


@pytest.mark.ipu_only
def test_on_tiles(cpu):
  """Only values: the signs of vectors are arbitrary."""
  f = lambda a: (jnp.linalg.eigvalsh(a), jnp.linalg.svd(a, compute_uv=False))
  on_tiles(cpu, f, positive(5, 5), tiles=(1, 16))


def test_multivariate_normal(check):
  """By cholesky: the factors of the other methods have arbitrary signs."""

  def f(seed):
    key, a = jax.random.key(seed), positive(4, 4)
    return jax.random.multivariate_normal(
      key, jnp.zeros(4), a, (3,), method="cholesky"
    )

  check(f, np.int32(3), rtol=1e-4, atol=1e-5)
