"""The figures of ipu/docs/performance.md: what each piece of advice is worth.

    python -m benchmarks.advice

All figures are the model's, so they are the same on every computer: nothing is
timed, and nothing but compilation takes time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import jax
import jax.numpy as jnp
from benchmarks import models
from jax import lax

# A figure: what was compared, what of it, and its two values.
Row = tuple[str, str, float, float]


def costs(
  f: Callable[..., Any], *args: Any, **options: Any
) -> dict[str, float]:
  """`cost_analysis()` of a function on an IPU."""
  compiled = jax.jit(f, **options).lower(*args).compile()
  return compiled.cost_analysis()


def rows(device: Any) -> Iterator[Row]:
  put = lambda x: jax.device_put(x, device)
  random = np.random.default_rng(0)
  a = random.normal(size=(1024, 1024)).astype(np.float32)
  b = random.normal(size=(1024, 1024)).astype(np.float32)
  product = lambda a, b: a @ b
  cycles = {
    dtype: costs(product, *(put(jnp.asarray(x, dtype)) for x in (a, b)))
    for dtype in (jnp.float32, jnp.bfloat16, jnp.float16)
  }
  f32 = cycles[jnp.float32]
  for dtype in (jnp.float16, jnp.bfloat16):
    name = f"a product of 1024 in {jnp.dtype(dtype).name} instead of float32"
    for key in ("ipu cycles", "ipu exchange bytes"):
      yield name, key, f32[key], cycles[dtype][key]

  weights = put(random.normal(size=(8, 256, 256)).astype(np.float32))
  x = put(np.ones((64, 256), np.float32))

  def unrolled(weights: jax.Array, x: jax.Array) -> jax.Array:
    for i in range(8):
      x = jnp.tanh(x @ weights[i])
    return x

  def scanned(weights: jax.Array, x: jax.Array) -> jax.Array:
    return lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)[0]

  before, after = (costs(f, weights, x) for f in (unrolled, scanned))
  for key in ("ipu executable tile bytes", "ipu cycles"):
    yield (
      "8 equal layers in lax.scan instead of unrolled",
      key,
      before[key],
      after[key],
    )

  state = put(np.ones((2048, 2048), np.float32))
  step = lambda s: s * 0.9 + 1.0
  key = "ipu peak tile bytes with gaps"
  kept, donated = costs(step, state), costs(step, state, donate_argnums=0)
  yield "a state of 16 MB donated instead of kept", key, kept[key], donated[key]

  key = "ipu cycles"
  arguments = put((models.transformer_state(), models.tokens()))
  step = models.transformer_step
  kept, donated = (
    costs(step, *arguments),
    costs(step, *arguments, donate_argnums=0),
  )
  name = "a transformer's step with AdamW, its state donated instead of kept"
  yield name, key, kept[key], donated[key]

  table = put(np.ones((4096, 64), np.float32))
  rows_ = put(np.arange(512, dtype=np.int32))
  one_hot = lambda t, i: jax.nn.one_hot(i, 4096, dtype=jnp.float32) @ t
  before, after = (
    costs(one_hot, table, rows_),
    costs(lambda t, i: t[i], table, rows_),
  )
  key = "ipu cycles"
  yield (
    "512 rows of 4096 taken by index instead of one-hot",
    key,
    before[key],
    after[key],
  )

  yield from transfers(put)


def transfers(put: Callable[[Any], Any]) -> Iterator[Row]:
  """What it is worth to keep arrays where they are needed."""
  layer = lambda w, x: jax.nn.relu(x @ w)
  w = put(np.ones((784, 512), np.float32))
  x = put(np.ones((128, 784), np.float32))
  cost = costs(layer, w, x)
  cycles, key = cost["ipu cycles"], "ipu cycles"
  name = "a layer whose arguments are on the device instead of the host"
  yield name, key, cycles + cost["ipu argument stream cycles"], cycles
  wide = put(np.ones((4096, 1024), np.float32))
  cost = costs(layer, wide, put(np.ones((16, 4096), np.float32)))
  cycles = cost["ipu cycles"]
  name = "a layer whose weights an earlier run has laid out for it"
  yield name, key, cycles + cost["ipu argument layout cycles"], cycles

  count = 16
  feed = put(jax.ipu.feed((), like=np.ones((128, 784), np.float32)))

  def fed(w: jax.Array, feed: Any) -> jax.Array:
    return lax.scan(
      lambda _, __: (None, layer(w, feed.next()).sum()), None, length=count
    )[1]

  one = costs(lambda w, x: layer(w, x).sum(), w, x)
  # Of the arguments of a call, the batch alone comes from the host.
  batch = costs(lambda x: x, x)["ipu argument stream cycles"]
  called = count * (one["ipu cycles"] + batch)
  name = f"{count} batches fed to a loop instead of given to calls"
  yield name, key, called, costs(fed, w, feed)["ipu cycles"]


def markdown(device: Any) -> str:
  """The table of performance.md."""
  lines = [
    "| what | figure | before | after | ratio |",
    "|---|---|---|---|---|",
  ]
  for what, key, before, after in rows(device):
    ratio = before / after if after else float("inf")
    lines.append(
      f"| {what} | {key} | {before:,.0f} | {after:,.0f} | {ratio:.2f} |"
    )
  return "\n".join(lines) + "\n"


if __name__ == "__main__":
  print(markdown(jax.devices("ipu")[0]), end="")
  sys.exit()
