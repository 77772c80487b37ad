"""Joins this process with the others of `jax.distributed`.

Every process publishes in JAX's key-value store how many IPUs it has, for which
machine it compiles and where it listens. When all have done so, each two of
them connect, the one with the larger number to the other.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import socket
import threading
import time
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from jaxlib.ipu.transport import Transport

# JAX's functions cannot be interrupted while they wait.
_SLICE = 0.5  # seconds

# The key-value store outlives clients.
_clients = itertools.count()


class ProcessError(RuntimeError):
  """Processes that cannot work together: names them, and says what to do."""


@dataclasses.dataclass(frozen=True)
class Group:
  """The processes of `jax.distributed`.

  Attributes:
    store: JAX's client of the key-value store.
    process: the number of this process.
    count: the number of processes.
    coordinator: HOST:PORT of the first one.
  """

  store: Any
  process: int
  count: int
  coordinator: str


@dataclasses.dataclass(frozen=True)
class _Card:
  """What a process publishes.

  Attributes:
    devices: the number of its IPUs.
    machine: what programs depend on besides their source.
    host, port: where it listens.
    key: proves that who connects has read this card, in hexadecimal.
  """

  devices: int
  machine: str
  host: str
  port: int
  key: str


def join(
  group: Group, devices: int, machine: str, timeout: float
) -> tuple[list[int], Transport]:
  """Waits for the other processes and connects to them.

  Args:
    group: of this process.
    devices: the number of its IPUs.
    machine: what programs depend on besides their source; has to be the same
      in all processes.
    timeout: seconds to wait for each of them; 0: for ever.

  Returns:
    How many IPUs each process has, and the connections.

  Raises:
    ProcessError: a process does not answer, or has another machine.
  """
  end = time.monotonic() + timeout if timeout else float("inf")
  key = os.urandom(16)
  listener = Listener(
    (_own_address(group.coordinator), 0), backlog=group.count, authkey=key
  )
  host, port = listener.address
  card = _Card(devices, machine, host, port, key.hex())
  prefix = f"processes/{next(_clients)}/"
  group.store.key_value_set(
    f"ipu/{prefix}{group.process}", json.dumps(dataclasses.asdict(card))
  )
  cards = []
  for process in range(group.count):
    if process == group.process:
      cards.append(card)
      continue
    text = _get(group, f"ipu/{prefix}{process}", process, end, timeout)
    cards.append(_Card(**json.loads(text)))
  for process, other in enumerate(cards):
    if other.machine != machine:
      raise ProcessError(
        f"processes {group.process} and {process} cannot run programs together,"
        f" because they compile differently: '{machine}' and '{other.machine}';"
        " use the same IPU backend, flags and JAX_IPU_MODEL_VERSION in all"
      )
  connections = _connect(group, listener, cards, end, timeout)
  return [other.devices for other in cards], Transport(connections)


def _own_address(coordinator: str) -> str:
  """This machine's address on the way to the coordinator."""
  host, _, port = coordinator.rpartition(":")
  with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    probe.connect((host, int(port)))  # sends nothing
    return str(probe.getsockname()[0])


def _late(group: Group, process: int, timeout: float) -> ProcessError:
  return ProcessError(
    f"process {process} of {group.count} did not start its IPU backend within "
    f"{timeout:g} s of process {group.process}: it has ended, hangs, or uses "
    "no device; JAX_IPU_COLLECTIVE_TIMEOUT sets how long to wait"
  )


def _get(
  group: Group, key: str, process: int, end: float, timeout: float
) -> str:
  """What a process has published."""
  while True:
    left = min(_SLICE, end - time.monotonic())
    try:
      return str(
        group.store.blocking_key_value_get(key, max(1, round(left * 1000)))
      )
    except Exception as error:
      if "DEADLINE_EXCEEDED" not in str(error):
        raise
      if time.monotonic() >= end:
        raise _late(group, process, timeout) from error


def _connect(
  group: Group,
  listener: Listener,
  cards: list[_Card],
  end: float,
  timeout: float,
) -> dict[int, Connection]:
  """A connection to each other process."""
  connections: dict[int, Connection] = {}
  changed = threading.Condition()

  def add(process: int, connection: Connection) -> None:
    with changed:
      connections[process] = connection
      changed.notify_all()

  def accept() -> None:
    expected = group.count - 1 - group.process
    while expected:
      try:
        connection = listener.accept()
        process = int.from_bytes(connection.recv_bytes(8), "little")
      except (ConnectionError, EOFError, AuthenticationError):
        continue  # somebody else
      add(process, connection)
      expected -= 1
    listener.close()

  def call(process: int) -> None:
    card = cards[process]
    try:
      connection = Client(
        (card.host, card.port), authkey=bytes.fromhex(card.key)
      )
      connection.send_bytes(group.process.to_bytes(8, "little"))
    except (OSError, EOFError):
      return  # it has ended
    add(process, connection)

  works = [threading.Thread(target=accept, daemon=True)]
  for process in range(group.process):
    works.append(threading.Thread(target=call, args=(process,), daemon=True))
  for work in works:
    work.start()
  missing = set(range(group.count)) - {group.process}
  with changed:
    while missing - connections.keys():
      left = min(_SLICE, end - time.monotonic())
      if left <= 0:
        raise _late(group, min(missing - connections.keys()), timeout)
      changed.wait(left)
  return connections
