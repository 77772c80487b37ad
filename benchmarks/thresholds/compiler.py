"""Thresholds of the compiler, compared in the cycles that it models."""

from __future__ import annotations

import functools
import importlib
import math
import sys
from typing import Any

import numpy as np

import jax
import jax.numpy as jnp
from benchmarks.thresholds import Case, Program


def _find(name: str) -> tuple[Any, str]:
  module, constant = name.rsplit(".", 1)
  return importlib.import_module(f"jaxlib.ipu.{module}"), constant


def value(name: str) -> float:
  module, constant = _find(name)
  return getattr(module, constant)


def compare(case: Case, size: int) -> tuple[float, float]:
  """Modelled cycles of a run in both ways."""
  function, arguments = case.program(size)
  module, constant = _find(case.name)
  own = getattr(module, constant)
  try:
    return tuple(
      _cycles(module, constant, at, function, arguments)
      for at in (case.small(size), case.large(size))
    )
  finally:
    setattr(module, constant, own)
    _forget()


def _cycles(
  module: Any, constant: str, at: float, function: Any, arguments: Any
) -> float:
  setattr(module, constant, at)
  _forget()
  with jax.default_device(jax.devices("ipu")[0]):
    compiled = jax.jit(function).lower(*arguments).compile()
  return compiled.cost_analysis()["ipu cycles"]


def _forget() -> None:
  """Drops what JAX and the planners remember of other values."""
  jax.clear_caches()
  for name, module in list(sys.modules.items()):
    if name.startswith(("jaxlib.ipu.plan.", "jaxlib.ipu.ops.")):
      for function in vars(module).values():
        if hasattr(function, "cache_clear"):
          function.cache_clear()


_case = functools.partial(Case, compare=compare)


def _of(*shape: int, dtype: Any = np.float32) -> Any:
  return jax.ShapeDtypeStruct(shape, dtype)


def _power(first: int, last: int) -> tuple[int, ...]:
  return tuple(1 << i for i in range(first, last + 1))


def _square(size: int) -> tuple[int, int]:
  """The shape of a matrix of about so many elements, as square as it can be."""
  rows = math.isqrt(size)
  return rows, size // rows


def _depthwise(columns: int) -> Program:
  def f(x, w):
    return jax.lax.conv_general_dilated(
      x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
      feature_group_count=64,
    )  # fmt: skip

  return f, [_of(4, 32, 32, 64), _of(3, 3, 1, 64 * columns)]


def _complex_product(elements: int) -> Program:
  n = math.isqrt(elements * 1472 // 4)
  return jnp.matmul, [_of(n, n, dtype=np.complex64)] * 2


CASES = (
  _case(
    "passes.fuse.SMALL", "elements of two results", _power(4, 18),
    lambda n: (
      lambda x, y: (x * 2 + 1, y * y - 3), [_of(n), _of(n)]
    ),
  ),
  _case(
    "passes.complex_planes._MOST_COPIED", "elements of a tile", _power(2, 13),
    _complex_product,
  ),
  _case(
    "ops.map._SMALL", "elements that are transposed", _power(8, 20),
    lambda n: (lambda x: jnp.tanh(x.T) * 2, [_of(*_square(n))]),
  ),
  _case(
    "ops.fft._DIRECT", "elements of each of 256 rows", _power(3, 9),
    lambda n: (jnp.fft.fft, [_of(256, n, dtype=np.complex64)]),
    small=lambda n: n, large=lambda n: n - 1,
  ),
  _case(
    "ops.fft._DIRECT_PRIME", "elements of each of 256 rows",
    (17, 31, 61, 89, 127, 191, 257, 383, 509),
    lambda n: (jnp.fft.fft, [_of(256, n, dtype=np.complex64)]),
    small=lambda n: n, large=lambda n: n - 1,
  ),
  _case(
    "ops._matrices._ONE_BLOCK", "columns of a complex matrix", _power(4, 8),
    lambda n: (jnp.linalg.qr, [_of(n, n, dtype=np.complex64)]),
    small=lambda n: n, large=lambda n: n - 1,
  ),
  _case(
    "ops.factorise.DOUBLED", "columns of a triangular system", _power(3, 6),
    lambda n: (
      lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True),
      [_of(16, n, n), _of(16, n, 1)],
    ),
    small=lambda n: n, large=lambda n: n // 2,
  ),
  _case(
    "ops.convolution._FEWEST", "output channels for each input channel",
    (1, 2, 3, 4, 6, 8, 16), _depthwise,
  ),
  _case(
    "plan.combine._WORTH", "totals of 4,096 elements", _power(3, 13),
    lambda n: (lambda x: x.sum(0), [_of(4096, n)]),
    large=lambda _: -1,
  ),
)  # fmt: skip
