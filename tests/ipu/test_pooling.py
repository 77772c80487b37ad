"""reduce_window as in pooling: a kernel of its own for small windows.

Compared with NumPy's reductions of sliding windows.
"""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import jax
from jax import lax

KINDS = {
  "max": (lax.max, np.max, -np.inf),
  "min": (lax.min, np.min, np.inf),
  "add": (lax.add, np.sum, 0),
  "mul": (lax.mul, np.prod, 1),
}
# Layout, channels, size of the window, stride, padding: odd numbers of vectors,
# strides with and without a path of their own, overlapping windows.
SHAPES = [
  ("NHWC", 32, 2, 2, 0), ("NHWC", 5, 3, 2, 1), ("NHWC", 19, 3, 1, 1),
  ("NHWC", 3, 2, 2, 0), ("NCHW", 4, 2, 2, 0), ("NCHW", 3, 3, 1, 1),
  ("NCHW", 2, 3, 3, 0), ("NCHW", 1, 4, 2, 2),
]  # fmt: skip


def pooled(x, kind, layout, size, stride, pad):
  """The reduction, with NumPy, in double precision."""
  _, function, init = KINDS[kind]
  spatial = [layout.index(d) for d in "HW"]
  widths = [(pad, pad) if d in spatial else (0, 0) for d in range(4)]
  wide = np.pad(x.astype(np.float64), widths, constant_values=init)
  windows = np.lib.stride_tricks.sliding_window_view(
    wide, (size, size), axis=spatial
  )
  step = tuple(slice(None, None, stride if d in spatial else 1)
               for d in range(4))  # fmt: skip
  return function(windows[step], axis=(-2, -1))


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_pooling(ipu, kind, dtype):
  rng = np.random.default_rng(0)
  function, _, init = KINDS[kind]
  args, cases = [], []
  for layout, channels, size, stride, pad in SHAPES:
    extents = {"N": 2, "H": 41, "W": 43, "C": channels}
    x = rng.normal(size=[extents[d] for d in layout]).astype(dtype)
    if kind in ("max", "min"):
      x.flat[rng.integers(0, x.size, 9)] = np.nan
      x.flat[rng.integers(0, x.size, 9)] = rng.choice([np.inf, -np.inf], 9)
    args.append(x)
    cases.append((layout, size, stride, pad))

  def f(args):
    return [
      lax.reduce_window(
        x, np.array(init, dtype), function,
        [size if d in "HW" else 1 for d in layout],
        [stride if d in "HW" else 1 for d in layout],
        [(pad, pad) if d in "HW" else (0, 0) for d in layout],
      )
      for x, (layout, size, stride, pad) in zip(args, cases, strict=True)
    ]  # fmt: skip

  with jax.default_device(ipu):
    found = jax.jit(f)(args)
  error = 1e-5 if dtype == np.float32 else 2e-2
  for x, case, actual in zip(args, cases, found, strict=True):
    expected = pooled(x, kind, *case)
    if kind in ("max", "min"):
      np.testing.assert_array_equal(np.asarray(actual, np.float64), expected)
    else:
      np.testing.assert_allclose(
        np.asarray(actual, np.float64), expected, error, error
      )


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.float64])
def test_other_types(ipu, dtype):
  with jax.enable_x64(True), jax.default_device(ipu):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 1000, (3, 20, 20, 9)).astype(dtype)
    for step, (function, numpy) in itertools.product(
      (1, 2, 3), ((lax.max, np.max), (lax.add, np.sum))
    ):
      f = lambda x: lax.reduce_window(
        x, dtype(0), function, (1, 2, 2, 1), (1, step, step, 1), "VALID"
      )
      windows = np.lib.stride_tricks.sliding_window_view(x, (2, 2), (1, 2))
      expected = numpy(windows[:, ::step, ::step], axis=(-2, -1))
      np.testing.assert_array_equal(jax.jit(f)(x), expected)
