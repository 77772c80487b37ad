"""Compute sets."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jaxlib.ipu.codelets import CODELETS
from jaxlib.ipu.codelets._codelet import Codelet
from jaxlib.ipu.codelets._hints import Hints
from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.plan import cost
from jaxlib.ipu.plan.cost import Epilogue
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.busy import cycles_by_tile
from jaxlib.ipu.tile.code import LOOP, CodeCount, Participants, active
from jaxlib.ipu.tile.step import Effects, HostWork, Step, TensorAccess, Vertices
from jaxlib.ipu.tile.tensor import TensorInfo, dense_strides

# A constant that is passed: the supervisor loads it from the call's table, six
# cycles, and stores it in the vertices' state, from which the workers load it,
# six more (PopLibs' PerformanceEstimation.hpp) [D].
_PASS_CYCLES = 13.0


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class Execute(Step):
  """A compute set: vertices of one codelet.

  Attributes:
    fields: the codelet's record.
    shape: the iteration space.
    partition: how its elements are split over tiles.
    operands: read by the vertices.
    results: written by them.
    epilogue: the supersteps after the vertices, if any; `own` includes their
      cost.
    hints: what the codelet's cycles depend on besides fields and cells; none
      if not given.
  """

  fields: schema.Fields
  shape: tuple[int, ...]
  partition: Layout
  operands: list[schema.Access]
  results: list[schema.Access]
  epilogue: Epilogue | None = None
  hints: Hints | None = None

  @property
  def codelet(self) -> Codelet:
    return CODELETS[type(self.fields)]

  def accesses(self) -> Iterator[TensorAccess]:
    for a in self.operands:
      yield a.tensor, False
    for a in self.results:
      yield a.tensor, True

  def effects(self, tensors: Sequence[TensorInfo]) -> Effects:
    early_reads: list[int] = []
    reads: list[int] = []
    used: list[tuple[int, bool]] = []
    results = list(dict.fromkeys(tensors[a.tensor].root for a in self.results))
    codelet = self.codelet
    # A result that is part of a root does not begin where an operand does.
    in_place = codelet.in_place and results == [a.tensor for a in self.results]
    sizes = {SIZE[tensors[r].dtype] for r in results}
    # The one element of a scalar map is read before any result is written.
    scalar = in_place and math.prod(self.shape) == 1
    identity = list(range(len(self.shape)))
    for access in self.operands:
      t = tensors[access.tensor]
      if t.root != access.tensor:
        replaced = in_place and sizes == {SIZE[t.dtype]}
        early = replaced and self._in_order(access, t)
        used.append((access.tensor, early))
      same_index = scalar or (
        in_place
        and sizes == {SIZE[t.dtype]}
        and access.dims == identity
        and t.offset == 0
        and t.size == tensors[t.root].size
        and tuple(t.strides) == dense_strides(t.shape)
      )
      (early_reads if same_index else reads).append(t.root)
    if codelet.updates(self.fields):
      return Effects(early_reads, reads, partial_writes=results, used=used)
    return Effects(early_reads, reads, results, used=used)

  def _in_order(self, access: schema.Access, t: TensorInfo) -> bool:
    """Whether it reads each element of a placed tensor once, in the order of
    its iteration space: then a result can take its place."""
    walked = [d for d in access.dims if d >= 0]
    return (
      t.size == math.prod(self.shape)
      and not t.layout.replicas
      and walked == sorted(walked)
      and all(
        a.dims == access.dims
        for a in self.operands
        if a.tensor == access.tensor
      )
    )

  def replaceable(self, tensors: Sequence[TensorInfo]) -> Iterator[int]:
    if not self.results or not self.codelet.in_place:
      return
    dims = self.results[0].dims
    size = SIZE[tensors[self.results[0].tensor].dtype]
    for access in self.operands:
      info = tensors[access.tensor]
      if (
        access.dims == dims
        and info.root == access.tensor
        and SIZE[info.dtype] == size
      ):
        yield access.tensor

  def renamed(self, name: Callable[[int], int]) -> Step:
    found = copy.copy(self)
    found.operands, found.results = (
      [schema.Access(name(a.tensor), a.dims) for a in accesses]
      for accesses in (self.operands, self.results)
    )
    return found

  def price(self, target: Target) -> schema.Cost:
    price = Step.price(self, target)
    if not self.passed:
      return price
    cycles = self.passed * _PASS_CYCLES
    return cost.add(
      price, cost.Sourced(cycles, 0.0, 0.0, 0.0, 0.0, derived=cycles)
    )

  @property
  def writes_parts(self) -> bool:
    return self.codelet.writes_parts

  @property
  def words(self) -> str:
    return "compute"

  def vertices(self, target: Target, tensors: Sequence[TensorInfo]) -> Vertices:
    codelet = self.codelet
    operands = [tensors[a.tensor].dtype for a in self.operands]
    results = [tensors[a.tensor].dtype for a in self.results]
    hints = codelet.hints() if self.hints is None else self.hints

    def cycles(cell: tuple[int, ...]) -> float:
      types = operands, results
      taken = codelet.cycles(target, self.fields, *types, cell, hints)
      return float(taken.total)

    compute = self.price(target).compute_cycles
    row = cycles_by_tile(target, self.partition, self.shape, compute, cycles)
    return Vertices(type(self.fields).__name__, self.shape, row)

  @property
  def loaded(self) -> list[int]:
    return [a.tensor for a in (*self.operands, *self.results)]

  @property
  def constants(self) -> tuple[int, ...]:
    return getattr(self.fields, "code", Code()).constants

  @property
  def buffers_of(self) -> str:
    return f"buffers of a {type(self.fields).__name__}"

  def host_work(
    self, target: Target, tensors: Sequence[TensorInfo]
  ) -> Iterator[HostWork]:
    touched = sum(tensors[number].bytes for number in self.loaded)
    yield HostWork(touched, self.price(target).flops)

  def count_code(self, count: CodeCount) -> Participants:
    codelet = self.codelet
    # Vertices of one codelet, or of one generated program, share its code.
    program = getattr(self.fields, "code", Code())
    wire = program.abstract.wire if self.passed else program.wire
    code = codelet, wire, self.passed
    if self.passed:
      count.passed(self.partition, self.passed)
    count.vertices(
      self.partition,
      codelet.state_bytes(len(self.operands)),
      code,
      codelet.code_bytes(self.fields),
    )
    if codelet.one_order and self.buffers is not None:
      # Operands in another order are copied (moves/storage_order.py).
      count.copies(self.buffers > 0)
    epilogue = self.epilogue
    if epilogue is None or not epilogue.exchanges:
      return Participants({self.partition}, False)
    # Tiles without a vertex may own results.
    busy = active(self.partition, count.target.num_tiles)
    if epilogue.buffers is not None:
      busy = busy.copy()
      some = epilogue.buffers[: len(busy)] > 0
      busy[: len(some)] |= some
    count.inner_exchanges(epilogue.exchanges, epilogue.words, busy)
    found = Participants({self.partition}, True)
    count.loop(LOOP * epilogue.loops, found)
    return found

  def code_text(self) -> Iterator[str]:
    fields: Any = self.fields
    if code := getattr(fields, "code", ()):
      yield from (*code.lines(), f"outputs {fields.outputs}")
    if combine := getattr(fields, "combine", ()):
      yield from ("combine", *combine.lines())
      one = [getattr(fields, "combine_output", None)]
      yield f"outputs {getattr(fields, 'combine_outputs', one)}"

  def record(self, target: Target, number: Callable[[Layout], int]) -> Any:
    return schema.Execute(
      self.fields,
      list(self.shape),
      number(self.partition),
      self.operands,
      self.results,
      self.price(target),
      self.location,
    )
