"""The trace file of `PVTI_OPTIONS`: the timeline of everything that ran on the
process's IPUs, written when Python exits.

It is what `jax.profiler.trace` shows of the devices
(`runtime/pjrt/device_plane.cc`), in Chrome's format for traces, which Perfetto
(ui.perfetto.dev) and chrome://tracing open. Graphcore's own format is not
documented.
"""

from __future__ import annotations

import atexit
import ctypes
import gzip
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxlib.ipu import internals

logger = logging.getLogger("jaxlib.ipu")

# void (bytes, size, error)
_Reader = ctypes.CFUNCTYPE(
  None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
)

_started = False


def start(library: Any, directory: str) -> None:
  """Notes from now on what runs; writes it to `directory` when Python exits.

  The first call of a process decides.

  Args:
    library: of `plugin.load`.
    directory: is made if it does not exist.
  """
  global _started
  if _started:
    return
  _started = True
  library.ipu_start_trace.argtypes = []
  library.ipu_start_trace.restype = None
  library.ipu_end_trace.argtypes = [_Reader]
  library.ipu_end_trace.restype = None
  library.ipu_start_trace()
  atexit.register(_write, library, Path(directory).absolute())


def _write(library: Any, directory: Path) -> None:
  """Writes what ran. Python is exiting: an error is only logged."""
  found: list[bytes] = []

  def read(address: int, size: int, error: bytes | None) -> None:
    if error:
      logger.warning("no trace file: %s", error.decode())
    else:
      found.append(ctypes.string_at(address, size))

  library.ipu_end_trace(_Reader(read))
  if not found:
    return
  file = directory / f"ipu_trace_{os.getpid()}.json.gz"
  try:
    directory.mkdir(parents=True, exist_ok=True)
    with gzip.open(file, "wt", encoding="utf-8", compresslevel=6) as out:
      json.dump(chrome_trace(found[0]), out)
  except OSError as error:
    logger.warning(
      "no trace file: %s; the option directory of PVTI_OPTIONS names another "
      "folder",
      error,
    )
  else:
    logger.info("wrote the trace %s", file)


def chrome_trace(space: bytes) -> dict[str, Any]:
  """A trace in Chrome's format.

  Args:
    space: a serialised XSpace, which may be empty.

  Returns:
    The JSON object: a process for each plane, with what is not shown as its
    label, and a thread for each line. Times are Unix time, in microseconds.
  """
  planes = internals.read_profile(space) if space else ()
  events: list[dict[str, Any]] = []
  for process, plane in enumerate(planes or (), start=1):
    events.append(_named("process_name", plane.name, process))
    cut = dict(plane.stats).get("not_shown")
    if cut:
      labels = {"labels": f"not shown: {cut}"}
      events.append(
        {"ph": "M", "name": "process_labels", "pid": process, "args": labels}
      )
    events += _events(plane, process)
  return {"displayTimeUnit": "ns", "traceEvents": events}


def _events(plane: Any, process: int) -> Iterator[dict[str, Any]]:
  # Perfetto merges threads whose numbers are a process's.
  for thread, line in enumerate(plane.lines, start=10_001):
    yield _named("thread_name", line.name, process, thread)
    order = {"sort_index": thread}
    yield {
      "ph": "M", "name": "thread_sort_index", "pid": process, "tid": thread,
      "args": order,
    }  # fmt: skip
    for event in line.events:
      yield {
        "ph": "X",
        "name": event.name,
        "pid": process,
        "tid": thread,
        "ts": event.start_ns / 1000,
        "dur": event.duration_ns / 1000,
        "args": dict(event.stats),
      }


def _named(
  what: str, name: str, process: int, thread: int = 0
) -> dict[str, Any]:
  found = {"ph": "M", "name": what, "pid": process, "args": {"name": name}}
  return found | {"tid": thread} if thread else found
