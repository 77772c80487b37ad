"""What compilations tell: the progress bar, and log messages."""

from __future__ import annotations

import logging
import re
import types

import plugin_test_util
import pytest

from jaxlib.ipu import progress

PHASES = ["parse", "lower", "emit"]
STATE = types.SimpleNamespace(known_name="jit_step", program=None)


@pytest.fixture
def impatient(monkeypatch):
  monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 0.0)
  monkeypatch.setattr(progress, "_PERIOD_SECONDS", 0.01)


def test_a_bar_shows_the_program_and_its_phase_and_goes(impatient, capsys):
  with progress.shown(PHASES, True) as enter:
    enter("lower", STATE)
    text = ""
    while "lower" not in text:  # the thread draws it at once
      text += capsys.readouterr().err
  assert re.search(r"compiling jit_step for IPU █{8}░{16} lower \d+ s", text)
  assert capsys.readouterr().err.endswith("\r\x1b[K")


def test_a_short_compilation_shows_no_bar(capsys):
  with progress.shown(PHASES, True) as enter:
    enter("parse", STATE)
  assert capsys.readouterr().err == ""


def test_no_terminal_no_bar():
  with progress.shown(PHASES, None) as enter:
    assert enter is None


CODE = """
  import jax, numpy as np
  x = jax.device_put(np.ones((8, 8), np.float32), jax.devices("ipu")[0])
  jax.jit(lambda x: x @ x)(x).block_until_ready()
"""


AT_ONCE = f"""
  from jaxlib.ipu import progress
  progress._PATIENCE_SECONDS = 0.0
{CODE}
"""


@pytest.mark.parametrize("flag", ["true", "false"])
def test_the_flag_shows_the_bar(flag):
  flags = f"--show_progress_bar={flag}"
  shown = plugin_test_util.run(AT_ONCE, TF_POPLAR_FLAGS=flags).stderr
  assert (" for IPU █" in shown or " for IPU ░" in shown) == (flag == "true")


def test_trace_tells_phases_decisions_and_runs():
  shown = plugin_test_util.run(CODE, POPLAR_LOG_LEVEL="TRACE").stderr
  assert re.search(
    r"DEBUG jaxlib.ipu: compiled jit__lambda: \d+ steps, [\d,]+ cycles, [\d,]+ "
    r"bytes on the fullest tile; partition [\d.]+ ms, parse ",
    shown,
  )
  assert re.search(
    r"TRACE jaxlib.ipu: jit__lambda: .*hoists=True.*product of .*split", shown
  )
  assert re.search(r"jit__lambda took \d+ cycles", shown)


def test_debug_tells_of_compilations_alone():
  shown = plugin_test_util.run(CODE, POPLAR_LOG_LEVEL="DEBUG").stderr
  assert "DEBUG jaxlib.ipu: compiled jit__lambda" in shown
  assert "TRACE" not in shown and "took" not in shown


def test_info_tells_nothing_of_compilations():
  shown = plugin_test_util.run(CODE, POPLAR_LOG_LEVEL="INFO").stderr
  assert "jit__lambda" not in shown


def test_the_level_of_trace_is_below_debug():
  assert progress.TRACE < logging.DEBUG
