"""Element-wise chains, cheap and transcendental; softmax and its kin."""

from __future__ import annotations

import numpy as np

import jax
import jax.numpy as jnp
from benchmarks.workload import jitted


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


def broadcast(x):
  return (x - x[0]) * x[:, :1] + x[1]


def layer_norm(x):
  mean = x.mean(-1, keepdims=True)
  var = x.var(-1, keepdims=True)
  return (x - mean) * jax.lax.rsqrt(var + 1e-5)


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
  jitted("elementwise", "broadcast, 1024x1024", broadcast, values(1024, 1024)),
  jitted("transcendental", "chain, 64 Ki", transcendental, values(2**16)),
  jitted("transcendental", "chain, 1 Mi", transcendental, values(2**20)),
  jitted("transcendental", "exp, 1 Mi", jnp.exp, values(2**20)),
  jitted("transcendental", "gelu, 1 Mi", jax.nn.gelu, values(2**20)),
  jitted("transcendental", "erf_inv, 1 Mi",
         lambda x: jax.lax.erf_inv(jnp.clip(x, -0.99, 0.99)), values(2**20)),
  jitted("softmax", "128x1000", jax.nn.softmax, values(128, 1000)),
  jitted("softmax", "2048x2048", jax.nn.softmax, values(2048, 2048)),
  jitted("softmax", "log, 1024x32", jax.nn.log_softmax, values(1024, 32)),
  jitted("softmax", "over rows, 1024x1024",
         lambda x: jax.nn.softmax(x, 0), values(1024, 1024)),
  jitted("layer norm", "1024x768", layer_norm, values(1024, 768)),
  jitted("layer norm", "gradient, 1024x768", layer_norm_grad,
         values(1024, 768), tolerance=1e-3),
]  # fmt: skip
