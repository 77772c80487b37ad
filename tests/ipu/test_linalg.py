"""Factorisations and solvers, against XLA:CPU's LAPACK."""

from __future__ import annotations

import ipu_test_util as util
import lowering_kit
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu import internals

F32 = np.float32
GEQRF = internals.resolve("jax._src.lax.linalg.geqrf")
# One block with odd sizes; several blocks, the last of them smaller.
SIZES = (0, 1, 2, 7, 33, 70, 130)


def matrices(*shape, dtype=F32, key=None):
  return util.sample(dtype, shape, low=-1, high=1, key=key)


def positive(*shape, dtype=F32):
  """Well-conditioned symmetric positive definite matrices."""
  a = matrices(*shape).astype(np.float64)
  n = shape[-1]
  return (a @ np.swapaxes(a, -1, -2) + n * np.eye(n)).astype(dtype)


def triangles(*shape):
  """Dense matrices whose triangles are well-conditioned."""
  n = shape[-1]
  return (matrices(*shape) / n + np.eye(n) * 2).astype(F32)


def on_tiles(cpu, f, *args, tiles=(1, 3, 16)):
  """On few tiles, also in the interpreter."""
  for n in tiles:
    lowering_kit.check(cpu, f, list(args), n, ulps=1 << 10)


# --- cholesky --------------------------------------------------------------


@pytest.mark.parametrize("n", SIZES)
def test_cholesky(check, n):
  check(lax.linalg.cholesky, positive(n, n), rtol=1e-4, atol=1e-5)


def test_cholesky_of_batches(check):
  check(lax.linalg.cholesky, positive(2, 3, 5, 5), rtol=1e-4)
  check(lax.linalg.cholesky, positive(2, 66, 66), rtol=1e-4, atol=1e-5)
  check(lax.linalg.cholesky, np.zeros((0, 3, 3), F32))
  check(jax.vmap(jnp.linalg.cholesky), positive(3, 4, 4), rtol=1e-4)


def test_cholesky_upper(check):
  f = lambda a: jnp.linalg.cholesky(a, upper=True)
  check(f, positive(9, 9), rtol=1e-4)
  f = lambda a: jax.scipy.linalg.cholesky(a, lower=False)
  check(f, positive(9, 9), rtol=1e-4)


def test_cholesky_reads_one_triangle(check):
  a = np.tril(positive(40, 40)) + np.triu(np.full((40, 40), np.nan), 1)
  f = lambda a: lax.linalg.cholesky(a, symmetrize_input=False)
  check(f, a.astype(F32), rtol=1e-4, atol=1e-5)


def test_cholesky_of_matrices_that_are_not_positive_definite_is_nan(check):
  late = np.eye(70)
  late[68, 68] = -1
  singular = [np.ones((3, 3)), np.zeros((3, 3))]
  for batch in ([np.eye(3), -np.eye(3), *singular], [late]):
    check(lax.linalg.cholesky, np.array(batch, F32))


@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
@pytest.mark.ipu_only
def test_cholesky_of_narrow_floats(ipu, dtype):
  """XLA:CPU has no kernel for these types: computed in f32 and rounded once."""
  a = positive(5, 5).astype(jnp.dtype(dtype))
  try:
    jax.eval_shape(lax.linalg.cholesky, a)
  except TypeError as error:
    pytest.skip(f"JAX {jax.__version__} itself refuses it: {error}")
  actual = util.run_on(ipu, lax.linalg.cholesky, a)
  expected = np.linalg.cholesky(a.astype(np.float64))
  assert actual.dtype == a.dtype
  np.testing.assert_allclose(
    actual.astype(F32), expected, rtol=util.RTOL[dtype], atol=1e-3
  )


@pytest.mark.ipu_only
def test_cholesky_on_tiles(cpu):
  on_tiles(cpu, lax.linalg.cholesky, positive(2, 5, 5))
  on_tiles(cpu, lax.linalg.cholesky, positive(67, 67), tiles=(16,))


def test_cholesky_gradient(check):
  f = jax.grad(lambda a: (jnp.linalg.cholesky(a) ** 2).sum())
  check(f, positive(6, 6), rtol=1e-3, atol=1e-4)


# --- triangular_solve ------------------------------------------------------


@pytest.mark.parametrize("left_side", (True, False))
@pytest.mark.parametrize("lower", (True, False))
@pytest.mark.parametrize("transpose_a", (True, False))
@pytest.mark.parametrize("unit_diagonal", (True, False))
def test_triangular_solve(check, left_side, lower, transpose_a, unit_diagonal):
  f = lambda a, b: lax.linalg.triangular_solve(
    a,
    b,
    left_side=left_side,
    lower=lower,
    transpose_a=transpose_a,
    conjugate_a=True,
    unit_diagonal=unit_diagonal,
  )
  for shape in ((5, 3), (2, 5, 1)):
    if not left_side:
      shape = (*shape[:-2], shape[-1], shape[-2])
    batch = shape[:-2]
    a, b = triangles(*batch, 5, 5), matrices(*shape)
    check(f, a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", sorted({*SIZES, 31, 33, 63, 64}))
@pytest.mark.parametrize("m", (0, 1, 9))
def test_triangular_solve_of_sizes(check, n, m):
  f = lambda a, b: lax.linalg.triangular_solve(
    a, b, left_side=True, lower=n % 2 > 0
  )
  check(f, triangles(n, n), matrices(n, m), rtol=1e-4, atol=1e-5)


@pytest.mark.ipu_only
def test_triangular_solve_on_tiles(cpu):
  f = lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True)
  on_tiles(cpu, f, triangles(2, 5, 5), matrices(2, 5, 3))
  on_tiles(cpu, f, triangles(67, 67), matrices(67, 2), tiles=(16,))


