"""The figures of ipu/docs/performance.md are what its commands print."""

from __future__ import annotations

import re
from pathlib import Path

import plugin_test_util
import pytest

import jax

pytestmark = pytest.mark.ipu_only

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ipu" / "docs" / "performance.md").read_text()


def table(name):
  return re.search(rf"<!-- {name}:.*-->\n((?:\|.*\n)+)<!-- {name} end", PAGE)[1]


def numbers(text):
  """The figures of a table."""
  return [float(n.replace(",", "")) for n in re.findall(r"\d[\d,.]*", text)]


def test_advice(ipu, from_repository):
  advice = from_repository("benchmarks.advice")
  shown = advice.markdown(ipu)
  if jax.__version__.startswith("0.10."):
    assert shown == table("advice")
  else:  # which emits some programs slightly differently
    assert numbers(shown) == pytest.approx(numbers(table("advice")), rel=0.1)


def test_scaling():
  code = f"""
    import sys
    sys.path.insert(0, {str(ROOT)!r})
    from benchmarks import scaling
    scaling.main(["--most", "4"])
  """
  printed = plugin_test_util.output(code, JAX_IPU_DEVICE_COUNT="4").splitlines()
  assert len(printed) == 5
  expected = table("scaling").splitlines()[:5]
  for row, known in zip(printed[2:], expected[2:], strict=True):
    assert numbers(row) == pytest.approx(numbers(known), rel=0.1, abs=1)
