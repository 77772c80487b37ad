"""Functions of the graph in the tile program."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable
from typing import Any, NamedTuple

from jaxlib.ipu.ir.graph import Callee, Graph, Node
from jaxlib.ipu.lower.tensors import Tensors
from jaxlib.ipu.tile.call import Call
from jaxlib.ipu.tile.step import Region, Step
from jaxlib.ipu.tile.tensor import TensorInfo
from jaxlib.ipu.tile.view import View
from jaxlib.ipu.tile.walk import walk


class Argument(NamedTuple):
  """An operand of a call.

  Attributes:
    root: what tells its root from those of other operands.
    fixed: whether the function accesses this root itself.
    view: the operand.
    info: of its root.
  """

  root: Any
  fixed: bool
  view: View
  info: TensorInfo

  def is_like(self, other: Argument) -> bool:
    """Whether both are the same view of roots of one mapping."""
    a, b = self.info, other.info
    return self.view[1:] == other.view[1:] and (
      (a.dtype, a.shape, a.layout) == (b.dtype, b.shape, b.layout)
    )


@dataclasses.dataclass(slots=True, eq=False)
class Function:
  """A function in the tile program.

  Attributes:
    number: of the function there.
    graph: its operations.
    arguments: those that it was lowered for.
    parameters: the views of its parameters.
    results: the views of its results.
    body: its steps.
    made: the tensors that lowering it made.
    planned: its part of `Used.planned`.
    calls: of the function, with what they are in the graph.
  """

  number: int
  graph: Graph
  arguments: list[Argument]
  parameters: list[View]
  results: list[View]
  body: Region
  made: range
  planned: slice
  calls: list[tuple[Call, Callee]] = dataclasses.field(default_factory=list)

  @property
  def own(self) -> list[int]:
    """The roots of its parameters."""
    pairs = zip(self.arguments, self.parameters, strict=True)
    return [*dict.fromkeys(v.root for o, v in pairs if not o.fixed)]


def separate(tensors: Tensors, functions: Iterable[Function]) -> None:
  """Gives each call steps of its own, with its own locations, if it has not:
  passes that assign storage note for each step when it runs."""
  for function in functions:
    for call, callee in function.calls[1:]:
      if call.body is function.body:
        call.body = _Located(tensors, function, callee).body()


class _Located:
  """Copies the steps of a function for one of its calls."""

  def __init__(
    self, tensors: Tensors, function: Function, callee: Callee
  ) -> None:
    self._tensors = tensors
    self._nodes = function.graph.nodes
    self._body = function.body
    self._locations = callee.locations
    self._differs = False

  def body(self) -> Region:
    """The steps in other objects."""
    body = self._body
    found = Region([self._step(s) for s in body], body.freed, body.kept)
    if not self._differs:
      found.like = body
    return found

  def _step(self, step: Step) -> Step:
    found = step.renamed(lambda n: n) if step.regions else copy.copy(step)
    if self._locations:
      node = self._nodes[step.operation]
      for inner in walk([found]):
        self._locate(inner, node)
    return found

  def _locate(self, step: Step, node: Node) -> None:
    there = self._locations.get(node.location)
    before = step.location, step.origins
    if there is not None:
      step.location = self._tensors.relocated(step.location, there)
    step.origins = tuple(
      [
        o._replace(location=self._locations.get(o.location, o.location))
        for o in step.origins
      ]
    )
    self._differs |= before != (step.location, step.origins)
