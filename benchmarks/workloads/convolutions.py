"""Convolutions, forward and backward (LeNet, residual, depthwise), and
pooling."""

from __future__ import annotations

import numpy as np

import jax
import jax.numpy as jnp
from benchmarks.workload import jitted
from jax import lax


def arrays(*shapes: tuple[int, ...]):
  def make():
    rng = np.random.default_rng(0)
    return [
      (rng.normal(size=s) / max(np.prod(s[:-1]), 1) ** 0.5).astype(np.float32)
      if i
      else rng.normal(size=s).astype(np.float32)
      for i, s in enumerate(shapes)
    ]

  return make


def conv(x, w, strides=(1, 1), padding="SAME", groups=1):
  return lax.conv_general_dilated(
    x,
    w,
    strides,
    padding,
    dimension_numbers=("NHWC", "HWIO", "NHWC"),
    feature_group_count=groups,
  )


def max_pool(x, size=2, stride=2, padding="VALID"):
  window, strides = (1, size, size, 1), (1, stride, stride, 1)
  return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, padding)


def gradients(f):
  return jax.grad(lambda *args: (f(*args) ** 2).mean(), argnums=(0, 1))


def lenet(x, w1, w2, w3, w4):
  x = max_pool(jax.nn.relu(conv(x, w1)))
  x = max_pool(jax.nn.relu(conv(x, w2, padding="VALID")))
  return jax.nn.relu(x.reshape(len(x), -1) @ w3) @ w4


def lenet_gradients(*args):
  loss = lambda *args: (lenet(*args) ** 2).mean()
  return jax.grad(loss, argnums=(1, 2, 3, 4))(*args)


def residual(x, w1, w2):
  y = jax.nn.relu(conv(x, w1))
  return jax.nn.relu(x + conv(y, w2))


def residual_gradients(*args):
  loss = lambda *args: (residual(*args) ** 2).mean()
  return jax.grad(loss, argnums=(0, 1, 2))(*args)


def down(x, w):
  return conv(x, w, (2, 2))


def depthwise(x, w):
  return conv(x, w, groups=x.shape[-1])


LENET = arrays(
  (64, 28, 28, 1), (5, 5, 1, 6), (5, 5, 6, 16), (400, 120), (120, 10)
)
BLOCK = arrays((8, 28, 28, 64), (3, 3, 64, 64), (3, 3, 64, 64))
DOWN = arrays((8, 56, 56, 64), (3, 3, 64, 128))
DEPTHWISE = arrays((8, 28, 28, 128), (3, 3, 1, 128))
POOL = arrays((16, 56, 56, 64))
COLOURS = arrays((8, 64, 64, 3))

WORKLOADS = [
  jitted("convolution", name, f, make, **options)
  for name, f, make, options in (
    ("LeNet", lenet, LENET, {}),
    ("LeNet backward", lenet_gradients, LENET, {}),
    ("residual block", residual, BLOCK, {"memory": True}),
    ("residual block backward", residual_gradients, BLOCK, {"memory": True}),
    ("stride 2", down, DOWN, {}),
    ("stride 2 backward", gradients(down), DOWN, {}),
    ("depthwise", depthwise, DEPTHWISE, {}),
    ("depthwise backward", gradients(depthwise), DEPTHWISE, {}),
  )
] + [
  jitted("pooling", "max 2x2", max_pool, POOL),
  jitted("pooling", "max 2x2 of 3 colours", max_pool, COLOURS),
  jitted("pooling", "max 3x3", lambda x: max_pool(x, 3, 2, "SAME"), POOL),
  jitted(
    "pooling",
    "max 3x3 backward",
    jax.grad(lambda x: (max_pool(x, 3, 2, "SAME") ** 2).sum()),
    POOL,
  ),
  jitted(
    "pooling",
    "max 2x2 backward",
    jax.grad(lambda x: (max_pool(x) ** 2).sum()),
    POOL,
  ),
]  # fmt: skip
