"""Programs in several processes of `jax.distributed`, on this machine."""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

# Long enough for a busy machine; a hang ends here.
_PATIENCE_SECONDS = 300

_START = """
import os, signal, sys
import numpy as np
import jax
import jax.numpy as jnp
process, count = int(sys.argv[1]), int(sys.argv[2])
if count > 1:
  jax.distributed.initialize(sys.argv[3], count, process)
"""


@dataclasses.dataclass(frozen=True)
class Ran:
  """How a process ended."""

  status: int
  output: str
  errors: str


class Processes:
  """Processes that run one program.

  Args:
    code: Python, which knows `process` and `count`.
    count: the number of processes; 1 is without `jax.distributed`.
    devices: IPUs of each.
    **environment: variables to set.
  """

  def __init__(
    self, code: str, count: int, devices: int = 1, **environment: str
  ) -> None:
    env = dict(os.environ)
    # Each process is on its own.
    for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_PLATFORM_NAME"):
      env.pop(name, None)
    env |= {
      "JAX_PLATFORMS": "ipu,cpu",
      "JAX_IPU_USE_MODEL": "true",
      "JAX_IPU_MODEL_NUM_TILES": "16",
      "JAX_IPU_DEVICE_COUNT": str(devices),
      "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    env |= environment
    address = f"127.0.0.1:{_free_port()}"
    program = _START + textwrap.dedent(code)
    self.running = [
      subprocess.Popen(
        [sys.executable, "-c", program, str(i), str(count), address],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
      )
      for i in range(count)
    ]

  def wait(self, which: Sequence[int] | None = None) -> list[Ran]:
    """Waits for all processes, or some, and returns how they ended."""
    chosen = range(len(self.running)) if which is None else which
    ended = []
    for i in chosen:
      output, errors = self.running[i].communicate(timeout=_PATIENCE_SECONDS)
      ended.append(Ran(self.running[i].returncode, output, errors))
    return ended

  def line(self, which: int) -> str:
    """The next line that a process prints; blocks until there is one."""
    output = self.running[which].stdout
    assert output is not None
    return output.readline()

  def end(self) -> None:
    """Kills what still runs."""
    for process in self.running:
      process.kill()
      process.communicate()


@contextmanager
def started(
  code: str, count: int, devices: int = 1, **environment: str
) -> Iterator[Processes]:
  """Processes that are gone afterwards; see `Processes`."""
  processes = Processes(code, count, devices, **environment)
  try:
    yield processes
  finally:
    processes.end()


def _free_port() -> int:
  with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    return int(probe.getsockname()[1])
