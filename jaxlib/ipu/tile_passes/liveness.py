"""Liveness: when each root's values are needed.

Times are places in program order, two per step: a step reads at an even time
and writes at the odd time after it. A backward traversal of the flow graph
(`flow.py`) keeps the set of live roots. What an iteration of a loop may read
before it writes it is live from iteration to iteration. The traversal of each
branch starts with the roots that are live after all of them. In a loop or
branch, only the roots that it touches are considered, however many are live.

A partial write keeps the rest of its root, which is therefore live before the
write. The exception is the first write to a root that is assembled from parts,
all of which are written before any is read.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence, Set
from typing import Any

from jaxlib.ipu.tile.step import Decision, Effects, Region, Step
from jaxlib.ipu.tile.tensor import TensorInfo
from jaxlib.ipu.tile_passes.flow import Fork, Loop


class Timeline:
  """The steps of a program, with their times.

  Attributes:
    intervals: when each root is live: closed intervals; set by `analyse`.
    placed_intervals: when each placed tensor is live: from its exchange to its
      last use.
    permuted: steps, and the roots that they both read and write, except for
      elements that stay in place.
    events: the effects of all steps, in order.
    end: the time at which the run ends.
  """

  def __init__(
    self,
    steps: Sequence[Step],
    tensors: Sequence[TensorInfo],
    assembled: Collection[int] = (),
  ) -> None:
    self._tensors = tensors
    self._unbegun = set(assembled)  # roots whose first part is yet to come
    self._now = 0
    self.intervals: dict[int, list[tuple[int, int]]] = defaultdict(list)
    self.placed_intervals: dict[int, list[tuple[int, int]]] = {}
    self._open: dict[int, int] = {}
    self.permuted: list[tuple[Step, Set[int]]] = []
    # For each loop around the current step: the time of its begin; the tensors
    # that were placed before it and are used in it.
    self._loops: list[int] = []
    self._held: list[set[int]] = []
    self.events: list[Effects] = []
    # By function, the effects of the steps in its body, which are those of each
    # of its calls; and those of the body that is being traversed.
    self._functions: dict[int, list[Effects]] = {}
    self._body: Iterator[Effects] | list[Effects] = []
    self._tree = self._number(steps)
    self.end = self._now

  # --- Forward: times ------------------------------------------------------

  def _tick(self) -> int:
    now = self._now
    self._now += 2
    return now

  def _number(self, steps: Sequence[Step]) -> list[Any]:
    out: list[Any] = []
    for step in steps:
      step.time = self._now
      if not step.regions:
        out.append(self._effects(step))
      elif step.callee is not None:
        out += self._call(step.callee, step.regions)
      elif step.exclusive:
        if step.decision is not None:
          out.append(self._decided(step.decision))
        out.append(self._fork_of(step))
      else:
        out.append(self._loop_of(step))
    return out

  def _call(self, function: int, regions: Sequence[Region]) -> list[Any]:
    outer, known = self._body, self._functions.get(function)
    self._body = [] if known is None else iter(known)
    out = [node for region in regions for node in self._number(region)]
    if isinstance(self._body, list):
      self._functions[function] = self._body
    self._body = outer
    return out

  def _loop_of(self, step: Step) -> Loop:
    begin = self._tick()
    self._loops.append(begin)
    self._held.append(set())
    condition: list[Any] = []
    condition_end = begin
    *conditions, body = step.regions
    for region in conditions:
      condition += self._number(region)
    if step.decision is not None:
      condition.append(self._decided(step.decision))
      condition_end = self._now
    nodes = self._number(body)
    end = self._tick()
    self._loops.pop()
    # Tensors placed before a loop and used in it are kept for all iterations.
    for number in self._held.pop():
      ((placed, _),) = self.placed_intervals[number]
      self.placed_intervals[number] = [(placed, end)]
    return Loop.of(condition, condition_end, nodes, end)

  def _fork_of(self, step: Step) -> Fork:
    time = self._tick()
    branches = []
    for region in step.regions:
      start = self._tick()
      nodes = self._number(region)
      branches.append((start, nodes, self._tick()))
    return Fork.of(time, branches, self._tick())

  def _use(self, number: int, early: bool) -> None:
    """Records that the current step reads a placed tensor. `early` says that it
    does so before it writes anything."""
    ((begin, _),) = self.placed_intervals[number]
    end = self._now + (0 if early else 1)
    self.placed_intervals[number] = [(begin, end)]
    outermost = bisect.bisect_right(self._loops, begin)
    if outermost < len(self._loops):
      self._held[outermost].add(number)

  def _effects(self, step: Step) -> Effects:
    if isinstance(self._body, list):
      found = step.effects(self._tensors)
      self._body.append(found)
    else:
      f = next(self._body)
      found = Effects(
        f.early_reads, f.reads, f.full_writes, f.partial_writes, f.copies,
        f.placed, f.used, f.permuted,
      )  # fmt: skip
    for number, early in found.used:
      self._use(number, early)
    for number in found.placed:
      self.placed_intervals[number] = [(self._now, self._now + 1)]
    if found.permuted:
      self.permuted.append((step, found.permuted))
    begun = [r for r in found.partial_writes if r in self._unbegun]
    if begun:
      found.full_writes = [*found.full_writes, *begun]
      found.partial_writes = [
        r for r in found.partial_writes if r not in self._unbegun
      ]
    self._unbegun.difference_update(found.full_writes)
    return self._event(found)

  def _decided(self, decision: Decision) -> Effects:
    return self._event(Effects(reads=[decision.tensor]))

  def _event(self, found: Effects) -> Effects:
    found.time = self._tick()
    self.events.append(found)
    return found

  # --- Backward: liveness --------------------------------------------------

  def analyse(self, live_at_end: list[int]) -> None:
    """Sets `intervals`, given the roots that are still needed after the run."""
    self._open = {r: self.end + 1 for r in live_at_end}
    self._walk(self._tree)
    for root, end in self._open.items():
      self.intervals[root].append((0, end))
    for intervals in self.intervals.values():
      intervals.reverse()

  def _walk(self, nodes: list[Any]) -> None:
    for node in reversed(nodes):
      if isinstance(node, Effects):
        self._step(node)
      elif isinstance(node, Loop):
        self._loop(node)
      else:
        self._fork(node)

  def _step(self, event: Effects) -> None:
    copied = {m.source for m in event.copies}
    for root in event.full_writes:
      end = self._open.pop(root, event.time + 1)
      self.intervals[root].append((event.time + 1, end))
    for root in event.partial_writes:
      self._open.setdefault(root, event.time + 1)
    for root in event.reads:
      # The source of a copy is taken to be free for the destination, so that
      # the two can be coalesced. If they are not, `allocate` extends its
      # lifetime.
      late = 0 if root in copied else 1
      self._open.setdefault(root, event.time + late)
    for root in event.early_reads:
      self._open.setdefault(root, event.time)

  def _loop(self, loop: Loop) -> None:
    # The body may not run at all, so values that it writes and that are needed
    # after the loop are needed before it, too.
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
