"""Reports as data: columns, names, files, programs of every kind."""

from __future__ import annotations

import gzip
import json

import numpy as np
import plugin_test_util
import pytest
from report_kit import check_sums, lowered

import jax
import jax.numpy as jnp
from jaxlib.ipu import report
from jaxlib.ipu.report.recompile import ReportError
from jaxlib.ipu.reporting import columns

pytestmark = pytest.mark.ipu_only


@pytest.fixture(scope="module")
def of_a_layer(ipu):
  """A report, and what its compiled program says itself."""

  def layer(params, x):
    y = jnp.tanh(x @ params["w"] + params["b"])
    return {"w": params["w"] * 2, "b": params["b"]}, y.sum()

  params = {"w": np.ones((96, 80), np.float32), "b": np.ones(80, np.float32)}
  x = np.ones((32, 96), np.float32)
  compiled = lowered(ipu, layer, params, x).compile()
  return report.of(compiled), compiled


def test_a_program_that_does_not_fit(ipu):
  def outer(x):
    return (jnp.sin(x)[:, None] * x).sort(0).sum(1)

  small = report.of(lowered(ipu, outer, np.ones(64, np.float32)))
  assert small.fits and not any(i["kind"] == "fit" for i in small.insights)
  large = report.of(lowered(ipu, outer, np.ones(24_000, np.float32)))
  assert not large.fits
  check_sums(large)
  assert large.insights[0]["kind"] == "fit"
  needed = large.data["memory"]["peak_tile_bytes_with_gaps"]
  assert needed > large.target["bytes_per_tile"]
  assert "does not fit" in large.insights[0]["text"]
  assert "sort" in large.insights[0]["text"]


def test_errors_of_the_program_are_not_hidden(ipu):
  with pytest.raises(jax.errors.JaxRuntimeError, match="nonsense"):
    report.of(
      lowered(ipu, lambda x: jax.ffi.ffi_call("nonsense", x)(x), np.float32(1))
    )


def test_names_are_the_users(of_a_layer):
  found, _ = of_a_layer
  tensors, kinds = found.tensors, found.data["categories"]
  arguments = kinds.index("arguments") - kinds.index("arguments")
  names = set(tensors["name"][tensors["category"] == arguments])
  assert {"a[0]['w']", "a[0]['b']", "a[1]"} <= names
  assert any(
    line.line and "jnp.tanh(x @ params" in line.text for line in found.lines
  )
  assert "f32[96,80]" in tensors["type"]


def test_what_a_step_is(of_a_layer):
  found, _ = of_a_layer
  steps = found.steps
  dots = np.flatnonzero(steps["codelet"] == "Dot")
  assert len(dots) and (steps["flops"][dots] > 0).all()
  rows = found.data["rows"]["busy"]
  for step in np.flatnonzero(steps["kind"] == "compute"):
    row = rows[steps["busy_row"][step]]
    assert row.max() == np.float32(steps["compute"][step])
    assert (row > 0).sum() == steps["tiles"][step]
    assert row[steps["slowest"][step]] == row.max()
  for step in np.flatnonzero(steps["kind"] == "exchange"):
    if steps["received_row"][step] >= 0:
      received = found.data["rows"]["received"][steps["received_row"][step]]
      assert received.sum() == steps["bytes"][step]


def test_tiles_of_uneven_cells_take_less(ipu):
  """The last tile of a row-major split has a shorter part."""
  f = lambda x: jnp.exp(x) + 1
  size = 8 * 1000 * 24 - 120
  found = report.of(lowered(ipu, f, np.ones(size, np.float32)).compile())
  step = int(np.argmax(found.steps["codelet"] == "Map"))
  row = found.data["rows"]["busy"][found.steps["busy_row"][step]]
  active = row[row > 0]
  assert (
    len(set(active.tolist())) == 2
    and active.max() == (found.steps["compute"][step])
  )


def test_a_files_columns_are_those_of_the_report(of_a_layer, tmp_path):
  found, _ = of_a_layer
  for name in ("r.json", "r.json.gz"):
    found.save(tmp_path / name)
    again = report.load(tmp_path / name)
    assert again.insights == found.insights and again.cost == found.cost
    for table in ("steps", "tensors", "tiles", "locations", "lives"):
      one, other = found.data[table], again.data[table]
      assert one.keys() == other.keys()
      for column in one:
        np.testing.assert_array_equal(one[column], other[column], column)
    assert again.lines == found.lines
    check_sums(again)
  with pytest.raises(ValueError, match="html, .json or .json.gz"):
    found.save(tmp_path / "r.txt")


