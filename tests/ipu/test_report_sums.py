"""The sums that reports keep, whatever the program."""

from __future__ import annotations

import drawn_programs
import numpy as np
import pytest
import report_sums
from report_kit import check_sums, lowered

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu import report

pytestmark = pytest.mark.ipu_only


def test_the_sums_of_the_benchmarks(six_programs, ipu):
  for name in six_programs.PROGRAMS:
    program = six_programs.PROGRAMS[name]
    donated = 0 if program.donated else ()
    found = report.of(
      lowered(
        ipu, program.function, *program.arguments(), donate_argnums=donated
      )
    )
    check_sums(found)
    assert found.fits and len(found.steps["times"]) > 4


def test_the_sums_of_drawn_programs(ipu):
  checked = 0
  for number in range(16):
    _, program = drawn_programs.drawn_at(5, number)
    if program is None or program.x64:
      continue
    one = lowered(ipu, program.function(), *program.values())
    check_sums(report.of(one))
    checked += 1
  assert checked > 4


@pytest.mark.parametrize("kind", ["loop", "while", "branch", "call", "nothing"])
def test_the_sums_of_control_flow(ipu, kind):
  def inner(x):
    return jnp.sin(x) @ x

  def program(x, n):
    if kind == "loop":
      return lax.fori_loop(0, 7, lambda _, y: jax.jit(inner)(y), x)
    if kind == "while":
      return lax.fori_loop(0, n, lambda _, y: inner(y), x)
    if kind == "branch":
      return lax.cond(n > 0, lambda y: inner(inner(y)), inner, x)
    return jax.jit(inner)(x) if kind == "call" else x

  x = np.ones((48, 48), np.float32)
  compiled = lowered(ipu, program, x, np.int32(3)).compile()
  found = report.of(compiled)
  check_sums(found)
  assert found.cost == pytest.approx(compiled.cost_analysis(), rel=1e-6)
  steps = found.steps
  if kind == "loop":
    (loop,) = np.flatnonzero(steps["kind"] == "repeat")
    inside = steps["parent"] == loop
    assert steps["trips"][loop] == 7 and (steps["times"][inside] == 7).all()
  elif kind == "while":
    assert (steps["trips"] == -1).sum() == 1
    assert any(i["kind"] == "trips" for i in found.insights)
  elif kind == "branch":
    assert set(steps["times"]) == {0.0, 1.0}


@pytest.mark.parametrize("fits", [True, False])
def test_the_sums_of_functions_that_are_called(ipu, fits):
  """Layers that share their code, with a loop whose length data decide."""

  def layers(ws, x, n, beside):
    x = lax.fori_loop(0, n, lambda _, y: jnp.cos(y), x)
    for w in ws:
      x = jnp.tanh(x @ w) @ w
    return x, beside + 1

  ws = [np.ones((64, 64), np.float32)] * 6
  beside = np.ones(1000 if fits else 3_000_000, np.float32)
  options = {"ipu_code_budget": 0, "ipu_num_tiles": 16}
  found = report.of(
    lowered(
      ipu, layers, ws, ws[0], np.int32(3), beside, compiler_options=options
    )
  )
  check_sums(found)
  assert found.fits == fits
  steps = found.steps
  calls = np.flatnonzero(steps["kind"] == "call")
  assert len(calls) > 1 and np.isin(calls, steps["parent"]).all()
  assert (steps["trips"] == -1).sum() == 1


def test_the_sums_of_the_workloads(ipu, from_repository):
  """One of each family; `report_sums.py` checks all."""
  workloads = from_repository("benchmarks.workloads")
  families = {w.family: w for w in reversed(workloads.all_workloads())}
  counts = {name: report_sums.check(w, ipu) for name, w in families.items()}
  assert {name for name, count in counts.items() if not count} == {"transfers"}
