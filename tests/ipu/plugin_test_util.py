"""New interpreters, for what can only be done once per process.

The default backend, the number of IPUs and the end of a process are settled
when JAX first looks for devices.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

# Variables that the test run sets must not affect tests of flags.
_FLAGS = (
  "JAX_IPU_USE_MODEL",
  "JAX_IPU_MODEL_NUM_TILES",
  "JAX_IPU_DEVICE_COUNT",
  "JAX_IPU_VISIBLE_DEVICES",
  "JAX_IPU_MODEL_VERSION",
  "JAX_PLATFORMS",
  "JAX_PLATFORM_NAME",
  "JAX_COMPILATION_CACHE_DIR",
  "TF_POPLAR_FLAGS",
  "POPLAR_ENGINE_OPTIONS",
  "POPLAR_LOG_LEVEL",
  "PVTI_OPTIONS",
  "TF_CPP_MIN_LOG_LEVEL",
)

# Long enough for a busy machine; a hang ends here.
_PATIENCE_SECONDS = 300


def run(
  code: str, *, check: bool = True, **environment: str
) -> subprocess.CompletedProcess[str]:
  """Runs `code` in a new interpreter, with `environment` and no other flags.

  Args:
    code: Python, with any indentation.
    check: whether to fail, showing the output, unless the exit status is 0.
    **environment: variables to set. The model is requested unless
      `JAX_IPU_USE_MODEL` is given ("" leaves it unset).
  """
  env = {k: v for k, v in os.environ.items() if k not in _FLAGS}
  env |= {"JAX_IPU_USE_MODEL": "true"} | environment
  env = {name: value for name, value in env.items() if value}
  result = subprocess.run(
    [sys.executable, "-c", textwrap.dedent(code)],
    env=env,
    capture_output=True,
    text=True,
    timeout=_PATIENCE_SECONDS,
  )
  if check and result.returncode != 0:
    raise AssertionError(
      f"exit status {result.returncode}\n{result.stdout}\n{result.stderr}"
    )
  return result


def output(code: str, **environment: str) -> str:
  """The output of `code`, without the final line break."""
  return run(code, **environment).stdout.strip()


def interrupted(code: str, seconds: float = 60, **environment: str) -> str:
  """The output of `code` after a SIGINT, which it gets when its first line,
  "waiting", is out."""
  # A process in the background may have been started to ignore it.
  code = f"""\
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
{textwrap.dedent(code)}"""
  env = os.environ | {"JAX_IPU_USE_MODEL": "true", "PYTHONUNBUFFERED": "1"}
  with subprocess.Popen(
    [sys.executable, "-c", code],
    env=env | environment,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  ) as process:
    assert process.stdout is not None
    try:
      assert process.stdout.readline() == "waiting\n"
      process.send_signal(signal.SIGINT)
      out, _ = process.communicate(timeout=seconds)
    finally:
      process.kill()
    return out
