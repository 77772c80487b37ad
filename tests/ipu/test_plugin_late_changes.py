"""Changes of settings after the client was made: too late, and said."""

from __future__ import annotations

import plugin_test_util
import pytest

from jaxlib.ipu import options

read = options.read


TILES = "JAX_IPU_MODEL_NUM_TILES"


@pytest.mark.parametrize(
  "environment, config, named",
  [
    ({TILES: "8"}, {}, ["JAX_IPU_MODEL_NUM_TILES=8", "made with 4"]),
    ({}, {"jax_ipu_device_count": 2}, ["jax.config.jax_ipu_device_count=2"]),
    (
      {"POPLAR_ENGINE_OPTIONS": '{"autoReport.all": true}'},
      {},
      ["POPLAR_ENGINE_OPTIONS autoReport.all=True"],
    ),
  ],
)
def test_changes_after_the_client_was_created(environment, config, named):
  settings = read({TILES: "4"})
  (message,) = options.late_changes(settings, environment, config)
  assert "before the first use of a device" in message
  for part in named:
    assert part in message


def test_variables_first_set_after_the_client_was_created():
  (message,) = options.late_changes(read(), {TILES: "4"})
  assert "the IPU client was made without it: set it before" in message


def test_late_changes_of_variables_are_logged_once(caplog, monkeypatch):
  monkeypatch.setenv(TILES, "4")
  watch = options.Watch(read())
  watch.look()
  assert not caplog.records
  for text, said in (
    ("8", "NUM_TILES=8 comes too late"),
    ("x", "NUM_TILES='x': expected an integer >= 1, and before the first use"),
  ):
    caplog.clear()
    monkeypatch.setenv(TILES, text)
    watch.look()
    watch.look()
    (record,) = caplog.records
    assert said in record.getMessage()


def test_unchanged_settings_give_no_warning(caplog):
  environment = {TILES: "2", "JAX_IPU_UNKNOWN": "1"}
  config = {"jax_ipu_model_num_tiles": 3}
  settings = read(environment, config)
  caplog.clear()
  assert options.late_changes(settings, environment, config) == []
  # Changes that have been reverted do not matter.
  assert options.late_changes(settings, {}, {}) == []
  assert not caplog.records


def test_another_name_of_the_same_machine_is_no_change():
  made = read({"JAX_IPU_MODEL_VERSION": "gc200"})
  changed = {"jax_ipu_model_version": "mk2"}
  assert not options.late_changes(made, {}, changed)
  changed = {"jax_ipu_model_version": "mk1"}
  assert "'ipu1' comes too late" in options.late_changes(made, {}, changed)[0]


def test_compilation_uses_the_settings_of_its_client():
  settings = read({"JAX_IPU_MODEL_NUM_TILES": "4"})
  with options.use(settings):
    assert options.active() is settings


@pytest.mark.ipu_only
def test_changes_after_the_first_use_of_a_device():
  code = """
  import os
  import jax, jax.ipu
  jax.config.update("jax_ipu_device_count", 2)
  (device, _) = jax.devices("ipu")
  os.environ["JAX_IPU_MODEL_NUM_TILES"] = "8"
  x = jax.device_put(1.0, device)
  print(x + 1, x * 2)
  jax.config.update("jax_ipu_device_count", 2)  # says nothing new
  try:
    jax.config.update("jax_ipu_device_count", 3)
  except RuntimeError as e:
    print(e)
  from jax.extend import backend
  backend.clear_backends()
  jax.config.update("jax_ipu_device_count", 3)
  print(len(jax.devices("ipu")), jax.devices("ipu")[0].num_tiles)
  """
  done = plugin_test_util.run(code)
  sums, late, last = done.stdout.splitlines()
  assert (sums, last) == ("2.0 2.0", "3 8")
  assert "jax.config.jax_ipu_device_count=3 comes too late" in late
  (warning,) = [line for line in done.stderr.splitlines() if "late" in line]
  assert "JAX_IPU_MODEL_NUM_TILES=8" in warning
