"""The tool that shows which programs a change of the compiler changes."""

from __future__ import annotations

import importlib
from pathlib import Path

import lowering_kit
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jaxlib.ipu import compiler, pipeline
from jaxlib.ipu import target as machines
from jaxlib.ipu.codelets import dot
from jaxlib.ipu.diagnostics import CompileError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def same_programs(monkeypatch):
  monkeypatch.syspath_prepend(str(ROOT / "build"))
  return importlib.import_module("same_programs")


@pytest.fixture
def programs(same_programs):
  return importlib.import_module("tools.compiled_programs")


@pytest.fixture
def record(tmp_path, programs):
  """Compiles functions of an array and writes a recording of it."""

  def record(name, *functions, tiles=16):
    with programs.Recorder() as recorder:
      for f in functions:
        x = np.ones((64, 32), np.float32)
        lowering_kit.phases(lambda x, f=f: f(x), [x], tiles)
    programs.write(recorder, tmp_path / name / "part.json")
    return str(tmp_path / name)

  return record


def test_equal_programs(record, same_programs, capsys):
  compiler = pipeline.compile_module
  one = record("one", jnp.sin, jnp.sin, jnp.cos)
  # Other lines of this file.
  other = record("other", jnp.sin, jnp.sin, jnp.cos)
  assert pipeline.compile_module is compiler
  assert same_programs.main(["compare", one, other]) == 0
  assert capsys.readouterr().out == "3 of 3 programs are equal\n"


def test_differences_are_named_by_field(
  record, same_programs, capsys, monkeypatch
):
  f = lambda x: x.T @ x
  before = record("before", f, jnp.sin)
  cycles = dot.CODELET.cycles
  monkeypatch.setattr(
    type(dot.CODELET), "cycles", lambda *a: 2 * cycles(*a[1:])
  )
  after = record("after", f, jnp.sin)
  assert same_programs.main(["compare", before, after]) == 1
  first, *fields = capsys.readouterr().out.splitlines()
  assert first == "1 of 2 programs are equal"
  names = {line.split()[0] for line in fields}
  assert "Cost.compute_cycles" in names and "Program.steps" not in names
  without = ["--without", *sorted(names)]
  assert same_programs.main(["compare", before, after, *without]) == 0


def test_other_programs_are_listed(record, same_programs, capsys):
  before, after = record("before", jnp.sin, jnp.cos), record("after", jnp.sin)
  assert same_programs.main(["compare", before, after]) == 1
  assert "1 only in the first: part:" in capsys.readouterr().out
  fewer_tiles = record("fewer", jnp.sin, tiles=2)
  assert same_programs.main(["compare", after, fewer_tiles]) == 1
  assert "0 of 0 programs are equal" in capsys.readouterr().out


@pytest.mark.ipu_only
def test_keys_do_not_depend_on_where_sources_are(ipu, programs, monkeypatch):
  """JAX's modules, unlike those of `record`, have the dialect `sdy`."""
  codes, compile_module = [], pipeline.compile_module

  def compile_and_keep(code, options):
    codes.append(bytes(code))
    return compile_module(code, options)

  monkeypatch.setattr(compiler, "compile_module", compile_and_keep)
  x = jax.device_put(np.ones((4, 3), np.float32), ipu)
  # Modules that differ in their locations alone are compiled once.
  for folder, tiles in (("/here", 8), ("/there", 9)):
    there = {"jnp": jnp}
    source = "def f(x):\n  return jnp.sin(x) @ x.T"
    exec(compile(source, f"{folder}/source.py", "exec"), there)
    jax.jit(there["f"]).lower(x).compile({"ipu_num_tiles": tiles})
  options = pipeline.Options(target=machines.resolve("ipu2"))
  here, there = (programs.Recorder()._key(code, options) for code in codes)
  assert codes[0] != codes[1] and here == there


def test_keys_do_not_depend_on_the_order_of_options(programs):
  given = {"ipu_num_tiles": 3, "ipu_allow_out_of_memory": True}
  orders = given, dict(reversed(given.items()))
  here, there = (
    programs.Recorder()._key(
      b"", pipeline.Options(target=machines.resolve("ipu2"), given=order)
    )
    for order in orders
  )
  assert here == there


def test_errors_are_recorded(programs):
  f = lambda x: jnp.zeros((1 << 15, 1 << 15)) + x[0, 0]
  with programs.Recorder() as recorder, pytest.raises(CompileError):
    lowering_kit.phases(f, [np.ones((2, 2), np.float32)], 1)
  assert list(recorder.programs.values()) == [{"error": "RESOURCE_EXHAUSTED"}]


def test_missing_folders_are_errors(same_programs, tmp_path):
  with pytest.raises(same_programs.BuildError, match="no programs"):
    same_programs.main(["compare", str(tmp_path), str(tmp_path)])


def test_the_corpus_exists(same_programs):
  for name in same_programs._TESTS:
    assert (Path(__file__).parent / f"{name}.py").exists(), name
