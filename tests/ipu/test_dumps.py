"""Dumps: the result of each compiler phase as text, in a folder a program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import plugin_test_util
import pytest

import jax
import jax.numpy as jnp
from jaxlib.ipu import target as machines
from jaxlib.ipu.tile import text as tile_text

pytestmark = pytest.mark.ipu_only


def dumps(ipu, folder, f, *args) -> dict[str, str]:
  """The dumps of one program, by file name, in the order of the names."""
  lowered = jax.jit(f).lower(*jax.device_put(args, ipu))
  lowered.compile(compiler_options={"ipu_dump_to": str(folder)})
  (made,) = folder.iterdir()
  assert made.name.startswith("0000.jit_")
  return {path.name: path.read_text() for path in sorted(made.iterdir())}


def test_a_file_for_each_phase_in_order(ipu, tmp_path):
  def scaled(x):
    return jnp.sin(x) * 2

  found = dumps(ipu, tmp_path, scaled, np.ones((6, 5), np.float32))
  assert [name.removesuffix(".txt") for name in found] == [
    "0_parse", "1_import", "3_fuse", "4_lower_1_order",
    "4_lower_2_divide_copies", "4_lower_3_in_place", "5_allocate",
    "5_allocate_1_copy_late", "5_allocate_2_coalesce", "5_allocate_3_allocate",
    "5_allocate_4_local_copies", "6_emit",
  ]  # fmt: skip
  assert (tmp_path / "0000.jit_scaled").is_dir()
  memory = found.pop("5_allocate.txt")
  parsed, imported, fused, *tiles, program = found.values()
  assert all("Execute(" in text and "t0 = TensorInfo" in text for text in tiles)
  assert "stablehlo.sine" in parsed
  assert "stablehlo.sine" in imported and "test_dumps.py" in imported
  assert "ipu.map" in fused and "stablehlo.sine" not in fused
  assert "argument x f32[6,5]" in memory and "of the 638,976" in memory
  assert "shape=(6, 5)" in program and "sin.f32 v0" in program
  assert "compute + 0 exchange" in program and "ipu cycles" in program
  machine = machines.resolve("ipu2", 1472)
  assert tile_text.program_text(tile_text.parse(program, machine)) == tiles[-1]


def test_register_programs_name_their_operands(ipu, tmp_path):
  def program(x, i):
    return jnp.where(i > 0, x, -x) + i.astype(jnp.float32)

  args = np.ones(7, np.float32), np.ones(7, np.int32)
  *_, text = dumps(ipu, tmp_path, program, *args).values()
  lines = [line.split(" = ")[-1] for line in text.splitlines()]
  values = [line for line in lines if line.startswith(("negate", "convert"))]
  assert [len(line.split()) for line in values] == [2, 4], values
  assert any(line.endswith("from i32") for line in values)


def test_functions_of_general_reductions_are_shown(ipu, tmp_path):
  def program(x):
    return jax.lax.reduce(x, 1.0, lambda a, b: a + b * 2, (0,))

  *_, text = dumps(ipu, tmp_path, program, np.ones(7, np.float32)).values()
  assert "combine" in text and "mul.f32" in text


def test_functions_of_scans_are_shown(ipu, tmp_path):
  x = np.ones(7, np.float32)
  *_, text = dumps(ipu, tmp_path, jnp.cumsum, x).values()
  assert "Scan" in text and "add.f32" in text


def names(folder):
  return sorted(path.name for path in folder.iterdir())


def test_programs_of_several_processes_do_not_share_a_number(tmp_path):
  code = f"""
import numpy as np
import jax
x = jax.device_put(np.ones(3, np.float32), jax.devices("ipu")[0])
options = {{"ipu_dump_to": {str(tmp_path)!r}}}
for n in range(3):
  f = lambda x: x + n
  jax.jit(f).lower(x).compile(compiler_options=options)
"""
  processes = [
    subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)
    for _ in range(2)
  ]
  for process in processes:
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors.decode()
  assert [name.split(".")[0] for name in names(tmp_path)] == [
    f"{i:04}" for i in range(6)
  ]
  assert len([*tmp_path.glob("*/*.txt")]) == 6 * 12


def test_what_is_in_the_folder_stays_as_it_is(ipu, tmp_path):
  """Links are not followed, and pipes not opened, whatever their names."""
  outside = tmp_path / "outside"
  outside.write_text("mine")
  folder = tmp_path / "reports"
  folder.mkdir()
  (folder / "0007.jit_f.0_parse.txt").write_text("old")
  (folder / "0008.jit_f.0_parse.txt").symlink_to(outside)
  os.mkfifo(folder / "0009.jit_f.1_import.txt")
  f = lambda x: x * 3
  lowered = jax.jit(f).lower(jax.device_put(np.ones(3, np.float32), ipu))
  lowered.compile(compiler_options={"ipu_dump_to": str(folder)})
  assert outside.read_text() == "mine"
  assert (folder / "0007.jit_f.0_parse.txt").read_text() == "old"
  (made,) = [name for name in names(folder) if name > "0009.z"]
  assert made.startswith("0010.jit") and len(names(folder / made)) == 12


@pytest.mark.parametrize("kind", ["file", "pipe", "no permission"])
def test_a_folder_that_is_none_is_an_error(ipu, tmp_path, kind):
  folder = tmp_path / "reports"
  if kind == "file":
    folder.write_text("")
  elif kind == "pipe":
    os.mkfifo(folder)
  else:
    folder = Path("/proc/1/reports")
  f = lambda x: x * 5
  lowered = jax.jit(f).lower(jax.device_put(np.ones(3, np.float32), ipu))
  with pytest.raises(jax.errors.JaxRuntimeError, match="cannot write a report"):
    lowered.compile(compiler_options={"ipu_dump_to": str(folder)})


@pytest.mark.parametrize(("when", "dumped"), [("error", 1), ("off", 0)])
def test_programs_are_dumped_when_the_flag_says(tmp_path, when, dumped):
  code = """
  import jax, jax.numpy as jnp
  sharding = jax.sharding.SingleDeviceSharding(jax.devices("ipu")[0])
  for rows in (3, 1 << 20):
    x = jax.ShapeDtypeStruct((rows, 1024), "float32", sharding=sharding)
    lowered = jax.jit(lambda x: jnp.sin(x).sum()).lower(x)
    try:
      lowered.compile()
    except jax.errors.JaxRuntimeError as error:
      print(rows, str(error).split(":")[0])
  """
  said = plugin_test_util.output(
    code, JAX_IPU_DUMP_TO=str(tmp_path), JAX_IPU_DUMP_WHEN=when
  )
  assert said == "1048576 RESOURCE_EXHAUSTED"
  folders = names(tmp_path)
  assert len(folders) == dumped
  for folder in folders:
    assert {"0_parse.txt", "3_fuse.txt"} <= {*names(tmp_path / folder)}
