"""Checks a program without running it.

Finds statically much of what the interpreter traps on: invalid indices, views
that leave their root, operands that are not on the tiles that read them, placed
tensors used before their exchange or after their root changed, memory that
another tensor has overwritten, missing costs. It never refuses a valid program;
checks that have no closed form and are too large to count are skipped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jaxlib.ipu.check import (
  same_code,
  verify_collective,
  verify_compute,
  verify_memory,
  verify_tables,
)
from jaxlib.ipu.check.verify_memory import dense
from jaxlib.ipu.check.verify_state import Verifier
from jaxlib.ipu.dtypes import COMPLEX, SIZE, DType, stored
from jaxlib.ipu.program import schema


def verify(program: schema.Program, constants: bytes | None = None) -> None:
  """Checks a whole program.

  Args:
    program: the program.
    constants: of the program; None: what it says of them is not checked.

  Raises:
    InvalidProgram: names the first defect.
  """
  _StepVerifier(program, constants).run()


class _StepVerifier(Verifier):
  """Checks the steps of a program in order."""

  def run(self) -> None:
    p = self.program
    verify_tables.check(self)
    self.sharers = verify_memory.sharers(p)
    self.defined = set(p.arguments)
    for i, t in enumerate(self.tensors):
      if t.root == i and t.space == schema.CONSTANT:
        self.defined.add(i)
    self.read_only = set(self.defined)
    # Loops write it by parts; the interpreter checks which.
    self.defined.update(
      i for i, t in enumerate(self.tensors) if t.space == schema.HOST
    )
    self.functions: dict[int, Any] = {}
    self.caller = len(p.functions)
    self.steps(p.steps, "")
    self.where = "program"
    missing = {
      r for r in p.results if math.prod(self.tensors[r].shape)
    } - self.defined
    self.require(not missing, f"no step writes the results {sorted(missing)}")

  def steps(self, steps: Sequence[schema.Step], path: str) -> None:
    for i, step in enumerate(steps):
      self.where = f"step {path}{i} ({type(step).__name__})"
      self.require(
        step.location < len(self.program.locations),
        f"there is no location {step.location}",
      )
      if not isinstance(step, schema.Repeat):
        self._cost(step.cost)
      self._step(step, f"{path}{i}")

  def _cost(self, cost: schema.Cost) -> None:
    values = (
      cost.compute_cycles, cost.exchange_cycles, cost.sync_cycles,
      cost.exchange_bytes, cost.flops,
    )  # fmt: skip
    self.require(
      all(math.isfinite(v) and v >= 0 for v in values),
      f"it costs {values}",
    )

  def _step(self, step: schema.Step, path: str) -> None:
    match step:
      case schema.Execute():
        verify_compute.check(self, step)
      case schema.Copy():
        self._copy(step)
      case schema.HostCopy():
        t = self.tensor(step.tensor)
        self.require(t.root == step.tensor, "streams a placed tensor")
        self.require(step.cost.exchange_cycles > 0, "a stream costs nothing")
      case schema.HostCallback():
        self._host_callback(step)
      case schema.PartitionId():
        t = self.tensor(step.tensor)
        self.require(
          t.dtype == DType.U32 and math.prod(t.shape) == 1,
          f"writes the device's number to type {t.dtype}, shape {t.shape}",
        )
        self.writes(step.tensor)
      case schema.Collective():
        verify_collective.check(self, step)
      case schema.HostMove():
        self._host_move(step)
      case schema.Infeed() | schema.Outfeed():
        self._feed(step)
      case schema.Repeat() | schema.While():
        self._loop(step, path)
      case schema.Switch():
        self._switch(step, path)
      case schema.Call():
        self._call(step, path)

  def _copy(self, step: schema.Copy) -> None:
    for m in step.moves:
      source, to = self.tensor(m.source), self.tensor(m.destination)
      self.require(
        SIZE[DType(source.dtype)] == SIZE[DType(to.dtype)],
        f"moves tensor {m.source} to {m.destination} of another item size",
      )
      self.inside(m.source, m.source_offset, m.shape, m.source_strides)
      self.inside(
        m.destination, m.destination_offset, m.shape, m.destination_strides
      )
      self.reads(m.source)
    for m in step.moves:
      t = self.tensor(m.destination)
      if t.root == m.destination:
        self.writes(m.destination)
        continue
      same = (
        m.source == t.root
        and (m.source_offset, m.source_strides) == (t.offset, t.strides)
        and (m.shape, m.destination_offset) == (t.shape, 0)
        and m.destination_strides == dense(t.shape)
      )
      self.require(
        same, f"tensor {m.destination} gets another view than its own"
      )
    # A root that changes in the same exchange makes its views stale.
    written = {m.destination for m in step.moves}
    for m in step.moves:
      t = self.tensor(m.destination)
      if t.root != m.destination and t.root not in written:
        self.fresh.add(m.destination)

  def _host_callback(self, step: schema.HostCallback) -> None:
    self.require(step.cost.exchange_cycles > 0, "a round trip costs nothing")
    for array in (*step.operands, *step.results):
      self._host_array(array)
    for array in step.operands:
      self.reads(array.tensor)
    results = [a.tensor for a in step.results]
    self.require(
      len(set(results)) == len(results) == len(step.aliases),
      f"writes to {results}, which alias {step.aliases}",
    )
    for result, operand in zip(results, step.aliases, strict=True):
      self.require(
        -1 <= operand < len(step.operands),
        f"result {result} takes the place of operand {operand}",
      )
      for array in step.operands:
        self.keeps_apart(array.tensor, result, in_place=False)
      self.writes(result)

  def _host_move(self, step: schema.HostMove) -> None:
    self.require(step.cost.exchange_cycles > 0, "a stream costs nothing")
    source, to = self.tensor(step.source), self.tensor(step.destination)
    self.require(
      (source.space == schema.HOST) != (to.space == schema.HOST),
      f"one of tensors {step.source} and {step.destination} has to be in the "
      "host's memory",
    )
    shape, part = source.shape, to.shape
    if to.space == schema.HOST:
      shape, part = part, shape
    if step.index != schema.NONE:
      self._scalar(step.index, (DType.I32,))
      self.require(shape[:1] > [0], f"a part of an array of shape {shape}")
      shape = shape[1:]
    self.require(
      source.root == step.source and (source.dtype, shape) == (to.dtype, part),
      f"streams tensor {step.source} to {step.destination}, which are not "
      "roots of one type that fit",
    )
    self.reads(step.source, streams=True)
    self.keeps_apart(step.source, step.destination, in_place=False)
    self.writes(step.destination)

  def _feed(self, step: schema.Infeed | schema.Outfeed) -> None:
    self.require(step.cost.exchange_cycles > 0, "a stream costs nothing")
    if isinstance(step, schema.Outfeed):
      for array in step.operands:
        self._host_array(array)
        self.reads(array.tensor)
      return
    if step.feed != schema.NONE:
      self._scalar(step.feed, (DType.U32,))
    for array in step.results:
      self._host_array(array)
    written = fed(step)
    if step.valid != schema.NONE:
      t = self.tensor(step.valid)
      self.require(
        t.shape == [] and t.dtype == DType.BOOL,
        f"tensor {step.valid} says whether there was an item",
      )
    self.require(len(set(written)) == len(written), f"writes to {written}")
    for number in written:
      self.writes(number)

  def _host_array(self, array: schema.HostArray) -> None:
    t = self.tensor(array.tensor)
    self.require(t.root == array.tensor, "streams a placed tensor")
    self.require(
      array.dtype in SIZE and t.dtype == stored(DType(array.dtype)),
      f"tensor {array.tensor} of type {t.dtype} is of type {array.dtype} to "
      "the host",
    )
    shape = t.shape
    if array.dtype in COMPLEX:
      self.require(shape[-1:] == [2], f"tensor {array.tensor} is not of pairs")
      shape = shape[:-1]
    self.require(
      sorted(array.dims) == list(range(len(shape))),
      f"tensor {array.tensor} with its dimensions {array.dims}",
    )

  def _loop(self, step: schema.Repeat | schema.While, path: str) -> None:
    """Checks a loop; placed tensors that an iteration makes stale are stale in
    the next one."""
    where = self.where
    for number in written_in([step], self.tensors):
      self.fresh.difference_update(self.views.get(number, ()))
    exits: list[tuple[set[int], set[int]]] = []
    for _ in range(2):  # the second iteration starts from the first one's state
      before = set(self.defined), set(self.fresh)
      if isinstance(step, schema.While):
        self.steps(step.condition, f"{path}.condition.")
        self.where = where
        self._scalar(step.predicate, (DType.BOOL,))
      exits.append((set(self.defined), set(self.fresh)))
      self.steps(step.body, f"{path}.body.")
      # An iteration that starts from no less has no new errors. Without this a
      # nest of loops would take exponential time.
      if before[0] <= self.defined and before[1] <= self.fresh:
        break
    self.defined = set.intersection(*(d for d, _ in exits))
    self.fresh = set.intersection(*(f for _, f in exits))

  def _switch(self, step: schema.Switch, path: str) -> None:
    self._scalar(step.selector, (DType.BOOL, DType.I32))
    self.require(bool(step.branches), "a switch without branches")
    defined, fresh = set(self.defined), set(self.fresh)
    after: list[tuple[set[int], set[int]]] = []
    for i, branch in enumerate(step.branches):
      self.defined, self.fresh = set(defined), set(fresh)
      self.steps(branch.steps, f"{path}.branch{i}.")
      after.append((self.defined, self.fresh))
    self.defined = set.intersection(*(d for d, _ in after))
    self.fresh = set.intersection(*(f for _, f in after))

  def _call(self, step: schema.Call, path: str) -> None:
    self.require(
      step.function < self.caller,
      f"calls function {step.function} of {len(self.program.functions)}, in "
      f"function {self.caller}",
    )
    steps = same_code.of(step.body)
    first = self.functions.setdefault(step.function, steps)
    self.require(
      first == steps, f"its steps are not those of function {step.function}"
    )
    outer, self.caller = self.caller, step.function
    self.steps(step.body, f"{path}.body.")
    self.caller = outer

  def _scalar(self, number: int, allowed: tuple[DType, ...]) -> None:
    t = self.tensor(number)
    self.require(
      math.prod(t.shape) == 1 and t.dtype in allowed,
      f"tests tensor {number} of type {t.dtype} and shape {t.shape}",
    )
    self.reads(number)


def fed(step: schema.Infeed) -> list[int]:
  """The roots that an item is written to."""
  written = [a.tensor for a in step.results]
  return written if step.valid == schema.NONE else [*written, step.valid]


def written_in(
  steps: Sequence[schema.Step], tensors: Sequence[schema.Tensor]
) -> set[int]:
  """All tensors that these steps and their nested steps may write."""
  found: set[int] = set()
  for step in steps:
    match step:
      case schema.Copy():
        found.update(m.destination for m in step.moves)
      case schema.HostMove():
        found.add(step.destination)
      case schema.Infeed():
        found.update(fed(step))
      case schema.Execute() | schema.HostCallback():
        found.update(tensors[a.tensor].root for a in step.results)
      case schema.PartitionId():
        found.add(step.tensor)
      case schema.Collective():
        found.update(step.results)
      case schema.Repeat() | schema.Call():
        found |= written_in(step.body, tensors)
      case schema.While():
        found |= written_in(step.condition, tensors)
        found |= written_in(step.body, tensors)
      case schema.Switch():
        for branch in step.branches:
          found |= written_in(branch.steps, tensors)
  return found
