"""The cost of a register program per element.

A program is what PopLibs' map expressions are compiled to: one loop that
loads, computes and stores. Its cost is the sum of its operations' inner
loops, with loads and stores counted once (`_inner_loops.py`), in parallel with
which the float pipeline issues. Loop-invariant values are hoisted. A product
with such a scalar that is added to something is one instruction, as in PopLibs'
ScaledAdd.

Registers are wider than elements; an instruction costs what it costs for the
element type in which it computes (`kernel/element_types.py`). An f16 addition
is LOAD, LOAD, ADD, ROUND_F16, and costs as much as the vector instruction for
four halves.
"""

from __future__ import annotations

import dataclasses
import functools

from jaxlib.ipu.codelets import _inner_loops
from jaxlib.ipu.codelets._cycles import Cycles, all_derived, up
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.kernel.data_flow import COMPARES, DataFlow
from jaxlib.ipu.kernel.element_types import (
  NARROW,
  NATURAL,
  TESTS,
  on_operands,
)
from jaxlib.ipu.kernel.instruction import Code, Instruction
from jaxlib.ipu.kernel.opcode import Opcode

_NARROWING = frozenset(NARROW.values())
# The narrow floats whose bits these instructions take.
_HALVES = {Opcode.BITS_F16: DType.F16, Opcode.BITS_BF16: DType.BF16}
_FREE = (
  Opcode.CONST, Opcode.BITCAST, Opcode.FROM_BITS_F16, Opcode.FROM_BITS_BF16,
)  # fmt: skip
# Two shifts; masking an unsigned value takes one instruction.
_WRAP = {DType.I8: 2.0, DType.I16: 2.0, DType.U8: 1.0, DType.U16: 1.0}

# Stores of 8 and 16 bits are merged into words by a shift and an or [G].
_MERGE = 2.0


@dataclasses.dataclass(frozen=True)
class Profile:
  """Cycles per element, and the parameters of a worker's start.

  Attributes:
    per_element: including loads, stores and loop.
    single: the part of it that is not vectorised by `unit`.
    arithmetic: the same without them, for programs inside another loop.
    issued: the part of `arithmetic` that can hide behind loads and stores.
    hoisted: cycles before the loop, for loop-invariant values.
    unit: elements that the loop takes at a time.
    loads: operands that are loaded in the loop.
    scalars: operands that are loaded before it.
    unary: no instruction has two operands, not even a constant.
    has_exp: there is an exponential.
    first_dtype: the first operand's.
    scaled_add: ADD or SUB if a multiple of an operand is added to or subtracted
      from another, and nothing else is done.
  """

  per_element: Cycles
  single: Cycles
  arithmetic: Cycles
  issued: float
  hoisted: Cycles
  unit: int
  loads: int
  scalars: int
  unary: bool
  has_exp: bool
  first_dtype: DType
  scaled_add: Opcode | None


