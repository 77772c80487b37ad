"""The register types of register programs, and what an opcode states.

A register program is a list of instructions in static single assignment:
instruction i defines value i, operands name earlier values. Values have one of
six register types; narrower element types live in wider registers and are
wrapped or rounded to their own range by the `WRAP_*` and `ROUND_*`
instructions, so that arithmetic exists once:

  element type        register  after arithmetic
  bool                U32       (0 or 1 by construction)
  i8, i16 / u8, u16   I32 / U32 WRAP_I8 ... WRAP_U16
  f16, bf16           F32       ROUND_F16, ROUND_BF16
  i32, u32, i64, u64, f32, f64  their own

The numbers below and in `opcode.py` are the wire format. They and the types of
operands and results reach C++ through `program/generate_header.py`, which runs
without NumPy: neither this file nor those that it imports use it.
"""

from __future__ import annotations

import dataclasses
import enum


class RegisterType(enum.IntEnum):
  """The type of a value of a register program."""

  F32 = 0
  F64 = 1
  I32 = 2
  U32 = 3
  I64 = 4
  U64 = 5


class ReduceKind(enum.IntEnum):
  """How a reduction or a scatter combines two elements.

  As the instruction of the same name, except that MAX and MIN of zeros of both
  signs may give either. The order in which elements are combined is undefined,
  as is what a machine's own reductions do with zeros.
  """

  SET = 0  # scatter only: the new one
  SUM = 1
  PRODUCT = 2
  MAX = 3
  MIN = 4
  AND = 5
  OR = 6
  XOR = 7
  ARGMAX = 8  # NaN wins, then the smaller index
  ARGMIN = 9
  GENERAL = 10


# Types that depend on the instruction: its own, and that of the value which a
# conversion reads.
OWN, SOURCE = 254, 255

FLOATS = frozenset({RegisterType.F32, RegisterType.F64})
ALL = frozenset(RegisterType)
INTEGERS = ALL - FLOATS


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
  """Everything that the compiler knows about an opcode.

  Attributes:
    types: the register types that its instructions may have.
    operands: the types of the values that it reads, as many as there are.
    result: the type of its value.
    meaning: its definition on arrays: the name of a function of `meaning.py`
      or else of NumPy. Empty for the instructions that `evaluate.py` knows.
    in_double: NumPy would round f32 twice, or approximate: computed in double
      precision and rounded once.
    element: the element type of its values as MLIR writes it, if it determines
      that by itself.
    exact_in_f16: its result on f16 values is an f16 value or a truth value, so
      it needs no rounding.
    approximate: the engine's results for floats may differ from the definition
      in the last bits.
    commutes: its operands can be exchanged.
    weight: the cost of doing it again instead of storing the value, in simple
      instructions.
    cycles: cycles of PopLibs' loops by element type, in the notation of
      `codelets/_inner_loops.py` [S].
    by_scalar: the same if the second operand is the same for all elements [S].
    guessed: the same where PopLibs has no such loop [G].
    loads: the operands that these loops load for each element; None: all.
  """

  types: frozenset[RegisterType] = ALL
  operands: tuple[int, ...] = ()
  result: int = OWN
  meaning: str = ""
  in_double: bool = False
  element: str = ""
  exact_in_f16: bool = False
  approximate: bool = False
  commutes: bool = False
  weight: int = 1
  cycles: str = ""
  by_scalar: str = ""
  guessed: str = ""
  loads: int | None = None