def test_a_zero_on_the_diagonal_gives_nan_from_its_row_on(ipu, cpu):
  a = np.tril(np.ones((70, 70), np.float32)) + np.eye(70, dtype=np.float32)
  a[40, 40] = 0
  b = np.arange(70, dtype=np.float32)
  f = lambda: lax.linalg.triangular_solve(
    a, b[:, None], left_side=True, lower=True
  )
  found, expected = (util.run_on(device, f) for device in (ipu, cpu))
  np.testing.assert_allclose(found[:40], expected[:40], rtol=1e-5)
  assert not np.isfinite(expected[40:]).any()
  assert np.isnan(found[40:]).all()


def test_triangular_solve_gradients(check):
  def f(a, b):
    x = lax.linalg.triangular_solve(a, b, left_side=True, lower=True)
    return (x**2).sum()

  check(
    jax.grad(f, (0, 1)), triangles(6, 6), matrices(6, 2), rtol=1e-3, atol=1e-4
  )


def test_double_precision(check):
  with jax.enable_x64(True):
    a = positive(70, 70, dtype=np.float64)
    check(lax.linalg.cholesky, a, rtol=1e-11, atol=1e-12)
    check(GEQRF, a, rtol=1e-9, atol=1e-9)
    check(jnp.linalg.solve, a, a[:, :3] * 2, rtol=1e-10, atol=1e-12)


# --- QR --------------------------------------------------------------------


@pytest.mark.parametrize(
  "shape",
  [
    (1, 1), (7, 7), (2, 3, 5, 4), (4, 9), (9, 4), (33, 33), (100, 70),
    (70, 100), (5, 0), (0, 3), (1, 6), (6, 1),
  ],
)  # fmt: skip
def test_qr(check, shape):
  a = matrices(*shape)
  check(GEQRF, a, rtol=1e-3, atol=1e-4)
  for full in (True, False):
    f = lambda a: lax.linalg.qr(a, full_matrices=full)
    check(f, a, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape", [(65, 65), (200, 40)])
def test_qr_is_orthogonal(ipu, shape):
  a = matrices(*shape)
  q, r = util.run_on(ipu, lambda a: jnp.linalg.qr(a, mode="complete"), a)
  np.testing.assert_allclose(q.T @ q, np.eye(shape[0]), atol=2e-6)
  np.testing.assert_allclose(q @ r, a, atol=1e-5)


def test_qr_of_special_matrices(check):
  ones = np.ones((6, 4), F32)
  huge = matrices(6, 4) * F32(1e30)
  for a in (ones * 0, np.eye(5, 3, dtype=F32), huge, huge * F32(1e-36) ** 2):
    check(GEQRF, a, rtol=1e-4, atol=1e-6 * np.abs(a).max())


def test_householder_product_of_fewer_reflectors(check):
  a, tau = matrices(9, 6), matrices(4)
  check(lax.linalg.householder_product, a, tau, rtol=1e-3, atol=1e-4)


@pytest.mark.ipu_only
def test_qr_on_tiles(cpu):
  on_tiles(cpu, lambda a: lax.linalg.qr(a), matrices(2, 6, 4))


def test_qr_gradient(check):
  f = jax.grad(lambda a: sum((x**3).sum() for x in jnp.linalg.qr(a)))
  check(f, triangles(5, 5), rtol=1e-3, atol=1e-3)


# --- What JAX builds on them -------------------------------------------------


@pytest.mark.parametrize(
  "shape",
  [(1, 1), (7, 7), (2, 3, 5, 4), (4, 9), (9, 4), (70, 70), (2, 66, 66),
   (100, 70), (70, 100), (5, 0), (0, 3), (6, 1)],
)  # fmt: skip
def test_lu(check, shape):
  """Pivots and permutations match the CPU's."""
  check(lax.linalg.lu, matrices(*shape), rtol=1e-3, atol=1e-4)


def test_lu_of_special_matrices(check):
  rows = np.eye(5, dtype=F32)[[3, 0, 4, 1, 2]]
  for a in (np.zeros((3, 4)), np.ones((4, 3)), rows, matrices(4, 4) * 1e30):
    check(lax.linalg.lu, a.astype(F32), rtol=1e-4, atol=1e-6)
  check(lax.linalg.lu, np.full((4, 4), np.nan, F32))


@pytest.mark.ipu_only
def test_lu_on_tiles(cpu):
  on_tiles(cpu, lax.linalg.lu, matrices(5, 5))
  on_tiles(cpu, lax.linalg.lu, matrices(2, 5, 4), tiles=(16,))


def test_lu_gradient(check):
  f = jax.grad(lambda a: (lax.linalg.lu(a)[0] ** 2).sum())
  check(f, triangles(5, 5), rtol=1e-3, atol=1e-3)


def test_solve_and_inverse(check):
  a = triangles(3, 9, 9)
  functions = {
    "solve": lambda a: jnp.linalg.solve(a, a[..., :2] * 3),
    "inv": jnp.linalg.inv,
    "det": jnp.linalg.det,
    "cho_solve": lambda a: jax.scipy.linalg.cho_solve(
      (jnp.linalg.cholesky(a @ a.mT), True), a[..., :2]
    ),
    "matrix_power": lambda a: jnp.linalg.matrix_power(a, -2),
    "expm": lambda a: jax.scipy.linalg.expm(a[0]),
  }
  check(
    lambda a: {k: f(a) for k, f in functions.items()}, a, rtol=1e-3, atol=1e-4
  )
