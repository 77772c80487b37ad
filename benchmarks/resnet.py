"""ResNet-50 (He et al., 2015) in f16, for its code and memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import jax
import jax.numpy as jnp
from jax import lax

# Of each stage: the channels of its narrow convolutions, and its blocks.
_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
_CLASSES = 1000


def resnet50(batch: int) -> tuple[Callable[..., Any], list[Any]]:
  """The forward pass, and the shapes of its arguments: images f16[batch, 224,
  224, 3], and parameters. Batch normalisation is a scale and a bias, as in
  inference."""
  arguments = [
    _half(batch, 224, 224, 3),
    [*_convolutions()],
    (_half(4 * _STAGES[-1][0], _CLASSES), _half(_CLASSES)),
  ]
  return _forward, arguments


def _half(*shape: int) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(shape, np.float16)


def _convolutions():
  """Yields (kernel, scale, bias) in the order in which they are used."""

  def one(size, channels, features):
    return _half(size, size, channels, features), *[_half(features)] * 2

  yield one(7, 3, 64)
  channels = 64
  for width, blocks in _STAGES:
    for block in range(blocks):
      yield one(1, channels, width)
      yield one(3, width, width)
      yield one(1, width, 4 * width)
      if not block:
        yield one(1, channels, 4 * width)
      channels = 4 * width


def _forward(x, convolutions, last):
  rest = iter(convolutions)

  def convolve(x, stride=1):
    kernel, scale, bias = next(rest)
    dims = ("NHWC", "HWIO", "NHWC")
    y = lax.conv_general_dilated(
      x, kernel, (stride, stride), "SAME", dimension_numbers=dims
    )
    return y * scale + bias

  x = jax.nn.relu(convolve(x, 2))
  window, strides = (1, 3, 3, 1), (1, 2, 2, 1)
  lowest = np.float16(-np.inf)
  x = lax.reduce_window(x, lowest, lax.max, window, strides, "SAME")
  for stage, (_, blocks) in enumerate(_STAGES):
    for block in range(blocks):
      stride = 2 if stage and not block else 1
      y = jax.nn.relu(convolve(x))
      y = convolve(jax.nn.relu(convolve(y, stride)))
      x = jax.nn.relu(y + (x if block else convolve(x, stride)))
  weights, bias = last
  return jnp.mean(x, (1, 2)) @ weights + bias
