"""Data-parallel training on 1 to 64 IPUs of the model, by cost analysis.

    JAX_IPU_DEVICE_COUNT=64 python -m benchmarks.scaling --plot scaling.png

Strong scaling keeps the whole batch, weak scaling that of each IPU. Nothing
runs: the figures are the compiler's, the same on every computer.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

COUNTS = (1, 2, 4, 8, 16, 32, 64)
BATCH, WIDTH, LAYERS = 4096, 512, 3
WEAK_BATCH = 512  # of each IPU


class Point(NamedTuple):
  """One step on a number of IPUs.

  Attributes:
    devices: their number.
    strong, weak: modelled cycles.
    strong_links, weak_links: those of them in which links are used.
  """

  devices: int
  strong: float
  strong_links: float
  weak: float
  weak_links: float


def _loss(weights: list[jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
  for w in weights:
    x = jnp.tanh(x @ w)
  return jnp.mean((x - y) ** 2)


def _step(weights: Any, x: jax.Array, y: jax.Array) -> Any:
  grads = jax.grad(_loss)(weights, x, y)
  return jax.tree.map(lambda w, g: w - 0.1 * g, weights, grads)


def cost(devices: Sequence[Any], batch: int) -> tuple[float, float]:
  """Cycles of a step, and those of the links."""
  mesh = Mesh(list(devices), "data")
  whole, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
  array = lambda shape, sharding: jax.ShapeDtypeStruct(
    shape, jnp.float32, sharding=sharding
  )
  weights = [array((WIDTH, WIDTH), whole)] * LAYERS
  x = array((batch, WIDTH), split)
  step = jax.jit(_step, donate_argnums=0)
  found = step.lower(weights, x, x).compile().cost_analysis()
  return found["ipu cycles"], found.get("ipu link cycles", 0.0)


def measure(devices: Sequence[Any], counts: Sequence[int]) -> list[Point]:
  """A point for each number of devices."""
  return [
    Point(n, *cost(devices[:n], BATCH), *cost(devices[:n], WEAK_BATCH * n))
    for n in counts
  ]


def markdown(points: Sequence[Point]) -> str:
  """The table of ipu/docs/performance.md."""
  one = points[0]
  lines = [
    "| IPUs | strong: speed-up | links | weak: efficiency | links |",
    "|---|---|---|---|---|",
  ]
  lines += [
    f"| {p.devices} | {one.strong / p.strong:.2f} | "
    f"{p.strong_links / p.strong:.0%} | {one.weak / p.weak:.0%} | "
    f"{p.weak_links / p.weak:.0%} |"
    for p in points
  ]
  return "\n".join(lines) + "\n"


def plot(points: Sequence[Point], path: str) -> None:
  """Draws speed-up and efficiency, and the share of the links."""
  import matplotlib

  matplotlib.use("Agg")
  from matplotlib import pyplot

  figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
  counts = [p.devices for p in points]
  one = points[0]
  left.plot(counts, counts, ":", color="grey", label="ideal")
  left.plot(
    counts, [one.strong / p.strong for p in points], "o-", label="strong"
  )
  weak = [p.devices * one.weak / p.weak for p in points]
  left.plot(counts, weak, "s-", label="weak")
  left.set(xscale="log", yscale="log", xlabel="IPUs", ylabel="speed-up")
  strong_links = [p.strong_links / p.strong for p in points]
  right.plot(counts, strong_links, "o-", label="strong")
  right.plot(
    counts, [p.weak_links / p.weak for p in points], "s-", label="weak"
  )
  right.set(
    xscale="log", ylim=(0, 1), xlabel="IPUs", ylabel="share of links in cycles"
  )
  for axes in (left, right):
    axes.set_xticks(counts, [str(n) for n in counts])
    axes.minorticks_off()
    axes.legend()
  figure.suptitle("A training step of an MLP, batch split over IPUs (modelled)")
  figure.tight_layout()
  figure.savefig(path, dpi=100)


def main(arguments: Sequence[str] | None = None) -> int:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--plot", metavar="FILE", help="draw it, too")
  parser.add_argument("--most", type=int, default=COUNTS[-1])
  given = parser.parse_args(arguments)
  os.environ.setdefault("JAX_IPU_DEVICE_COUNT", str(given.most))
  counts = [n for n in COUNTS if n <= given.most]
  points = measure(jax.devices("ipu"), counts)
  print(markdown(points), end="")
  if given.plot:
    plot(points, given.plot)
  return 0


if __name__ == "__main__":
  sys.exit(main())