class _Pass:
  """One pass over a program, adding up costs."""

  def __init__(
    self,
    code: Code,
    outputs: tuple[int, ...],
    operand_dtypes: tuple[DType, ...],
    scalars: tuple[int, ...],
  ) -> None:
    code = on_operands(code, operand_dtypes)
    self.flow = DataFlow(code, outputs, operand_dtypes, scalars)
    self.masks: dict[int, DType] = {}
    self.scalars = scalars
    self.elements = [DType.BOOL if i.op in TESTS else i.dtype for i in code]
    self.proper = self.loop = self.issued = self.guessed = 0.0
    # Cycles of scalar operations, and the guessed part of these.
    self.single = self.single_guessed = 0.0
    self.hoisted = Cycles(0.0)
    self.unit = 1
    self.loaded: dict[int, DType] = {}
    self.computes = False
    self.binary = False
    self.scaled: Opcode | None = None
    self.computed = 0
    self.converted: set[tuple[int, DType]] = set()

  def run(self) -> None:
    """Visits all instructions in order."""
    for index, i in enumerate(self.flow.instructions):
      if not self.flow.invariant[index]:
        self.visit(index, i)
      else:
        before = self.proper, self.loop, self.issued, self.unit, self.guessed
        single = self.single, self.single_guessed
        self.visit(index, i)
        self.hoisted += Cycles(
          self.proper - before[0], guessed=self.guessed - before[4]
        )
        self.proper, self.loop, self.issued, self.unit, self.guessed = before
        self.single, self.single_guessed = single

  def add(self, work: _inner_loops.ElementCycles) -> None:
    self.proper += work.proper
    self.guessed += work.proper * work.guessed
    self.loop = max(self.loop, work.loop)
    self.unit = max(self.unit, work.unit)
    if work.unit == 1:
      self.single += work.proper
      self.single_guessed += work.proper * work.guessed

  def cast(self, value: int, to: DType) -> None:
    """Charges a conversion, once per value and type."""
    source = self.elements[value]
    if source is None or source == to or (value, to) in self.converted:
      return
    self.converted.add((value, to))
    self.add(_inner_loops.conversion(source, to))

  def visit(self, index: int, i: Instruction) -> None:
    """Adds an instruction's cost."""
    if i.op is Opcode.LOAD:
      if i.imm not in self.scalars:
        assert i.dtype is not None, "loads have element types"
        self.loaded[i.imm] = i.dtype
    elif i.op is Opcode.IOTA:
      # Iota: 3 cycles per vector (popopsCycleEstimators.cpp) [S].
      self.add(_inner_loops.ElementCycles(1.5, 0.0, 2))
    elif i.op is Opcode.CONVERT:
      self.cast(i.operands[0], NATURAL[i.type])
    elif i.op in _NARROWING:
      self._narrow(i)
    elif i.op in _HALVES:
      self.cast(i.operands[0], _HALVES[i.op])
    elif i.op not in _FREE:
      self._compute(index, i)

  def _narrow(self, i: Instruction) -> None:
    source, to = self.elements[i.operands[0]], i.dtype
    assert to is not None, "the opcode says it"
    if source is not None and source != to:
      if to in _WRAP:
        self.add(_inner_loops.ElementCycles(_WRAP[to], 0.0, 1))
      else:
        self.cast(i.operands[0], to)

  def _compute(self, index: int, i: Instruction) -> None:
    inputs, dtype = i.operands, i.dtype
    assert dtype is not None, "only constants have none"
    for v in inputs[1:] if i.op is Opcode.SELECT else inputs:
      e = self.elements[v]
      if e in (DType.F16, DType.BF16) and dtype == DType.F32:
        self.cast(v, dtype)
    to = DType.BOOL if i.op in TESTS else dtype
    if self.flow.invariant[index]:
      self.add(_inner_loops.work(i.op, dtype))
      return
    self.computes = True
    self.computed += 1
    self.binary |= len(inputs) > 1
    by_scalar = len(inputs) == 2 and self.flow.by_scalar(index)
    added_by = self.flow.added_by(index) if by_scalar else None
    if added_by is not None and i.op == Opcode.MUL:
      if dtype in _inner_loops.ISSUE:
        self.scaled = added_by
        return
    if self._is_mask(index, i, dtype):
      return
    if i.op == Opcode.DIV and self.flow.invariant[inputs[0]]:
      work = _inner_loops.inverse(dtype)
    else:
      work = _inner_loops.work(i.op, dtype, by_scalar)
    self.add(work)
    if to in _inner_loops.ISSUE:
      self.issued += _inner_loops.ISSUE[to]
      if work.unit == 1:
        self.single -= _inner_loops.ISSUE[to]

  def _is_mask(self, index: int, i: Instruction, dtype: DType) -> bool:
    """Charges comparisons that only determine which floats become zero, and the
    selects that do it.

    Such a mask stays in the float registers, a vector at a time: popnn's
    gradient of relu is three float instructions (NonLinearityGrad1D.S;
    popnn/PerformanceEstimation.hpp) [S]: one for the comparison, two for the
    select. One more joins two masks.
    """
    inputs = i.operands
    of = self.masks.get(inputs[0])
    count = 1
    if i.op in COMPARES:
      of = dtype if dtype in _inner_loops.ISSUE else None
    elif i.op == Opcode.SELECT:
      count = 2
    elif i.op not in (Opcode.AND, Opcode.OR) or of != self.masks.get(inputs[1]):
      return False
    if of is None or (count == 1 and not self.flow.only_zeroes(index, of)):
      return False
    if count == 1:
      self.masks[index] = of
    each = _inner_loops.ISSUE[of]
    self.add(
      _inner_loops.ElementCycles(count * each, 0.0, _inner_loops.VECTOR[of])
    )
    self.issued += count * each
    return True


