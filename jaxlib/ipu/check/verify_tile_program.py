"""Checks the data flow of a tile program, whatever its steps are."""

from __future__ import annotations

from collections import defaultdict

from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.program import TileProgram
from jaxlib.ipu.tile.step import Region, Step
from jaxlib.ipu.tile.walk import walk


class InvalidSteps(Exception):
  """A tile program that reads what nothing has written; names the step."""


def verify(program: TileProgram) -> None:
  """Checks that steps read what was written before, in placed tensors since
  their root was last written, and write neither arguments nor constants.

  Raises:
    InvalidSteps: names the first defect.
  """
  flow = _Flow(program)
  flow.region(program.steps, "")
  for root in program.results:
    if program.tensors[root].size and root not in flow.defined:
      raise InvalidSteps(f"no step writes result {root}")


class _Flow:
  """What is defined at a step.

  Attributes:
    defined: roots with values.
    fresh: placed tensors with the current values of their roots.
  """

  def __init__(self, program: TileProgram) -> None:
    self._tensors = program.tensors
    self._fixed = {
      number
      for number, info in enumerate(program.tensors)
      if info.space in (schema.ARGUMENT, schema.CONSTANT)
      and info.root == number
    }
    # The host's memory is written by parts, in loops (passes/host_memory.py).
    self.defined = self._fixed | {
      number
      for number, info in enumerate(program.tensors)
      if info.space == schema.HOST
    }
    self.fresh: set[int] = set()
    self._placed: dict[int, list[int]] = defaultdict(list)  # by root
    for number, info in enumerate(program.tensors):
      if info.root != number:
        self._placed[info.root].append(number)

  def region(self, region: Region, path: str) -> None:
    """Checks the steps of a region."""
    for i, step in enumerate(region):
      where = f"step {path}{i} ({type(step).__name__})"
      for number in step.reads():
        self._read(number, where)
      for number in step.writes():
        self._write(number, step, where)
      if step.callee is not None:
        for inner in step.regions:
          self.region(inner, f"{path}{i}.")
      elif step.regions:
        self._nested(step, f"{path}{i}.", where)

  def _read(self, number: int, where: str) -> None:
    if not 0 <= number < len(self._tensors):
      raise InvalidSteps(f"{where}: there is no tensor {number}")
    info = self._tensors[number]
    if not info.size:
      return
    if info.root not in self.defined:
      raise InvalidSteps(f"{where}: reads root {info.root}, which has no value")
    if info.root != number and number not in self.fresh:
      raise InvalidSteps(
        f"{where}: reads tensor {number}, which was not placed since its root "
        f"{info.root} was written"
      )

  def _write(self, number: int, step: Step, where: str) -> None:
    if not 0 <= number < len(self._tensors):
      raise InvalidSteps(f"{where}: there is no tensor {number}")
    root = self._tensors[number].root
    if root != number and step.moves:
      self.fresh.add(number)  # an exchange places it
      return
    if root in self._fixed and not step.on_host:
      raise InvalidSteps(f"{where}: writes tensor {root}, which is fixed")
    self.defined.add(root)
    self._changed({root})

  def _written(self, step: Step) -> set[int]:
    """The roots that a step writes; an exchange does not write those of which
    it places copies."""
    return {
      self._tensors[n].root
      for n in step.writes()
      if self._tensors[n].root == n or not step.moves
    }

  def _changed(self, roots: set[int]) -> None:
    """Forgets placed tensors of roots that are written."""
    for root in roots:
      self.fresh.difference_update(self._placed.get(root, ()))

  def _nested(self, step: Step, path: str, where: str) -> None:
    if not step.exclusive:
      # The next iteration begins with what this one has written.
      inner = (s for region in step.regions for s in walk(region))
      self._changed({root for s in inner for root in self._written(s)})
    before = self.defined, self.fresh
    ends = []  # of the ways that a run can take
    for i, region in enumerate(step.regions):
      if step.exclusive:
        self.defined, self.fresh = (set(state) for state in before)
      if step.decision is not None and step.decision.after == i:
        self._read(step.decision.tensor, where)
      if not step.exclusive and region is step.regions[-1]:
        ends.append((set(self.defined), set(self.fresh)))  # no iteration
      self.region(region, f"{path}{i}.")
      if step.exclusive:
        ends.append((self.defined, self.fresh))
    self.defined, self.fresh = (
      set.intersection(*states) for states in zip(*ends, strict=True)
    )