def test_the_same_program_has_the_same_bytes(of_a_layer):
  found, compiled = of_a_layer
  again = report.of(compiled)
  again.data["producer"] = found.data["producer"]
  assert again.compressed() == found.compressed()


def test_every_column_has_its_length(of_a_layer):
  found, _ = of_a_layer
  data = found.data
  steps, tiles = len(found.steps["times"]), found.target["num_tiles"]
  assert {len(c) for c in found.steps.values()} == {steps}
  assert {c.shape[-1] for c in found.tiles.values()} == {tiles}
  assert {len(c) for c in found.locations.values()} == {
    len(found.locations["line"])
  }
  assert data["origins"]["offsets"][-1] == len(data["origins"]["weight"])
  assert data["lives"]["offsets"][-1] == len(data["lives"]["begin"])
  assert len(data["lives"]["offsets"]) == len(found.tensors["name"]) + 1
  assert data["shares"].shape[1] == tiles
  for kind in ("busy", "received", "sent"):
    assert found.steps[f"{kind}_row"].max() < len(data["rows"][kind])
  group = data["addresses"]
  assert group["address"].shape == group["size"].shape
  assert len(group["offsets"]) == group["size"].shape[1] + 1


def test_units_that_are_live_at_once_do_not_overlap(of_a_layer):
  found, _ = of_a_layer
  place, lives = found.data["addresses"], found.data["lives"]
  for group in range(len(place["code"])):
    taken = []
    for unit in range(place["size"].shape[1]):
      begin = int(place["address"][group, unit])
      end = begin + int(place["size"][group, unit])
      assert end <= found.target["bytes_per_tile"]
      members = place["entries"][
        place["offsets"][unit] : place["offsets"][unit + 1]
      ]
      times = [
        (int(lives["begin"][k]), int(lives["end"][k]))
        for m in members
        for k in range(lives["offsets"][m], lives["offsets"][m + 1])
      ]
      for other, *bounds in taken:
        apart = end <= bounds[0] or bounds[1] <= begin
        assert apart or not any(
          a <= d and c <= b for a, b in times for c, d in other
        )
      if end > begin:
        taken.append((times, begin, end))


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"format": "other"}, "its format is not 'jax-ipu-report'"),
    ({"version": [2, 0]}, r"version \[2, 0\], this reader knows 1.0"),
    ({"steps": {"dtype": "f8", "shape": [1], "data": ""}}, "dtype 'f8'"),
    ({"steps": {"dtype": "uint8", "shape": [3], "data": ""}}, "has 0 bytes"),
  ],
)
def test_files_that_cannot_be_read(of_a_layer, tmp_path, change, message):
  tree = {**of_a_layer[0].to_json(), **change}
  path = tmp_path / "r.json"
  path.write_text(json.dumps(tree))
  with pytest.raises(report.FormatError, match=message):
    report.load(path)


def test_files_that_are_no_reports(tmp_path):
  path = tmp_path / "r.json.gz"
  for raw in (b"", b"hello", b"[1]", gzip.compress(b"{}"), b"\x1f\x8bno"):
    path.write_bytes(raw)
    with pytest.raises(report.FormatError, match="is not a report"):
      report.load(path)
  with pytest.raises(FileNotFoundError):
    report.load(tmp_path / "nowhere")


def test_unknown_names_are_ignored(of_a_layer, tmp_path):
  tree = {**of_a_layer[0].to_json(), "version": [1, 9], "later": {"x": [1]}}
  path = tmp_path / "r.json"
  path.write_text(json.dumps(tree))
  assert report.load(path).cost == of_a_layer[0].cost


def test_columns_keep_their_values():
  tree = {
    "a": np.array([[0, 255], [7, 9]]),
    "b": np.array([-1, 70_000]),
    "c": np.array([0, 2**40]),
    "d": np.array([0.1, np.pi], np.float32),
    "e": np.array(["x", "", "x"], object),
    "f": np.array([], np.int64),
    "g": [{"h": 1.5, "i": None}],
  }
  strings: dict[str, int] = {}
  written = json.loads(json.dumps(columns.encode(tree, strings)))
  assert [written[k]["dtype"] for k in "abcdef"] == [
    "uint8", "int32", "float64", "float32", "text", "uint8"
  ]  # fmt: skip
  assert len(strings) == 2
  read = columns.decode(written, [*strings])
  for key in "abcdef":
    np.testing.assert_array_equal(read[key], tree[key])
  assert read["g"] == tree["g"]


