"""What a register program costs per element.

A program is what PopLibs' map expressions are compiled to: one loop that
loads, computes and stores. Its cost is the sum of its operations' inner
loops, with loads and stores counted once (`_inner_loops.py`).

Registers are wider than elements, so the element type of each operation is
recovered first: from the operands' types and from the ROUND and WRAP
instructions. An f16 addition is LOAD, LOAD, ADD, ROUND_F16, and costs what
the vector instruction for four halves costs.
"""

from __future__ import annotations

import dataclasses
import functools

from jaxlib.ipu.codelets import _inner_loops
from jaxlib.ipu.codelets._instructions import (
  NARROW,
  Instruction,
  arguments,
  decode,
)
from jaxlib.ipu.dtypes import SIGNED, UNSIGNED, DType
from jaxlib.ipu.program.isa import Opcode, RegisterType

_NARROWING = {op: dtype for dtype, op in NARROW.items()}
# Exact on f16: the result needs no rounding.
_EXACT = frozenset(
  {
    Opcode.NEGATE, Opcode.ABS, Opcode.SIGN, Opcode.FLOOR, Opcode.CEIL,
    Opcode.ROUND_AFZ, Opcode.ROUND_EVEN, Opcode.MAX, Opcode.MIN,
    Opcode.SELECT, Opcode.CLAMP, Opcode.IS_FINITE, Opcode.EQ, Opcode.NE,
    Opcode.LT, Opcode.LE, Opcode.GT, Opcode.GE,
  }
)  # fmt: skip
_TO_BOOL = frozenset(
  {
    Opcode.IS_FINITE, Opcode.EQ, Opcode.NE, Opcode.LT, Opcode.LE, Opcode.GT,
    Opcode.GE,
  }
)  # fmt: skip
_NATURAL = {
  RegisterType.F32: DType.F32,
  RegisterType.F64: DType.F64,
  RegisterType.I32: DType.I32,
  RegisterType.U32: DType.U32,
  RegisterType.I64: DType.I64,
  RegisterType.U64: DType.U64,
}
# A shift there and back; masking an unsigned value takes one instruction.
_WRAP = {DType.I8: 2.0, DType.I16: 2.0, DType.U8: 1.0, DType.U16: 1.0}

# Stores of 8 and 16 bits are merged into words by a shift and an or [G].
_MERGE = 2.0


@dataclasses.dataclass(frozen=True)
class Profile:
  """Cycles per element, and what a worker's start depends on.

  Attributes:
    per_element: loads, stores and loop included.
    arithmetic: the same without them, for programs inside another loop.
    unit: elements that the loop takes at a time.
    loads: operands that are loaded.
    unary: no instruction has two operands, not even a constant.
    has_exp: an exponential is among them.
    first_dtype: the first operand's.
  """

  per_element: float
  arithmetic: float
  unit: int
  loads: int
  unary: bool
  has_exp: bool
  first_dtype: DType


