"""Loop-carried values that only feed themselves are eliminated."""

from __future__ import annotations

import numpy as np

import jax
from jaxlib.ipu import options, pipeline
from jaxlib.mlir.dialects import stablehlo


def carried(f, *arguments) -> list[int]:
  """The number of values carried by each loop of a function, outer ones
  first."""
  module = jax.jit(lambda *a: f(*a)).lower(*arguments).compiler_ir("stablehlo")
  with module.context:
    code = stablehlo.serialize_portable_artifact(
      module, stablehlo.get_current_version()
    )
  state = pipeline.compile_module(
    code,
    pipeline.Options(
      target=options.Settings().target,
      stop_after=pipeline.Phase.FUSE,
      verify=True,
    ),
  )
  counts = []
  graphs = [state.module.graph]
  while graphs:
    for node in graphs.pop().nodes:
      if node.op in ("ipu.repeat", "stablehlo.while"):
        counts.append(len(node.results))
      graphs += node.regions
  return counts


X = np.ones(3, np.float32)


def test_a_value_that_only_feeds_itself():
  def f(x):
    return jax.lax.fori_loop(0, 9, lambda i, c: (c[0] * x, c[1] + x), (x, x))[0]

  assert carried(f, X) == [1]


def test_a_chain_of_values_whose_last_is_used():
  def f(x):
    def body(i, c):
      return (x * 2, *c[:-1])

    return jax.lax.fori_loop(0, 9, body, (x,) * 30)[-1]

  # The first value is loop-invariant.
  assert carried(f, X) in ([29], [30])


def test_an_unused_chain_of_values():
  def f(x):
    def body(i, c):
      return (c[0] + 1, x * c[0], *c[1:-1])

    return jax.lax.fori_loop(0, 9, body, (x,) * 30)[0]

  assert carried(f, X) == [1]


def test_values_used_by_inner_loops_and_conditions_stay():
  def f(x):
    def inner(i, c):
      return c[0] * c[1], c[1], c[2] + 1

    def body(c):
      a, b, n, unused = c
      return (
        *jax.lax.fori_loop(0, 3, inner, (a, b + 1, x))[:2],
        n + 1,
        unused * 2,
      )

    return jax.lax.while_loop(lambda c: c[2][0] < 3, body, (x, x, x, x))[0]

  outer, inner = carried(f, X)
  # Two values, the counter and, since loops test at their end, the predicate.
  assert outer in (3, 4)
  assert inner == 1
