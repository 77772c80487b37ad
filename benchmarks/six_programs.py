"""Modelled cycles and SRAM of six programs: `ipu/docs/six_programs.md`.

python -m benchmarks --programs        writes the page, prints compile times
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import jax
import jax.numpy as jnp
from benchmarks import models
from benchmarks.report import align
from jax import lax

PAGE = Path(__file__).parents[1] / "ipu" / "docs" / "six_programs.md"
_COMPILATIONS = 5

_HEAD = """# Six programs

<!-- written by: python -m benchmarks --programs -->

The costs of six programs on a GC200, according to `cost_analysis()` and
`memory_analysis()`.
[six_programs.py](../../benchmarks/six_programs.py) has the programs.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
  """A program to report on.

  Attributes:
    function: the function to jit.
    arguments: makes its arguments.
    donated: whether the first argument is donated.
    about: a short description.
  """

  function: Callable[..., Any]
  arguments: Callable[[], Sequence[Any]]
  donated: bool = False
  about: str


def _normal(*shapes: tuple[int, ...]) -> Callable[[], list[np.ndarray]]:
  def make() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [
      (rng.normal(size=s) / max(s[0], 1) ** 0.5).astype(np.float32)
      for s in shapes
    ]

  return make


_WIDTH, _HEADS = 256, 8


