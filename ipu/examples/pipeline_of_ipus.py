"""A pipeline over four IPUs: each holds one stage, micro-batches go through.

    JAX_IPU_DEVICE_COUNT=4 python ipu/examples/pipeline_of_ipus.py

`shard_map` gives each IPU the weights of its stage. In each tick of a loop on
the devices, every stage computes and passes its result on with `ppermute`.
While the pipeline fills and empties, some stages compute nothing of use: this
bubble is three ticks of M + 3 for M micro-batches, shown in modelled time.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("JAX_IPU_DEVICE_COUNT", "4")

import numpy as np

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

STAGES = 4
ROWS = 64  # of a micro-batch


def stage(weights: jax.Array, x: jax.Array) -> jax.Array:
  return jnp.tanh(x @ weights)


def pipeline(weights: jax.Array, batches: jax.Array) -> jax.Array:
  """What one IPU does.

  Args:
    weights: [1, width, width], of its stage.
    batches: [M, rows, width], of which the first stage takes one a tick.

  Returns:
    The results, [1, M, rows, width], which those of the last stage alone are.
  """
  me = lax.axis_index("stage")
  count = batches.shape[0]
  onwards = [(i, i + 1) for i in range(STAGES - 1)]

  def tick(t, state):
    received, done = state
    first = lax.dynamic_index_in_dim(
      batches, jnp.minimum(t, count - 1), keepdims=False
    )
    y = stage(weights[0], jnp.where(me == 0, first, received))
    # In the first ticks the last stage has nothing, and writes to row 0 what
    # its first result replaces.
    row = jnp.maximum(t - (STAGES - 1), 0)
    done = lax.dynamic_update_index_in_dim(done, y, row, 0)
    return lax.ppermute(y, "stage", onwards), done

  vary = lambda x: lax.pcast(x, ("stage",), to="varying")
  empty = vary(jnp.zeros_like(batches[0])), vary(jnp.zeros_like(batches))
  return lax.fori_loop(0, count + STAGES - 1, tick, empty)[1][None]


def main() -> None:
  parser = argparse.ArgumentParser()
  parser.add_argument("--width", type=int, default=512)
  parser.add_argument("--batches", type=int, nargs=2, default=(4, 32))
  given = parser.parse_args()
  devices = jax.devices("ipu")[:STAGES]
  if len(devices) < STAGES:
    raise SystemExit(f"set JAX_IPU_DEVICE_COUNT={STAGES}")
  mesh = Mesh(np.array(devices), ("stage",))
  run = jax.jit(
    jax.shard_map(
      pipeline, mesh=mesh, in_specs=(P("stage"), P()), out_specs=P("stage")
    )
  )
  random = np.random.default_rng(0)
  shape = (STAGES, given.width, given.width)
  weights = random.normal(0, given.width**-0.5, shape).astype(np.float32)
  placed = jax.device_put(weights, NamedSharding(mesh, P("stage")))
  cycles = []
  for count in given.batches:
    x = random.normal(size=(count, ROWS, given.width)).astype(np.float32)
    got = run(placed, jax.device_put(x, NamedSharding(mesh, P())))
    got.block_until_ready()
    cycles.append(max(d.ipu_last_run().cycles for d in devices))
    expected = x
    for w in weights:
      expected = np.tanh(expected @ w)
    np.testing.assert_allclose(got[-1], expected, rtol=1e-3, atol=1e-4)
  # Both runs fill and empty the pipeline once.
  few, many = given.batches
  tick = (cycles[1] - cycles[0]) / (many - few)
  clock = devices[0].tile_clock_frequency
  print(f"a tick takes {tick:,.0f} cycles ({tick / clock * 1e6:.1f} us)")
  for count, total in zip(given.batches, cycles):
    bubble = (STAGES - 1) * tick / total
    print(
      f"{count} micro-batches: {total:,.0f} cycles, bubble {bubble:.0%} of the "
      "modelled time"
    )


if __name__ == "__main__":
  main()
