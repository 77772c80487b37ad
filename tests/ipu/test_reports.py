"""The reports: the result of each compiler phase as text."""

from __future__ import annotations

import numpy as np
import pytest

import jax
import jax.numpy as jnp

pytestmark = pytest.mark.ipu_only


def reports(ipu, folder, f, *args) -> dict[str, str]:
  """The reports on one program, by file name, in the order of the names."""
  lowered = jax.jit(f).lower(*jax.device_put(args, ipu))
  lowered.compile(compiler_options={"ipu_dump_to": str(folder)})
  return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def test_a_file_for_each_phase_in_order(ipu, tmp_path):
  def scaled(x):
    return jnp.sin(x) * 2

  found = reports(ipu, tmp_path, scaled, np.ones((6, 5), np.float32))
  numbers, names, phases = zip(*(name.split(".")[:3] for name in found))
  assert len(set(numbers)) == 1 and set(names) == {"jit_scaled"}
  assert phases == ("0_parse", "1_import", "3_fuse", "5_allocate", "6_emit")
  parsed, imported, fused, memory, program = found.values()
  assert "stablehlo.sine" in parsed
  assert "stablehlo.sine" in imported and "test_reports.py" in imported
  assert "ipu.map" in fused and "stablehlo.sine" not in fused
  assert "argument x f32[6,5]" in memory and "of the 638,976" in memory
  assert "6x5xf32" in program and "sin.f32 v0" in program
  assert "ipu cycles" in program


def test_register_programs_name_their_operands(ipu, tmp_path):
  def program(x, i):
    return jnp.where(i > 0, x, -x) + i.astype(jnp.float32)

  args = np.ones(7, np.float32), np.ones(7, np.int32)
  *_, text = reports(ipu, tmp_path, program, *args).values()
  lines = [line.split(" = ")[-1] for line in text.splitlines()]
  values = [line for line in lines if line.startswith(("negate", "convert"))]
  assert [len(line.split()) for line in values] == [2, 4], values
  assert any(line.endswith("from i32") for line in values)


def test_functions_of_general_reductions_are_shown(ipu, tmp_path):
  def program(x):
    return jax.lax.reduce(x, 1.0, lambda a, b: a + b * 2, (0,))

  *_, text = reports(ipu, tmp_path, program, np.ones(7, np.float32)).values()
  assert "combine" in text and "mul.f32" in text


def test_functions_of_scans_are_shown(ipu, tmp_path):
  x = np.ones(7, np.float32)
  *_, text = reports(ipu, tmp_path, jnp.cumsum, x).values()
  assert "Scan" in text and "add.f32" in text
