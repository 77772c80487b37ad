"""A training step of a transformer block on a mesh of 8 IPUs.

    JAX_IPU_DEVICE_COUNT=8 python ipu/examples/transformer_on_a_mesh.py

The batch is split over the axis `data`, heads and hidden features over the axis
`tensor`. Only the arrays say so: `jax.jit` splits the same function that runs
on one IPU, and inserts the collectives. The losses are equal within rounding.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("JAX_IPU_DEVICE_COUNT", "8")

import numpy as np

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

HEADS = 8
RATE = 0.1

# How each parameter is split.
SPECS = {
  "qkv": P(None, None, "tensor", None),  # [width, 3, heads, width / heads]
  "out": P("tensor", None, None),  # [heads, width / heads, width]
  "up": P(None, "tensor"),
  "down": P("tensor", None),
}


def make_parameters(width: int) -> dict[str, np.ndarray]:
  random = np.random.default_rng(0)
  each, hidden = width // HEADS, 4 * width
  shapes = {
    "qkv": (width, 3, HEADS, each),
    "out": (HEADS, each, width),
    "up": (width, hidden),
    "down": (hidden, width),
  }
  return {
    name: random.normal(0, 0.02, shape).astype(np.float32)
    for name, shape in shapes.items()
  }


def normalise(x: jax.Array) -> jax.Array:
  mean = x.mean(-1, keepdims=True)
  return (x - mean) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def block(p: dict[str, jax.Array], x: jax.Array) -> jax.Array:
  """Attention and an MLP on x [batch, length, width]."""
  q, k, v = jnp.moveaxis(
    jnp.einsum("blw,wche->blche", normalise(x), p["qkv"]), 2, 0
  )
  scores = jnp.einsum("blhe,bmhe->bhlm", q, k) * q.shape[-1] ** -0.5
  values = jnp.einsum("bhlm,bmhe->blhe", jax.nn.softmax(scores), v)
  x = x + jnp.einsum("blhe,hew->blw", values, p["out"])
  return x + jax.nn.gelu(normalise(x) @ p["up"]) @ p["down"]


def train_step(
  p: dict[str, jax.Array], x: jax.Array, y: jax.Array
) -> tuple[dict[str, jax.Array], jax.Array]:
  loss, grads = jax.value_and_grad(lambda p: jnp.mean((block(p, x) - y) ** 2))(
    p
  )
  return jax.tree.map(lambda p, g: p - RATE * g, p, grads), loss


def train(
  devices: list[jax.Device], shape: tuple[int, int], width: int, steps: int
) -> tuple[list[float], float]:
  """Losses, and the modelled cycles of the last step."""
  mesh = Mesh(np.array(devices).reshape(shape), ("data", "tensor"))
  put = lambda x, spec: jax.device_put(x, NamedSharding(mesh, spec))
  p = {name: put(x, SPECS[name]) for name, x in make_parameters(width).items()}
  random = np.random.default_rng(1)
  x, y = random.normal(size=(2, 16, 64, width)).astype(np.float32)
  x, y = put(x, P("data")), put(y, P("data"))
  step = jax.jit(train_step, donate_argnums=0)
  losses = []
  for _ in range(steps):
    p, loss = step(p, x, y)
    losses.append(float(loss))
  return losses, max(d.ipu_last_run().cycles for d in devices)


def main() -> None:
  parser = argparse.ArgumentParser()
  parser.add_argument("--steps", type=int, default=3)
  parser.add_argument("--width", type=int, default=512)
  given = parser.parse_args()
  devices = jax.devices("ipu")
  if len(devices) < 8:
    raise SystemExit("set JAX_IPU_DEVICE_COUNT=8")
  one, alone = train(devices[:1], (1, 1), given.width, given.steps)
  many, together = train(devices[:8], (2, 4), given.width, given.steps)
  np.testing.assert_allclose(many, one, rtol=1e-4)
  print("losses", " ".join(f"{loss:.5f}" for loss in many), "as on one IPU")
  print(
    f"a step: {alone:,.0f} cycles on one IPU, {together:,.0f} on 2 x 4: "
    f"{alone / together:.1f} times as fast"
  )


if __name__ == "__main__":
  main()
