"""The page about the model's errors."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.fidelity import Measurement, inexpressible

# The kind that has as many points as all others: one vertex, many sizes.
SERIES = "products f16"

_HEAD = """# How far the model is off

<!-- written by: python -m benchmarks --fidelity -->

Every published measurement of IPUs, or of Graphcore's own model of them, that a
JAX program can express, beside what `cost_analysis()` and `memory_analysis()`
say of that program, compiled by `jax.jit` for the same machine and number of
tiles. None is left out. "Beside" names what was measured, and how it differs
from what JAX runs.
[measurements.toml](../../benchmarks/fidelity/measurements.toml) has the figures
and their sources,
[programs.py](../../benchmarks/fidelity/programs.py) the programs.

Graphcore's own model compiles no code unless it is told to, so most of its
figures of memory have no code of vertices or of the program's steps, and no
stacks, which follow from that code: they are compared without it. What
TensorFlow is fed has no memory of its own once it has been used: here it is
donated.

No constant of the model is fitted to one of them, but these are read off them:
what it takes to launch a vertex, off the additions and the products in f16, and
what it takes to begin and end a host stream, off the stream of one int32.
"""


def page(measured: Sequence[Measurement], modelled: Sequence[float]) -> str:
  """The page as Markdown: each measurement with what the model says of it."""
  pairs = list(zip(measured, modelled, strict=True))
  points = [(m, v) for m, v in pairs if not m.bound]
  kinds = list(dict.fromkeys(m.kind for m, _ in points))
  rows = [
    _summary(kind, [error(m, v) for m, v in points if m.kind == kind])
    for kind in kinds
  ]
  rows.append(_summary("all", [error(m, v) for m, v in points]))
  others = [error(m, v) for m, v in points if m.kind != SERIES]
  rows.append(_summary(f"all but {SERIES}", others))
  parts = [
    _HEAD,
    "## Errors by kind\n",
    _table(
      ("kind", "points", "median error", "within 10 %", "within 25 %", "worst"),
      rows,
    ),
  ]
  for kind in kinds:
    parts += [
      f"## {kind.capitalize()}\n",
      _table(
        ("what", "measured", "model", "error", "beside"),
        [_row(m, v) for m, v in points if m.kind == kind],
      ),
    ]
  parts += [
    "## Limits\n",
    "What a source only says to be at most so much.\n",
    _table(
      ("what", "at most", "model", "", "beside"),
      [_limit(m, v) for m, v in pairs if m.bound],
    ),
    "## What JAX cannot express\n",
    _table(("what", "why"), [(x["what"], x["why"]) for x in inexpressible()]),
  ]
  return "\n".join(parts)


def error(m: Measurement, value: float) -> float:
  """Relative, with its sign."""
  return (value - m.measured) / m.measured


def _summary(kind: str, errors: Sequence[float]) -> Sequence[str]:
  sizes = sorted(abs(e) for e in errors)

  def within(limit: float) -> str:
    return f"{sum(e <= limit for e in sizes) / len(sizes):.0%}"

  return (
    kind,
    str(len(sizes)),
    f"{statistics.median(sizes):.1%}",
    within(0.10),
    within(0.25),
    f"{sizes[-1]:.1%}",
  )


def _row(m: Measurement, value: float) -> Sequence[str]:
  return (
    m.name,
    f"{m.measured:,.0f}",
    f"{value:,.0f}",
    f"{error(m, value):+.1%}",
    _beside(m),
  )


def _limit(m: Measurement, value: float) -> Sequence[str]:
  verdict = "within" if value <= m.measured else f"{value / m.measured:.1f} x"
  return m.name, f"{m.measured:,.0f}", f"{value:,.0f}", verdict, _beside(m)


def _beside(m: Measurement) -> str:
  return f"{m.quantity}; {m.about}" if m.about else m.quantity


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  numeric = ("points", "measured", "model", "error", "at most")
  marks = ["--:" if h in numeric else "---" for h in head]
  lines = [head, marks, *rows]
  return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
