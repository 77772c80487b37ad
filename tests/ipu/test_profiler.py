"""JAX's profiler shows IPUs: planes of `jax.profiler.trace`, and the trace file
of `PVTI_OPTIONS`."""

from __future__ import annotations

import glob
import gzip
import json
import re
import time

import numpy as np
import plugin_test_util
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jax.profiler import ProfileData, ProfileOptions

pytestmark = [
  pytest.mark.ipu_only,
  # Of jaxlib 0.12's ProfileData on Python 3.13, which aborts if it is an error.
  pytest.mark.filterwarnings(
    "ignore:builtin type .* has no __module__:DeprecationWarning"
  ),
]


def plane_name(device):
  return f"/device:CUSTOM:IPU:{device.id} (modelled time)"


def trace(folder, f, *args, **configuration):
  """All planes of a trace in which `f(*args)` runs, by name."""
  options = ProfileOptions()
  options.python_tracer_level = 0
  options.advanced_configuration = configuration
  with jax.profiler.trace(str(folder), profiler_options=options):
    jax.block_until_ready(f(*args))
  (file,) = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
  return {plane.name: plane for plane in ProfileData.from_file(file).planes}


def lines(plane):
  """The events of a plane's lines, by the beginnings of the lines' names."""
  return {
    line.name.partition(" (")[0]: list(line.events) for line in plane.lines
  }


def nanoseconds(events):
  return sum(event.duration_ns for event in events)


def apart(events):
  """Whether no two events overlap."""
  times = sorted((e.start_ns, e.end_ns) for e in events)
  return all(a[1] <= b[0] for a, b in zip(times, times[1:]))


@pytest.fixture
def step(ipu):
  def step(w, x):
    return jnp.tanh(x @ w).sum()

  w, x = jax.device_put(np.ones((2, 64, 64), np.float32), ipu)
  return jax.jit(step).lower(w, x).compile(), w, x


def test_operations_have_names_lines_and_the_modelled_time(ipu, step, tmp_path):
  compiled, w, x = step
  plane = trace(tmp_path, compiled, w, x)[plane_name(ipu)]
  found = lines(plane)
  assert set(found) == {
    "Programs",
    "Operations",
    "Source lines",
    "BSP phases",
    "Model run",
  }
  (program,) = found["Programs"]
  assert program.name == "jit_step"
  cycles = compiled.cost_analysis()["ipu cycles"]
  took = cycles / ipu.tile_clock_frequency * 1e9
  assert program.duration_ns == pytest.approx(took, abs=1)
  for line in ("Operations", "BSP phases"):
    assert nanoseconds(found[line]) == pytest.approx(took, abs=1)
    assert apart(found[line])
  by_name = {event.name: dict(event.stats) for event in found["Operations"]}
  dot = by_name["dot_general"]
  assert dot["tf_op"] == "jit(step)/dot_general:"
  assert re.search(r"test_profiler\.py:\d+$", dot["source"])
  assert dot["flops"] == 2 * 64**3
  assert dot["source"] in {event.name for event in found["Source lines"]}
  assert {e.name for e in found["BSP phases"]} == {
    "sync",
    "exchange",
    "compute",
  }
  stats = dict(plane.stats)
  assert stats["num_tiles"] == ipu.num_tiles
  assert "model" in stats["device_type_string"]
  assert "not_shown" not in stats


def test_runs_follow_each_other_as_on_a_machine(ipu, step, tmp_path):
  compiled, w, x = step

  def three():
    return [compiled(w, x) for _ in range(3)]

  begin = time.time_ns()
  found = lines(trace(tmp_path, three)[plane_name(ipu)])
  assert len(found["Programs"]) == len(found["Model run"]) == 3
  assert apart(found["Programs"])
  assert nanoseconds(found["Model run"]) < time.time_ns() - begin


def looped(ipu, trips):
  """A loop of two steps, and its arguments."""

  def loop(n, x):
    return lax.while_loop(
      lambda s: s[0] < n, lambda s: (s[0] + 1, jnp.sin(s[1] @ s[1])), (0, x)
    )[1]

  x = jax.device_put(np.ones((32, 32), np.float32), ipu)
  n = jax.device_put(np.int32(trips), ipu)
  return jax.jit(loop).lower(n, x).compile(), n, x


