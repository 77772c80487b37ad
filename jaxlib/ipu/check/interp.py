"""The definition of a program: a slow, obvious interpreter in NumPy.

Every tile has a private memory with exactly the elements that the tensors'
mappings assign to it. A compute set runs tile by tile, each vertex on its
tile's memory alone; only an exchange moves data between memories. What real
tiles could not do raises a `Trap`. Engines may take shortcuts; they are correct
if they agree with this.

Not modelled: roots that share storage in the arena. Peak memory counts every
tensor while it is live, from its first write to its last use.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from jaxlib.ipu.check import interp_compute as compute
from jaxlib.ipu.check import interp_meeting as meeting
from jaxlib.ipu.check import interp_moving as moving
from jaxlib.ipu.check import same_code
from jaxlib.ipu.check.machine import Exchanged, Machine
from jaxlib.ipu.check.tile_memory import Array, Trap
from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.program import container, schema


@dataclasses.dataclass(frozen=True)
class Result:
  """The outcome of a run.

  Attributes:
    outputs: the results, in order.
    steps: number of steps run.
    exchanges: one entry for each run of a step that moved or may have moved
      data.
    host_bytes: over host streams.
    outfeed: the items that the program added to its outfeed.
    peak_bytes: maximum bytes live at a time, for each tile.
  """

  outputs: list[Array]
  steps: int
  exchanges: list[Exchanged]
  host_bytes: int
  peak_bytes: Array
  outfeed: list[list[Array]]


def run(
  data: bytes,
  arguments: Sequence[Array],
  *,
  check_sram: bool = True,
  max_steps: int = 100_000,
  exchange_rate: float = 4.0,
  feeds: Mapping[int, Iterator[Sequence[Array]]] | None = None,
) -> Result:
  """Runs a serialised program.

  Args:
    data: the bytes that `container.write` returned.
    arguments: of the program's shapes and types.
    check_sram: trap if a tile holds more than the target has.
    max_steps: trap after so many steps, for loops that do not end.
    exchange_rate: bytes that a tile can send, and receive, per cycle.
    feeds: the items of each feed by its number; those of the device's infeed
      are `schema.NONE`'s.

  Raises:
    Trap: the program did something impossible for tiles.
    ValueError: `data` is not a program, or the arguments do not match it.
  """
  (result,) = run_together(
    data,
    [arguments],
    check_sram=check_sram,
    max_steps=max_steps,
    exchange_rate=exchange_rate,
    feeds=[feeds or {}],
  )
  return result


def run_together(
  data: bytes,
  arguments: Sequence[Sequence[Array]],
  *,
  check_sram: bool = True,
  max_steps: int = 100_000,
  exchange_rate: float = 4.0,
  feeds: Sequence[Mapping[int, Iterator[Sequence[Array]]]] | None = None,
) -> list[Result]:
  """Runs a serialised program on several devices, each up to its next
  collective in turn.

  Args:
    data: see `run`, as for the other arguments.
    arguments: of each device, in the order of the partitions.
    feeds: of each device; None: there are none.

  Raises:
    Trap: also if collectives do not match.
    ValueError: see `run`, or the program is one of another number of devices.
  """
  program, constants = container.read(data)
  if len(arguments) != program.num_partitions:
    raise ValueError(
      f"arguments of {len(arguments)} devices for a program of "
      f"{program.num_partitions}"
    )
  machines = []
  for partition, given in enumerate(arguments):
    machine = _Interpreter(
      program,
      constants,
      max_steps,
      exchange_rate,
      partition,
      feeds[partition] if feeds else None,
    )
    machine.bind(given)
    machines.append(machine)
  meeting.run(machines, [m.run(program.steps, "") for m in machines])
  return [_result(machine, check_sram) for machine in machines]


def _result(machine: Machine, check_sram: bool) -> Result:
  program = machine.program
  peak = machine.peak_bytes()
  worst = int(peak.argmax())
  if check_sram and peak[worst] > program.target.bytes_per_tile:
    raise Trap(
      "sram",
      f"{peak[worst]} bytes live at once, the tile has "
      f"{program.target.bytes_per_tile}",
      worst,
    )
  return Result(
    machine.outputs(),
    machine.steps,
    machine.exchanges,
    machine.host_bytes,
    peak,
    machine.outfeed,
  )


class _Interpreter(Machine):
  """Runs steps on a machine."""

  def run(
    self, steps: Sequence[schema.Step], path: str
  ) -> Iterator[schema.Collective]:
    """Runs steps in order; `path` is their place in the tree. Stops at each
    collective, which the caller runs before it goes on."""
    for i, step in enumerate(steps):
      self.path = f"{path}{i}"
      self.steps += 1
      if self.steps > self.max_steps:
        raise Trap(
          "runaway", f"more than {self.max_steps} steps", step=self.path
        )
      try:
        yield from self._step(step)
      except Trap as trap:
        trap.step = trap.step or self.path
        raise

  def _step(self, step: schema.Step) -> Iterator[schema.Collective]:
    path = self.path
    match step:
      case schema.Copy():
        moving.copy(self, step)
      case schema.Execute():
        compute.execute(self, step)
      case schema.HostCopy():
        m = self.memory[step.tensor]
        size = m.size * SIZE[m.dtype]
        self.host_bytes += size
        self.count(step.cost, size)
      case schema.HostCallback():
        moving.call_host(self, step)
      case schema.HostMove():
        moving.move_to_host(self, step)
      case schema.Infeed():
        moving.infeed(self, step)
      case schema.Outfeed():
        moving.outfeed(self, step)
      case schema.PartitionId():
        number = np.full(1, self.partition, np.uint32)
        self.writable(step.tensor).write_all(number, np.ones(1, np.bool_))
        self.wrote(step.tensor, np.ones(1, np.bool_))
      case schema.Collective():
        yield step
      case schema.Call():
        self._same_function(step)
        yield from self.run(step.body, f"{path}.body.")
      case schema.Repeat():
        for _ in range(step.count):
          yield from self.run(step.body, f"{path}.body.")
      case schema.While():
        while True:
          yield from self.run(step.condition, f"{path}.condition.")
          self.path = path
          if not self.scalar(step.predicate):
            break
          yield from self.run(step.body, f"{path}.body.")
      case schema.Switch():
        branch = self._branch(step)
        yield from self.run(
          step.branches[branch].steps, f"{path}.branch{branch}."
        )
    self.path = path

  def _same_function(self, step: schema.Call) -> None:
    """Checks that a call runs the steps of its function, at its addresses."""
    steps = same_code.of(step.body)
    if self.functions.setdefault(step.function, steps) != steps:
      raise Trap("call", f"its steps are not those of function {step.function}")

  def _branch(self, step: schema.Switch) -> int:
    value = self.scalar(step.selector)
    if self.memory[step.selector].dtype == DType.BOOL:
      value = 0 if value else 1
    last = len(step.branches) - 1
    return value if 0 <= value <= last else last
