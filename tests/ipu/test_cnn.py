"""Convolutional networks written in flax give the same results as on the
CPU."""

from __future__ import annotations

import ipu_test_util as util
import numpy as np
import pytest

import jax
import jax.numpy as jnp

nn = pytest.importorskip("flax.linen")


class LeNet(nn.Module):
  @nn.compact
  def __call__(self, x):
    x = nn.max_pool(nn.relu(nn.Conv(6, (5, 5))(x)), (2, 2), (2, 2))
    x = nn.relu(nn.Conv(16, (5, 5), padding="VALID")(x))
    x = nn.avg_pool(x, (2, 2), (2, 2))
    x = nn.relu(nn.Dense(32)(x.reshape(len(x), -1)))
    return nn.Dense(10)(x)


class Residual(nn.Module):
  """Two residual blocks, one strided, with group normalisation."""

  @nn.compact
  def __call__(self, x):
    x = nn.Conv(8, (3, 3))(x)
    for features, strides in ((8, 1), (16, 2)):
      y = nn.Conv(features, (3, 3), (strides, strides), use_bias=False)(x)
      y = nn.relu(nn.GroupNorm(4)(y))
      y = nn.Conv(features, (3, 3), use_bias=False)(y)
      if strides != 1:
        x = nn.Conv(features, (1, 1), (strides, strides))(x)
      x = nn.relu(x + nn.GroupNorm(4)(y))
    return nn.Dense(10)(x.mean((1, 2)))


class Separable(nn.Module):
  """Depthwise, pointwise and transposed convolutions."""

  @nn.compact
  def __call__(self, x):
    x = nn.relu(nn.Conv(12, (3, 3), (2, 2))(x))
    x = nn.relu(nn.Conv(12, (3, 3), feature_group_count=12)(x))
    x = nn.relu(nn.Conv(24, (1, 1))(x))
    x = nn.Conv(24, (3, 3), kernel_dilation=(2, 2), feature_group_count=4)(x)
    x = nn.ConvTranspose(10, (3, 3), (2, 2))(x)
    return x.mean((1, 2))


@pytest.mark.parametrize(
  "model, side", [(LeNet(), 28), (Residual(), 12), (Separable(), 12)],
  ids=lambda m: type(m).__name__,
)  # fmt: skip
def test_training_steps(check, cpu, model, side):
  """Two steps of gradient descent as one program."""
  channels = 1 if side == 28 else 3
  x = util.sample(np.float32, (4, side, side, channels), low=-1, high=1)
  labels = np.arange(4, dtype=np.int32)
  with jax.default_device(cpu):
    params = jax.tree.map(np.asarray, model.init(jax.random.key(0), x))

  def train(params, x, labels):
    def loss(params):
      logp = jax.nn.log_softmax(model.apply(params, x))
      return -jnp.take_along_axis(logp, labels[:, None], 1).mean()

    losses = []
    for _ in range(2):
      value, grads = jax.value_and_grad(loss)(params)
      params = jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)
      losses.append(value)
    return params, losses

  check(train, params, x, labels, rtol=2e-3, atol=2e-4)
