"""The page about six programs' modelled cycles and SRAM."""

from __future__ import annotations

import json

import pytest

import jax
from jaxlib.ipu import plugin

pytestmark = pytest.mark.ipu_only


@pytest.fixture(scope="module")
def modelled(six_programs, ipu):
  if ipu.num_tiles != 1472:
    pytest.skip("the page is about a whole GC200")
  return {
    name: six_programs.figures(name, ipu) for name in six_programs.PROGRAMS
  }


def numbers(row: str) -> list[float]:
  """What stands in a row of a table, but for its name."""
  return [float(n.replace(",", "")) for n in row.split("|")[2:-1]]


def test_the_page_is_what_the_command_writes(six_programs, modelled):
  lines = six_programs.PAGE.read_text().splitlines()
  then = six_programs.before()
  oldest = json.loads(plugin.VERSIONS.read_text())["oldest"]
  # Other versions of JAX write some of these programs a little differently.
  tolerance = 0.0 if jax.__version__.startswith(oldest) else 0.05
  for name, now in modelled.items():
    for columns in six_programs.FIGURES[:4], six_programs.FIGURES[4:]:
      row = six_programs.row(name, then[name], now, columns)
      written = [line for line in lines if line.startswith(f"| {name} |")]
      expected = [pytest.approx(numbers(w), rel=tolerance) for w in written]
      assert numbers(row) in expected, (
        "costs have changed: python -m benchmarks --programs writes the page"
      )


def test_cycles_are_the_sum_of_their_parts(six_programs, modelled):
  for figures in (*modelled.values(), *six_programs.before().values()):
    parts = (figures[k] for k in six_programs.FIGURES[1:4])
    assert figures["cycles"] == sum(parts) > 0
