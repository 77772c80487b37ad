"""Scalar programs are sunk into the maps that are their only users."""

from __future__ import annotations

import ipu_test_util as util
import numpy as np
import pytest

import jax.numpy as jnp
from jax import lax
from jaxlib.ipu import pipeline


def row_update(x, v, a, b):
  return x - (a * b) * v


@pytest.mark.ipu_only
def test_a_scalar_is_sunk_into_its_only_user(ipu):
  x = np.ones(256, np.float32)
  a = np.float32(2)
  both = util.costs(ipu, row_update, x, x, a, a)
  one = util.costs(ipu, lambda x, v, a: x - a * v, x, x, a)
  assert both["ipu supersteps"] == one["ipu supersteps"]
  more = both["ipu compute cycles"] - one["ipu compute cycles"]
  assert 0 < more < 50


@pytest.mark.ipu_only
def test_scalars_with_several_users_are_not_sunk(ipu, monkeypatch):
  def alone(x, a):
    return x * (jnp.exp(a) + 1)

  def shared(x, a):
    s = jnp.exp(a) + 1
    return x * s, x.sum(1) * s, s

  def both():
    args = util.spec(1472, 64), util.spec()
    return [util.costs(ipu, f, *args) for f in (alone, shared)]

  moved = both()
  monkeypatch.setattr(
    pipeline.sink_scalars, "sink_scalars", lambda graph: graph
  )
  stayed = both()
  assert moved[0]["ipu cycles"] < stayed[0]["ipu cycles"]
  assert moved[1] == stayed[1]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32], ids=str)
def test_results_are_the_same(check, dtype):
  x, v = (util.sample(dtype, (37, 5), key=k, **_small(dtype)) for k in (0, 1))
  a, b = (util.sample(dtype, (), key=k, **_small(dtype)) for k in (2, 3))

  def f(x, v, a, b):
    ones = (a - b).reshape(1, 1) * jnp.array([[3]], x.dtype)
    both = lax.fori_loop(0, 3, lambda i, x: x - (a + b) * v, x)
    return row_update(x, v, a, b), x * ones, both, (a * b) + x[0] * (b + 1)

  rtol = 2e-2 if dtype == np.float16 else 1e-5
  check(f, x, v, a, b, rtol=rtol, atol=rtol)


def _small(dtype):
  return {} if dtype == np.int32 else {"low": -1, "high": 1}
