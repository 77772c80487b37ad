"""Runs the tests of `sharded/` in a process with eight IPUs and eight CPUs."""

from __future__ import annotations

from pathlib import Path

import plugin_test_util
import pytest

FOLDER = Path(__file__).parent / "sharded"


@pytest.mark.ipu_only
@pytest.mark.slow
def test_on_eight_devices():
  code = f"""
  import sys
  import pytest
  sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", {str(FOLDER)!r}]))
  """
  result = plugin_test_util.run(
    code, JAX_IPU_DEVICE_COUNT="8", JAX_NUM_CPU_DEVICES="8"
  )
  assert " passed" in result.stdout and "skipped" not in result.stdout
