"""What reports say of finished runs."""

from __future__ import annotations

import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu import report
from jaxlib.ipu.report.runs import MOST, TraceError

pytestmark = [
  pytest.mark.ipu_only,
  # jaxlib's ProfileData under Python 3.13, which aborts if it is an error.
  pytest.mark.filterwarnings(
    "ignore:builtin type .* has no __module__:DeprecationWarning"
  ),
]


def looped(n, x):
  def outer(s):
    x = lax.fori_loop(0, 2 * s[0], lambda _, x: jnp.sin(x @ x), s[1])
    return s[0] + 1, x

  return lax.while_loop(lambda s: s[0] < n, outer, (0, x))[1]


def compiled(ipu, f, *args):
  args = jax.device_put(args, ipu)
  return jax.jit(f).lower(*args).compile(), args


def trace(folder, run, times):
  options = jax.profiler.ProfileOptions()
  options.python_tracer_level = 0
  with jax.profiler.trace(str(folder), profiler_options=options):
    for _ in range(times):
      jax.block_until_ready(run())


@pytest.fixture(scope="module")
def loop(ipu):
  return compiled(ipu, looped, np.int32(4), np.ones((32, 32), np.float32))


def test_a_report_has_the_last_run_with_its_iterations(ipu, loop):
  program, args = loop
  jax.block_until_ready(program(*args))
  found = report.of(program)
  last = ipu.ipu_last_run()
  (run,) = found.runs
  assert run["device"] == ipu.id and run["cycles"] == last.cycles
  assert run["seconds"] == last.seconds
  assert run["exchange_bytes"] == last.exchange_bytes
  trips = [(t["line"], t["iterations"]) for t in run["trips"]]
  assert trips == [*last.trips] and [n for _, n in trips] == [4, 12]
  (insight,) = (i for i in found.insights if i["kind"] == "trips")
  assert f"took {last.cycles:,.0f} cycles, with 4, 12" in insight["text"]
  assert insight["target"] == {"section": "runs"}
  text = str(found)
  assert "Last runs" in text and f"{last.cycles:,.0f}" in text


def test_runs_are_kept_in_files(loop, tmp_path):
  program, args = loop
  jax.block_until_ready(program(*args))
  found = report.of(program)
  found.save(tmp_path / "r.json")
  assert report.load(tmp_path / "r.json").runs == found.runs != []


def test_without_runs_there_are_none(ipu):
  program, _ = compiled(ipu, lambda x: x * 3, np.ones(90, np.float32))
  found = report.of(program)
  assert found.runs == [] and "Last runs" not in str(found)


def squared(n, x):
  return x @ x


def squared_in_a_loop(n, x):
  return lax.fori_loop(0, n, lambda _, y: y @ y, x)


def named(name, f):
  def g(n, x):
    return f(n, x)

  g.__name__ = name
  return g


@pytest.mark.parametrize(
  ("f", "other", "size"),
  [
    (squared, squared, 48),
    (squared, squared_in_a_loop, 32),
    (squared_in_a_loop, squared, 32),
  ],
)
def test_runs_of_other_programs_of_its_name_are_not_taken(ipu, f, other, size):
  n, x = np.int32(3), np.ones((32, 32), np.float32)
  program, args = compiled(ipu, named("f", f), n, x)
  jax.block_until_ready(program(*args))
  assert len(report.of(program).runs) == 1
  x = np.ones((size, size), np.float32)
  last, args = compiled(ipu, named("f", other), n, x)
  jax.block_until_ready(last(*args))
  assert report.of(program).runs == []
  assert len(report.of(last).runs) == 1


def test_runs_of_programs_of_other_names_are_not_taken(ipu):
  n, x = np.int32(3), np.ones((32, 32), np.float32)
  program, args = compiled(ipu, named("f", squared), n, x)
  jax.block_until_ready(program(*args))
  last, args = compiled(ipu, named("g", squared), n, x)
  jax.block_until_ready(last(*args))
  assert report.of(program).runs == []


def test_traces_have_the_time_of_simulation(ipu, loop, tmp_path):
  program, args = loop
  trace(tmp_path, lambda: program(*args), 3)
  last = ipu.ipu_last_run()
  found = report.of(program, trace=tmp_path)
  assert len(found.runs) == 3
  for run in found.runs:
    assert run["cycles"] == pytest.approx(last.cycles, abs=3)
    assert run["wall_seconds"] > 0
    (outermost,) = run["trips"]
    assert outermost["iterations"] == 4
    assert outermost["line"] == last.trips[0][0]
  assert "simulated in" in str(found)


def test_the_last_runs_of_a_trace_are_kept(ipu, tmp_path):
  program, args = compiled(ipu, jnp.sin, np.ones(70, np.float32))
  other, last = compiled(ipu, jnp.cos, np.ones(70, np.float32))
  trace(tmp_path, lambda: [program(*args), other(*last), program(*args)], MOST)
  found = report.of(program, trace=tmp_path)
  assert len(found.runs) == MOST
  cycles = found.cost["ipu cycles"]
  assert found.runs[-1]["cycles"] == pytest.approx(cycles, abs=3)


def test_lowered_programs_take_runs_of_traces(ipu, tmp_path):
  x = jax.device_put(np.ones(50, np.float32), ipu)
  lowered = jax.jit(jnp.tanh).lower(x)
  program = lowered.compile()
  trace(tmp_path, lambda: program(x), 1)
  assert len(report.of(lowered, trace=tmp_path).runs) == 1
  assert report.of(lowered).runs == []


def test_traces_that_cannot_be_read(ipu, loop, tmp_path):
  program, _ = loop
  with pytest.raises(TraceError, match="no .xplane.pb file"):
    report.of(program, trace=tmp_path)
  file = tmp_path / "x.xplane.pb"
  file.write_bytes(b"no trace")
  with pytest.raises(TraceError, match="is not a trace"):
    report.of(program, trace=file)
  empty = tmp_path / "empty"
  trace(empty, lambda: 0, 1)
  with pytest.raises(TraceError, match="no IPU ran anything"):
    report.of(program, trace=empty)
  with pytest.raises(FileNotFoundError):
    report.of(program, trace=tmp_path / "nowhere.pb")
