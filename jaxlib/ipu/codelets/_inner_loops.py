"""Cycles of the inner loops of element-wise work, per operation and type.

The tables are those of PopLibs' cycle estimators (popopsCycleEstimators.hpp,
popopsCycleEstimators.cpp, PerformanceEstimation.cpp) [S], in its notation:

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
from jaxlib.ipu.program.isa import Opcode

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

# The minimum cost of an operation of a chain: one issue per vector.
_LEAST = 0.25

_UNARY = """
ABS        f32 1s    f16 1s    i32 2s  i64 10s
NOT        i32 1v    ui32 1v   i64 3v  i16 2/4  i1 17s
CBRT       f32 27v   f16 17v
CEIL       f32 2v    f16 2v
FLOOR      f32 2v    f16 2v
ROUND_AFZ  f32 2v    f16 2v
ROUND_EVEN f32 2v    f16 2v
COS        f32 2300s f16 25/1
SIN        f32 2300s f16 25/1
TAN        f32 5100/1 f16 5700/1
CLZ        i32 1s    ui32 1s
POPCNT     i32 1s    ui32 1s
EXP        f32 6/2   f16 4/4
EXPM1      f32 4s    f16 5v
LOG        f32 12/2  f16 4/4
LOG1P      f32 18v   f16 18v
IS_FINITE  f32 5v    f16 5v
NEGATE     f32 2/2   f16 2/4   i32 2s  i64 5s
SIGN       f32 5v    f16 5v    i32 5s
SQRT       f32 10/2  f16 23/4
RSQRT      f32 8/2   f16 19/4
TANH       f32 12/2  f16 4/4
LOGISTIC   f32 12/2  f16 6/4
"""

_BINARY = """
ADD   f32 1v    f16 1v    i32 7/1   ui32 7/1   i64 11/1
SUB   f32 1v    f16 1v    i32 7/1   ui32 7/1   i64 11/1
MUL   f32 1v    f16 1v    i32 7/1   ui32 7/1   i64 30/1
DIV   f32 10/2  f16 21/4  i32 277/1 ui32 265/1 i64 130/1
REM   f32 133/2 f16 300/4 i32 292/1 ui32 282/1 i64 166/1
MAX   f32 3/2   f16 4/4   i32 7/1   ui32 8/1   i64 15/1
MIN   f32 3/2   f16 4/4   i32 7/1   ui32 8/1   i64 15/1
POW   f32 312/1 f16 325/1 i32 32/1
ATAN2 f32 272/2 f16 578/4
AND   i32 7/1   ui32 7/1  i1 5/4    i64 9/1    i16 3/4
OR    i32 7/1   ui32 7/1  i1 5/4    i64 9/1    i16 3/4
XOR   i32 7/1   ui32 7/1  i1 5/4    i64 9/1    i16 5/2
SHL   i32 7/1   ui32 7/1  i64 18/1
SHR_LOGICAL    i32 7/1 ui32 7/1 i64 6/1
SHR_ARITHMETIC i32 7/1 i64 19/1
EQ    f32 14/4  f16 9/4   i32 22/4  ui32 22/4  i1 6/4  i64 48/4 i16 22/4
NE    f32 20/4  f16 11/4  i32 22/4  ui32 22/4  i1 5/4  i64 48/4 i16 22/4
GT    f32 14/4  f16 9/4   i32 22/4  ui32 22/4  i1 31/4 i64 56/4
GE    f32 14/4  f16 9/4   i32 26/4  ui32 26/4  i1 28/4 i64 62/4
LT    f32 14/4  f16 9/4   i32 22/4  ui32 22/4  i1 28/4 i64 56/4
LE    f32 14/4  f16 9/4   i32 26/4  ui32 26/4  i1 28/4 i64 62/4
"""

# The second operand is the same for all elements.
_BROADCAST = """
ADD   f32 1v    f16 1v    i32 6/1   ui32 6/1   i64 9/1
SUB   f32 1v    f16 1v    i32 6/1   ui32 6/1   i64 9/1
MUL   f32 1v    f16 1v    i32 6/1   ui32 6/1   i64 26/1
DIV   f32 6/2   f16 8/2   i32 277/1 ui32 260/1 i64 103/1
REM   f32 93/2  f16 225/4 i32 280/1 ui32 267/1 i64 137/1
MAX   f32 3/2   f16 3/4   i32 6/1   ui32 7/1   i64 14/1
MIN   f32 3/2   f16 3/4   i32 6/1   ui32 8/1   i64 14/1
POW   f32 312/1 f16 325/1 i32 23/1
ATAN2 f32 272/2 f16 578/4
AND   i32 6/1   ui32 6/1  i1 4/4    i64 7/1    i16 2/4
OR    i32 6/1   ui32 6/1  i1 4/4    i64 7/1    i16 2/4
XOR   i32 6/1   ui32 6/1  i64 7/1   i16 4/2
SHL   i32 6/1   ui32 6/1  i64 16/1
SHR_LOGICAL    i32 6/1 ui32 6/1 i64 5/1
SHR_ARITHMETIC i32 6/1 i64 17/1
EQ    f32 12/4  f16 8/4   i32 16/4  ui32 16/4  i1 14/4 i64 32/4 i16 16/4
NE    f32 18/4  f16 10/4  i32 16/4  ui32 16/4  i1 4/4  i64 32/4 i16 16/4
GT    f32 12/4  f16 8/4   i32 16/4  ui32 16/4  i1 12/4 i64 38/4
GE    f32 12/4  f16 8/4   i32 20/4  ui32 20/4  i1 12/4 i64 50/4
LT    f32 12/4  f16 8/4   i32 16/4  ui32 16/4  i1 16/4 i64 38/4
LE    f32 12/4  f16 8/4   i32 20/4  ui32 20/4  i1 16/4 i64 50/4
"""

# Select: 5 cycles per element; BroadcastSelect on bool: 17 per 4. Clamp:
# 2 per vector of floats, 7 per integer.
_TERNARY = """
SELECT f32 5/1 f16 5/1 i32 5/1 ui32 5/1 i1 17/4 i16 5/1
"""
_CLAMP = """
CLAMP  f32 2/2 f16 2/4 i32 7/1 ui32 7/1
"""

# Operations without a row in PopLibs [G]. 64-bit integers: twice the 32-bit
# loop. f64: no hardware; soft-float calls of compiler-rt's size (an addition
# unpacks, aligns, normalises and rounds two words: about 70 instructions; a
# product takes four 32-bit multiplications into 64 bits more; quotient and
# root 28 to 60 iterations), functions as polynomials of 14 multiply-adds and
# a range reduction.
_GUESSED_UNARY = """
SIGN   ui32 5s  i64 10s  f64 8/1
ABS    f64 8/1
NEGATE ui32 2s  f64 8/1
POPCNT i64 12/1
CLZ    i64 12/1
SQRT   f64 900/1
RSQRT  f64 1400/1
IS_FINITE  f64 12/1
FLOOR      f64 40/1
CEIL       f64 40/1
ROUND_AFZ  f64 40/1
ROUND_EVEN f64 40/1
EXP f64 3200/1
EXPM1 f64 3400/1
LOG f64 3200/1
LOG1P f64 3400/1
CBRT f64 3400/1
SIN f64 3600/1
COS f64 3600/1
TAN f64 7200/1
TANH f64 4000/1
LOGISTIC f64 4000/1
"""
_GUESSED_BINARY = """
ADD f64 75/1
SUB f64 75/1
MUL f64 155/1
DIV f64 600/1
REM f64 1200/1
MAX f64 30/1
MIN f64 30/1
POW ui32 32/1 i64 300/1 f64 7000/1
ATAN2 f64 5000/1
EQ f64 30/1
NE f64 30/1
GT f64 30/1
GE f64 30/1
LT f64 30/1
LE f64 30/1
MAX i1 5/4
MIN i1 5/4
ADD i1 5/4
MUL i1 5/4
SHR_ARITHMETIC ui32 7/1
"""
_GUESSED_TERNARY = """
SELECT i64 10/1 f64 10/1
"""
_GUESSED_CLAMP = """
CLAMP i64 26/1 f64 60/1
"""


class Work(NamedTuple):
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


def _overhead(op: str, dtype: DType, loads: int) -> int:
  """The framework's overhead of a `v` or `s` entry, in the entry's units."""
  if op in ("ADD", "SUB", "MUL") and dtype in _FLOATS:
    return loads
  return 4 if loads == 1 else 5


def _parse(
  table: str, loads: int, guessed: bool = False
) -> dict[tuple[Opcode, DType], Work]:
  works = {}
  for line in table.strip().splitlines():
    op, *cells = line.split()
    for name, entry in zip(cells[::2], cells[1::2], strict=True):
      dtype = _DTYPE[name]
      if entry[-1] in "vs":
        cycles = int(entry[:-1]) + _overhead(op, dtype, loads)
        unit = VECTOR[dtype] if entry[-1] == "v" else 1
      else:
        cycles, unit = map(int, entry.split("/"))
      inside = max(cycles / unit - loads * LOAD[dtype], _LEAST)
      proper = max(inside - _LOOP[dtype], min(inside, _LEAST))
      works[Opcode[op], dtype] = Work(proper, inside - proper, unit, guessed)
  return works


@functools.cache
def _works() -> dict[tuple[Opcode, DType], Work]:
  works: dict[tuple[Opcode, DType], Work] = {}
  for guessed, tables in (  # sourced rows override guesses
    (
      True,
      (_GUESSED_UNARY, _GUESSED_BINARY, _GUESSED_TERNARY, _GUESSED_CLAMP),
    ),
    (False, (_UNARY, _BINARY, _TERNARY, _CLAMP)),
  ):
    for table, loads in zip(tables, (1, 2, 3, 1), strict=True):
      works |= _parse(table, loads, guessed)
  return works


@functools.cache
def _broadcast() -> dict[tuple[Opcode, DType], Work]:
  return _parse(_BROADCAST, 1)


# INVERSE: a quotient whose dividend is the same for all elements.
_INVERSE: dict[DType, Work] = {
  DType.F32: Work(6 / 2 - LOAD[DType.F32], 0.0, 2),
  DType.F16: Work(15 / 4 - LOAD[DType.F16], 0.0, 4),
}


def inverse(dtype: DType) -> Work:
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


def work(op: Opcode, dtype: DType, broadcast: bool = False) -> Work:
  """The cost of an instruction on values of an element type.

  Args:
    op: the instruction.
    dtype: of its operands.
    broadcast: its second operand is the same for all elements.

  Raises:
    CompileError: no cost is known.
  """
  if broadcast and (op, dtype) in _broadcast():
    return _broadcast()[op, dtype]
  works = _works()
  found = works.get((op, dtype))
  if found is None and dtype in _FALLBACK:
    found = works.get((op, _FALLBACK[dtype]))
  if found is None:
    raise internal(
      f"no cost is known for {op.name} on {NAME[dtype]}: add a row to "
      "codelets/_inner_loops.py"
    )
  return found


def conversion(source: DType, to: DType) -> Work:
  """A cast: PopLibs' Cast1D loops (PerformanceEstimation.cpp) [S].

  The rows of the source include one load and the store. bf16 and f64 have
  none: bf16 widens by a shift and narrows by rounding in integers (five
  instructions), f64 goes through soft-float [G].
  """
  if source == to:
    return Work(0.0, 0.0, 1)
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
  return Work(inside, 0.0, unit, guessed)