class _Pass:
  """One walk over a program, adding up."""

  def __init__(self, code: bytes, operand_dtypes: tuple[DType, ...]) -> None:
    self.instructions = decode(code)
    self.dtypes = operand_dtypes
    self.elements: list[DType | None] = []
    self.proper = self.loop = 0.0
    self.unit = 1
    self.loaded: dict[int, DType] = {}
    self.computes = False
    self.binary = False
    self.converted: set[tuple[int, DType]] = set()
    self.users: dict[int, list[Opcode]] = {}
    for i in self.instructions:
      for a in arguments(i):
        self.users.setdefault(a, []).append(i.op)

  def add(self, work: _inner_loops.Work) -> None:
    self.proper += work.proper
    self.loop = max(self.loop, work.loop)
    self.unit = max(self.unit, work.unit)

  def cast(self, value: int, to: DType) -> None:
    """Charges a conversion, once per value and type."""
    source = self.elements[value]
    if source is None or source == to or (value, to) in self.converted:
      return
    self.converted.add((value, to))
    self.add(_inner_loops.conversion(source, to))

  def visit(self, index: int, i: Instruction) -> DType | None:
    """Adds an instruction's cost; gives the element type of its value."""
    natural = _NATURAL[i.type]
    if i.op == Opcode.LOAD:
      dtype = self.dtypes[i.imm]
      self.loaded[i.imm] = dtype
      return dtype
    if i.op == Opcode.CONST:
      return None
    if i.op == Opcode.IOTA:
      # Iota: 3 cycles per vector (popopsCycleEstimators.cpp) [S].
      self.add(_inner_loops.Work(1.5, 0.0, 2))
      return natural
    if i.op == Opcode.BITCAST:
      return natural
    if i.op == Opcode.CONVERT:
      self.cast(i.a, natural)
      return natural
    if i.op in _NARROWING:
      return self._narrow(i, _NARROWING[i.op])
    if i.op in (Opcode.BITS_F16, Opcode.BITS_BF16):
      half = DType.F16 if i.op == Opcode.BITS_F16 else DType.BF16
      self.cast(i.a, half)
      return DType.U16
    if i.op in (Opcode.FROM_BITS_F16, Opcode.FROM_BITS_BF16):
      return DType.F16 if i.op == Opcode.FROM_BITS_F16 else DType.BF16
    return self._compute(index, i)

  def _narrow(self, i: Instruction, to: DType) -> DType:
    source = self.elements[i.a]
    if source is not None and source != to:
      if to in _WRAP:
        self.add(_inner_loops.Work(_WRAP[to], 0.0, 1))
      else:
        self.cast(i.a, to)
    return to

  def _compute(self, index: int, i: Instruction) -> DType:
    inputs = arguments(i)
    typed = inputs[1:] if i.op == Opcode.SELECT else inputs
    elements = {e for v in typed if (e := self.elements[v]) is not None}
    dtype = self._computed_in(index, i, elements)
    for v in typed:
      e = self.elements[v]
      if e in (DType.F16, DType.BF16) and dtype == DType.F32:
        self.cast(v, dtype)
    self.add(_inner_loops.work(i.op, dtype))
    self.computes = True
    self.binary |= len(inputs) > 1
    return DType.BOOL if i.op in _TO_BOOL else dtype

  def _computed_in(
    self, index: int, i: Instruction, elements: set[DType]
  ) -> DType:
    natural = _NATURAL[i.type]
    if len(elements) != 1:
      return natural
    (dtype,) = elements
    if dtype == DType.F16:
      users = self.users.get(index, [])
      rounded = users and all(u == Opcode.ROUND_F16 for u in users)
      return dtype if i.op in _EXACT or rounded else natural
    if dtype == DType.BOOL and natural == DType.U32:
      return dtype
    same_kind = (dtype in SIGNED and natural == DType.I32) or (
      dtype in UNSIGNED and natural == DType.U32
    )
    return dtype if same_kind else natural


@functools.lru_cache(maxsize=4096)
def operations(code: bytes) -> int:
  """Arithmetic instructions of a register program."""
  return sum(
    i.op >= Opcode.NEGATE and i.op != Opcode.SELECT for i in decode(code)
  )


@functools.lru_cache(maxsize=4096)
def profile(
  code: bytes,
  outputs: tuple[int, ...],
  operand_dtypes: tuple[DType, ...],
  result_dtypes: tuple[DType, ...],
) -> Profile:
  """Costs a register program.

  Raises:
    CompileError: an instruction has no known cost on its type.
  """
  p = _Pass(code, operand_dtypes)
  for index, i in enumerate(p.instructions):
    p.elements.append(p.visit(index, i))
  stores = 0.0
  for n, (value, dtype) in enumerate(zip(outputs, result_dtypes, strict=False)):
    if dtype in (DType.F16, DType.BF16):
      p.cast(value, dtype)
    if dtype in _WRAP:
      p.add(_inner_loops.Work(_MERGE, 0.0, 1))
    # The loop's overhead has one store.
    if n > 0:
      stores += _inner_loops.LOAD[dtype]
  loads = sum(_inner_loops.LOAD[d] for d in p.loaded.values())
  # A bare copy or fill still moves each element through the store port.
  least = sum(1 / _inner_loops.VECTOR[d] for d in result_dtypes)
  first = next(iter(p.loaded.values()), DType.F32)
  moved = result_dtypes[0] if result_dtypes else first
  return Profile(
    per_element=max(p.proper + p.loop + loads + stores, least),
    arithmetic=p.proper,
    unit=p.unit if p.computes else _inner_loops.VECTOR[moved],
    loads=len(p.loaded),
    unary=not p.binary,
    has_exp=any(i.op == Opcode.EXP for i in p.instructions),
    first_dtype=first,
  )
