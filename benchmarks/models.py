"""The models trained by benchmarks: an MLP, a CNN and a small transformer.

Plain JAX, with hand-written optimisers. Arrays are float32 unless noted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import jax
import jax.numpy as jnp
from jax import lax

MNIST = (784, 1024, 1024, 10)


def digits(size: int) -> tuple[np.ndarray, np.ndarray]:
  """A batch of noise in the shape of MNIST: [size, 784] and labels
  i32[size]."""
  rng = np.random.default_rng(0)
  images = rng.random((size, 784), dtype=np.float32)
  return images, rng.integers(0, 10, size).astype(np.int32)


def mlp_params(sizes: tuple[int, ...]) -> list[dict[str, np.ndarray]]:
  rng = np.random.default_rng(1)
  return [
    {
      "w": rng.normal(0, n**-0.5, (n, m)).astype(np.float32),
      "b": np.zeros(m, np.float32),
    }
    for n, m in zip(sizes[:-1], sizes[1:], strict=True)
  ]


def zeros_like(tree: Any) -> Any:
  return jax.tree.map(np.zeros_like, tree)


def mlp_loss(params, x, labels):
  for layer in params[:-1]:
    x = jax.nn.relu(x @ layer["w"] + layer["b"])
  logp = jax.nn.log_softmax(x @ params[-1]["w"] + params[-1]["b"])
  return -jnp.take_along_axis(logp, labels[:, None], 1).mean()


def momentum_state(sizes: tuple[int, ...]):
  params = mlp_params(sizes)
  return params, zeros_like(params)


def momentum_step(state, x, labels):
  return _momentum(mlp_loss, state, x, labels)


def _momentum(loss_of, state, x, labels):
  params, velocity = state
  loss, grads = jax.value_and_grad(loss_of)(params, x, labels)
  velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, grads)
  params = jax.tree.map(lambda p, v: p - 0.02 * v, params, velocity)
  return (params, velocity), loss


def images(size: int) -> tuple[np.ndarray, np.ndarray]:
  """`digits` as [size, 28, 28, 1] and labels i32[size]."""
  flat, labels = digits(size)
  return flat.reshape(size, 28, 28, 1), labels


def cnn_state():
  """Two convolutions, two dense layers, and their velocities."""
  rng = np.random.default_rng(4)
  params = [
    rng.normal(0, np.prod(s[:-1]) ** -0.5, s).astype(np.float32)
    for s in ((3, 3, 1, 32), (3, 3, 32, 64), (3136, 128), (128, 10))
  ]
  return params, zeros_like(params)


def cnn_loss(params, x, labels):
  for w in params[:2]:
    numbers = ("NHWC", "HWIO", "NHWC")
    x = lax.conv_general_dilated(
      x, w, (1, 1), "SAME", dimension_numbers=numbers
    )
    x = jax.nn.relu(x)
    window = (1, 2, 2, 1)
    x = lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")
  x = jax.nn.relu(x.reshape(len(x), -1) @ params[2])
  logp = jax.nn.log_softmax(x @ params[3])
  return -jnp.take_along_axis(logp, labels[:, None], 1).mean()


def cnn_step(state, x, labels):
  return _momentum(cnn_loss, state, x, labels)


def lenet_state():
  """LeNet-5 (LeCun et al., 1998) with max-pooling and ReLU, and velocities."""
  rng = np.random.default_rng(5)
  shapes = ((5, 5, 1, 6), (5, 5, 6, 16), (400, 120), (120, 84), (84, 10))
  params = [
    (
      rng.normal(0, np.prod(s[:-1]) ** -0.5, s).astype(np.float32),
      np.zeros(s[-1], np.float32),
    )
    for s in shapes
  ]
  return params, zeros_like(params)


def lenet_loss(params, x, labels):
  for (w, b), padding in zip(params[:2], ("SAME", "VALID"), strict=True):
    numbers = ("NHWC", "HWIO", "NHWC")
    x = lax.conv_general_dilated(
      x, w, (1, 1), padding, dimension_numbers=numbers
    )
    x = jax.nn.relu(x + b)
    window = (1, 2, 2, 1)
    x = lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")
  x = x.reshape(len(x), -1)
  for w, b in params[2:4]:
    x = jax.nn.relu(x @ w + b)
  w, b = params[4]
  logp = jax.nn.log_softmax(x @ w + b)
  return -jnp.take_along_axis(logp, labels[:, None], 1).mean()


def lenet_step(state, x, labels):
  return _momentum(lenet_loss, state, x, labels)


def adam_state(sizes: tuple[int, ...]):
  params = mlp_params(sizes)
  return params, *_adam_moments(params)


def adam_step(state, x, labels):
  params, *moments = state
  loss, grads = jax.value_and_grad(mlp_loss)(params, x, labels)
  return _adamw(params, grads, moments, 1e-3, 0.0), loss


def _adam_moments(params):
  return zeros_like(params), zeros_like(params), np.int32(0)


def _adamw(params, grads, moments, rate, decay):
  """Adam with the decoupled weight decay of Loshchilov and Hutter."""
  mean, square, step = moments
  step = step + 1
  mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, grads)
  square = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, square, grads)
  scale = 1 / (1 - 0.9 ** step.astype(jnp.float32))
  square_scale = 1 / (1 - 0.999 ** step.astype(jnp.float32))

  def update(p, m, v):
    delta = m * scale / (jnp.sqrt(v * square_scale) + 1e-8)
    return p - rate * (delta + decay * p)

  return jax.tree.map(update, params, mean, square), mean, square, step


# The transformer: 2 layers, width 64, 4 heads, sequences of 32, 128 tokens.
_LAYERS, _WIDTH, _HEADS, _LENGTH, _VOCABULARY, _BATCH = 2, 64, 4, 32, 128, 4


def tokens() -> np.ndarray:
  """i32[4, 33]: inputs and, shifted by one, the targets."""
  rng = np.random.default_rng(2)
  shape = (_BATCH, _LENGTH + 1)
  return rng.integers(0, _VOCABULARY, shape).astype(np.int32)


def transformer_state(layers: int = _LAYERS):
  rng = np.random.default_rng(3)

  def dense(n: int, m: int) -> np.ndarray:
    return rng.normal(0, n**-0.5, (n, m)).astype(np.float32)

  def norm() -> dict[str, np.ndarray]:
    return {
      "scale": np.ones(_WIDTH, np.float32),
      "bias": np.zeros(_WIDTH, np.float32),
    }

  params = {
    "embed": dense(_VOCABULARY, _WIDTH),
    "position": dense(_LENGTH, _WIDTH),
    "blocks": [
      {
        "qkv": dense(_WIDTH, 3 * _WIDTH),
        "out": dense(_WIDTH, _WIDTH),
        "up": dense(_WIDTH, 4 * _WIDTH),
        "down": dense(4 * _WIDTH, _WIDTH),
        "norms": [norm(), norm()],
      }
      for _ in range(layers)
    ],
    "norm": norm(),
  }
  return params, *_adam_moments(params)


def _layer_norm(p, x):
  mean = x.mean(-1, keepdims=True)
  var = ((x - mean) ** 2).mean(-1, keepdims=True)
  return (x - mean) * jax.lax.rsqrt(var + 1e-5) * p["scale"] + p["bias"]


def _attention(p, x):
  batch, length, width = x.shape
  heads = (batch, length, 3, _HEADS, width // _HEADS)
  q, k, v = jnp.moveaxis((x @ p["qkv"]).reshape(heads), 2, 0)
  scores = jnp.einsum("bihd,bjhd->bhij", q, k) * (width // _HEADS) ** -0.5
  causal = jnp.tril(jnp.ones((length, length), bool))
  weights = jax.nn.softmax(jnp.where(causal, scores, -1e9))
  mixed = jnp.einsum("bhij,bjhd->bihd", weights, v)
  return mixed.reshape(batch, length, width) @ p["out"]


def transformer_loss(params, tokens):
  inputs, targets = tokens[:, :-1], tokens[:, 1:]
  x = params["embed"][inputs] + params["position"]
  for p in params["blocks"]:
    x = x + _attention(p, _layer_norm(p["norms"][0], x))
    h = jax.nn.gelu(_layer_norm(p["norms"][1], x) @ p["up"])
    x = x + h @ p["down"]
  logits = _layer_norm(params["norm"], x) @ params["embed"].T
  logp = jax.nn.log_softmax(logits)
  return -jnp.take_along_axis(logp, targets[..., None], -1).mean()


def transformer_step(state, tokens, rate=1e-3):
  params, *moments = state
  loss, grads = jax.value_and_grad(transformer_loss)(params, tokens)
  return _adamw(params, grads, moments, rate, 0.01), loss
