"""The soak of benchmarks/soak.py, in short: values are right, nothing grows."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.ipu_only

ROOT = Path(__file__).parents[2]


def test_a_short_soak_is_clean():
  result = subprocess.run(
    [sys.executable, "-m", "benchmarks.soak", "--dispatches", "2500"],
    cwd=ROOT,
    env=dict(os.environ, JAX_IPU_DEVICE_COUNT="2"),
    capture_output=True,
    text=True,
    timeout=300,
  )
  assert result.returncode == 0, result.stdout + result.stderr[-3000:]
  for kind in (
    "plain",
    "donated",
    "deleted",
    "fails",
    "gang",
    "feed",
    "fed_gang",
    "donated_gang",
  ):
    assert f"'{kind}':" in result.stdout


@pytest.mark.parametrize(
  "field, more, word",
  [
    ("memory", 1 << 30, "memory"),
    ("descriptors", 9, "descriptors"),
    ("threads", 99, "threads"),
    ("sram", (8,), "SRAM"),
  ],
)
def test_growth_of_each_kind_is_found(from_repository, field, more, word):
  soak = from_repository("benchmarks.soak")
  before = soak.Usage(0, 0, 0, (0,))
  after = dataclasses.replace(before, **{field: more})
  with pytest.raises(soak.Grown, match=word):
    soak.check(before, after)
  soak.check(before, before)
