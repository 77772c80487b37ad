"""Compiled, exported and stored programs of several IPUs."""

from __future__ import annotations

import importlib.util
import pickle

import numpy as np
import pytest

import jax
from jax import export
from jax.experimental import serialize_executable
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

GRID = {"x": 4, "y": 2}
X = np.arange(128, dtype=np.float32).reshape(8, 16)


def put(mesh, value, *spec):
  return jax.device_put(value, NamedSharding(mesh, P(*spec)))


def test_a_serialised_executable(mesh):
  x = put(mesh("ipu", GRID), X, "x", "y")
  compiled = jax.jit(lambda x: (x.sum(0), x + 1)).lower(x).compile()
  parts = pickle.loads(pickle.dumps(serialize_executable.serialize(compiled)))
  loaded = serialize_executable.deserialize_and_load(*parts, backend="ipu")
  assert loaded.output_shardings == compiled.output_shardings
  total, more = loaded(x)
  np.testing.assert_array_equal(total, X.sum(0))
  np.testing.assert_array_equal(more, X + 1)


@pytest.mark.parametrize("order", [[1, 0, 3, 2], [6, 4, 7, 5]])
def test_a_serialised_executable_keeps_its_devices(mesh, order):
  x = put(mesh("ipu", {"x": 4}, order), X, "x")
  compiled = jax.jit(lambda x: (x.sum(0), x + 1)).lower(x).compile()
  parts = pickle.loads(pickle.dumps(serialize_executable.serialize(compiled)))
  loaded = serialize_executable.deserialize_and_load(
    *parts, backend="ipu", execution_devices=[*x.sharding.mesh.devices]
  )
  total, more = loaded(x)
  assert more.sharding == x.sharding
  np.testing.assert_array_equal(total, X.sum(0))
  np.testing.assert_array_equal(more, X + 1)


def test_the_compilation_cache(mesh, tmp_path):
  from jax.experimental.compilation_cache import compilation_cache

  x = put(mesh("ipu", GRID), X, "x", "y")
  options = {
    "jax_compilation_cache_dir": str(tmp_path),
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": 0,
  }
  before = {name: getattr(jax.config, name) for name in options}
  try:
    for name, value in options.items():
      jax.config.update(name, value)
    compilation_cache.reset_cache()
    for _ in range(2):
      jax.clear_caches()
      y = jax.jit(lambda x: (x * 3).sum(1))(x)
      np.testing.assert_array_equal(y, (X * 3).sum(1))
    stored = list(tmp_path.glob("jit__lambda*"))
    assert stored
  finally:
    for name, value in before.items():
      jax.config.update(name, value)
    compilation_cache.reset_cache()


def test_an_exported_program(mesh):
  x = put(mesh("ipu", GRID), X, "x", "y")
  exported = export.export(jax.jit(lambda x: x.sum(0)), platforms=["ipu"])(x)
  assert exported.nr_devices == 8
  again = exported
  if importlib.util.find_spec("flatbuffers"):  # JAX needs it to serialise
    again = export.deserialize(exported.serialize())
  np.testing.assert_array_equal(jax.jit(again.call)(x), X.sum(0))


def link_cycles(mesh, order):
  grid = mesh("ipu", {"x": len(order)}, order)
  x = put(grid, np.ones((8, 1 << 18), np.float32), "x")
  compiled = jax.jit(lambda x: x.sum(0)).lower(x).compile()
  np.testing.assert_array_equal(compiled(x), np.full(1 << 18, 8))
  return compiled.cost_analysis()["ipu link cycles"]


def test_costs_are_those_of_the_links_between_the_devices(mesh):
  pair = link_cycles(mesh, [0, 1])
  assert link_cycles(mesh, [4, 5]) == link_cycles(mesh, [1, 0]) == pair
  # Neighbours on a rail have a third of the links that a pair has.
  neighbours = link_cycles(mesh, [0, 2])
  assert 2.5 * pair < neighbours < 3.5 * pair
  assert link_cycles(mesh, [0, 6]) > neighbours


def test_a_report_of_devices_in_another_order(mesh):
  from jaxlib.ipu import report

  grid = mesh("ipu", {"x": 4}, [0, 2, 4, 6])
  x = put(grid, np.ones((64, 4096), np.float32), "x")
  compiled = jax.jit(lambda x: x.sum(0)).lower(x).compile()
  cost = compiled.cost_analysis()["ipu link cycles"]
  found = report.of(compiled).cost["ipu link cycles"]
  assert found == pytest.approx(cost) and cost > 0


def test_the_report_shows_links_and_runs_of_each_device(mesh):
  from jaxlib.ipu import report

  x = put(mesh("ipu", GRID), np.ones((64, 4096), np.float32), "x", "y")
  lowered = jax.jit(lambda x: x.sum(0)).lower(x)
  compiled = lowered.compile()
  jax.block_until_ready(compiled(x))
  for found in (report.of(lowered), report.of(compiled)):
    assert found.data["program"]["devices"] == x.sharding.num_devices
    (link,) = np.flatnonzero(found.steps["link"])
    assert found.steps["kind"][link] == "collective"
    assert found.steps["link"][link] == found.cost["ipu link cycles"] > 0
    assert found.steps["bytes"][link] == found.cost["ipu link bytes"]
    assert sum(line.cycles for line in found.lines) == pytest.approx(
      found.cost["ipu cycles"]
    )
    assert any(i["kind"] == "links" for i in found.insights)
  devices = {run["device"] for run in found.runs}
  assert devices == {d.id for d in x.sharding.device_set}
  assert f"each of {len(devices)} ipu2" in str(found)
