"""Code of programs with repeats or serial steps, with and without outlining and
loops (docs/code.md).

python -m benchmarks --code                   writes the page (minutes)
python -m benchmarks --code --filter layers   prints some of its rows
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import jax
import jax.numpy as jnp
from benchmarks import gpt2
from benchmarks.resnet import resnet50
from jaxlib.ipu import fitting
from jaxlib.ipu.plan import matmul
from jaxlib.ipu.target import TARGETS

PAGE = Path(__file__).parents[1] / "ipu" / "docs" / "code.md"
# More than any program has.
_UNLIMITED = 1 << 40

_HEAD = """# Code

<!-- written by: python -m benchmarks --code -->

Executable code of the fullest tile of a GC200, its SRAM at its peak, cycles of
a run and seconds of compilation, before and after steps that repeat became
functions (see *Outlining* in [internals.md](internals.md)), serial steps loops
(*Matrix products* and *Linear algebra*, there), and messages were packed
(*Packing*, there).
[code.py](../../benchmarks/code.py) has the programs and the budgets that they
ask for; a tile can hold 212,992 bytes of code. Programs that do not fit are
refused. The state of GPT-2-small with Adam's moments takes 1.24 GB; all tiles
have 0.94.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
  """A program with repeats.

  Attributes:
    function: the function to jit.
    arguments: its arguments.
    budget: the bytes of code to ask for; None: those with which it fits.
    donated: numbers of the arguments that are donated.
  """

  function: Callable[..., Any]
  arguments: Sequence[Any]
  budget: int | None
  donated: Sequence[int] = ()


@dataclasses.dataclass(frozen=True)
class Row:
  """A program's figures without and with outlining, in this order.

  Attributes:
    code: bytes of executable code of the fullest tile.
    peak: its bytes at its fullest moment.
    cycles: of a run.
    seconds: of compilation.
    fits: whether the latter fits.
  """

  code: tuple[float, float]
  peak: tuple[float, float]
  cycles: tuple[float, float]
  seconds: tuple[float, float]
  fits: bool


# --- Programs ---------------------------------------------------------------


def operations(count: int) -> Program:
  """x = sin(x) * 1.01 + i, every third followed by x @ y."""

  def f(x, y):
    for i in range(count):
      x = jnp.sin(x) * 1.01 + i
      if i % 3 == 2:
        x = x @ y
    return x

  return _squares(f)


def kinds_of_operations(count: int) -> Program:
  """Operations of seven kinds in turn, with random constants."""
  constants = np.random.default_rng(0).normal(size=count).astype(np.float32)
  kinds: list[Callable[[Any, Any, Any], Any]] = [
    lambda x, y, c: jnp.sin(x) * c,
    lambda x, y, c: x @ y,
    lambda x, y, c: x + c,
    lambda x, y, c: jnp.tanh(x) - c,
    lambda x, y, c: x.T * c,
    lambda x, y, c: jnp.cumsum(x, 1) * c,
    lambda x, y, c: jnp.sum(x, 0) + x,
  ]

  def f(x, y):
    for i, c in enumerate(constants):
      x = kinds[i % len(kinds)](x, y, c)
    return x

  return _squares(f)


def unlike_operations(count: int) -> Program:
  """Operations on as many shapes, which share no code."""

  def f(x):
    for _ in range(count):
      x = jnp.sin(x[1:, 1:]).T + x[:-1, :-1]
    return x

  argument = jax.ShapeDtypeStruct((count + 40, count + 40), np.float32)
  return Program(function=f, arguments=[argument], budget=None)


def _squares(f: Callable[..., Any]) -> Program:
  square = jax.ShapeDtypeStruct((8, 8), np.float32)
  return Program(function=f, arguments=[square, square], budget=40_000)


