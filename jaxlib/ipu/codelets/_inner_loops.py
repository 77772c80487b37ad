"""Cycles of the inner loops of element-wise work, per operation and type.

The rows of the opcodes (`kernel/opcode.py`) have the figures of PopLibs' cycle
estimators (popopsCycleEstimators.hpp, popopsCycleEstimators.cpp,
PerformanceEstimation.cpp) [S], in its notation:

  c/u   c cycles for u elements, loads, stores and loop included
  cv    c cycles for a 64-bit vector, without them
  cs    c cycles for an element, without them

A register program chains several operations in one loop, so loads, stores and
loop must be separated from the work proper [D]. They are read off the tables:
the same operation with a scalar as its second operand is cheaper by one load
(`LOAD`: one cycle per 64-bit vector of floats, one per 32-bit integer, two per
64-bit one); the cheapest integer loops leave `_LOOP` cycles for the store and
the loop itself. Float instructions issue in parallel with loads and stores,
since a worker issues to both of its pipelines at once: an addition of floats
takes as long as its two loads and its store. `ISSUE` of their work can be
hidden so. A program of one operation then costs exactly what the table says.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from jaxlib.ipu.codelets._cycles import Cycles
from jaxlib.ipu.diagnostics import internal
from jaxlib.ipu.dtypes import NAME, DType
from jaxlib.ipu.kernel.opcode import Opcode

# The measured excess of a supervisor vertex over its formula: 36 to 39
# cycles in 127 of 128 points of the matrix unit [D].
SUPERVISOR_LAUNCH = 37

_FLOATS = (DType.F32, DType.F16)

# Elements of a 64-bit vector.
VECTOR: dict[DType, int] = {
  DType.F32: 2, DType.F16: 4, DType.BF16: 4, DType.I32: 2, DType.U32: 2,
  DType.I16: 4, DType.U16: 4, DType.I8: 8, DType.U8: 8, DType.BOOL: 8,
  DType.I64: 1, DType.U64: 1, DType.F64: 1,
}  # fmt: skip

# Cycles per element of one more operand, or one more result, in the loop [D].
LOAD: dict[DType, float] = {
  DType.F32: 1 / 2, DType.F16: 1 / 4, DType.BF16: 1 / 4, DType.I32: 1.0,
  DType.U32: 1.0, DType.I16: 1 / 4, DType.U16: 1 / 4, DType.I8: 1.0,
  DType.U8: 1.0, DType.BOOL: 1 / 4, DType.I64: 2.0, DType.U64: 2.0,
  DType.F64: 2.0,
}  # fmt: skip

# Cycles per element of the store and of the loop [D].
_LOOP: dict[DType, float] = {
  DType.F32: 0.0, DType.F16: 0.0, DType.I32: 3.0, DType.U32: 3.0,
  DType.I16: 0.0, DType.U16: 0.0, DType.I8: 3.0, DType.U8: 3.0,
  DType.BOOL: 0.5, DType.I64: 3.0, DType.U64: 3.0, DType.F64: 3.0,
}  # fmt: skip

# Cycles per element of one instruction of the float pipeline, or of one store.
ISSUE: dict[DType, float] = {d: 1 / VECTOR[d] for d in _FLOATS}

# The minimum cost of an operation of a chain: one issue per vector of four f16
# elements [D].
_LEAST = 0.25


class ElementCycles(NamedTuple):
  """One operation in a loop: cycles per element.

  Attributes:
    proper: of the operation itself; operations of a chain add up.
    loop: of the store and the loop; a chain pays the largest.
    unit: elements that the loop takes at a time.
    guessed: there is no source.
  """

  proper: float
  loop: float
  unit: int
  guessed: bool = False

  @property
  def inside(self) -> Cycles:
    """The cost of the operation itself, inside another loop."""
    return Cycles(self.proper, guessed=self.proper * self.guessed)


_DTYPE = {name: dtype for dtype, name in NAME.items()}


def _overhead(op: Opcode, dtype: DType, loads: int) -> int:
  """The framework's overhead of a `v` or `s` entry, in the entry's units."""
  if op in (Opcode.ADD, Opcode.SUB, Opcode.MUL) and dtype in _FLOATS:
    return loads
  return 4 if loads == 1 else 5


def _read(
  op: Opcode, cycles: str, loads: int, guessed: bool = False
) -> dict[DType, ElementCycles]:
  """The entries of an opcode's row by element type."""
  works = {}
  cells = cycles.split()
  for name, entry in zip(cells[::2], cells[1::2], strict=True):
    dtype = _DTYPE[name]
    if entry[-1] in "vs":
      whole = int(entry[:-1]) + _overhead(op, dtype, loads)
      unit = VECTOR[dtype] if entry[-1] == "v" else 1
    else:
      whole, unit = map(int, entry.split("/"))
    inside = max(whole / unit - loads * LOAD[dtype], _LEAST)
    proper = max(inside - _LOOP[dtype], min(inside, _LEAST))
    works[dtype] = ElementCycles(proper, inside - proper, unit, guessed)
  return works


