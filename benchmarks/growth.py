"""How compile time and memory grow with a program.

Unrolled programs of 1,000 to 50,000 operations, and as many donated arguments
as large models have. A process per program and size traces and lowers it, then
compiles it: only that is timed, by the processor's clock, so that a busy
machine matters less. Memory is what compiling adds to the process's peak.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import jax
import jax.numpy as jnp
from benchmarks import memory
from benchmarks.report import align

SIZES = (1_000, 5_000, 20_000, 50_000)
# Seconds of the largest over those of the smallest, per operation.
LIMIT = 2.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
  """A program of any size.

  Attributes:
    function: function(size) is to be jitted.
    arguments: arguments(size) are what it takes.
    sizes: about how many operations or arguments it may have.
    donated: whether it is given its first argument.
  """

  function: Callable[[int], Callable[..., Any]]
  arguments: Callable[[int], Sequence[Any]]
  sizes: Sequence[int] = SIZES
  donated: bool = False


def chain(size: int) -> Callable[..., Any]:
  """Element-wise operations, each on the last one's result."""

  def f(x):
    for i in range(size // 2):
      x = (jnp.sin(x) if i % 2 else x * x) + i
    return x

  return f


def products(size: int) -> Callable[..., Any]:
  """Products and reductions by turns."""

  def f(x, w):
    for _ in range(size // 4):
      x = x @ w
      x = x * jnp.sum(x, 1, keepdims=True)
    return x

  return f


def outputs(size: int) -> Callable[..., Any]:
  """Many small results that have nothing to do with each other."""

  def f(x):
    return [jnp.sin(x[i % 64] * i) for i in range(size // 4)]

  return f


def loops(size: int) -> Callable[..., Any]:
  """Loop after loop, beside values that live past them all."""

  def f(x, kept):
    for i in range(size // 6):
      x = jax.lax.fori_loop(0, 3, lambda _, c: jnp.sin(c) * c, x) + i
    return x, [k + x for k in kept]

  return f


def branches(size: int) -> Callable[..., Any]:
  """Switch after switch, beside values that live past them all."""

  def f(x, i, kept):
    for _ in range(size // 8):
      x = jax.lax.cond(i > x[0], lambda c: jnp.sin(c) * c, lambda c: -c, x)
    return x, [k + x for k in kept]

  return f


def donated(size: int) -> Callable[..., Any]:
  """Every argument's memory becomes a result's."""

  def f(state, g):
    return [x * 0.9 + jnp.sum(x @ g) for x in state]

  return f


def _ones(*shape: int) -> np.ndarray:
  return np.ones(shape, np.float32)


PROGRAMS = {
  "chain": Program(function=chain, arguments=lambda n: (_ones(64),)),
  "products and reductions": Program(
    function=products, arguments=lambda n: (_ones(8, 8), _ones(8, 8))
  ),
  "independent outputs": Program(
    function=outputs, arguments=lambda n: (_ones(64, 16),)
  ),
  "loops": Program(
    function=loops,
    arguments=lambda n: (_ones(4), [_ones(4)] * 100),
    sizes=SIZES[:3],
  ),
  "branches": Program(
    function=branches,
    arguments=lambda n: (_ones(4), np.float32(1), [_ones(4)] * 500),
    sizes=SIZES[:3],
  ),
  "donated arguments": Program(
    function=donated,
    arguments=lambda n: ([_ones(8, 8) for _ in range(n)], _ones(8, 8)),
    sizes=(100, 500, 2_000),
    donated=True,
  ),
}


def child(name: str, size: int, platform: str) -> None:
  """Compiles one program and prints what that took."""
  program = PROGRAMS[name]
  device = jax.devices(platform)[0]
  # What only the first compilation of a process pays.
  jax.jit(lambda x: x + 1).lower(jax.device_put(_ones(2), device)).compile()
  arguments = jax.device_put(tuple(program.arguments(size)), device)
  jitted = jax.jit(
    program.function(size),
    donate_argnums=0 if program.donated else (),
    # The largest have more vertices than the SRAM has room for.
    compiler_options=(
      {"ipu_allow_out_of_memory": True} if platform == "ipu" else None
    ),
  )
  lowered = jitted.lower(*arguments)
  peak = memory.peak_rss()
  start = time.process_time()
  compiled = lowered.compile()
  seconds = time.process_time() - start
  added = memory.peak_rss() - peak
  jax.block_until_ready(compiled(*arguments))
  print(json.dumps({"seconds": seconds, "bytes": added}))


def measure(platform: str, pattern: Callable[[str], bool]) -> list[dict]:
  """What each program takes at each of its sizes, in seconds and bytes."""
  return [
    {
      "program": name,
      "size": size,
      **memory.answer(["--growth-child", name, str(size), platform], platform),
    }
    for name, program in PROGRAMS.items()
    if pattern(f"growth/{name}")
    for size in program.sizes
  ]


def over_limit(rows: Sequence[dict[str, Any]]) -> list[str]:
  """The programs whose time grows faster than they do."""
  slow = []
  for name in dict.fromkeys(row["program"] for row in rows):
    first, *_, last = (row for row in rows if row["program"] == name)
    rate = [row["seconds"] / row["size"] for row in (first, last)]
    if rate[1] > LIMIT * rate[0]:
      slow.append(name)
  return slow


def table(rows: Sequence[dict[str, Any]]) -> str:
  """One line for each program and size."""
  lines = [("compiling", "size", "seconds", "us/op", "MiB")]
  for row in rows:
    lines.append(
      (
        row["program"],
        f"{row['size']:,}",
        f"{row['seconds']:.2f}",
        f"{row['seconds'] / row['size'] * 1e6:.0f}",
        f"{row['bytes'] / 2**20:.0f}",
      )
    )
  return align(lines, left=1)
