"""Builds small programs by hand, for tests of their executors."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlib.ipu.dtypes import NUMPY, SIZE, DType
from jaxlib.ipu.plan.layout import Factor, Layout, Replica, linear, project
from jaxlib.ipu.program import container, interp, schema
from jaxlib.ipu.program.isa import Opcode, RegisterType, encode
from jaxlib.ipu.program.verify_memory import dense

F32, I32, BOOL = DType.F32, DType.I32, DType.BOOL
FREE = schema.Cost(0.0, 0.0, 0.0, 0.0, 0.0)


def cost(exchange_bytes: float = 0.0) -> schema.Cost:
  """One byte per cycle, more time than any of their exchanges takes."""
  return dataclasses.replace(
    FREE,
    exchange_bytes=float(exchange_bytes),
    exchange_cycles=float(exchange_bytes),
  )


def code(*instructions: tuple[int, ...]) -> bytes:
  """Instructions as (opcode, type, a, b, c, imm); zeros may be omitted."""
  return b"".join(encode(*i) for i in instructions)


def load(i: int = 0, type_: RegisterType = RegisterType.F32) -> Any:
  return (Opcode.LOAD, type_, 0, 0, 0, i)


def add(type_: RegisterType = RegisterType.F32) -> schema.Map:
  """result = operand 0 + operand 1."""
  return schema.Map(
    code(load(0, type_), load(1, type_), (Opcode.ADD, type_, 0, 1)), [2]
  )


def double(type_: RegisterType = RegisterType.F32) -> schema.Map:
  """result = operand 0 + operand 0."""
  return schema.Map(code(load(0, type_), (Opcode.ADD, type_, 0, 0)), [1])


def everywhere(n: int, tiles: int) -> Layout:
  """All `n` elements on each of the first `tiles` tiles."""
  replicas = (Replica(tiles, 1),) if tiles > 1 else ()
  return Layout((Factor(n, max(n, 1), 0),), replicas)


class Kit:
  """A program under construction. Methods return the numbers of tensors; steps
  are appended to `steps`, or to a list that a test passes."""

  def __init__(self, tiles: int = 4, bytes_per_tile: int = 1 << 16) -> None:
    self.target = schema.Target("test", tiles, bytes_per_tile, 1e9)
    self.mappings: list[Layout] = []
    self.tensors: list[schema.Tensor] = []
    self.arguments: list[int] = []
    self.results: list[int] = []
    self.constants = b""
    self.arena = 0
    self.steps: list[Any] = []

  def mapping(self, layout: Layout | None, elements: int) -> int:
    if layout is None:
      layout = linear(elements, self.target.num_tiles)
    if layout not in self.mappings:
      self.mappings.append(layout)
    return self.mappings.index(layout)

  def tensor(
    self,
    shape: Sequence[int],
    dtype: DType = F32,
    layout: Layout | None = None,
    space: int = schema.ARENA,
    address: int = 0,
  ) -> int:
    """A root; in the arena it gets its own address."""
    number = len(self.tensors)
    size = math.prod(shape)
    if space == schema.ARENA:
      address = self.arena
      self.arena += -(-max(size * SIZE[dtype], 1) // 64) * 64
    self.tensors.append(
      schema.Tensor(
        dtype, list(shape), self.mapping(layout, size), number, 0,
        dense(shape), space, address,
      )
    )  # fmt: skip
    return number

  def argument(
    self,
    shape: Sequence[int],
    dtype: DType = F32,
    layout: Layout | None = None,
  ) -> int:
    number = self.tensor(
      shape, dtype, layout, schema.ARGUMENT, len(self.arguments)
    )
    self.arguments.append(number)
    return number

  def result(
    self,
    shape: Sequence[int],
    dtype: DType = F32,
    layout: Layout | None = None,
  ) -> int:
    number = self.tensor(shape, dtype, layout, schema.RESULT, len(self.results))
    self.results.append(number)
    return number

  def constant(self, value: np.ndarray, layout: Layout | None = None) -> int:
    dtype = next(d for d, n in NUMPY.items() if n == value.dtype)
    address = len(self.constants)
    raw = value.tobytes()
    self.constants += raw + bytes(-len(raw) % 64)
    return self.tensor(value.shape, dtype, layout, schema.CONSTANT, address)

  def placed(
    self,
    root: int,
    layout: Layout,
    shape: Sequence[int] | None = None,
    offset: int = 0,
    strides: Sequence[int] | None = None,
  ) -> int:
    """A view of a root under its own mapping."""
    r = self.tensors[root]
    shape = r.shape if shape is None else list(shape)
    strides = r.strides if strides is None else list(strides)
    number = len(self.tensors)
    self.tensors.append(
      schema.Tensor(
        r.dtype, list(shape), self.mapping(layout, math.prod(shape)), root,
        offset, list(strides), schema.ARENA, 0,
      )
    )  # fmt: skip
    return number

  def move(self, placed: int) -> schema.Move:
    """The exchange that fills a placed tensor."""
    t = self.tensors[placed]
    return schema.Move(
      t.root, t.offset, list(t.strides), placed, 0, dense(t.shape),
      list(t.shape),
    )  # fmt: skip

  def whole(self, source: int, destination: int) -> schema.Move:
    """A move of a whole root to another."""
    s, d = self.tensors[source], self.tensors[destination]
    return schema.Move(
      source, 0, list(s.strides), destination, 0, list(d.strides),
      list(s.shape),
    )  # fmt: skip

  def copy(
    self,
    *moves: schema.Move,
    exchange_bytes: float = 1e9,
    into: list[Any] | None = None,
  ) -> None:
    step = schema.Copy(list(moves), cost(exchange_bytes), 0)
    (self.steps if into is None else into).append(step)

  def loaded(
    self,
    root: int,
    shape: Sequence[int],
    dims: Sequence[int],
    partition: Layout,
    view: tuple[Sequence[int], int, Sequence[int]] | None = None,
    into: list[Any] | None = None,
  ) -> int:
    """A placed tensor with what each cell of a partition reads of a view
    (shape, offset, strides) of a root, and the exchange that fills it."""
    t = self.tensors[root]
    extents, offset, strides = view or (t.shape, 0, t.strides)
    kept = tuple(list(dims).index(k) for k in range(len(extents)))
    layout = project(partition, tuple(shape), kept)
    assert layout is not None
    placed = self.placed(root, layout, extents, offset, strides)
    self.copy(self.move(placed), into=into)
    return placed

  def execute(
    self,
    fields: Any,
    shape: Sequence[int],
    operands: Sequence[tuple[int, Sequence[int]]],
    results: Sequence[tuple[int, Sequence[int]]],
    partition: Layout | None = None,
    exchange_bytes: float = 1e9,
    into: list[Any] | None = None,
  ) -> None:
    """A compute set, with operands and results as (tensor, dims)."""
    step = schema.Execute(
      fields,
      list(shape),
      self.mapping(partition, math.prod(shape)),
      [schema.Access(t, list(d)) for t, d in operands],
      [schema.Access(t, list(d)) for t, d in results],
      cost(exchange_bytes),
      0,
    )
    (self.steps if into is None else into).append(step)

  def program(self) -> schema.Program:
    return schema.Program(
      name="test",
      target=self.target,
      mappings=[m.record() for m in self.mappings],
      tensors=self.tensors,
      arguments=self.arguments,
      results=self.results,
      host_types=[],
      layouts=[],
      aliases=[],
      donors=[],
      arena_bytes=self.arena,
      steps=self.steps,
      locations=[schema.Location("test", "", "", 0)],
      cost_analysis=[],
      memory=schema.Memory(0, 0, 0, 0, 0, 0, 0),
      estimated_seconds=0.0,
      module=b"",
      omissions=[],
    )

  def bytes(self) -> bytes:
    return container.write(self.program(), self.constants)


def run(kit: Kit, *arguments: np.ndarray, **options: Any) -> interp.Result:
  """The interpreter's results."""
  return interp.run(kit.bytes(), arguments, **options)


def moved_bytes(result: interp.Result) -> list[float]:
  """The bytes that changed tile, by step."""
  return [e.actual for e in result.exchanges]
