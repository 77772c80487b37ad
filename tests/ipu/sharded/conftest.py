"""Fixtures of tests that need eight devices; `test_sharding.py` runs them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

DEVICES = 8
if os.environ.get("JAX_IPU_DEVICE_COUNT") != str(DEVICES):
  collect_ignore_glob = ["*"]


@pytest.fixture(scope="session")
def mesh() -> Callable[..., Any]:
  """`mesh(platform, {"x": 4, "y": 2}, order)`: over that platform's devices, in
  the given order or their own."""
  import jax
  from jax.sharding import AxisType, Mesh

  def make(platform, axes, order=None, types=AxisType.Auto):
    shape = tuple(axes.values())
    order = range(np.prod(shape)) if order is None else order
    devices = np.array(jax.devices(platform))[np.array(order)].reshape(shape)
    return Mesh(devices, tuple(axes), axis_types=(types,) * len(shape))

  return make


@pytest.fixture(scope="session")
def both(mesh) -> Callable[..., Any]:
  """`both(f, axes, order)`: calls f with a mesh of IPUs and one of CPUs, and
  compares their results."""
  import jax

  def compare(f, axes, order=None):
    ours, cpus = (
      jax.tree.map(np.asarray, f(mesh(p, axes, order))) for p in ("ipu", "cpu")
    )
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
      ours,
      cpus,
    )
    return ours

  return compare
