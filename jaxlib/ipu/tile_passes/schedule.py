"""Orders of independent operations, and the SRAM that they need.

A list scheduler always chooses the operation next that frees the most memory,
or takes the least. Of equal ones it chooses the first in a depth-first order,
which continues towards a result. The time is nearly linear in the number of
operations and of the tensors that they access. Each tensor counts with its
bytes on its own fullest tile.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.moves.distinct import distinct, overlapping
from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.program import TileProgram
from jaxlib.ipu.tile.step import Region, Step, TensorAccess
from jaxlib.ipu.tile.tensor import TensorInfo, is_root_itself
from jaxlib.ipu.tile.walk import accesses

# Other orders are tried if the program's own exceeds the lower bound of all
# orders by this factor. [G]
LEAST_GAIN = 1.02
# Up to this number of tasks, two heuristics are tried; a guess, to limit
# compile time.
_FEW_TASKS = 100


@dataclasses.dataclass(slots=True)
class Task:
  """The steps of an operation.

  Attributes:
    steps: the operation's steps.
    has_effect: whether the task has to follow all earlier tasks with an effect.
    reads: tensors made elsewhere that the steps access.
    made: bytes of tensors that the steps make for other tasks.
    inner: peak bytes of tensors that only the task itself uses.
    replaced: those of `reads` whose memory a result may take.
    before, after: tasks that must precede and follow this one.
  """

  steps: list[Step]
  has_effect: bool
  reads: list[int] = dataclasses.field(default_factory=list)
  made: int = 0
  inner: int = 0
  replaced: set[int] = dataclasses.field(default_factory=set)
  before: list[int] = dataclasses.field(default_factory=list)
  after: list[int] = dataclasses.field(default_factory=list)


def operations(region: Region) -> tuple[slice, list[Task]]:
  """The operations of a region, each a task, and where in the region their
  steps are; steps before and after all operations are left out."""
  inner = [i for i, step in enumerate(region) if step.operation >= 0]
  if not inner:
    return slice(0, 0), []
  place = slice(inner[0], inner[-1] + 1)
  groups = itertools.groupby(
    region[place], lambda step: (step.operation, step.has_effect)
  )
  return place, [Task(list(steps), effect) for (_, effect), steps in groups]


class TaskGraph:
  """Tasks and the tensors that they access.

  Attributes:
    tasks: the tasks, in the program's order.
    tensors: all tensors of the program.
    sizes: bytes of each tensor whose lifetime depends on the order.
    readers: for each of these, the tasks that read it; the number of tasks
      stands for a reader after all of them.
    writer: for each of these, the last task that writes it.
  """

  def __init__(
    self, tasks: list[Task], program: TileProgram, region: Region
  ) -> None:
    tensors, freed = program.tensors, region.freed
    num_tiles = program.target.num_tiles
    self.tasks = tasks
    self.tensors = tensors
    sizes = self.sizes = {r: _tile_bytes(tensors, r, num_tiles) for r in freed}
    readers = self.readers = {r: [] for r in freed}
    self._start = sum(sizes.values())
    made: list[list[tuple[int, int, int]]] = []
    writer: dict[int, int] = {}
    self.writer = writer
    # Results that take a donated argument's memory, which therefore are made
    # after all that reads the argument. Otherwise they would be copied.
    donors = {
      program.results[j]: program.arguments[i] for i, j in program.aliases
    }
    users: dict[int, list[int]] = {argument: [] for argument in donors.values()}
    effect = -1
    touched = _Touched(tensors)
    for number, task in enumerate(tasks):
      first: dict[int, int] = {}
      last: dict[int, int] = {}
      writes: set[int] = set()
      time = 0
      for time, (tensor, written) in enumerate(touched.by(task.steps)):
        if tensor not in first:
          first[tensor] = time
        last[tensor] = time
        if written:
          writes.add(tensor)
      before = {effect} if task.has_effect and effect >= 0 else set()
      mine = []
      for tensor, begin in first.items():
        if tensor in users:
          users[tensor].append(number)
        if tensor in donors and tensor in writes and tensor not in writer:
          before |= {user for user in users[donors[tensor]] if user < number}
        if tensor in sizes:
          task.reads.append(tensor)
          readers[tensor].append(number)
          if tensor in writer:
            before.add(writer[tensor])
            if tensor in writes:
              writer[tensor] = number
        elif tensor in writes:
          writer[tensor] = number
          mine.append((tensor, begin, last[tensor]))
          sizes[tensor] = _tile_bytes(tensors, tensor, num_tiles)
          readers[tensor] = []
      made.append(mine)
      if task.has_effect:
        effect = number
      task.before = list(before)
      for other in before:
        tasks[other].after.append(number)
      task.replaced = _replaced(task, tensors)
    for root in region.kept:
      if root in readers:
        readers[root].append(len(tasks))
    for task, mine in zip(tasks, made, strict=True):
      changes = []
      for tensor, begin, end in mine:
        if readers[tensor]:
          task.made += sizes[tensor]
        else:
          changes += [(begin, sizes[tensor]), (end + 1, -sizes[tensor])]
      if changes:
        changes.sort()
        task.inner = max(itertools.accumulate(size for _, size in changes))

  def is_chain(self) -> bool:
    """Whether there is only one order."""
    return all(i in task.before for i, task in enumerate(self.tasks[1:]))

  def ordered(self) -> tuple[list[int], int]:
    """The best order found, and its peak."""
    tasks = self.tasks
    best = list(range(len(tasks)))
    peak = self.peak(best)
    if not self.is_chain() and peak > LEAST_GAIN * self.least():
      place = self.depth_first()
      for most in (math.inf, 0) if len(tasks) <= _FEW_TASKS else (math.inf,):
        other = self.listed(place, most)
        found = self.peak(other)
        if found < peak:
          best, peak = other, found
    return best, peak

  def peak(self, order: list[int]) -> int:
    """The peak bytes of an order."""
    return max(self._start, max(self.moments(order)))

  def moments(self, order: list[int]) -> Iterator[int]:
    """The peak bytes during each task of an order."""
    left = {tensor: len(r) for tensor, r in self.readers.items()}
    sizes = self.sizes
    live = self._start
    for number in order:
      task = self.tasks[number]
      dying = taken = 0
      for tensor in task.reads:
        left[tensor] -= 1
        if not left[tensor]:
          dying += sizes[tensor]
          if tensor in task.replaced:
            taken += sizes[tensor]
      yield live + task.inner + task.made - min(taken, task.made)
      live += task.made - dying

  def least(self) -> int:
    """A lower bound of the peak of all orders."""
    end = sum(
      self.sizes[t]
      for t, r in self.readers.items()
      if r[-1:] == [len(self.tasks)]
    )
    each = (
      sum(self.sizes[t] for t in task.reads if t not in task.replaced)
      + task.made + task.inner
      for task in self.tasks
    )  # fmt: skip
    return max(self._start, end, *each)

  def listed(self, place: list[int], most: float) -> list[int]:
    """A list schedule: of the tasks that can run, the one that frees the most
    bytes, or takes the least, is next.

    Args:
      place: the place of each task in the order that decides ties.
      most: tasks that take more bytes than this count as taking so many.
    """
    tasks = self.tasks
    left = {tensor: len(r) for tensor, r in self.readers.items()}
    waiting = [len(task.before) for task in tasks]
    grows: list[float] = [task.made for task in tasks]
    for tensor, readers in self.readers.items():
      if len(readers) == 1 and readers[0] < len(tasks):
        grows[readers[0]] -= self.sizes[tensor]
    ready = [
      (min(grows[i], most), place[i], i) for i, n in enumerate(waiting) if not n
    ]
    heapq.heapify(ready)
    order: list[int] = []
    done = [False] * (len(tasks) + 1)
    while ready:
      grown, _, number = heapq.heappop(ready)
      if done[number] or grown != min(grows[number], most):
        continue  # it now frees more, and has another entry
      done[number] = True
      order.append(number)
      for tensor in tasks[number].reads:
        left[tensor] -= 1
        if left[tensor] == 1:
          last = next(i for i in self.readers[tensor] if not done[i])
          if last < len(tasks):
            grows[last] -= self.sizes[tensor]
            if not waiting[last]:
              now = min(grows[last], most)
              heapq.heappush(ready, (now, place[last], last))
      for user in tasks[number].after:
        waiting[user] -= 1
        if not waiting[user]:
          now = min(grows[user], most)
          heapq.heappush(ready, (now, place[user], user))
    return order

  def depth_first(self) -> list[int]:
    """The place of each task in a depth-first order. Of two operands, the one
    whose own peak exceeds its size by more comes first."""
    tasks = self.tasks
    # The peak of each task with everything before it, as if no tasks shared
    # operands.
    need: list[int] = []
    rank: list[int] = []
    for task in tasks:
      task.before.sort(key=lambda b: (-rank[b], b))
      held = most = 0
      for b in task.before:
        most = max(most, held + need[b])
        held += tasks[b].made
      need.append(max(most, held + task.made + task.inner))
      rank.append(need[-1] - task.made)
    ends = [i for i, task in enumerate(tasks) if not task.after]
    ends.sort(key=lambda i: (-rank[i], i))
    place = [-1] * len(tasks)
    count = 0
    stack: list[tuple[int, Iterator[int]]] = []
    for end in ends:
      stack.append((end, iter(tasks[end].before)))
      while stack:
        number, operands = stack[-1]
        first = next((b for b in operands if place[b] < 0), None)
        if first is not None:
          stack.append((first, iter(tasks[first].before)))
          continue
        stack.pop()
        place[number] = count
        count += 1
    return place


def _tile_bytes(
  tensors: Sequence[TensorInfo], number: int, num_tiles: int
) -> int:
  """Bytes of a tensor on its fullest tile; 0 for a placed tensor that occupies
  its root's own memory, and for one in the host's memory."""
  info = tensors[number]
  if info.space == schema.HOST:
    return 0
  if info.root != number:
    if is_root_itself(tensors, number):
      return 0
    if overlapping(info.shape, info.strides):
      held = distinct(info.layout, info.shape, info.strides, num_tiles)
      return int(held.max()) * SIZE[info.dtype]
  return info.layout.max_elements * SIZE[info.dtype]


class _Touched:
  """The tensors that tasks touch."""

  def __init__(self, tensors: Sequence[TensorInfo]) -> None:
    self._tensors = tensors
    self._of_functions: dict[int, list[TensorAccess]] = {}

  def by(self, steps: list[Step]) -> Iterator[TensorAccess]:
    """Yields the tensors that steps and nested steps access, in order, with
    whether they are written. After a tensor that is read, its root follows.
    Those of functions are left out: no task needs them from another one."""
    own = next((step.private for step in steps if step.private), ())
    for step in steps:
      for tensor, written in self._by_step(step):
        if tensor in own:
          continue
        yield tensor, written
        root = self._tensors[tensor].root
        if not written and root != tensor:
          yield root, False

  def _by_step(self, step: Step) -> Iterable[TensorAccess]:
    if step.callee is None:
      return accesses([step])
    found = self._of_functions.get(step.callee)
    if found is None:
      found = [a for a in accesses([step]) if a[0] not in step.private]
      self._of_functions[step.callee] = found
    return found


def _replaced(task: Task, tensors: Sequence[TensorInfo]) -> set[int]:
  """The tensors whose memory a result of the task may take: those that it reads
  index by index, or copies as a whole."""
  return {n for step in task.steps for n in step.replaceable(tensors)}
