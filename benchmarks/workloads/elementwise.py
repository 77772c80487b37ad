"""Element-wise chains, cheap and transcendental; softmax and layer norm."""

from __future__ import annotations

import numpy as np

import jax
import jax.numpy as jnp
from benchmarks.workload import jitted, wide


def values(*shape: int, dtype=np.float32):
  def make():
    rng = np.random.default_rng(0)
    if np.issubdtype(dtype, np.integer):
      return [rng.integers(1, 1000, shape).astype(dtype)]
    return [rng.normal(size=shape).astype(dtype)]

  return make


def chain(x):
  y = x * 2 + 1
  y = jnp.maximum(y, 0) - x
  y = jnp.where(y > 1, y * y, -y)
  return y + jnp.abs(x) * 0.5


def transcendental(x):
  return jnp.exp(-jnp.abs(x)) + jnp.tanh(x) * jnp.sin(x) + jnp.log1p(x * x)


def integers(x):
  return ((x * 37 + 11) ^ (x >> 3)) & 0xFFFF


def mul_xor_shift(x):
  for _ in range(4):
    x = (x * 1103515245) ^ (x >> 7)
  return x


def divide(x):
  return x // (x % 17 + 3) + x % 1000


def by(function, constant):
  return lambda x: function(x, x.dtype.type(constant))


def bytes_chain(x):
  """Arithmetic that wraps around."""
  y = x * 3 + 7
  y = jnp.maximum(y, x) ^ (x >> 1)
  return jnp.where(y > 100, y - 100, y) + jnp.minimum(x, 50)


def broadcast(x):
  return (x - x[0]) * x[:, :1] + x[1]


def select(x):
  conditions = [x < -1, x < 0, x < 1]
  return jnp.select(conditions, [x * 2, x * x, jnp.sqrt(jnp.abs(x))], 0.0)


def flip(images):
  return (images[:, :, ::-1].astype(jnp.float32) / 255 - 0.5) / 0.25


def count_bits(x):
  return jax.lax.population_count(x) + jax.lax.clz(x)


def complex_values(*shape: int):
  def make():
    real, imag = np.random.default_rng(0).normal(size=(2, *shape))
    return [(real + 1j * imag).astype(np.complex64)]

  return make


def layer_norm(x):
  mean = x.mean(-1, keepdims=True)
  var = x.var(-1, keepdims=True)
  return (x - mean) * jax.lax.rsqrt(var + 1e-5)


def group_norm(x):
  """Of 32 groups of channels, the last dimension."""
  groups = x.reshape(*x.shape[:-1], 32, -1)
  mean = groups.mean((1, 2, 4), keepdims=True)
  var = groups.var((1, 2, 4), keepdims=True)
  return ((groups - mean) * jax.lax.rsqrt(var + 1e-5)).reshape(x.shape)


def layer_norm_grad(x):
  return jax.grad(lambda x: (layer_norm(x) ** 3).sum())(x)


HALF = jnp.bfloat16

