"""A process that runs random programs, to isolate crashes and hangs."""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from multiprocessing.connection import Connection

from .compare import Outcome, Verdict, check
from .program import Program

_READY = "ready"
_STARTS = 600.0  # seconds: a process needs some, on a busy machine many
_PROGRAMS = 600  # programs per process: JAX keeps some 0.8 MB of each


def serve(pipe: Connection) -> None:
  """Runs programs until the other end is closed."""
  import jax

  jax.config.update("jax_num_cpu_devices", 1)
  jax.devices("ipu")
  raise_gc_threshold()
  pipe.send(_READY)
  while True:
    try:
      program = pipe.recv()
    except EOFError:
      return
    pipe.send(check(program, pipe.send))


class Worker:
  """Runs programs in a process that is replaced if it dies or hangs.

  Attributes:
    seconds: the time limit of a program.
  """

  def __init__(self, seconds: float) -> None:
    self.seconds = seconds
    self._context = multiprocessing.get_context("spawn")
    self._process: multiprocessing.process.BaseProcess | None = None
    self._ran = 0

  def start(self, program: Program) -> None:
    """Starts a program; `wait` returns the verdict."""
    if self._ran >= _PROGRAMS:
      self.stop()
    if self._process is None:
      self._pipe, other = self._context.Pipe()
      self._process = self._context.Process(
        target=serve, args=(other,), daemon=True
      )
      self._process.start()
      other.close()
      self._ran = 0
      if not self._pipe.poll(_STARTS) or self._pipe.recv() != _READY:
        raise RuntimeError("a process that runs programs does not start")
    self._ran += 1
    self._pipe.send(program)

  def wait(self) -> Verdict:
    """The verdict on the program that was started."""
    stage = "start"
    until = time.monotonic() + self.seconds
    while True:
      if not self._pipe.poll(max(0.0, until - time.monotonic())):
        self.stop()
        return self._failed(stage, Outcome.HANG, f"{self.seconds:.0f} s")
      try:
        message = self._pipe.recv()
      except (EOFError, ConnectionResetError):
        assert self._process is not None
        self._process.join(10)
        code = self._process.exitcode
        self.stop()
        return self._failed(stage, Outcome.CRASH, f"exit code {code}")
      if isinstance(message, Verdict):
        return message
      stage = message

  def run(self, program: Program) -> Verdict:
    """Runs one program."""
    self.start(program)
    return self.wait()

  def stop(self) -> None:
    """Ends the process."""
    if self._process is not None:
      self._pipe.close()
      self._process.join(0.2)
      self._process.kill()
      self._process.join()
      self._process = None

  def _failed(self, stage: str, outcome: Outcome, how: str) -> Verdict:
    if stage == "cpu":
      return Verdict(Outcome.REFERENCE, f"{outcome.value}, {how}")
    return Verdict(outcome, f"in {stage}: {how}")


def raise_gc_threshold() -> None:
  """Avoids scanning the many objects that JAX keeps for garbage again and
  again."""
  gc.freeze()
  gc.set_threshold(200_000)


def quiet() -> None:
  """Settings of the processes that generate and run programs."""
  os.environ.setdefault("JAX_IPU_USE_MODEL", "true")
  os.environ.setdefault("JAX_IPU_VERIFY", "true")
  os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
