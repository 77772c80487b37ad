"""Measures how long a process takes to compile a program for the first time.

Nothing that the compilers have learnt from other programs helps: each program
is compiled in processes of its own, once on either platform, after a program of
a single addition that starts both compilers. CPU time of all threads is
compared, so that other load on the machine matters less. Neither platform
uses a persistent cache. What is not spent in our compiler is jaxlib's, which
hands it the program, and the loader's: the table has its ratio, too, which no
compiler could go below.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import jax
import jax.numpy as jnp
from benchmarks import memory, models, six_programs
from benchmarks.report import align
from jaxlib.ipu import compiler

_PROCESSES = 3

Program = tuple[Callable[..., Any], Callable[[], Sequence[Any]]]


def _ones(dtype: Any, *shapes: tuple[int, ...]) -> Callable[[], list[Any]]:
  """Makes arrays of ones; types of 64 bits need x64."""
  return lambda: [np.ones(shape, dtype) for shape in shapes]


def _lstm_gradient(xs, w, u, b):
  def loss(w, u, b):
    return (six_programs.lstm(xs, w, u, b) ** 2).sum()

  return jax.grad(loss, argnums=(0, 1, 2))(w, u, b)


def _updates(x, rows):
  """Writes a row in each iteration of a loop."""

  def update(i, x):
    return jax.lax.dynamic_update_slice(x, rows[i][None], (i * 2, 0))

  return jax.lax.fori_loop(0, len(rows), update, x)


_SQUARES = ((1024, 1024), (1024, 1024))

PROGRAMS: dict[str, Program] = {
  "x + 1": (lambda x: x + 1, _ones(np.float32, (4,))),
  "LeNet step": (
    models.lenet_step,
    lambda: (models.lenet_state(), *models.images(32)),
  ),
  "LSTM gradient": (
    _lstm_gradient,
    _ones(np.float32, (32, 16, 64), (64, 512), (128, 512), (512,)),
  ),
  "MLP step": (
    models.momentum_step,
    lambda: (models.momentum_state(models.MNIST), *models.digits(32)),
  ),
  "transformer step": (
    models.transformer_step,
    lambda: (models.transformer_state(), models.tokens()),
  ),
  **{
    f"{name} product": (jnp.matmul, _ones(dtype, *_SQUARES))
    for name, dtype in (
      ("bf16", jnp.bfloat16),
      ("f32", np.float32),
      ("int8", np.int8),
      ("int32", np.int32),
      ("f64", np.float64),
    )
  },
  "updates in a loop": (_updates, _ones(np.float32, (256, 128), (64, 128))),
  **{
    f"complex {name}, {n}x{n}": (f, _ones(np.complex64, (n, n)))
    for n in (8, 64)
    for name, f in (
      ("svd", jnp.linalg.svd),
      ("singular values", lambda a: jnp.linalg.svd(a, compute_uv=False)),
      ("eigh", jnp.linalg.eigh),
    )
  },
}


def child(name: str, platform: str, baseline: str) -> None:
  """Prints the CPU seconds of compiling a program on both platforms, and those
  that the IPU's compiler took."""
  function, make_arguments = PROGRAMS[name]
  inside = [0.0]
  compile_program = compiler.compile_program

  def timed(*args: Any) -> Any:
    begin = time.process_time()
    try:
      return compile_program(*args)
    finally:
      inside[0] = time.process_time() - begin

  compiler.compile_program = timed
  found = []
  with jax.enable_x64("f64" in name):
    for device in (jax.devices(p)[0] for p in (platform, baseline)):
      start_up = jax.device_put(np.ones(2, np.float32), device)
      jax.jit(lambda x: x + 2).lower(start_up).compile()
      arguments = jax.device_put(tuple(make_arguments()), device)
      # A new function, which JAX has not traced for the other platform.
      lowered = jax.jit(lambda *a: function(*a)).lower(*arguments)
      start = time.process_time()
      compiled = lowered.compile()
      found.append(time.process_time() - start)
      jax.block_until_ready(compiled(*arguments))
  print(json.dumps([*found, *inside]))


def measure(
  platform: str, baseline: str, pattern: Callable[[str], bool]
) -> list[dict[str, Any]]:
  """The median CPU seconds that each program takes on either platform."""
  rows = []
  for name in PROGRAMS:
    if not pattern(f"cold/{name}"):
      continue
    words = ["--cold-child", name, platform, baseline]
    samples = [memory.answer(words, platform) for _ in range(_PROCESSES)]
    figures = map(statistics.median, zip(*samples, strict=True))
    names = ("seconds", "baseline", "compiler")
    rows.append({"program": name, **dict(zip(names, figures, strict=True))})
  return rows


def table(rows: Sequence[dict[str, Any]], names: tuple[str, str]) -> str:
  """One line for each program, and the geometric mean of the ratios."""
  heads = (*(f"{n}, ms" for n in names), "ratio", "without compiler")
  lines = [("compiling", *heads)]
  ratios = []
  for row in rows:
    ours, theirs = row["seconds"], row["baseline"]
    ratios.append(ours / theirs)
    lines.append(
      (
        row["program"],
        f"{ours * 1e3:.1f}",
        f"{theirs * 1e3:.1f}",
        f"{ratios[-1]:.2f}",
        f"{(ours - row['compiler']) / theirs:.2f}",
      )
    )
  mean = statistics.geometric_mean(ratios)
  lines.append(("geometric mean", "", "", f"{mean:.2f}", ""))
  return align(lines, left=1)
