"""Measures how compile time and memory grow with program size.

Unrolled programs of 1,000 to 50,000 operations, and as many donated arguments
as large models have. Each program and size has its own process, which traces
and lowers the program, then compiles it. Only compilation is timed, in CPU time
so that other load on the machine matters less. Memory is what compilation adds
to the peak of the process.
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
# Largest allowed ratio of the seconds per operation, largest to smallest size.
LIMIT = 2.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
  """A program of any size.

  Attributes:
    function: function(size) is the function to jit.
    arguments: arguments(size) are its arguments.
    sizes: approximate numbers of operations or arguments.
    donated: whether the first argument is donated.
  """

  function: Callable[[int], Callable[..., Any]]
  arguments: Callable[[int], Sequence[Any]]
  sizes: Sequence[int] = SIZES
  donated: bool = False


def chain(size: int) -> Callable[..., Any]:
  """Element-wise operations, each on the result of the last one."""

  def f(x):
    for i in range(size // 2):
      x = (jnp.sin(x) if i % 2 else x * x) + i
    return x

  return f


def products(size: int) -> Callable[..., Any]:
  """Alternating products and reductions."""

  def f(x, w):
    for _ in range(size // 4):
      x = x @ w
      x = x * jnp.sum(x, 1, keepdims=True)
    return x

  return f


def outputs(size: int) -> Callable[..., Any]:
  """Many small independent results."""

  def f(x):
    return [jnp.sin(x[i % 64] * i) for i in range(size // 4)]

  return f


def loops(size: int) -> Callable[..., Any]:
  """A sequence of loops, with values that are live across all of them."""

  def f(x, kept):
    for i in range(size // 6):
      x = jax.lax.fori_loop(0, 3, lambda _, c: jnp.sin(c) * c, x) + i
    return x, [k + x for k in kept]

  return f


def branches(size: int) -> Callable[..., Any]:
  """A sequence of switches, with values that are live across all of them."""

  def f(x, i, kept):
    for _ in range(size // 8):
      x = jax.lax.cond(i > x[0], lambda c: jnp.sin(c) * c, lambda c: -c, x)
    return x, [k + x for k in kept]

  return f


def donated(size: int) -> Callable[..., Any]:
  """Each argument's memory is reused for a result."""

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
  """Compiles one program and prints the time and memory that it took."""
  program = PROGRAMS[name]
  device = jax.devices(platform)[0]
  # Warm-up: what only the first compilation of a process pays.
  jax.jit(lambda x: x + 1).lower(jax.device_put(_ones(2), device)).compile()
  arguments = jax.device_put(tuple(program.arguments(size)), device)
  jitted = jax.jit(
    program.function(size),
    donate_argnums=0 if program.donated else (),
    # The largest programs have more vertices than fit the SRAM.
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
  """The seconds and bytes that each program takes, for each of its sizes."""
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
  """The programs whose compile time grows faster than their size."""
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