def layers(count: int, length: int, width: int, heads: int) -> Program:
  """Layers of a transformer's encoder in f16, as BERT's."""

  def f(x, parameters):
    for p in parameters:
      x = _layer(p, x, heads)
    return x

  half = {
    **{n: (width, width) for n in ("q", "k", "v", "out")},
    **{f"{n} bias": (width,) for n in ("q", "k", "v", "out", "down")},
    "up": (width, 4 * width), "up bias": (4 * width,),
    "down": (4 * width, width),
  }  # fmt: skip
  single = {f"{n} {i}": (width,) for n in ("scale", "bias") for i in (1, 2)}
  parameters = {
    **{n: jax.ShapeDtypeStruct(s, np.float16) for n, s in half.items()},
    **{n: jax.ShapeDtypeStruct(s, np.float32) for n, s in single.items()},
  }
  x = jax.ShapeDtypeStruct((length, width), np.float16)
  return Program(function=f, arguments=[x, [parameters] * count], budget=45_000)


def _layer(p: Any, x: Any, heads: int) -> Any:
  length, width = x.shape
  q, k, v = (
    (x @ p[n] + p[f"{n} bias"]).reshape(length, heads, width // heads)
    for n in ("q", "k", "v")
  )
  scores = jnp.einsum("ihd,jhd->hij", q, k) * (width // heads) ** -0.5
  weights = jax.nn.softmax(scores.astype(np.float32)).astype(np.float16)
  mixed = jnp.einsum("hij,jhd->ihd", weights, v).reshape(length, width)
  x = _norm(p, 1, x + mixed @ p["out"] + p["out bias"])
  hidden = jax.nn.gelu(x @ p["up"] + p["up bias"])
  return _norm(p, 2, x + hidden @ p["down"] + p["down bias"])


def _norm(p: Any, number: int, x: Any) -> Any:
  x = x.astype(np.float32)
  mean = x.mean(-1, keepdims=True)
  var = ((x - mean) ** 2).mean(-1, keepdims=True)
  x = (x - mean) * jax.lax.rsqrt(var + 1e-5)
  return (x * p[f"scale {number}"] + p[f"bias {number}"]).astype(np.float16)


def product(n: int, dtype: Any) -> Program:
  """Square matrices. All the code that a tile can hold is allowed."""
  square = jax.ShapeDtypeStruct((n, n), dtype)
  return Program(
    function=lambda x, y: x @ y, arguments=[square, square], budget=212_992
  )


def resnet(batch: int, budget: int) -> Program:
  """ResNet-50 in f16."""
  function, arguments = resnet50(batch)
  return Program(function=function, arguments=arguments, budget=budget)


def training(sizes: gpt2.Sizes, adam: bool = False) -> Program:
  """A training step of GPT-2 whose state is donated."""
  function, arguments = gpt2.training_step(sizes, adam)
  return Program(
    function=function, arguments=arguments, budget=None, donated=(0,)
  )


def _within(budget: int, program: Program) -> Program:
  return dataclasses.replace(program, budget=budget)


def decomposition(f: Callable[..., Any], n: int) -> Program:
  """A decomposition of a matrix [n, n]."""
  argument = jax.ShapeDtypeStruct((n, n), np.float32)
  return Program(function=f, arguments=[argument], budget=212_992)


PROGRAMS: dict[str, Callable[[], Program]] = {
  "2,000 operations": lambda: operations(2_000),
  "10,000 operations": lambda: operations(10_000),
  "2,000 operations of 7 kinds": lambda: kinds_of_operations(2_000),
  "2,000 operations on 2,000 shapes": lambda: unlike_operations(2_000),
  "BERT-base, 1 of 12 layers": lambda: layers(1, 384, 768, 12),
  "BERT-base, 12 layers": lambda: layers(12, 384, 768, 12),
  "BERT-base, 24 layers": lambda: layers(24, 384, 768, 12),
  "f32 product, 7168^2": lambda: product(7168, np.float32),
  "f16 product, 9216^2": lambda: product(9216, np.float16),
  "ResNet-50, batch 1": lambda: resnet(1, 100_000),
  "ResNet-50, batch 16": lambda: resnet(16, 150_000),
  "ResNet-50, batch 32": lambda: resnet(32, 200_000),
  "ResNet-50, batch 64": lambda: resnet(64, 212_992),
  "GPT-2-small, a step of SGD": lambda: training(gpt2.Sizes()),
  "GPT-2-small, a step of Adam": lambda: training(gpt2.Sizes(), adam=True),
  "eigh of 512": lambda: decomposition(jnp.linalg.eigh, 512),
  "svd of 512": lambda: decomposition(jnp.linalg.svd, 512),
  "inv of 512": lambda: decomposition(jnp.linalg.inv, 512),
}
_TINY = gpt2.Sizes(layers=3, width=64, heads=2, vocabulary=2_000, length=32)
# The same in small, which a test compiles.
SMALL: dict[str, Callable[[], Program]] = {
  "200 operations": lambda: _within(0, operations(200)),
  "210 operations of 7 kinds": lambda: _within(0, kinds_of_operations(210)),
  "6 small layers": lambda: _within(0, layers(6, 64, 128, 2)),
  "a small step of SGD": lambda: _within(55_000, training(_TINY)),
}


# --- Figures ----------------------------------------------------------------


def figures(program: Program, device: jax.Device) -> Row:
  """Compiles a program twice."""
  with _unrolled():
    without = _compiled(program, device, _UNLIMITED)
  outlined = _compiled(program, device, program.budget)
  names = (
    "ipu executable tile bytes",
    "ipu peak tile bytes",
    "ipu cycles",
    "seconds",
  )
  fits = (
    outlined["ipu peak tile bytes with gaps"] <= TARGETS["ipu2"].bytes_per_tile
    and outlined[names[0]] <= outlined["ipu executable tile limit"]
  )
  return Row(*((without[name], outlined[name]) for name in names), fits)


@contextlib.contextmanager
def _unrolled() -> Iterator[None]:
  """A context in which serial steps are not compiled to loops."""
  before = fitting.smaller
  fitting.smaller = lambda choices, used: (
    c for c in before(choices, used) if not c.repeats
  )
  try:
    yield
  finally:
    fitting.smaller = before


def _compiled(
  program: Program, device: jax.Device, budget: int | None
) -> dict[str, float]:
  sharding = jax.sharding.SingleDeviceSharding(device)
  arguments = jax.tree.map(
    lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sharding),
    program.arguments,
  )
  # A new function object: JAX keeps what it has lowered.
  lowered = jax.jit(
    lambda *args: program.function(*args), donate_argnums=program.donated
  ).lower(*arguments)
  matmul.plan.cache_clear()  # what the other compilation has planned
  begin = time.process_time()
  options: dict[str, int | bool] = {"ipu_allow_out_of_memory": True}
  if budget is not None:
    options["ipu_code_budget"] = budget
  compiled = lowered.compile(compiler_options=options)
  return {
    **compiled.cost_analysis(),
    "seconds": time.process_time() - begin,
  }


def run(pattern: str | None = None, platform: str = "ipu") -> str:
  """The table of the programs whose names match; of all, the page is written.

  Raises:
    SystemExit: none matches.
  """
  device = jax.devices(platform)[0]
  rows = {
    name: figures(make(), device)
    for name, make in PROGRAMS.items()
    if re.search(pattern or "", name)
  }
  if not rows:
    raise SystemExit(f"--filter {pattern!r} matches none of {[*PROGRAMS]}")
  table = "\n".join(_table(rows.items()))
  if not pattern:
    PAGE.write_text(f"{_HEAD}\n{table}\n")
  return table


def _table(rows: Iterable[tuple[str, Row]]) -> list[str]:
  columns = [
    f"{figure}, {when}"
    for figure in ("code", "peak", "cycles", "seconds")
    for when in ("before", "after")
  ]
  return [
    f"| program | {' | '.join(columns)} | fits |",
    f"| --- |{' --: |' * len(columns)} --- |",
    *(f"| {name} | {' | '.join(_cells(row))} |" for name, row in rows),
  ]


def _cells(row: Row) -> list[str]:
  whole = [f"{n:,.0f}" for n in (*row.code, *row.peak, *row.cycles)]
  seconds = (f"{n:.1f}" for n in row.seconds)
  return [*whole, *seconds, "yes" if row.fits else "no"]
