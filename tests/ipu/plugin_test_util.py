"""New interpreters, for what can only be done once per process.

The default backend, the number of IPUs and the end of a process are settled
when JAX first looks for devices.
"""

from __future__ import annotations

import json
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


def _environment(variables: dict[str, str]) -> dict[str, str]:
  """The test run's, without its flags, with `variables`."""
  env = {k: v for k, v in os.environ.items() if k not in _FLAGS}
  env |= {"JAX_IPU_USE_MODEL": "true"} | variables
  return {name: value for name, value in env.items() if value}


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
  env = _environment(environment)
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


# Reads programs, a line of JSON each, and runs each in a fork of itself.
_SERVER = """
import json, os, signal, sys, tempfile
for line in sys.stdin:
  with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
    child = os.fork()
    if child == 0:
      os.dup2(out.fileno(), 1)
      os.dup2(err.fileno(), 2)
      signal.alarm({patience})
      exec(json.loads(line), {{"__name__": "__main__"}})
      sys.exit()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    texts = [os.pread(f.fileno(), 1 << 24, 0).decode() for f in (out, err)]
  print(json.dumps([status, *texts]), flush=True)
"""


class Forks:
  """Interpreters that have run `code` already, such as the imports that take
  most of a short program's time. It must not create the client.

  Args:
    code: what they have run.
  """

  def __init__(self, code: str) -> None:
    server = _SERVER.format(patience=_PATIENCE_SECONDS)
    self._server = subprocess.Popen(
      [sys.executable, "-c", textwrap.dedent(code) + server],
      env=_environment({}),
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
    )

  def run(self, code: str) -> subprocess.CompletedProcess[str]:
    """Runs `code` in a new one of them, with modules of its own."""
    assert self._server.stdin is not None
    assert self._server.stdout is not None
    self._server.stdin.write(json.dumps(textwrap.dedent(code)) + "\n")
    self._server.stdin.flush()
    line = self._server.stdout.readline()
    assert line, "the server of forks has ended"
    return subprocess.CompletedProcess([], *json.loads(line))

  def close(self) -> None:
    """Ends the process that they are forked from."""
    self._server.communicate()


def output(code: str, **environment: str) -> str:
  """The output of `code`, without the final line break."""
  return run(code, **environment).stdout.strip()


# For `interrupted`: says that a program waits, once it surely does, and waits
# for one that a Ctrl-C ends.
WAITING = """
import threading, time

def say_soon():
  threading.Thread(
    target=lambda: (time.sleep(0.5), print("waiting")), daemon=True
  ).start()

def wait_for(y):
  try:
    try:
      y.block_until_ready()
    except Exception as error:
      print(error)
    time.sleep(1)
  except KeyboardInterrupt:
    print("interrupted")
"""


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