@functools.cache
def _works(op: Opcode) -> dict[DType, ElementCycles]:
  row = op.row
  loads = len(row.operands) if row.loads is None else row.loads
  found = _read(op, row.guessed, loads, guessed=True)
  return found | _read(op, row.cycles, loads)


@functools.cache
def _by_scalar(op: Opcode) -> dict[DType, ElementCycles]:
  return _read(op, op.row.by_scalar, 1)


# INVERSE: a quotient whose dividend is the same for all elements.
_INVERSE: dict[DType, ElementCycles] = {
  DType.F32: ElementCycles(6 / 2 - LOAD[DType.F32], 0.0, 2),
  DType.F16: ElementCycles(15 / 4 - LOAD[DType.F16], 0.0, 4),
}


def inverse(dtype: DType) -> ElementCycles:
  """The cost of dividing a loop-invariant value by each element."""
  return _INVERSE.get(dtype) or work(Opcode.DIV, dtype)


# Narrow integers compute in 32-bit registers, u64 like i64.
_FALLBACK: dict[DType, DType] = {
  DType.I8: DType.I32,
  DType.I16: DType.I32,
  DType.U8: DType.U32,
  DType.U16: DType.U32,
  DType.U64: DType.I64,
  DType.BOOL: DType.U32,
}


def work(op: Opcode, dtype: DType, broadcast: bool = False) -> ElementCycles:
  """The cost of an instruction on values of an element type.

  Args:
    op: the instruction.
    dtype: of its operands.
    broadcast: its second operand is the same for all elements.

  Raises:
    CompileError: no cost is known.
  """
  if broadcast and dtype in _by_scalar(op):
    return _by_scalar(op)[dtype]
  works = _works(op)
  found = works.get(dtype) or works.get(_FALLBACK.get(dtype, dtype))
  if found is None:
    raise internal(
      f"no cost is known for {op.name} on {NAME[dtype]}: add it to "
      "the opcode's row in kernel/opcode.py"
    )
  return found


def conversion(source: DType, to: DType) -> ElementCycles:
  """A cast: PopLibs' Cast1D loops (PerformanceEstimation.cpp) [S].

  The rows of the source include one load and the store. bf16 and f64 have
  none: bf16 widens by a shift and narrows by rounding in integers (five
  instructions), f64 goes through soft-float [G].
  """
  if source == to:
    return ElementCycles(0.0, 0.0, 1)
  if DType.F64 in (source, to):
    cycles, unit = 40, 1
  elif DType.BF16 in (source, to):
    cycles, unit = (1, 1) if source == DType.BF16 else (5, 1)
  elif (source, to) == (DType.F32, DType.F16):
    cycles, unit = 2, 4
  elif (source, to) == (DType.F16, DType.F32):
    cycles, unit = 1, 2
  elif (source, to) == (DType.U8, DType.F16):
    cycles, unit = 9, 4
  elif source == DType.F16 and to in (DType.I8, DType.U8):
    cycles, unit = 16, 4
  elif to in (DType.I64, DType.U64):
    cycles, unit = 5, 1
  else:
    cycles, unit = 2, 1
  inside = max(cycles / unit - LOAD[source], _LEAST)
  guessed = bool({DType.F64, DType.BF16} & {source, to})
  return ElementCycles(inside, 0.0, unit, guessed)
