"""Dispatches random programs for a long time, and checks that nothing grows.

    JAX_IPU_DEVICE_COUNT=4 python -m benchmarks.soak --dispatches 100000

Several threads call, in random order, programs that keep state by donation,
fail in a host function, use deleted arrays, run on all IPUs together, with and
without donation, and take items of feeds, whole or split over the IPUs. Every
value is checked. Memory of the process, descriptors, threads and SRAM are
compared after a tenth of the dispatches and at the end.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import logging
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

SIZE = 64
# Of the process's memory: malloc's arenas and Python's own caches still fill.
ALLOWED_BYTES = 24 << 20
ALLOWED_DESCRIPTORS = 2
# Pools start their threads one by one, and those of feeds end a little later.
ALLOWED_THREADS = 8


class Grown(AssertionError):
  """Something grew; says what, and by how much."""


@dataclasses.dataclass(frozen=True)
class Usage:
  """What a process holds.

  Attributes:
    memory: resident bytes.
    descriptors: open ones.
    threads: of Python and of libraries.
    sram: bytes of arrays on each IPU.
  """

  memory: int
  descriptors: int
  threads: int
  sram: tuple[int, ...]

  @staticmethod
  def now(devices: Sequence[Any]) -> Usage:
    gc.collect()
    status = Path("/proc/self/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return Usage(
      int(fields["VmRSS"].split()[0]) * 1024,
      len(os.listdir("/proc/self/fd")),
      int(fields["Threads"]),
      tuple(d.memory_stats()["bytes_in_use"] for d in devices),
    )


class Soak:
  """Programs, and what threads do with them.

  Args:
    devices: IPUs.
    seed: of the order of what is done.
  """

  def __init__(self, devices: Sequence[Any], seed: int) -> None:
    self.devices = list(devices)
    self.seed = seed
    self.done = Counter[str]()
    self._lock = threading.Lock()
    self._axpy = jax.jit(lambda a, x, y: a * x + y)
    self._step = jax.jit(
      lambda s: (s[0] + 1, s[1] * 0 + s[0]), donate_argnums=0
    )
    self._call = jax.jit(self._may_fail)
    self._sum = jax.jit(self._sum_of_items, static_argnums=1)
    mesh = Mesh(np.array(self.devices), "i")
    self._rows = NamedSharding(mesh, P("i"))
    self._sum_of_parts = jax.jit(
      lambda feed, count: lax.fori_loop(
        1, count, lambda i, total: total + feed.next(), feed.next()
      ),
      static_argnums=1,
    )
    self._total = jax.jit(
      jax.shard_map(
        lambda x: lax.psum(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P()
      )
    )

  @staticmethod
  def _may_fail(x: jax.Array) -> jax.Array:
    def check(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
      if x[0] < 0:
        raise ValueError("negative")
      return x + 1

    return jax.pure_callback(check, jax.ShapeDtypeStruct((4,), np.float32), x)

  @staticmethod
  def _sum_of_items(feed: Any, count: int) -> jax.Array:
    return lax.fori_loop(
      0, count, lambda i, total: total + feed.next(), jnp.zeros(8, np.int32)
    )

  # What a thread does: each method is a few dispatches, and returns how many.

  def plain(self, draw: random.Random) -> int:
    device = draw.choice(self.devices)
    a, x, y = (draw.randrange(100) for _ in range(3))
    arrays = [
      jax.device_put(np.full(SIZE, v, np.float32), device) for v in (x, y)
    ]
    result = arrays[1]
    for _ in range(8):
      result = self._axpy(np.float32(1), arrays[0], result)
    expect(result, 8 * x + y)
    if a % 2:
      arrays[0].delete()
    return 8

  def donated(self, draw: random.Random) -> int:
    device = draw.choice(self.devices)
    state = jax.device_put(np.zeros((2, SIZE), np.float32), device)
    state = (state[0], state[1])
    count = draw.randrange(2, 12)
    for _ in range(count):
      state = self._step(state)
    expect(state[0], count)
    expect(state[1], count - 1)
    return count

  def deleted(self, draw: random.Random) -> int:
    x = jax.device_put(np.ones(SIZE, np.float32), draw.choice(self.devices))
    y = self._axpy(np.float32(2), x, x)
    x.delete()  # which a queued run may still read
    expect(y, 3)
    try:
      self._axpy(np.float32(2), x, x)
    except RuntimeError as error:
      assert "deleted" in str(error), error
    else:
      raise AssertionError("a deleted array was used")
    return 1

  def fails(self, draw: random.Random) -> int:
    device = draw.choice(self.devices)
    sign = draw.choice([-1, 1])
    x = jax.device_put(np.full(4, sign, np.float32), device)
    try:
      result = self._call(x)
      later = self._axpy(np.float32(1), result, result)
      expect(later, 4)
    except Exception as error:
      assert sign < 0 and "negative" in str(error), error
    else:
      assert sign > 0, "a host function's error was lost"
    return 2

  def gang(self, draw: random.Random) -> int:
    n = len(self.devices)
    x = np.arange(n * SIZE, dtype=np.float32).reshape(n, SIZE) % 8
    placed = jax.device_put(x, self._rows)
    results = [self._total(placed) for _ in range(4)]
    for result in results:
      np.testing.assert_array_equal(result[0], x.sum(0))
    return 4

  def donated_gang(self, draw: random.Random) -> int:
    zeros = np.zeros((len(self.devices), SIZE), np.float32)
    placed = jax.device_put((zeros, zeros), self._rows)
    count = draw.randrange(2, 6)
    state = placed
    for _ in range(count):
      state = self._step(state)
    assert all(x.is_deleted() for x in placed)
    expect(state[0], count)
    expect(state[1], count - 1)
    return count

  def feed(self, draw: random.Random) -> int:
    count = draw.randrange(1, 6)
    items = (np.full(8, i, np.int32) for i in range(count))
    feed = jax.ipu.feed(items, like=np.zeros(8, np.int32))
    leaves = jax.device_put(feed, draw.choice(self.devices))
    expect(self._sum(leaves, count), sum(range(count)))
    feed.close()
    return 1

  def fed_gang(self, draw: random.Random) -> int:
    count = draw.randrange(1, 4)
    n = len(self.devices)
    like = jax.ShapeDtypeStruct((n, 8), np.int32, sharding=self._rows)
    rows = np.arange(n * 8, dtype=np.int32).reshape(n, 8)
    feed = jax.ipu.feed((rows * i for i in range(count)), like=like)
    total = self._sum_of_parts(feed, count)
    np.testing.assert_array_equal(total, rows * sum(range(count)))
    feed.close()
    return 1

  def work(self, dispatches: int, thread: int) -> None:
    """What one thread does, until it has dispatched enough."""
    draw = random.Random(f"{self.seed}/{thread}")
    kinds: list[Callable[[random.Random], int]] = (
      [self.plain] * 8 + [self.donated] * 6 + [self.deleted, self.gang]
    )
    kinds += [self.fails, self.feed, self.fed_gang, self.donated_gang]
    left = dispatches
    while left > 0:
      kind = draw.choice(kinds)
      count = kind(draw)
      left -= count
      with self._lock:
        self.done[kind.__name__] += count

  def run(self, dispatches: int, threads: int) -> None:
    """Runs threads until all have ended.

    Raises:
      BaseException: the first of any thread.
    """
    errors: list[BaseException] = []

    def guarded(thread: int) -> None:
      try:
        self.work(-(-dispatches // threads), thread)
      except BaseException as error:
        errors.append(error)

    workers = [
      threading.Thread(target=guarded, args=(i,)) for i in range(threads)
    ]
    for worker in workers:
      worker.start()
    for worker in workers:
      worker.join()
    self.seed += 1
    if errors:
      raise errors[0]


def expect(array: jax.Array, value: float) -> None:
  np.testing.assert_array_equal(array, value)


def check(before: Usage, after: Usage) -> None:
  """Raises Grown if a process holds more than it may."""
  grown = []
  if after.memory - before.memory > ALLOWED_BYTES:
    grown.append(f"memory from {before.memory:,} to {after.memory:,} bytes")
  if after.descriptors - before.descriptors > ALLOWED_DESCRIPTORS:
    grown.append(
      f"descriptors from {before.descriptors} to {after.descriptors}"
    )
  if after.threads - before.threads > ALLOWED_THREADS:
    grown.append(f"threads from {before.threads} to {after.threads}")
  if any(a > b for a, b in zip(after.sram, before.sram)):
    grown.append(f"bytes in SRAM from {before.sram} to {after.sram}")
  if grown:
    raise Grown("; ".join(grown))


def main(arguments: Sequence[str] | None = None) -> int:
  parser = argparse.ArgumentParser(description="Nothing grows.")
  parser.add_argument("--dispatches", type=int, default=100_000)
  parser.add_argument("--threads", type=int, default=4)
  parser.add_argument("--seed", type=int, default=0)
  given = parser.parse_args(arguments)
  # JAX shows each exception of a host function; there are thousands.
  logging.getLogger("jax").setLevel(logging.CRITICAL)
  soak = Soak(jax.devices("ipu"), given.seed)
  begin = time.perf_counter()
  first = given.dispatches // 10
  soak.run(first, given.threads)
  before = Usage.now(soak.devices)
  soak.run(given.dispatches - first, given.threads)
  after = Usage.now(soak.devices)
  seconds = time.perf_counter() - begin
  total = sum(soak.done.values())
  print(f"{total:,} dispatches in {seconds:.0f} s: {dict(soak.done)}")
  print(f"before {before}\nafter  {after}")
  try:
    check(before, after)
  except Grown as error:
    print(f"grown: {error}", file=sys.stderr)
    return 1
  return 0


if __name__ == "__main__":
  sys.exit(main())