def test_loops_show_their_first_iterations_and_say_so(ipu, tmp_path):
  compiled, n, x = looped(ipu, 50)
  plane = trace(tmp_path, compiled, n, x, ipu_loop_iterations=3)[
    plane_name(ipu)
  ]
  found = lines(plane)
  cycles = ipu.ipu_last_run().cycles
  took = cycles / ipu.tile_clock_frequency * 1e9
  assert nanoseconds(found["Operations"]) == pytest.approx(took, abs=1)
  names = [event.name for event in found["Operations"]]
  assert names.count("dot_general") == 3
  (rest,) = (name for name in names if "more iterations" in name)
  assert rest.startswith("47 more iterations of the while loop at ")
  (control,) = found["Control flow"]
  assert control.name.endswith(", 50 iterations")
  assert "ipu_loop_iterations=3" in dict(plane.stats)["not_shown"]


@pytest.mark.parametrize("positive", [True, False])
def test_the_branch_that_ran_is_shown(ipu, tmp_path, positive):
  def branch(x):
    return lax.cond(x[0, 0] > 0, lambda x: x @ x, lambda x: jnp.sort(x), x)

  value = 1 if positive else -1
  x = jax.device_put(np.full((32, 32), value, np.float32), ipu)
  compiled = jax.jit(branch).lower(x).compile()
  found = lines(trace(tmp_path, compiled, x)[plane_name(ipu)])
  took = ipu.ipu_last_run().cycles / ipu.tile_clock_frequency * 1e9
  assert nanoseconds(found["Operations"]) == pytest.approx(took, abs=1)
  names = {event.name for event in found["Operations"]}
  assert ("dot_general" in names) == positive
  assert ("sort" in names) != positive


def test_host_functions_have_both_times(ipu, tmp_path):
  def wait(x):
    time.sleep(0.02)
    return x

  def call(x):
    return jax.pure_callback(wait, x, x) + 1

  x = jax.device_put(np.ones(8, np.float32), ipu)
  compiled = jax.jit(call).lower(x).compile()
  found = lines(trace(tmp_path, compiled, x)[plane_name(ipu)])
  (event,) = found["Host functions and feeds"]
  assert event.name.startswith("host function ")
  assert event.duration_ns >= 20e6
  assert found["Host streams"]


def test_steps_beyond_the_limit_are_left_out_and_counted(ipu, step, tmp_path):
  compiled, w, x = step
  plane = trace(tmp_path, compiled, w, x, ipu_max_steps=1)[plane_name(ipu)]
  (event,) = lines(plane)["Operations"]
  assert re.fullmatch(r"\d+ steps not shown \(ipu_max_steps\)", event.name)
  assert "ipu_max_steps=1" in dict(plane.stats)["not_shown"]


def test_loops_do_not_exceed_the_limit_of_steps(ipu, tmp_path):
  compiled, n, x = looped(ipu, 500)
  limits = {"ipu_loop_iterations": 10**6, "ipu_max_steps": 60}
  plane = trace(tmp_path, compiled, n, x, **limits)[plane_name(ipu)]
  events = lines(plane)["Operations"]
  took = ipu.ipu_last_run().cycles / ipu.tile_clock_frequency * 1e9
  assert nanoseconds(events) == pytest.approx(took, abs=1)
  names = [event.name for event in events]
  assert 2 <= names.count("dot_general") < 60
  assert sum("more iterations" in name for name in names) == 1
  assert len(names) <= 60 + 1
  assert "ipu_max_steps=60" in dict(plane.stats)["not_shown"]


