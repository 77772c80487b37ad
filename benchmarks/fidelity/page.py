"""Renders the page about the model's errors."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.fidelity import Measurement, inexpressible

# The kind that outnumbers all others: one vertex in many sizes.
SERIES = "products f16"

_HEAD = """# Model fidelity

<!-- written by: python -m benchmarks --fidelity -->

Every published measurement of an IPU, or of Graphcore's own model of IPUs, that
a JAX program can express, compared with what `cost_analysis()` and
`memory_analysis()` report for that program, compiled by `jax.jit` for the same
machine and number of tiles. None is left out. The notes name the measured
quantity, and how the measured program differs from the JAX program.
[measurements.toml](../../benchmarks/fidelity/measurements.toml) has the figures
and their sources,
[programs.py](../../benchmarks/fidelity/programs.py) the programs.

Graphcore's own model compiles no code unless told to, so most of its memory
figures lack the code of vertices and of the program's steps, and the stacks,
whose size follows from that code. They are compared with figures without them.
Data that is fed to TensorFlow takes no memory once it has been used; here such
arguments are donated.

No constant of the model is fitted to these measurements, with these exceptions:
the cycles to launch a vertex are read off the additions and the f16 products,
and the cycles to begin and end a host stream off the stream of one int32.
"""


def page(measured: Sequence[Measurement], modelled: Sequence[float]) -> str:
  """The page as Markdown: each measurement and its modelled value."""
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
        ("what", "measured", "model", "error", "notes"),
        [_row(m, v) for m, v in points if m.kind == kind],
      ),
    ]
  parts += [
    "## Limits\n",
    "Values for which the source only gives an upper bound.\n",
    _table(
      ("what", "at most", "model", "", "notes"),
      [_limit(m, v) for m, v in pairs if m.bound],
    ),
    "## What JAX cannot express\n",
    _table(("what", "why"), [(x["what"], x["why"]) for x in inexpressible()]),
  ]
  return "\n".join(parts)


def error(m: Measurement, value: float) -> float:
  """The signed relative error."""
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
    _notes(m),
  )


def _limit(m: Measurement, value: float) -> Sequence[str]:
  verdict = "within" if value <= m.measured else f"{value / m.measured:.1f} x"
  return m.name, f"{m.measured:,.0f}", f"{value:,.0f}", verdict, _notes(m)


def _notes(m: Measurement) -> str:
  return f"{m.quantity}; {m.about}" if m.about else m.quantity


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  numeric = ("points", "measured", "model", "error", "at most")
  marks = ["--:" if h in numeric else "---" for h in head]
  lines = [head, marks, *rows]
  return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
