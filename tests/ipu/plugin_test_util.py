"""Fresh interpreters, for what a process can only do once.

Which backend is the default, how many IPUs there are, how a process ends: all
that is settled when JAX first looks for devices.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

# What the tests set for themselves must not reach a test of flags.
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

# Long enough for a machine with much else to do; a hang ends here.
_PATIENCE_SECONDS = 300


def run(
  code: str, *, check: bool = True, **environment: str
) -> subprocess.CompletedProcess[str]:
  """Runs `code` in a new interpreter, with `environment` and no other flags.

  Args:
    code: Python; indented as one likes.
    check: fail, showing the output, unless it ends with exit status 0.
    **environment: variables to set. The model is asked for unless
      `JAX_IPU_USE_MODEL` says otherwise ("" leaves it unset).
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
  """What `code` printed, without the line break at the end."""
  return run(code, **environment).stdout.strip()
