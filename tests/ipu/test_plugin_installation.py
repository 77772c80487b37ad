"""An installation that does not fit says so, and what to do."""

from __future__ import annotations

import plugin_test_util
import pytest

from jaxlib.ipu import plugin

pytestmark = pytest.mark.ipu_only


def test_the_pinned_jaxlib_fits():
  plugin.check_installation(plugin.JAXLIB_VERSION)
  plugin.check_installation(plugin.JAXLIB_VERSION + "+ipu")


@pytest.mark.parametrize("version", ["0.10.3", "0.9.2", "1.0"])
def test_another_jaxlib_does_not(version):
  with pytest.raises(plugin.PluginError) as caught:
    plugin.check_installation(version)
  for part in (version, plugin.JAXLIB_VERSION, "pip install"):
    assert part in str(caught.value)


# The CPU works on, and whoever asks for an IPU reads why there is none.
BROKEN = """
import jax
from pathlib import Path
from jaxlib.ipu import plugin
plugin.LIBRARY = Path({path!r})
assert float(jax.numpy.ones(3).sum()) == 3
try:
  jax.devices("ipu")
except RuntimeError as e:
  print(e)
"""


def test_a_missing_library(tmp_path):
  path = str(tmp_path / "libjaxipu.so")
  message = plugin_test_util.output(BROKEN.format(path=path))
  assert path in message
  assert "build/build.py --enable_ipu" in message


def test_a_library_that_is_none(tmp_path):
  path = tmp_path / "libjaxipu.so"
  path.write_bytes(b"not a library")
  message = plugin_test_util.output(BROKEN.format(path=str(path)))
  assert str(path) in message
  assert "cannot be loaded" in message


def test_a_jaxlib_without_the_backend():
  message = plugin_test_util.output(
    """
    import sys
    sys.modules["jaxlib.ipu"] = None
    import jax, jaxlib
    assert float(jax.numpy.ones(3).sum()) == 3
    try:
      jax.devices("ipu")
    except RuntimeError as e:
      print(e)
    """
  )
  assert "has no IPU backend" in message
  assert "pip install" in message
