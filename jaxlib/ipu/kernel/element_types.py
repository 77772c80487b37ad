"""The element types in which the instructions of register programs compute.

Registers are wider than elements, so an addition of f16 is LOAD, LOAD, ADD,
ROUND_F16, all in f32. The machine has an instruction for it, and the cost of a
program depends on which elements its instructions work on. That follows from
the element types of the operands that it loads:

- constants have the type of whatever they are combined with;
- conversions, wraps and rounds say what they make;
- everything else computes in the type that all its operands have, if its
  register is the one of that type; of two types the register's own;
- what computes in f16 and is not exact there has to be rounded to f16 by all
  its users: otherwise it computes in f32.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jaxlib.ipu.dtypes import MLIR_NAME, SIGNED, STORED, UNSIGNED, DType
from jaxlib.ipu.kernel.instruction import Code, Instruction
from jaxlib.ipu.kernel.isa import RegisterType
from jaxlib.ipu.kernel.opcode import Opcode

# The element type that has a register's own width.
NATURAL: dict[RegisterType, DType] = {t: DType[t.name] for t in RegisterType}
# The instruction that wraps or rounds the result of arithmetic, in a register,
# to the range of a narrower element type.
NARROW: dict[DType, Opcode] = {
  DType.I8: Opcode.WRAP_I8,
  DType.I16: Opcode.WRAP_I16,
  DType.U8: Opcode.WRAP_U8,
  DType.U16: Opcode.WRAP_U16,
  DType.F16: Opcode.ROUND_F16,
  DType.BF16: Opcode.ROUND_BF16,
}
_MADE = {op: MLIR_NAME[op.row.element] for op in Opcode if op.row.element}
# Instructions whose values are truth values: they compute in another type.
TESTS = frozenset({op for op, made in _MADE.items() if made is DType.BOOL})
_AS_REGISTER = (Opcode.IOTA, Opcode.CONVERT, Opcode.BITCAST)


def _register_type(dtype: DType) -> RegisterType:
  if dtype in (DType.F64, DType.I64, DType.U64):
    return RegisterType[dtype.name]
  if dtype in SIGNED:
    return RegisterType.I32
  if dtype in UNSIGNED or dtype == DType.BOOL:
    return RegisterType.U32
  return RegisterType.F32


# The register type that holds values of each element type.
REGISTER: dict[DType, RegisterType] = {d: _register_type(d) for d in STORED}


class Typing:
  """Assigns element types to instructions, one after the other.

  Attributes:
    elements: the element type of each value so far; None: a constant's.
  """

  def __init__(self) -> None:
    self.elements: list[DType | None] = []
    # Inexact instructions on f16 values: whether all users so far round; None:
    # there are no users.
    self._halves: dict[int, bool | None] = {}

  def add(self, i: Instruction) -> Instruction:
    """The next instruction of a program with its element type, which `finish`
    may still change from f32 to f16."""
    dtype = i.dtype if i.op is Opcode.LOAD else self._dtype(i)
    self.elements.append(DType.BOOL if i.op in TESTS else dtype)
    return i if i.dtype is dtype else i._replace(dtype=dtype)

  def _dtype(self, i: Instruction) -> DType | None:
    if self._halves:
      rounds = i.op is Opcode.ROUND_F16
      for value in i.operands:
        if value in self._halves:
          self._halves[value] = rounds and self._halves[value] is not False
    made = _MADE.get(i.op)
    if made is not None and made is not DType.BOOL:
      return made
    if i.op is Opcode.CONST:
      return None
    natural = NATURAL[i.type]
    if i.op in _AS_REGISTER:
      return natural
    operands = i.operands[1:] if i.op is Opcode.SELECT else i.operands
    found = {self.elements[v] for v in operands} - {None}
    if len(found) != 1:
      return natural
    (dtype,) = found
    assert dtype is not None
    if dtype is DType.F16:
      if i.op.row.exact_in_f16:
        return dtype
      self._halves[len(self.elements)] = None
      return natural
    same = dtype is not DType.BF16 and REGISTER[dtype] is i.type
    return dtype if same else natural

  def finish(self, instructions: Sequence[Instruction]) -> Code:
    """The program of the instructions that were added."""
    halves = [n for n, rounded in self._halves.items() if rounded]
    if not halves:
      return Code(instructions)
    out = list(instructions)
    for n in halves:
      out[n] = out[n]._replace(dtype=DType.F16)
    return Code(out)


def typed(instructions: Iterable[Instruction]) -> Code:
  """The program of some instructions, whose loads have element types."""
  typing = Typing()
  return typing.finish([typing.add(i) for i in instructions])


def on_operands(code: Code, dtypes: Sequence[DType]) -> Code:
  """The same program on operands of these element types."""
  loads = [i for i in code if i.op is Opcode.LOAD]
  if all(i.dtype is dtypes[i.imm] for i in loads):
    return code
  return typed(
    i._replace(dtype=dtypes[i.imm]) if i.op is Opcode.LOAD else i for i in code
  )