def transformer_block(x, qkv, out, up, down):
  """Gradients of a block: attention, two dense layers, two norms."""

  def norm(x):
    x = x - x.mean(-1, keepdims=True)
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)

  def loss(x, qkv, out, up, down):
    batch, length, width = x.shape
    parts = (norm(x) @ qkv).reshape(batch, length, 3, _HEADS, width // _HEADS)
    q, k, v = jnp.moveaxis(parts, 2, 0)
    scores = jnp.einsum("bihd,bjhd->bhij", q, k) * (width // _HEADS) ** -0.5
    mixed = jnp.einsum("bhij,bjhd->bihd", jax.nn.softmax(scores), v)
    x = x + mixed.reshape(x.shape) @ out
    x = x + jax.nn.gelu(norm(x) @ up) @ down
    return (x * x).mean()

  return jax.grad(loss, argnums=(0, 1, 2, 3, 4))(x, qkv, out, up, down)


def lstm(xs, w, u, b):
  """The hidden states of an LSTM layer over time."""

  def step(state, x):
    h, c = state
    i, f, g, o = jnp.split(x @ w + h @ u + b, 4, axis=-1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h

  zero = jnp.zeros((xs.shape[1], u.shape[0]), xs.dtype)
  return lax.scan(step, (zero, zero), xs)[1]


def five_point(grid):
  """A Jacobi step of the heat equation, with fixed boundaries."""
  columns = grid[:-2, 1:-1] + grid[2:, 1:-1]
  around = columns + grid[1:-1, :-2] + grid[1:-1, 2:]
  return grid.at[1:-1, 1:-1].set(0.25 * around)


def stencil(grid):
  """100 steps of the heat equation."""
  return lax.fori_loop(0, 100, lambda _, g: five_point(g), grid)


PROGRAMS = {
  "MLP training step": Program(
    function=models.momentum_step,
    arguments=lambda: (models.momentum_state(models.MNIST), *models.digits(64)),
    donated=True,
    about="784-1024-1024-10, momentum, batch of 64",
  ),
  "CNN training step": Program(
    function=models.cnn_step,
    arguments=lambda: (models.cnn_state(), *models.images(32)),
    donated=True,
    about="two 3x3 convolutions, two dense layers, momentum, batch of 32",
  ),
  "transformer block": Program(
    function=transformer_block,
    arguments=_normal(
      (4, 128, _WIDTH),
      (_WIDTH, 3 * _WIDTH),
      (_WIDTH, _WIDTH),
      (_WIDTH, 4 * _WIDTH),
      (4 * _WIDTH, _WIDTH),
    ),  # fmt: skip
    about="forward and backward, width 256, 8 heads, 4 sequences of 128",
  ),
  "LSTM scan": Program(
    function=lstm,
    arguments=_normal((64, 32, 128), (128, 1024), (256, 1024), (1024,)),
    about="64 steps, 128 to 256 features, batch of 32",
  ),
  "stencil": Program(
    function=stencil,
    arguments=_normal((1000, 1000)),
    donated=True,
    about="100 five-point steps on 1000x1000 in a fori_loop",
  ),
  "eigensolver": Program(
    function=lambda x: jnp.linalg.eigh(x + x.T),
    arguments=_normal((64, 64)),
    about="eigh of 64x64",
  ),
}

# In the order of the page's columns: cycles, their parts, bytes.
FIGURES = (
  "cycles", "compute", "exchange", "sync", "tile bytes", "arguments",
  "temporaries", "code",
)  # fmt: skip


def figures(name: str, device: jax.Device) -> dict[str, float]:
  """The modelled costs of a program: cycles, bytes of the fullest tile, and
  bytes over all tiles by kind."""
  compiled = _lowered(name, device).compile()
  costs, memory = compiled.cost_analysis(), compiled.memory_analysis()
  results = memory.output_size_in_bytes - memory.alias_size_in_bytes
  return {
    "cycles": costs["ipu cycles"],
    **{k: costs[f"ipu {k} cycles"] for k in ("compute", "exchange", "sync")},
    "tile bytes": costs["ipu peak tile bytes"],
    "arguments": memory.argument_size_in_bytes + results,
    "temporaries": memory.temp_size_in_bytes,
    "code": memory.generated_code_size_in_bytes,
  }


def compile_seconds(name: str, device: jax.Device) -> float:
  """CPU time to compile a program, the minimum of several compilations."""
  seconds = []
  for _ in range(_COMPILATIONS):
    lowered = _lowered(name, device)
    start = time.process_time()
    lowered.compile()
    seconds.append(time.process_time() - start)
  return min(seconds)


def _lowered(name: str, device: jax.Device) -> Any:
  program = PROGRAMS[name]
  sharding = jax.sharding.SingleDeviceSharding(device)
  arguments = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
    tuple(program.arguments()),
  )
  # A new function object, so that JAX does not reuse the last compilation.
  function = functools.partial(program.function)
  donated = 0 if program.donated else ()
  return jax.jit(function, donate_argnums=donated).lower(*arguments)


def write(platform: str = "ipu") -> None:
  """Writes the page."""
  device = jax.devices(platform)[0]
  PAGE.write_text(page({name: figures(name, device) for name in PROGRAMS}))


def compile_times(platform: str = "ipu") -> str:
  """A table of compile times."""
  device = jax.devices(platform)[0]
  lines = [("compiling", "ms")]
  for name in PROGRAMS:
    lines.append((name, f"{compile_seconds(name, device) * 1e3:.0f}"))
  return align(lines, left=1)


def page(costs: Mapping[str, Mapping[str, float]]) -> str:
  """The page as Markdown; `costs` maps programs to their figures."""
  parts = [
    _HEAD,
    *(f"- **{name}**: {p.about}" for name, p in PROGRAMS.items()),
    "\n## Cycles\n",
    *_table(costs, FIGURES[:4]),
    "\n## SRAM\n",
    "*Tile bytes* are those of the fullest tile at its fullest moment,",
    "including the copies that exchanges make. The other columns are totals",
    "over all tiles, each counted at its own fullest moment: arguments and",
    "results; temporaries, constants and message buffers; code of vertices,",
    "exchanges and control, and stacks.\n",
    *_table(costs, FIGURES[4:]),
  ]
  return "\n".join(parts) + "\n"


def _table(
  costs: Mapping[str, Mapping[str, float]], columns: Sequence[str]
) -> list[str]:
  return [
    f"| program | {' | '.join(columns)} |",
    f"| --- |{' --: |' * len(columns)}",
    *(
      f"| {name} | {' | '.join(f'{found[c]:,.0f}' for c in columns)} |"
      for name, found in costs.items()
    ),
  ]
