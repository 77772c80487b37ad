"""Mismatched installations say so, and what to do."""

from __future__ import annotations

import json

import plugin_test_util
import pytest

import jaxlib.version
from jaxlib.ipu import plugin

pytestmark = pytest.mark.ipu_only


TESTED = json.loads(plugin.VERSIONS.read_text())
OLDEST, NEWEST = TESTED["oldest"], TESTED["newest"]


@pytest.mark.parametrize("version", [OLDEST, f"{OLDEST}+ipu", NEWEST])
def test_tested_versions_give_no_warning(caplog, version):
  plugin.check_installation(version)
  assert not caplog.records


def test_the_installed_version_gives_no_warning(caplog):
  plugin.check_installation(jaxlib.version.__version__)
  assert not caplog.records


@pytest.mark.parametrize("version", ["0.9.2", "0.4.38", "0.3.16+cuda"])
def test_an_older_jaxlib_is_an_error(version):
  with pytest.raises(plugin.PluginError) as caught:
    plugin.check_installation(version)
  for part in (version, OLDEST, "pip install"):
    assert part in str(caught.value)


@pytest.mark.parametrize("version", [f"{NEWEST}.1", "1.0", "99.1.dev20300101"])
def test_a_newer_jaxlib_is_a_warning(caplog, version):
  plugin.check_installation(version)
  (record,) = caplog.records
  assert record.levelname == "WARNING"
  assert version in record.getMessage() and NEWEST in record.getMessage()


def test_a_missing_list_of_versions_is_an_error(monkeypatch, tmp_path):
  monkeypatch.setattr(plugin, "VERSIONS", tmp_path / "versions.json")
  with pytest.raises(plugin.PluginError, match="versions.json is missing"):
    plugin.check_installation(NEWEST)


# The CPU keeps working, and requesting an IPU shows why there is none.
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


def test_a_damaged_library(tmp_path):
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
