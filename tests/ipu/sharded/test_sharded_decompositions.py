"""Decompositions of batches of matrices: each device has its own."""

from __future__ import annotations

import ipu_test_util as util
import numpy as np
import pytest

import jax
from jax.experimental.xla_metadata import set_xla_metadata
from jax.lax import linalg
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

HERMITIAN = np.random.default_rng(0).normal(size=(4, 2, 5, 5))
HERMITIAN = np.float32(HERMITIAN + np.swapaxes(HERMITIAN, 2, 3))
FUNCTIONS = {
  "eigh": lambda a: linalg.eigh(a),
  "hessenberg": linalg.hessenberg,
  "lu": linalg.lu,
  "qr": linalg.qr,
  "pivoted qr": lambda a: linalg.qr(a, pivoting=True),
  "schur": linalg.schur,
  "svd": lambda a: linalg.svd(a),
  "tridiagonal": linalg.tridiagonal,
}


@pytest.mark.parametrize("axes", (("x",), ("x", "y"), (None, "y")), ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_device_decomposes_its_own_matrices(ipu, mesh, name, axes):
  f = FUNCTIONS[name]
  sharding = NamedSharding(mesh("ipu", {"x": 4, "y": 2}), P(*axes))
  a = jax.device_put(HERMITIAN, sharding)
  compiled = jax.jit(f).lower(a).compile()
  assert "all-" not in compiled.as_text()
  for found, expected in zip(compiled(a), util.run_on(ipu, f, HERMITIAN)):
    # Trailing dimensions that are not split need not be named.
    assert tuple(found.sharding.spec)[: len(axes)] == axes
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_metadata_of_a_decomposition_stays(mesh):
  def f(a):
    with set_xla_metadata(owner="me"):
      return linalg.lu(a)

  sharding = NamedSharding(mesh("ipu", {"x": 4, "y": 2}), P("x"))
  text = jax.jit(f).lower(jax.device_put(HERMITIAN, sharding)).compile()
  assert 'owner="me"' in text.as_text()