WORKLOADS = [
  jitted("elementwise", "chain, 64 Ki", chain, values(2**16)),
  jitted("elementwise", "chain, 1 Mi", chain, values(2**20)),
  jitted("elementwise", "chain, 16 Mi", chain, values(2**24), memory=True),
  jitted("elementwise", "add, 4 Mi", lambda x: x + 1, values(2**22)),
  jitted(
    "elementwise", "bf16 chain, 1 Mi", chain, values(2**20, dtype=HALF),
    tolerance=2e-2,
  ),
  jitted(
    "elementwise", "integers, 1 Mi", integers, values(2**20, dtype=np.int32)
  ),
  jitted("elementwise", "multiply, xor, shift, 1 Mi", mul_xor_shift,
         values(2**20, dtype=np.int32)),
  jitted("elementwise", "divide, remainder, 1 Mi", divide,
         values(2**20, dtype=np.int32)),
  *[
    jitted("elementwise", f"{name} by 7, {kind}, 1 Mi", by(f, 7),
           values(2**20, dtype=dtype))
    for kind, dtype in (("i32", np.int32), ("u32", np.uint32),
                        ("i8", np.int8))
    for name, f in (("divide", jax.lax.div), ("remainder", jax.lax.rem))
  ],
  jitted("elementwise", "floor division by 7, i8, 1 Mi", lambda x: x // 7,
         values(2**20, dtype=np.int8)),
  wide(jitted("elementwise", "divide by 1000, i64, 1 Mi",
              by(jax.lax.div, 1000), values(2**20, dtype=np.int64))),
  jitted("elementwise", "u8 chain, 10^6", bytes_chain,
         values(10**6, dtype=np.uint8)),
  jitted("elementwise", "i8 add, 10^6", lambda x: x + x,
         values(10**6, dtype=np.int8)),
  jitted("elementwise", "u16 chain, 10^6", bytes_chain,
         values(10**6, dtype=np.uint16)),
  jitted("elementwise", "select of three, 10^6", select, values(10**6)),
  jitted("elementwise", "flip u8 images, 64x32x32x3", flip,
         values(64, 32, 32, 3, dtype=np.uint8)),
  jitted("elementwise", "unpack bits, 125000 bytes",
         lambda x: jnp.unpackbits(x, axis=1),
         values(125_000, 1, dtype=np.uint8)),
  jitted("elementwise", "count bits, 10^6", count_bits,
         values(10**6, dtype=np.uint32)),
  jitted("elementwise", "complex product, 10^6", lambda x: x * x.conj() + x,
         complex_values(10**6)),
  jitted("elementwise", "complex quotient, 10^6", lambda x: (x + 1) / x,
         complex_values(10**6)),
  jitted("elementwise", "complex magnitudes, 10^6", jnp.abs,
         complex_values(10**6)),
  wide(jitted("elementwise", "f64 chain, 1 Mi", chain,
              values(2**20, dtype=np.float64))),
  wide(jitted("elementwise", "i64 chain, 1 Mi", integers,
              values(2**20, dtype=np.int64))),
  jitted("elementwise", "triad, 3 of 40 MB", lambda a, b: a + 2 * b,
         lambda: [np.ones(10**7, np.float32), np.ones(10**7, np.float32)]),
  jitted("elementwise", "differences of 512 points in space",
         lambda x: x[:, None, :] - x, values(512, 3)),
  jitted("elementwise", "outer products of 20000 points in space",
         lambda x: x[:, :, None] * x[:, None, :], values(20_000, 3)),
  jitted("elementwise", "broadcast, 1024x1024", broadcast, values(1024, 1024)),
  jitted("transcendental", "chain, 64 Ki", transcendental, values(2**16)),
  jitted("transcendental", "chain, 1 Mi", transcendental, values(2**20)),
  jitted("transcendental", "exp, 1 Mi", jnp.exp, values(2**20)),
  jitted("transcendental", "log, 1 Mi", lambda x: jnp.log(jnp.abs(x)),
         values(2**20)),
  jitted("transcendental", "erf, 1 Mi", jax.lax.erf, values(2**20)),
  jitted("transcendental", "gelu, 1 Mi", jax.nn.gelu, values(2**20)),
  jitted("transcendental", "erf_inv, 1 Mi",
         lambda x: jax.lax.erf_inv(jnp.clip(x, -0.99, 0.99)), values(2**20)),
  jitted("transcendental", "lgamma, 256 Ki",
         lambda x: jax.lax.lgamma(jnp.abs(x)), values(2**18)),
  jitted("transcendental", "Bessel function, 256 Ki",
         lambda x: jax.scipy.special.i0e(x * 8), values(2**18)),
  jitted("transcendental", "quantiles, 256 Ki",
         lambda x: jax.scipy.special.ndtri(jnp.abs(x) % 1), values(2**18)),
  jitted("transcendental", "complex square roots, 256 Ki", jnp.sqrt,
         complex_values(2**18)),
  jitted("softmax", "128x1000", jax.nn.softmax, values(128, 1000)),
  jitted("softmax", "2048x2048", jax.nn.softmax, values(2048, 2048)),
  jitted("softmax", "10^7", jax.nn.softmax, values(10**7)),
  jitted("softmax", "log, 1024x32", jax.nn.log_softmax, values(1024, 32)),
  jitted("softmax", "over rows, 1024x1024",
         lambda x: jax.nn.softmax(x, 0), values(1024, 1024)),
  jitted("layer norm", "1024x768", layer_norm, values(1024, 768)),
  jitted("layer norm", "of 32 groups, 8x32x32x128", group_norm,
         values(8, 32, 32, 128)),
  jitted("layer norm", "gradient, 1024x768", layer_norm_grad,
         values(1024, 768), tolerance=1e-3),
]  # fmt: skip