def test_what_has_no_report(ipu, cpu):
  f = jax.jit(lambda x: x + 1)
  on_cpu = f.lower(jax.device_put(np.ones(3), cpu))
  for what in (7, on_cpu, on_cpu.compile()):
    with pytest.raises(ReportError, match="IPU|expected jax.jit"):
      report.of(what)


def test_programs_compiled_under_other_flags_are_refused(ipu, monkeypatch):
  compiled = lowered(ipu, jnp.tanh, np.ones(1000, np.float32)).compile()
  from jaxlib.ipu.emit import emit

  analysis = emit.analysis
  monkeypatch.setattr(
    emit, "analysis", lambda *a: {**analysis(*a), "ipu cycles": 1.0}
  )
  with pytest.raises(ReportError, match="gives another program"):
    report.of(compiled)


def test_programs_from_the_compilation_cache(tmp_path):
  code = """
import jax, numpy as np
from jaxlib.ipu import report
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
x = jax.ShapeDtypeStruct((64, 64), np.float32, sharding=
  jax.sharding.SingleDeviceSharding(jax.devices("ipu")[0]))
options = {"ipu_num_tiles": 100}
f = lambda a: jax.lax.fori_loop(0, 5, lambda i, b: b @ a, a) + np.ones((64, 64))
found = report.of(jax.jit(f, compiler_options=options).lower(x).compile())
found.data["producer"] = {}
digest = __import__("hashlib").sha256(found.compressed()).hexdigest()
print(found.data["program"]["options"], digest)
"""
  cache = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path)}
  first = plugin_test_util.output(code, **cache)
  assert list(tmp_path.iterdir())
  assert plugin_test_util.output(code, **cache) == first
  assert "'ipu_num_tiles': 100" in first


def test_fused_steps_are_shared_among_their_lines(ipu):
  def program(x):
    y = jnp.tanh(x)
    z = y * 2 - x
    return z + 1

  found = report.of(lowered(ipu, program, np.ones(40_000, np.float32)))
  (step,) = np.flatnonzero(found.steps["codelet"] == "Map")
  begin, end = found.data["origins"]["offsets"][step : step + 2]
  assert end - begin >= 3
  cycles = {line.text: line.cycles for line in found.lines}
  expensive = cycles["y = jnp.tanh(x)"]
  assert expensive > cycles["z = y * 2 - x"] > cycles["return z + 1"] > 0
  check_sums(found)


def test_producers_of_sums_keep_their_lines(ipu):
  def program(x):
    y = jnp.exp(x)
    return y.sum(0)

  found = report.of(lowered(ipu, program, np.ones((64, 900), np.float32)))
  (step,) = np.flatnonzero(found.steps["codelet"] == "Reduce")[:1]
  begin, end = found.data["origins"]["offsets"][step : step + 2]
  where = found.data["origins"]["location"][begin:end]
  texts = {
    found.source(str(found.locations["file"][i]), found.locations["line"][i])
    for i in where
  }
  assert texts == {"y = jnp.exp(x)", "return y.sum(0)"}


def test_what_the_planner_considered(ipu):
  def program(x, w):
    return (jnp.sin(x) @ w) @ w

  x, w = np.ones((256, 192), np.float32), np.ones((192, 192), np.float32)
  found = report.of(lowered(ipu, program, x, w))
  assert len(found.choices) == 1 or len(found.choices) == 2
  for choice in found.choices:
    assert choice["space"].startswith("1 x 256 x 192 x 192 f32")
    assert choice["considered"] > 100
    taken, *others = choice["alternatives"]
    assert 1 <= len(others) <= 4
    names = [a["what"] for a in choice["alternatives"]]
    assert len(set(names)) == len(names)
    cycles = [a["cycles"] for a in others]
    assert cycles == sorted(cycles) and all(a["fits"] for a in others)
    if taken["bytes"]:  # one of the planner's: none is cheaper
      assert taken["cycles"] <= cycles[0]
      assert 0 < taken["bytes"] <= choice["budget"]
