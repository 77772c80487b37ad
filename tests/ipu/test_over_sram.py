"""The lists of programs that do not fit an IPU, and how tests use them."""

from __future__ import annotations

import fnmatch
import tomllib
from pathlib import Path

import over_sram
import pytest

import jax
import jax.numpy as jnp

pytestmark = pytest.mark.ipu_only

ROOT = Path(__file__).parents[2]


def compile_large(ipu) -> float:
  """Compiles a product that does not fit; returns what it needs."""
  sharding = jax.sharding.SingleDeviceSharding(ipu)
  x = jax.ShapeDtypeStruct((2**15, 2**15), jnp.float32, sharding=sharding)
  options = {"ipu_allow_out_of_memory": False}
  compiled = jax.jit(lambda x: x + 1).lower(x).compile(options)
  return compiled.cost_analysis()["ipu peak tile bytes with gaps"]


def test_listed_programs_are_compiled(ipu):
  with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
    compile_large(ipu)
  needs = over_sram.Needs()
  with needs.recorded():
    assert compile_large(ipu) == needs.most > ipu.bytes_per_tile
  over_sram.check("this test", needs.most, needs)
  with pytest.raises(pytest.fail.Exception, match="bytes of a tile, more than"):
    over_sram.check("this test", needs.most - 1, needs)
  with pytest.raises(pytest.fail.Exception, match="take this test off"):
    over_sram.check("this test", 1 << 30, over_sram.Needs())


def test_listed_tests_exist():
  folder = Path(__file__).parent
  for test in over_sram.NEEDS:
    file, _, name = test.partition("::")
    (path,) = folder.rglob(file)
    function = name.partition("[")[0]
    assert f"def {function}(" in path.read_text(), test


def test_jaxs_listed_tests_are_not_expected_to_fail():
  text = (ROOT / "third_party" / "jax" / "expected_failures.toml").read_text()
  data = tomllib.loads(text)
  failures = [test for group in data["failures"] for test in group["tests"]]
  for group in data["over_sram"]:
    assert group["category"] and group["bytes"] > 208 * 1024
    for pattern in group["tests"]:
      assert not fnmatch.filter(failures, pattern)