def test_xprof_gets_a_plane_that_its_pages_accept(ipu, step, tmp_path):
  compiled, w, x = step
  planes = trace(tmp_path, compiled, w, x, ipu_xprof_ops=True)
  plane = planes[f"/device:TPU:{ipu.id}"]
  assert dict(plane.stats)["device_type_string"].startswith("IPU")
  found = lines(plane)
  assert set(found) == {"Steps", "XLA Modules", "XLA Ops"}
  assert [e for e in found["XLA Ops"] if e.name.startswith("%dot_general.")]
  (file,) = glob.glob(f"{tmp_path}/**/*.xplane.pb", recursive=True)
  with open(file, "rb") as f:
    assert b"hlo_category" in f.read()  # of kinds, which ProfileData leaves out


def test_the_trace_viewer_gets_the_plane(ipu, step, tmp_path):
  compiled, w, x = step
  trace(tmp_path, compiled, w, x)
  (file,) = glob.glob(f"{tmp_path}/**/*.trace.json.gz", recursive=True)
  with gzip.open(file, "rt") as f:
    events = json.load(f)["traceEvents"]
  (process,) = (
    e["pid"]
    for e in events
    if e.get("name") == "process_name" and plane_name(ipu) in e["args"]["name"]
  )
  assert "dot_general" in {
    e["name"] for e in events if e.get("pid") == process and e["ph"] == "X"
  }


def test_a_trace_without_runs_has_no_plane(ipu, tmp_path):
  planes = trace(tmp_path, lambda: None)
  assert not [name for name in planes if "IPU" in name]


def test_each_device_of_a_gang_has_a_plane(tmp_path):
  code = f"""
    import glob, jax, numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    mesh = Mesh(jax.devices("ipu"), "i")
    x = jax.device_put(np.ones((4, 8), np.float32), NamedSharding(mesh, P("i")))
    f = jax.jit(lambda x: x.sum(0))
    f(x).block_until_ready()
    with jax.profiler.trace({str(tmp_path)!r}):
      f(x).block_until_ready()
    (file,) = glob.glob({str(tmp_path)!r} + "/**/*.xplane.pb", recursive=True)
    for plane in jax.profiler.ProfileData.from_file(file).planes:
      if "IPU" in plane.name:
        lines = {{line.name: list(line.events) for line in plane.lines}}
        (program,) = lines["Programs (modelled time)"]
        phases = lines["BSP phases (modelled time)"]
        print(plane.name, program.start_ns, "links" in [e.name for e in phases])
  """
  shown = plugin_test_util.output(code, JAX_IPU_DEVICE_COUNT="2").splitlines()
  assert [line.split()[0] for line in shown] == [
    "/device:CUSTOM:IPU:0",
    "/device:CUSTOM:IPU:1",
  ]
  assert len({line.split()[3] for line in shown}) == 1  # they begin together
  assert all(line.endswith("True") for line in shown)


def test_pvti_writes_a_trace_file_when_python_ends(tmp_path):
  code = """
    import jax, numpy as np
    x = jax.device_put(np.ones((8, 8), np.float32), jax.devices("ipu")[0])
    (x @ x).block_until_ready()
    jax.lax.fori_loop(0, x[0, 0].astype(int) * 30, lambda _, x: x @ x, x)
  """
  pvti = json.dumps({"enable": "true", "directory": str(tmp_path / "new")})
  plugin_test_util.run(code, PVTI_OPTIONS=pvti)
  (file,) = (tmp_path / "new").glob("ipu_trace_*.json.gz")
  with gzip.open(file, "rt") as f:
    events = json.load(f)["traceEvents"]
  (dot,) = (
    e
    for e in events
    if e["name"] == "dot_general"
    and "jit(matmul)" in e["args"].get("tf_op", "")
  )
  assert dot["ph"] == "X" and dot["dur"] > 0
  threads = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
  assert "Model run (wall time)" in threads
  (label,) = (e["args"] for e in events if e["name"] == "process_labels")
  assert label["labels"].startswith("not shown: 1 runs without all of their")
  assert any(e["name"].startswith("22 more iterations of the") for e in events)


def test_pvti_off_writes_nothing(tmp_path):
  pvti = json.dumps({"enable": "false", "directory": str(tmp_path)})
  code = "import jax; jax.devices('ipu')[0]"
  plugin_test_util.run(code, PVTI_OPTIONS=pvti)
  assert not list(tmp_path.iterdir())
