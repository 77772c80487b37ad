"""StableHLO's batch normalisations, for which JAX has no functions."""

from __future__ import annotations

import ipu_test_util as util
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jaxlib.ipu import ops
from jaxlib.ipu.ir import registry
from jaxlib.ipu.ir.registry import Operation
from jaxlib.ipu.ops.batch_norm import BatchNorm

pytestmark = pytest.mark.ipu_only
ops.load()

EPSILON = 0.01


def normalised(x, scale, offset, mean, variance, axis):
  shape = [-1 if d == axis else 1 for d in range(x.ndim)]
  scale, offset, mean, variance = (
    v.reshape(shape) for v in (scale, offset, mean, variance)
  )
  return (x - mean) / jnp.sqrt(variance + EPSILON) * scale + offset


def trained(x, scale, offset, axis):
  others = tuple(d for d in range(x.ndim) if d != axis)
  mean, variance = x.mean(others), x.var(others)
  return normalised(x, scale, offset, mean, variance, axis), mean, variance


@pytest.fixture
def batch_norm(ipu, monkeypatch):
  """`batch_norm(name, axis, *args)` returns the operation's results on the
  IPU."""

  def run(name, axis, results, *args):
    def rule(e, node):
      types = [(v.shape, v.dtype) for v in node.results]
      op = f"stablehlo.batch_norm_{name}"
      return e.node(op, node.inputs, types, BatchNorm(EPSILON, axis))

    op = "stablehlo.custom_call @batch_norm"
    monkeypatch.setitem(registry.REGISTRY, op, Operation(op, decompose=rule))
    types = [jax.ShapeDtypeStruct(r.shape, r.dtype) for r in results]
    return util.run_on(ipu, jax.ffi.ffi_call("batch_norm", types), *args)

  return run


@pytest.mark.parametrize(
  "shape, axis", [((6, 5), 1), ((4, 3, 5), 0), ((2, 3, 4, 5), 2)]
)
def test_batch_norm(batch_norm, shape, axis):
  n = shape[axis]
  x, ct = (util.sample(np.float32, shape, key=k) for k in range(2))
  scale, offset, mean = (util.sample(np.float32, (n,), key=k) for k in range(3))
  variance = util.sample(np.float32, (n,), low=0.5)

  expected = [normalised(x, scale, offset, mean, variance, axis)]
  actual = batch_norm(
    "inference", axis, expected, x, scale, offset, mean, variance
  )
  for a, b in zip(actual, expected, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)

  expected = trained(x, scale, offset, axis)
  actual = batch_norm("training", axis, expected, x, scale, offset)
  for a, b in zip(actual, expected, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)

  f = lambda *v: trained(*v, axis)[0]
  expected = jax.vjp(f, x, scale, offset)[1](ct)
  mean, variance = (np.asarray(v) for v in trained(x, scale, offset, axis)[1:])
  actual = batch_norm("grad", axis, expected, x, scale, mean, variance, ct)
  for a, b in zip(actual, expected, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
