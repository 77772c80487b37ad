"""Liveness: when each root's values are needed.

Times are places in program order, two per step: a step reads at its time and
writes at the odd time after it. A backward traversal keeps the set of live
roots and follows loops and branches in the flow graph (`flow.py`): what a loop
reads before it writes is live around the back edge, and each branch starts from
what is live after all of them. Roots that a loop or a branch does not touch
cost nothing there, however many are live.

A partial write keeps the rest of its root, which is therefore live before it.
The exception is the first write to a root that is assembled from parts, all of
which are written before any is read.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Collection
from typing import Any

from jaxlib.ipu.codelets import CODELETS
from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.lower.flow import Event, Fork, Loop
from jaxlib.ipu.lower.tensors import TensorInfo
from jaxlib.ipu.lower.view import dense_strides
from jaxlib.ipu.program import schema


class Timeline:
  """The steps with times; `intervals` of each root after `analyse`."""

  def __init__(
    self,
    steps: list[Any],
    tensors: list[TensorInfo],
    assembled: Collection[int] = (),
  ) -> None:
    self._tensors = tensors
    self._unbegun = set(assembled)  # roots whose first part is yet to come
    self._now = 0
    self.intervals: dict[int, list[tuple[int, int]]] = defaultdict(list)
    # Placed tensors: from their exchange to their last use.
    self.placed_intervals: dict[int, list[tuple[int, int]]] = {}
    self._open: dict[int, int] = {}
    self.times: dict[int, int] = {}  # of steps, by their ids
    # Copies by their times, and the roots that they both read and write, except
    # for elements that stay in place.
    self.permuted: dict[int, tuple[schema.Copy, set[int]]] = {}
    # The begins of the loops around the current step; tensors placed before one
    # of them and used in it.
    self._loops: list[int] = []
    self._held: list[set[int]] = []
    self.events: list[Event] = []
    self._tree = self._number(steps)
    self.end = self._now

  # --- Forward: times ------------------------------------------------------

  def _tick(self) -> int:
    now = self._now
    self._now += 2
    return now

  def _number(self, steps: list[Any]) -> list[Any]:
    out: list[Any] = []
    for step in steps:
      self.times[id(step)] = self._now
      if isinstance(step, (schema.While, schema.Repeat)):
        out.append(self._number_loop(step))
      elif isinstance(step, schema.Switch):
        out.append(self._event(self._tick(), reads=[step.selector]))
        time = self._tick()
        branches = []
        for branch in step.branches:
          start = self._tick()
          nodes = self._number(branch.steps)
          branches.append((start, nodes, self._tick()))
        out.append(Fork.of(time, branches, self._tick()))
      elif isinstance(step, schema.Execute):
        out.append(self._execute(step))
      elif isinstance(step, schema.Copy):
        out.append(self._copy(step))
      elif isinstance(step, schema.HostCopy):
        out.append(self._event(self._tick(), reads=[step.tensor]))
      elif isinstance(step, schema.HostCallback):
        reads = [a.tensor for a in step.operands]
        full = [a.tensor for a in step.results]
        out.append(self._event(self._tick(), reads=reads, full=full))
    return out

  def _number_loop(self, step: schema.While | schema.Repeat) -> Loop:
    begin = self._tick()
    self._loops.append(begin)
    self._held.append(set())
    condition: list[Any] = []
    condition_end = begin
    if isinstance(step, schema.While):
      condition = self._number(step.condition)
      condition.append(self._event(self._tick(), reads=[step.predicate]))
      condition_end = self._now
    body = self._number(step.body)
    end = self._tick()
    self._loops.pop()
    # Tensors placed before a loop and used in it stay for all iterations.
    for number in self._held.pop():
      ((placed, _),) = self.placed_intervals[number]
      self.placed_intervals[number] = [(placed, end)]
    return Loop.of(condition, condition_end, body, end)

  def _use(self, number: int, early: bool) -> None:
    """Records that the current step reads a placed tensor; `early`: before it
    writes anything."""
    ((begin, _),) = self.placed_intervals[number]
    end = self._now + (0 if early else 1)
    self.placed_intervals[number] = [(begin, end)]
    outermost = bisect.bisect_right(self._loops, begin)
    if outermost < len(self._loops):
      self._held[outermost].add(number)

  def _event(
    self,
    time: int,
    early: list[int] | None = None,
    reads: list[int] | None = None,
    full: list[int] | None = None,
    partial: list[int] | None = None,
    copies: list[schema.Move] | None = None,
  ) -> Event:
    event = Event(
      time, early or [], reads or [], full or [], partial or [], copies or []
    )
    self.events.append(event)
    return event

  def _execute(self, step: schema.Execute) -> Event:
    tensors = self._tensors
    results = list(dict.fromkeys(tensors[a.tensor].root for a in step.results))
    codelet = CODELETS[type(step.fields)]
    # A result that is part of a root does not begin where an operand does.
    in_place = codelet.in_place and results == [a.tensor for a in step.results]
    sizes = {SIZE[tensors[r].dtype] for r in results}
    # The one element of a scalar map is read before any result is written.
    scalar = in_place and math.prod(step.shape) == 1
    early, reads = [], []
    identity = list(range(len(step.shape)))
    for access in step.operands:
      t = tensors[access.tensor]
      if t.root != access.tensor:
        replaced = in_place and sizes == {SIZE[t.dtype]}
        self._use(access.tensor, replaced and _in_order(access, t, step))
      same_index = scalar or (
        in_place
        and sizes == {SIZE[t.dtype]}
        and access.dims == identity
        and t.offset == 0
        and t.size == tensors[t.root].size
        and tuple(t.strides) == dense_strides(t.shape)
      )
      (early if same_index else reads).append(t.root)
    if codelet.updates(step.fields):
      return self._event(self._tick(), early, reads, partial=results)
    return self._event(self._tick(), early, reads, full=results)

  def _copy(self, step: schema.Copy) -> Event:
    tensors = self._tensors
    reads, copies = [], []
    written: dict[int, int] = defaultdict(int)
    for move in step.moves:
      size = math.prod(move.shape)
      reads.append(move.source)
      root = tensors[move.destination].root
      if root != move.destination:
        self.placed_intervals[move.destination] = [(self._now, self._now + 1)]
        continue
      written[root] += size
      if move.source == root and not (
        move.source_offset == move.destination_offset
        and _equal_strides(
          move.source_strides, move.destination_strides, move.shape
        )
      ):
        self.permuted.setdefault(self._now, (step, set()))[1].add(root)
      dense = list(dense_strides(move.shape))
      if (
        size == tensors[root].size == tensors[move.source].size
        and _equal_strides(move.source_strides, dense, move.shape)
        and _equal_strides(move.destination_strides, dense, move.shape)
      ):
        copies.append(move)
    full = [
      r
      for r, n in written.items()
      if n == tensors[r].size or r in self._unbegun
    ]
    partial = [r for r in written if r not in full]
    self._unbegun.difference_update(full)
    return self._event(self._tick(), [], reads, full, partial, copies)

  # --- Backward: liveness --------------------------------------------------

  def analyse(self, live_at_end: list[int]) -> None:
    """Fills `intervals`; `live_at_end` are the roots that outlive the run."""
    self._open = {r: self.end + 1 for r in live_at_end}
    self._walk(self._tree)
    for root, end in self._open.items():
      self.intervals[root].append((0, end))
    for intervals in self.intervals.values():
      intervals.reverse()

  def _walk(self, nodes: list[Any]) -> None:
    for node in reversed(nodes):
      if isinstance(node, Event):
        self._step(node)
      elif isinstance(node, Loop):
        self._loop(node)
      else:
        self._fork(node)

  def _step(self, event: Event) -> None:
    copied = {m.source for m in event.copies}
    for root in event.full_writes:
      end = self._open.pop(root, event.time + 1)
      self.intervals[root].append((event.time + 1, end))
    for root in event.partial_writes:
      self._open.setdefault(root, event.time + 1)
    for root in event.reads:
      # A coalesced copy reads and writes at once; `allocate` extends the
      # lifetimes of others.
      late = 0 if root in copied else 1
      self._open.setdefault(root, event.time + late)
    for root in event.early_reads:
      self._open.setdefault(root, event.time)

  def _loop(self, loop: Loop) -> None:
    # The body may not run at all: values that it writes and that are needed
    # after it are needed before it, too.
    after = [root for root in loop.body_touched if root in self._open]
    for root in loop.summary.exposed:
      self._open.setdefault(root, loop.end)
    self._walk(loop.body)
    for root in after:
      self._open.setdefault(root, loop.condition_end)
    self._walk(loop.condition)

  def _fork(self, fork: Fork) -> None:
    touched = fork.summary.touched
    after = [root for root in touched if root in self._open]
    for root in after:
      self.intervals[root].append((fork.end, self._open.pop(root)))
    before: set[int] = set()
    for start, nodes, end in reversed(fork.branches):
      for root in after:
        self._open[root] = end
      self._walk(nodes)
      for root in touched:
        if root in self._open:
          self.intervals[root].append((start, self._open.pop(root)))
          before.add(root)
    for root in before:
      self._open[root] = fork.time


def _in_order(
  access: schema.Access, t: TensorInfo, step: schema.Execute
) -> bool:
  """Whether a step reads each element of a placed tensor once, in the order of
  its iteration space: then a result can take its place."""
  walked = [d for d in access.dims if d >= 0]
  return (
    t.size == math.prod(step.shape)
    and not t.layout.replicas
    and walked == sorted(walked)
    and all(
      a.dims == access.dims for a in step.operands if a.tensor == access.tensor
    )
  )


def _equal_strides(a: list[int], b: list[int], shape: list[int]) -> bool:
  return all(x == y or n == 1 for x, y, n in zip(a, b, shape))
