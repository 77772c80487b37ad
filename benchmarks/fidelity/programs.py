"""The measured programs, in JAX. Each function here returns what `jax.jit` is
given and its arguments' shapes; what is measured on one tile has its operands
there."""

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
  """On each tile (rows, 16) times (16, 16), f16 sums."""

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

_LAYERS = (50176, 32, 64, 64)


def _parameters(sizes: Sequence[int]) -> list[Any]:
  return [
    (_shape(a, b, dtype=F16), _shape(b, dtype=F16))
    for a, b in zip(sizes, sizes[1:])
  ]


def _loss(parameters, x, labels):
  for i, (w, b) in enumerate(parameters):
    x = (jax.nn.relu(x) if i else x) @ w + b
  picked = jax.nn.one_hot(labels, x.shape[1], dtype=x.dtype)
  return -(jax.nn.log_softmax(x) * picked).sum(1).mean()


def mlp_inference(batch: int) -> Case:
  data = [_shape(batch, _LAYERS[0], dtype=F16), _shape(batch, dtype=I32)]
  return _loss, [_parameters(_LAYERS), *data]


def mlp_training(batch: int) -> Case:
  def f(parameters, x, labels):
    gradients = jax.grad(_loss)(parameters, x, labels)
    return jax.tree.map(lambda p, g: p - F16(0.01) * g, parameters, gradients)

  f, arguments = f, mlp_inference(batch)[1]
  return jax.jit(f, donate_argnums=0), arguments


def initialise(layers: int, width: int, inputs: int) -> Case:
  def f(key):
    shapes = [(inputs, width)] + [(width, width)] * (layers - 1)
    keys = jax.random.split(key, layers)
    return [
      jax.random.uniform(k, s, F16, -0.1, 0.1) for k, s in zip(keys, shapes)
    ]

  key = jax.eval_shape(lambda: jax.random.key(0, impl="unsafe_rbg"))
  return f, [key]


def serialised_product(parts: int, rows: int, terms: int, columns: int) -> Case:
  def f(x, y, z):
    blocks = x.reshape(parts, rows // parts, terms)
    return lax.map(lambda b: b @ y, blocks).reshape(rows, columns) + z

  shapes = ((rows, terms), (terms, columns), (rows, columns))
  return f, [_shape(*s, dtype=F16) for s in shapes]


def two_products(n: int) -> Case:
  return (
    lambda x, y, s: (x @ y, jnp.broadcast_to(s, (n, n)) @ y),
    [_shape(n, n, dtype=F16), _shape(n, n, dtype=F16), _shape(dtype=F16)],
  )


def two_convolutions() -> Case:
  def convolve(x, w):
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
      x, w, (1, 1), "SAME", dimension_numbers=numbers
    )

  def f(scalar, w1, w2):
    x = jnp.broadcast_to(scalar, (2, 256, 256, 2))
    return convolve(convolve(x, w1), w2)

  return f, [_shape(), _shape(2, 2, 2, 2), _shape(2, 2, 2, 2)]


def two_normalisations(channels: int) -> Case:
  def normalise(x, scale, offset):
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    return (x - mean) * lax.rsqrt(variance + F16(1e-3)) * scale + offset

  def f(x, *state):
    return normalise(normalise(x, *state[:2]), *state[2:])

  state = [_shape(channels, dtype=F16)] * 4
  return f, [_shape(1, 1, 1, channels, dtype=F16), *state]
