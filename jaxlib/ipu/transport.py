"""Messages between the processes of `jax.distributed`.

The library sends and receives through the C functions registered here
(runtime/pjrt/transport.h). Below them are the connections of Python's
`multiprocessing`, one for each two processes: authenticated streams of byte
strings, there wherever Python is. `processes.py` makes the connections.

Each connection has a thread that writes and one that reads. Messages are
buffered where they arrive, so sending waits for nobody, and a process that
hangs keeps no other from going on.
"""

from __future__ import annotations

import atexit
import collections
import ctypes
import json
import queue
import threading
import time
import traceback
from collections.abc import Iterable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from jaxlib.ipu.host_functions import keep_thread_state

_CANCELLED, _INTERNAL, _UNAVAILABLE = 1, 13, 14  # PJRT_Error_Code
# At the end of Python: how long to wait for what is still to be written.
_FLUSH_SECONDS = 5.0
_FOREVER = 10 * 365 * 24 * 3600 * 1000  # milliseconds

# A channel, that of the devices that run programs together, and the number of
# the run there.
Run = tuple[str, int]


class MessageError(Exception):
  """A message that will not come.

  Attributes:
    code: the PJRT error code.
  """

  def __init__(self, code: int, message: str) -> None:
    super().__init__(message)
    self.code = code


class _Ended:
  """The runs of a channel that are over. They end about in order."""

  def __init__(self) -> None:
    self._first = 0  # all before it are over
    self._others: set[int] = set()

  def add(self, run: int) -> None:
    self._others.add(run)
    while self._first in self._others:
      self._others.remove(self._first)
      self._first += 1

  def __contains__(self, run: int) -> bool:
    return run < self._first or run in self._others


class Transport:
  """The connections of this process. Thread-safe.

  Attributes:
    functions: what the library calls, which lives as long as this.

  Args:
    connections: one to each other process, by its number.
  """

  functions: ctypes.Structure

  def __init__(self, connections: Mapping[int, Connection]) -> None:
    self._changed = threading.Condition()
    # What has arrived, by sender and run: by tag what it is and its data.
    self._messages: dict[tuple[int, Run], dict[str, tuple[str, bytes]]] = {}
    self._failures: dict[tuple[int, Run], MessageError] = {}
    self._ended: dict[str, _Ended] = collections.defaultdict(_Ended)
    self._gone: dict[int, MessageError] = {}
    self._closed = False
    self._queues: dict[int, queue.SimpleQueue[Any]] = {}
    self._writers = []
    for process, connection in connections.items():
      self._queues[process] = queue.SimpleQueue()
      for work in (self._write, self._read):
        thread = threading.Thread(
          target=work,
          args=(process, connection),
          name=f"ipu_{work.__name__.strip('_')}_{process}",
          daemon=True,
        )
        thread.start()
        if work == self._write:
          self._writers.append(thread)

  def send(
    self,
    processes: Iterable[int],
    run: Run,
    tag: str,
    what: str,
    data: bytes,
  ) -> None:
    """Sends a message to some processes."""
    header = json.dumps([*run, tag, what, 0]).encode()
    for process in processes:
      self._queues[process].put((header, data))

  def receive(
    self, process: int, run: Run, tag: str, seconds: float
  ) -> tuple[str, bytes] | None:
    """Waits for a message; returns what it is and its data, or None if it did
    not come in time.

    Raises:
      MessageError: the sender has failed in this run, or has ended.
    """
    end = time.monotonic() + seconds
    with self._changed:
      while True:
        found = self._messages.get((process, run), {}).pop(tag, None)
        if found is not None:
          return found
        failure = self._failures.get((process, run), self._gone.get(process))
        if failure is not None:
          raise failure
        if self._closed:
          raise MessageError(_CANCELLED, "Python is shutting down")
        left = end - time.monotonic()
        if left <= 0:
          return None
        self._changed.wait(left)

  def fail(
    self, processes: Iterable[int], run: Run, code: int, message: str
  ) -> None:
    """Lets processes that receive from this one in this run fail."""
    header = json.dumps([*run, "", message, code]).encode()
    for process in processes:
      self._queues[process].put((header, b""))

  def end(self, run: Run) -> None:
    """Drops what has arrived for a run, and what is still to arrive."""
    channel, number = run
    with self._changed:
      self._ended[channel].add(number)
      for arrived in (self._messages, self._failures):
        for process in self._queues:
          arrived.pop((process, run), None)

  def close(self) -> None:
    """Sends what is to be sent and ends all waiting."""
    with self._changed:
      self._closed = True
      self._changed.notify_all()
    for waiting in self._queues.values():
      waiting.put(None)
    end = time.monotonic() + _FLUSH_SECONDS
    for writer in self._writers:
      writer.join(max(0.0, end - time.monotonic()))

  def _write(self, process: int, connection: Connection) -> None:
    while (item := self._queues[process].get()) is not None:
      try:
        for part in item:
          connection.send_bytes(part)
      except OSError as error:
        self._has_gone(process, error)

  def _read(self, process: int, connection: Connection) -> None:
    while True:
      try:
        header = json.loads(connection.recv_bytes())
        data = connection.recv_bytes()
      except (EOFError, OSError, ValueError) as error:
        return self._has_gone(process, error)
      channel, number, tag, what, code = header
      run = channel, number
      with self._changed:
        if number in self._ended[channel]:
          continue
        if code:
          self._failures[process, run] = MessageError(code, what)
        else:
          self._messages.setdefault((process, run), {})[tag] = what, data
        self._changed.notify_all()

  def _has_gone(self, process: int, error: Exception) -> None:
    why = f": {error}" if str(error) else ""
    with self._changed:
      self._gone[process] = MessageError(
        _UNAVAILABLE,
        f"process {process} has ended or its connection is broken{why}; "
        "programs that it takes part in cannot run any more",
      )
      self._changed.notify_all()


