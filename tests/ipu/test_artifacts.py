"""The pytest plugin that keeps programs of failing tests, and their replay."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.ipu_only

ROOT = Path(__file__).parents[2]

TESTS = """
import os
import jax, jax.numpy as jnp, numpy as np

def put(*shape):
  return jax.device_put(np.ones(shape, np.float32), jax.devices("ipu")[0])

def test_passes():
  jax.jit(lambda x: x + 1)(put(3)).block_until_ready()

def test_fails():
  jax.jit(lambda x: jnp.tanh(x) @ x.T)(put(4, 5)).block_until_ready()
  raise ValueError("on purpose")

def test_ends_its_process():
  jax.jit(lambda x: jnp.sin(x))(put(6)).block_until_ready()
  os._exit(3)
"""


def run(*command, **kwargs):
  environment = dict(os.environ, PYTHONPATH=str(ROOT))
  return subprocess.run(
    [sys.executable, "-m", *map(str, command)],
    env=environment,
    capture_output=True,
    text=True,
    timeout=300,
    **kwargs,
  )


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
  """What a run with pytest-xdist has left."""
  folder = tmp_path_factory.mktemp("artifacts")
  tests = folder / "test_three.py"
  tests.write_text(TESTS)
  kept = folder / "kept"
  options = ["-p", "ipu_artifacts", "--ipu-artifact-dir", kept, "-n", "1"]
  result = run(
    "pytest", "-q", *options, "-p", "no:cacheprovider", tests, cwd=folder
  )
  assert "2 failed, 1 passed" in result.stdout, result.stdout + result.stderr
  return kept


def test_only_failing_tests_leave_a_folder(kept):
  assert {path.name for path in kept.iterdir()} == {
    "test_three.py_test_fails",
    "test_three.py_test_ends_its_process",
  }


def test_a_failing_test_leaves_its_report_and_all_phases(kept):
  folder = kept / "test_three.py_test_fails"
  assert "on purpose" in (folder / "failure.txt").read_text()
  (program,) = folder.glob("*/module.mlirbc")
  (phases,) = program.parent.glob("*.jit__lambda")
  assert "stablehlo.tanh" in (phases / "0_parse.txt").read_text()
  assert "dot" in (phases / "6_emit.txt").read_text()


def test_a_crashed_worker_leaves_the_same(kept):
  folder = kept / "test_three.py_test_ends_its_process"
  assert "crashed" in (folder / "failure.txt").read_text()
  (parsed,) = folder.glob("*/*/0_parse.txt")
  assert "stablehlo.sine" in parsed.read_text()
  assert list(folder.glob("*/*/6_emit.txt"))


def test_replay_compiles_runs_and_compares(kept):
  folder = kept / "test_three.py_test_fails"
  result = run("jaxlib.ipu", "replay", folder)
  assert result.returncode == 0, result.stderr
  assert result.stdout.strip().endswith("0000.program: ok")


def test_replay_shows_what_does_not_compile(kept, tmp_path):
  (module,) = (kept / "test_three.py_test_fails").glob("*/module.mlirbc")
  program = tmp_path / "0000.program"
  program.mkdir()
  for file in module.parent.glob("*.*"):
    if file.is_file():
      (program / file.name).write_bytes(file.read_bytes())
  (program / "module.mlirbc").write_bytes(module.read_bytes()[:200])
  result = run("jaxlib.ipu", "replay", tmp_path)
  assert result.returncode == 1
  assert "0000.program: does not compile: " in result.stdout


def test_replay_says_what_it_does_not_run(tmp_path):
  test = """
import jax

def test_fails():
  x = jax.device_put(1.0, jax.devices("ipu")[0])
  jax.jit(lambda x: (jax.debug.print("{}", x), x + 1)[1])(x)
  raise ValueError("on purpose")
"""
  (tmp_path / "test_it.py").write_text(test)
  kept = tmp_path / "kept"
  options = ["-p", "ipu_artifacts", "--ipu-artifact-dir", kept]
  run("pytest", *options, "-p", "no:cacheprovider", "test_it.py", cwd=tmp_path)
  (folder,) = kept.iterdir()
  result = run("jaxlib.ipu", "replay", folder)
  assert result.returncode == 0, result.stdout + result.stderr
  what = "compiles; not run, because it calls functions of the host"
  assert what in result.stdout


def test_replay_of_an_empty_folder_says_what_it_expects(tmp_path):
  result = run("jaxlib.ipu", "replay", tmp_path)
  assert result.returncode == 1
  assert "--ipu-artifact-dir" in result.stderr
