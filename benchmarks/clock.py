"""What the benchmarks time by, and the cores that they may use."""

from __future__ import annotations

import os
import time
from pathlib import Path

_now = time.perf_counter


def seconds() -> float:
  """Seconds since some moment: elapsed, or of processor time on one core."""
  return _now()


def use_cores(count: int) -> None:
  """Pins the process to its first `count` cores.

  On one core, processor time of all threads is what counts from then on, so
  that what else the machine does at that moment is not measured.

  Raises:
    ValueError: the process has fewer cores, or they cannot be chosen here.
  """
  global _now
  if not hasattr(os, "sched_setaffinity"):
    raise ValueError("this system cannot pin a process to cores")
  cores = sorted(os.sched_getaffinity(0))
  if not 1 <= count <= len(cores):
    raise ValueError(f"expected 1 to {len(cores)}, the cores of this process")
  # Threads that are there already, such as OpenBLAS's, would keep all cores.
  for task in Path("/proc/self/task").iterdir():
    os.sched_setaffinity(int(task.name), cores[:count])
  if count == 1:
    _now = time.process_time