@functools.lru_cache(maxsize=4096)
def operations(code: Code) -> int:
  """Arithmetic instructions of a register program."""
  return sum(i.op >= Opcode.NEGATE and i.op != Opcode.SELECT for i in code)


@functools.lru_cache(maxsize=4096)
def profile(
  code: Code,
  outputs: tuple[int, ...],
  operand_dtypes: tuple[DType, ...],
  result_dtypes: tuple[DType, ...],
  scalars: tuple[int, ...] = (),
) -> Profile:
  """Costs a register program; `scalars` are the operands that are the same for
  all elements. Several operations in one loop are derived: no source has them.

  Raises:
    CompileError: an instruction has no known cost on its type.
  """
  p = _Pass(code, outputs, operand_dtypes, scalars)
  p.run()
  loads = sum(_inner_loops.LOAD[d] for d in p.loaded.values())
  stores = 0.0
  moved = loads  # and stores, which issue with float instructions
  for n, (value, dtype) in enumerate(zip(outputs, result_dtypes, strict=False)):
    if dtype in (DType.F16, DType.BF16):
      p.cast(value, dtype)
    if dtype in _WRAP:
      p.add(_inner_loops.ElementCycles(_MERGE, 0.0, 1, True))
    if dtype in _inner_loops.ISSUE:
      moved += _inner_loops.ISSUE[dtype]
    # The loop's overhead includes one store.
    elif n > 0:
      stores += _inner_loops.LOAD[dtype]
  first = next(iter(p.loaded.values()), DType.F32)
  if p.computes:
    others = p.proper - p.issued
    per_element = max(moved, p.issued) + others + p.loop + stores
  else:
    # A plain copy or fill moves each element through the store port.
    least = sum(1 / _inner_loops.VECTOR[d] for d in result_dtypes)
    per_element = max(p.proper + p.loop + loads + stores, least)
  stored = result_dtypes[0] if result_dtypes else first
  kinds = {*p.loaded.values(), *result_dtypes}
  alone = (
    p.computed == 2
    and len(p.loaded) == 2
    and len(result_dtypes) == 1
    and kinds in ({DType.F32}, {DType.F16})
  )
  each = Cycles(per_element, guessed=min(p.guessed, per_element))
  arithmetic = Cycles(p.proper, guessed=p.guessed)
  single = Cycles(p.single, guessed=p.single_guessed)
  if p.computed > 1 and not (alone and p.scaled):
    each, single, arithmetic = map(all_derived, (each, single, arithmetic))
  return Profile(
    per_element=each,
    single=single,
    arithmetic=arithmetic,
    issued=p.issued,
    hoisted=up(p.hoisted),
    unit=p.unit if p.computes else _inner_loops.VECTOR[stored],
    loads=len(p.loaded),
    scalars=len(scalars),
    unary=not p.binary,
    has_exp=any(i.op == Opcode.EXP for i in p.flow.instructions),
    first_dtype=first,
    scaled_add=p.scaled if alone else None,
  )
