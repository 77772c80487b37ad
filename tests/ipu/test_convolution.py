"""Convolutions: every attribute, gradients, and what is built on them."""

from __future__ import annotations

import ipu_test_util as util
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jax
import jax.numpy as jnp
from jax import lax

NHWC = ("NHWC", "HWIO", "NHWC")
NCHW = ("NCHW", "OIHW", "NCHW")


def conv(strides=(1, 1), padding="SAME", numbers=NHWC, **attributes):
  def f(x, w):
    return lax.conv_general_dilated(
      x, w, strides, padding, dimension_numbers=numbers, **attributes
    )

  return f


def operands(x, w, dtype=np.float32):
  return (
    util.sample(dtype, x, low=-2, high=2),
    util.sample(dtype, w, low=-2, high=2, key="w"),
  )


def close(check, f, *args, **tolerance):
  """Compares to within one rounding error for each of the terms of a sum, of
  which gradients of kernels have about a thousand: their order differs."""
  eps = float(np.finfo(np.float32).eps)
  check(f, *args, **{"rtol": 64 * eps, "atol": 1024 * eps, **tolerance})


def with_gradients(f):
  def g(x, w):
    out, pull = jax.vjp(f, x, w)
    return out, pull(jnp.cos(out))

  return g


# Strides and dilations of either operand, positive and negative padding.
CASES = {
  "same": conv(),
  "valid": conv(padding="VALID"),
  "strided": conv((2, 3)),
  "window dilation": conv(rhs_dilation=(2, 3)),
  "transposed": conv(padding=[(2, 1), (1, 2)], lhs_dilation=(2, 3)),
  "cutting": conv(padding=[(-1, 2), (3, -2)]),
  "cutting between": conv(padding=[(-3, -1), (0, 0)], lhs_dilation=(3, 2)),
  "all": conv((2, 1), [(4, 3), (-1, 5)], lhs_dilation=(2, 3),
              rhs_dilation=(1, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_windows_and_padding(check, name):
  x, w = operands((2, 9, 11, 5), (3, 2, 5, 7))
  close(check, with_gradients(CASES[name]), x, w)


@pytest.mark.parametrize("numbers", [
  NHWC, NCHW, ("CWNH", "HOIW", "WNCH"), ("NCHW", "HWIO", "NHWC"),
])  # fmt: skip
@pytest.mark.parametrize("strides", [(1, 1), (2, 1)])
def test_dimension_numbers(check, numbers, strides):
  extents = {"N": 3, "C": 4, "H": 8, "W": 10, "I": 4, "O": 6}
  kernel = {**extents, "H": 3, "W": 2}
  x, w = operands(
    tuple(extents[d] for d in numbers[0]), tuple(kernel[d] for d in numbers[1])
  )
  close(check, with_gradients(conv(strides, numbers=numbers)), x, w)


@pytest.mark.parametrize("numbers", [NHWC, NCHW], ids=lambda n: n[0])
@pytest.mark.parametrize("features", [(6, 6), (6, 12), (12, 18), (24, 48)])
def test_feature_groups(check, numbers, features):
  """Six groups, of one channel and of several; kernel gradients have batch
  groups."""
  channels, out = features
  shape = {"N": 2, "C": channels, "H": 7, "W": 6}
  kernel = {"H": 3, "W": 3, "I": channels // 6, "O": out}
  x, w = operands(
    tuple(shape[d] for d in numbers[0]), tuple(kernel[d] for d in numbers[1])
  )
  f = conv(numbers=numbers, feature_group_count=6)
  close(check, with_gradients(f), x, w)


def test_batch_groups(check):
  x, w = operands((6, 7, 8, 4), (3, 3, 4, 9))
  close(check, conv(batch_group_count=3), x, w)
  close(check, conv((2, 2), batch_group_count=3), x, w)


@pytest.mark.parametrize("rank", [0, 1, 3, 4])
def test_spatial_dimensions(check, rank):
  x, w = operands((2, 3, *(6, 5, 4, 3)[:rank]), (4, 3, *(2, 3, 2, 2)[:rank]))

  def f(x, w):
    return lax.conv_general_dilated(
      x, w, (1,) * rank, [(1, 1)] * rank, rhs_dilation=(1,) * rank
    )

  close(check, with_gradients(f), x, w)


@pytest.mark.parametrize("spec", ["NC,OI,NC", "CN,IO,CN", "NC,IO,CN"])
@pytest.mark.parametrize("groups", ["feature", "batch"])
def test_groups_without_spatial_dimensions(check, spec, groups):
  numbers = tuple(spec.split(","))
  extents = {"N": 6, "C": 6, "O": 12, "I": 2 if groups == "feature" else 6}
  x, w = operands(
    tuple(extents[d] for d in numbers[0]), tuple(extents[d] for d in numbers[1])
  )

  def f(x, w):
    return lax.conv_general_dilated(
      x, w, (), [], (), (), numbers, **{f"{groups}_group_count": 3}
    )

  close(check, f, x, w)


DTYPES = [
  np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, np.int16, np.int32,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("groups", [1, 4])
def test_element_types(check, dtype, groups):
  """Small integers, whose sums are exact in every type."""
  low = 0 if np.dtype(dtype).kind == "u" else -2
  x = util.sample(np.int32, (2, 6, 6, 4), low=low, high=2).astype(dtype)
  w = util.sample(np.int32, (2, 3, 4 // groups, 4), low=low, high=2)
  f = conv((1, 2), feature_group_count=groups)
  check(f, x, w.astype(dtype), exact=True)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.int8])
def test_preferred_element_type(check, dtype):
  wide = np.int32 if dtype == np.int8 else np.float32
  x = util.sample(np.int32, (2, 6, 6, 40), low=-3, high=3).astype(dtype)
  w = util.sample(np.int32, (3, 3, 40, 8), low=-3, high=3).astype(dtype)
  check(conv(preferred_element_type=wide), x, w, exact=True)
  w = w[:, :, :1].repeat(5, 3)
  f = conv(preferred_element_type=wide, feature_group_count=40)
  check(f, x, w, exact=True)


@pytest.mark.parametrize("x, w, padding", [
  ((0, 5, 5, 3), (3, 3, 3, 4), "SAME"),
  ((2, 5, 5, 0), (3, 3, 0, 4), "SAME"),
  ((2, 5, 5, 3), (3, 3, 3, 0), "SAME"),
  ((2, 0, 5, 3), (3, 3, 3, 4), [(2, 2), (1, 1)]),
  ((2, 2, 2, 3), (3, 3, 3, 4), "VALID"),
  ((2, 1, 1, 3), (1, 1, 3, 4), "VALID"),
])  # fmt: skip
def test_empty_and_small_arrays(check, x, w, padding):
  close(check, conv(padding=padding), *operands(x, w))


@given(st.data())
def test_drawn(check, data):
  draw = data.draw
  small = st.integers(1, 3)
  rank = draw(st.integers(1, 2))
  groups = draw(st.sampled_from([1, 1, 2, 3]))
  batch_groups = draw(st.sampled_from([1, 2])) if groups == 1 else 1
  n, c = batch_groups * draw(small), groups * draw(small)
  o = groups * batch_groups * draw(small)
  numbers = [draw(small) for _ in range(4 * rank)]
  window, strides, lhs, rhs = (
    tuple(numbers[i * rank : (i + 1) * rank]) for i in range(4)
  )
  extents = tuple(draw(st.integers(1, 7)) for _ in range(rank))
  padding = []
  for extent, dilation, size, spread in zip(extents, lhs, window, rhs):
    reach = (size - 1) * spread + 1
    low, high = draw(st.integers(-2, 3)), draw(st.integers(-2, 3))
    total = (extent - 1) * dilation + 1 + low + high
    padding.append((low, high + max(0, reach - total)))
  perm = draw(st.permutations(range(rank + 2)))
  x, w = operands((n, c, *extents), (o, c // groups, *window))

  def f(x, w):
    spec = tuple(int(i) for i in np.argsort(perm))
    return lax.conv_general_dilated(
      jnp.transpose(x, perm),
      w,
      strides,
      padding,
      lhs_dilation=lhs,
      rhs_dilation=rhs,
      dimension_numbers=lax.ConvDimensionNumbers(
        spec, tuple(range(rank + 2)), spec
      ),
      feature_group_count=groups,
      batch_group_count=batch_groups,
    )

  close(check, f, x, w)


def test_vmap_over_either_operand(check):
  x, w = operands((4, 2, 6, 6, 3), (4, 3, 3, 3, 5))
  f = conv()
  close(check, jax.vmap(f), x, w)
  close(check, jax.vmap(f, (0, None)), x, w[0])
  close(check, jax.vmap(f, (None, 0)), x[0], w)


def test_patches_and_transposed_convolutions(check):
  x, w = operands((2, 7, 8, 3), (3, 3, 5, 3))

  def f(x, w):
    return {
      "patches": lax.conv_general_dilated_patches(
        x, (3, 2), (1, 2), "SAME", dimension_numbers=NHWC
      ),
      "transpose": lax.conv_transpose(
        x, w, (2, 3), "SAME", dimension_numbers=NHWC, transpose_kernel=True
      ),
    }

  close(check, f, x, w)


def test_convolve_and_correlate(check):
  x = util.sample(np.float32, (100,))
  y = util.sample(np.float32, (17,), key=1)

  def f(x, y):
    return [
      g(x, y, mode=mode)
      for g in (jnp.convolve, jnp.correlate)
      for mode in ("full", "same", "valid")
    ]

  close(check, f, x, y)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("taps", [1, 2])
def test_narrow_sums_of_single_terms(check, taps, dtype):
  """A depthwise convolution with one tap sums over dimensions of extent 1."""
  x = np.arange(10).reshape(1, 2, 5).astype(dtype)
  kernel = np.arange(1, 2 * taps + 1).reshape(2, 1, taps).astype(dtype)

  def f(x, kernel):
    return lax.conv_general_dilated(
      x, kernel, (1,), "VALID", feature_group_count=2
    )

  check(f, x, kernel)