_text, _size = ctypes.c_char_p, ctypes.c_size_t
_processes = ctypes.POINTER(ctypes.c_int)
_Send = ctypes.CFUNCTYPE(
  None,
  _processes,
  _size,
  _text,
  ctypes.c_uint64,
  _text,
  _text,
  ctypes.c_void_p,
  _size,
)
_Receive = ctypes.CFUNCTYPE(
  None,
  ctypes.c_int,
  _text,
  ctypes.c_uint64,
  _text,
  ctypes.c_int64,
  ctypes.c_void_p,
)
_Fail = ctypes.CFUNCTYPE(
  None, _processes, _size, _text, ctypes.c_uint64, ctypes.c_int, _text
)
_End = ctypes.CFUNCTYPE(None, _text, ctypes.c_uint64)


class _Functions(ctypes.Structure):
  """ipu_transport of runtime/pjrt/transport.h."""

  _fields_ = [
    ("send", _Send),
    ("receive", _Receive),
    ("fail", _Fail),
    ("end", _End),
  ]


def connect(library: ctypes.CDLL, transport: Transport, timeout: float) -> None:
  """Makes the library use a transport, until Python ends.

  Args:
    library: `plugin.load()`.
    transport: that of the client that is about to be made.
    timeout: seconds after which waiting for another process fails; 0: never.
  """
  set_transport = library.ipu_set_transport
  set_transport.argtypes = [ctypes.POINTER(_Functions), ctypes.c_int64]
  set_transport.restype = None
  library.ipu_message_arrived.argtypes = [ctypes.c_void_p, _text, _size]
  library.ipu_message_arrived.restype = ctypes.c_void_p
  library.ipu_message_failed.argtypes = [ctypes.c_void_p, ctypes.c_int, _text]
  library.ipu_message_failed.restype = None

  def send(
    processes: Any,
    count: int,
    channel: bytes,
    run: int,
    tag: bytes,
    what: bytes,
    data: int,
    size: int,
  ) -> None:
    keep_thread_state()
    transport.send(
      processes[:count],
      (channel.decode(), run),
      tag.decode(),
      what.decode(errors="replace"),
      ctypes.string_at(data, size),
    )

  def receive(
    process: int,
    channel: bytes,
    run: int,
    tag: bytes,
    milliseconds: int,
    sink: int,
  ) -> None:
    keep_thread_state()
    try:
      found = transport.receive(
        process, (channel.decode(), run), tag.decode(), milliseconds / 1000
      )
      if found is None:
        return
      what, data = found
      to = library.ipu_message_arrived(sink, what.encode(), len(data))
      if to is not None:
        ctypes.memmove(to, data, len(data))
    except MessageError as error:
      library.ipu_message_failed(sink, error.code, str(error).encode())
    except BaseException:  # reported here or never
      text = traceback.format_exc().encode(errors="replace")
      library.ipu_message_failed(sink, _INTERNAL, text)

  def fail(
    processes: Any,
    count: int,
    channel: bytes,
    run: int,
    code: int,
    message: bytes,
  ) -> None:
    keep_thread_state()
    text = message.decode(errors="replace")
    transport.fail(processes[:count], (channel.decode(), run), code, text)

  def end(channel: bytes, run: int) -> None:
    keep_thread_state()
    transport.end((channel.decode(), run))

  functions = _Functions(_Send(send), _Receive(receive), _Fail(fail), _End(end))
  # Waits for running calls, without holding the GIL. Runs after `close`.
  atexit.register(set_transport, None, 0)
  atexit.register(transport.close)
  transport.functions = functions
  set_transport(functions, round(timeout * 1000) or _FOREVER)
