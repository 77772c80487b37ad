"""Programs exported for the IPU, and for several platforms at once."""

from __future__ import annotations

import ipu_test_util as util
import numpy as np
import pytest
from test_linalg import F32, matrices

import jax
import jax.numpy as jnp
from jax import export

pytestmark = pytest.mark.ipu_only

FUNCTIONS = {
  "solve": lambda a: jnp.linalg.solve(a, a[..., :1]),
  "eigh": lambda a: jnp.linalg.eigvalsh(a + a.mT),
  "svd": lambda a: jnp.linalg.svd(a, compute_uv=False),
  "eig": lambda a: jnp.abs(jnp.linalg.eigvals(a)).sum(-1),
  "qr": lambda a: jnp.abs(jnp.linalg.qr(a, mode="r")),
  "hessenberg": lambda a: jnp.abs(jax.scipy.linalg.hessenberg(a)),
  "tridiagonal": lambda a: jax.lax.linalg.tridiagonal(a)[1],
  "sort": lambda a: jnp.sort(a),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_linear_algebra(ipu, cpu, name):
  a = matrices(5, 5)
  f = jax.jit(FUNCTIONS[name])
  exported = export.export(f, platforms=["ipu", "cpu"])(a)
  here, there = (util.run_on(d, exported.call, a) for d in (ipu, cpu))
  np.testing.assert_allclose(here, there, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["solve", "svd", "eig"])
def test_symbolic_shapes(ipu, cpu, name):
  shape = export.symbolic_shape("b, n, n")
  exported = export.export(jax.jit(FUNCTIONS[name]), platforms=["ipu", "cpu"])(
    jax.ShapeDtypeStruct(shape, F32)
  )
  for count, n in ((2, 3), (3, 6)):
    a = matrices(count, n, n)
    here, there = (util.run_on(d, exported.call, a) for d in (ipu, cpu))
    np.testing.assert_allclose(here, there, rtol=1e-3, atol=1e-4)


ANY_MATRIX = {
  "lu": lambda a: jax.lax.linalg.lu(a)[0],
  "svd": lambda a: jnp.linalg.svd(a, full_matrices=False)[1],
}


@pytest.mark.parametrize("name", ANY_MATRIX)
def test_tall_and_wide_matrices_by_one_program(ipu, cpu, name):
  shape = export.symbolic_shape("m, n")
  exported = export.export(jax.jit(ANY_MATRIX[name]), platforms=["ipu", "cpu"])(
    jax.ShapeDtypeStruct(shape, F32)
  )
  for m, n in ((3, 5), (5, 3), (4, 4)):
    a = matrices(m, n)
    here, there = (util.run_on(d, exported.call, a) for d in (ipu, cpu))
    np.testing.assert_allclose(here, there, rtol=1e-3, atol=1e-4)


def test_eigenvalues_of_any_number_of_empty_matrices(ipu):
  shape = export.symbolic_shape("b, 0, 0")
  exported = export.export(jax.jit(jnp.linalg.eigvals), platforms=["ipu"])(
    jax.ShapeDtypeStruct(shape, F32)
  )
  out = util.run_on(ipu, exported.call, np.zeros((3, 0, 0), F32))
  assert out.shape == (3, 0)
