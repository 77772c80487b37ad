"""The measured programs, in JAX.

Each function returns the function to jit and the shapes of its arguments.
Programs that were measured on one tile have their operands there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Case = tuple[Callable[..., Any], list[jax.ShapeDtypeStruct]]
F16, F32, I32 = jnp.float16, jnp.float32, jnp.int32


def _shape(*shape: int, dtype: Any = F32) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(shape, dtype)


def amp_1x1(tiles: int, rows: int) -> Case:
  """(rows, 16) times (16, 16) on each tile, summed in f16."""

  def f(x, w):
    return jnp.einsum("tnk,tkm->tnm", x, w, precision="F16_F16_F16")

  return f, [
    _shape(tiles, rows, 16, dtype=F16),
    _shape(tiles, 16, 16, dtype=F16),
  ]


def add(*shape: int) -> Case:
  return lambda x, y: x + y, [_shape(*shape)] * 2


def scaled_add(n: int) -> Case:
  return lambda x, y, a: x + a * y, [_shape(n), _shape(n), _shape()]


def row_update(n: int) -> Case:
  return (
    lambda x, v, w1, w2: x - (w1 * w2) * v,
    [_shape(n), _shape(n), _shape(), _shape()],
  )


def rotation(n: int) -> Case:
  return (
    lambda c, s, x, y: (c * x - s * y, s * x + c * y),
    [_shape(), _shape(), _shape(n), _shape(n)],
  )


def dot_product(n: int) -> Case:
  return lambda x, y: (x * y).sum(), [_shape(n)] * 2


def reversal(n: int) -> Case:
  return lambda x: x[::-1], [_shape(n)]


def correction_vector(n: int, column: int) -> Case:
  def f(column_, diagonal):
    at = jnp.arange(n)
    v = jnp.where(at >= column, column_, 0)
    norm = jnp.sqrt((v * v).sum())
    v = jnp.where(at == column, v - norm * diagonal, v)
    return v, 2 / (v * v).sum()

  return f, [_shape(n)] * 2


def qr(n: int) -> Case:
  return jnp.linalg.qr, [_shape(n, n)]


def hessenberg(n: int) -> Case:
  return lax.linalg.hessenberg, [_shape(n, n)]


def matrix_vector(rows: int, columns: int) -> Case:
  return jnp.matmul, [_shape(rows, columns), _shape(columns)]


def one_word() -> Case:
  return lambda x: x + 1, [_shape(dtype=I32)]


# --- Memory ------------------------------------------------------------------

# Data that is fed to TensorFlow is streamed to the device at each run and freed
# after its last use; here such arguments are donated. Variables stay.

_LAYERS = (50176, 32, 64, 64)


def _parameters(sizes: Sequence[int]) -> list[Any]:
  return [
    (_shape(a, b, dtype=F16), _shape(b, dtype=F16))
    for a, b in zip(sizes, sizes[1:])
  ]


def _loss(parameters, x, labels):
  for w, b in parameters:
    x = jax.nn.relu(x @ w + b)
  return -(jax.nn.log_softmax(x) * labels).sum(1).mean()


def mlp_inference(batch: int) -> Case:
  data = [_shape(batch, n, dtype=F16) for n in (_LAYERS[0], _LAYERS[-1])]
  f = jax.jit(_loss, donate_argnums=(1, 2))
  return f, [_parameters(_LAYERS), *data]


def mlp_training(batch: int) -> Case:
  def f(parameters, x, labels):
    gradients = jax.grad(_loss)(parameters, x, labels)
    return jax.tree.map(lambda p, g: p - F16(0.01) * g, parameters, gradients)

  arguments = mlp_inference(batch)[1]
  return jax.jit(f, donate_argnums=(0, 1, 2)), arguments


def initialise(layers: int, width: int, inputs: int, outputs: int) -> Case:
  sizes = [inputs, *[width] * layers, outputs]
  weights = jax.nn.initializers.truncated_normal(0.01)

  def f(key):
    keys = jax.random.split(key, layers + 1)
    return [
      (weights(k, (a, b), F16), jnp.zeros(b, F16))
      for k, a, b in zip(keys, sizes, sizes[1:])
    ]

  key = jax.eval_shape(lambda: jax.random.key(0, impl="unsafe_rbg"))
  return f, [key]


def serialised_product(parts: int, rows: int, terms: int, columns: int) -> Case:
  product = jax.jit(jnp.matmul)  # measured: an outlined function

  def f(x, y, z):
    blocks = jnp.split(y, parts)
    return x + jnp.concatenate([product(b, z) for b in blocks])

  shapes = ((rows, columns), (rows, terms), (terms, columns))
  f = jax.jit(f, donate_argnums=(0, 1, 2))
  return f, [_shape(*s, dtype=F16) for s in shapes]


def two_products(n: int) -> Case:
  def f(v, x, weights):
    return x @ (jnp.broadcast_to(v, (n, n)) @ weights)

  shapes = ((n,), (n, n), (n, n))
  f = jax.jit(f, donate_argnums=(0, 1))
  return f, [_shape(*s, dtype=F16) for s in shapes]


def two_convolutions() -> Case:
  def convolve(x, w):
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
      x, w, (1, 1), "SAME", dimension_numbers=numbers
    )

  def f(v):
    x = jnp.broadcast_to(v, (2, 256, 256, 2))
    w = jnp.broadcast_to(v, (2, 2, 2, 2))
    return convolve(convolve(x, w), w)

  return jax.jit(f, donate_argnums=0), [_shape(2)]


def two_normalisations(channels: int) -> Case:
  def f(x, y, z):
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    scale = offset = jnp.broadcast_to(z, channels)

    def normalise(x):
      return (x - mean) * lax.rsqrt(variance + F16(1e-3)) * scale + offset

    return normalise(x) + normalise(y)

  shapes = ((1, 1, 1, channels), (1, 1, 1, channels), (1,))
  f = jax.jit(f, donate_argnums=(0, 1, 2))
  return f, [_shape(*s, dtype=F16) for s in shapes]
