"""Runs XLA's partitioner, and stops XLA before it generates code.

XLA offers the partitioner as a part of its compilers only. A private client of
XLA:CPU compiles the module with the passes that partition it, the last of which
calls back with the result; raising an error there ends the compilation.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import itertools
import threading
from typing import Any

from jaxlib.ipu import internals
from jaxlib.ipu.diagnostics import internal, unimplemented
from jaxlib.ipu.partition import errors
from jaxlib.ipu.partition.options import Sharding

# From calls and shardings to one device's module. XLA:CPU's simplifier is left
# out: the code generator that it prepares for accepts transposed layouts.
_PASSES = (
  "flatten-call-graph",
  "call-inliner",
  "zero_sized_hlo_elimination",
  "shardy-xla",
  "spmd-partitioning",
  "spmd-partitioner",
  "batched_gather_scatter_normalizer",
  "dce",
  "cse",
  "tuple-simplifier",
)

# Names of the modules to partition begin so; other compilations of XLA:CPU, the
# user's, call back too.
PREFIX = "ipu_partition_"
_numbers = itertools.count()
_results: dict[str, bytes | None] = {}

# In JAX 0.12 the pass that calls back has a number, that of such passes made
# before in this process. XLA:CPU makes two of them in each compilation, as seen
# by the callback, and some before it was registered.
_BEFORE = 1_000
_PER_COMPILATION = 2
# A limit of the search, far above the compilations of any process.
_MOST_NAMES = 1 << 18


class _Count:
  """The compilations of XLA:CPU in this process, at most."""

  def __init__(self) -> None:
    self.compilations = 0
    self.before = _BEFORE

  @property
  def passes(self) -> int:
    return self.before + _PER_COMPILATION * self.compilations


_count = _Count()


class _Done(Exception):
  """Ends a compilation whose result is known."""


def _take(proto: bytes) -> None:
  """Called for each module that XLA:CPU compiles."""
  _count.compilations += 1
  name = _name(proto)
  if name in _results:
    _results[name] = bytes(proto)
    raise _Done("partitioned")


def _name(proto: bytes) -> str:
  """The name of a serialised HLO module, its first field, if it is one of
  ours, which are short."""
  start, end = 2, 2 + proto[1]
  name = bytes(proto[start:end])
  return name.decode() if name.startswith(PREFIX.encode()) else ""


@functools.cache
def _xla() -> internals.Xla | None:
  """XLA; calls back from now on."""
  found = internals.xla()
  if found is not None:
    found.call_back("ipu_partition", _take)
  return found


@functools.cache
def _client(num_devices: int) -> Any:
  return load().cpu_client(num_devices)


_lock = threading.RLock()


def load() -> internals.Xla:
  """XLA's partitioner.

  Raises:
    CompileError: this version of jaxlib has none of the known form.
  """
  with _lock:
    found = _xla()
  if found is None:
    raise unimplemented(
      "programs for several IPUs with this version of jaxlib",
      instead="install a jax and jaxlib that this IPU backend was tested with",
    )
  return found


def new_name() -> str:
  """A name for a module to partition."""
  return f"{PREFIX}{next(_numbers)}"


def run(module: Any, name: str, sharding: Sharding) -> bytes:
  """Partitions a module.

  Args:
    module: it, in MLIR.
    name: its name, of `new_name`.
    sharding: how it is split.

  Returns:
    The module of each device, a serialised `HloModuleProto`.

  Raises:
    CompileError: XLA cannot partition it.
  """
  out = io.BytesIO()
  module.operation.write_bytecode(out)
  code = out.getvalue()
  xla = load()
  with _lock:
    client = _client(sharding.num_partitions)
  settings = dataclasses.asdict(sharding)
  count, first = _count.passes, None
  _results[name] = None
  try:
    while True:
      names = xla.call_back_passes(count)
      error = None
      try:
        xla.run_passes(client, code, [*_PASSES, *names], settings)
      except RuntimeError as raised:  # jaxlib's JaxRuntimeError
        error = raised
      if (result := _results[name]) is not None:
        _count.before += max(count - _count.passes, 0)
        return result
      # XLA went on to generate code if the pass has a higher number.
      count *= 2
      more = xla.call_back_passes(count)
      if error is not None and (first is not None or names == more):
        raise errors.of_partitioner(error, module, sharding.num_partitions)
      if names == more or len(more) > _MOST_NAMES:
        raise internal("XLA's partitioner has no pass that calls back")
      first = error
  finally:
    del _results[name]
