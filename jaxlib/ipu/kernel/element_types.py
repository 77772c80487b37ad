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
_SAID = {op: made for op, made in _MADE.items() if op not in TESTS}
# Python looks members of enumerations up by name, which takes longer than what
# is done with them here.
_LOAD, _CONST, _SELECT = Opcode.LOAD, Opcode.CONST, Opcode.SELECT
_ROUND_F16, _F16, _BF16 = Opcode.ROUND_F16, DType.F16, DType.BF16
_AS_REGISTER = frozenset({_CONST, Opcode.IOTA, Opcode.CONVERT, Opcode.BITCAST})


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
  """Assigns element types to the instructions of a program, in their order.

  Attributes:
    elements: the element type of each value so far; None: a constant's.
  """

  def __init__(self) -> None:
    self.elements: list[DType | None] = []
    # Inexact instructions on f16 values: whether all users so far round; None:
    # there are no users.
    self._halves: dict[int, bool | None] = {}

  def load(self, dtype: DType | None) -> None:
    """The next instruction loads an element of this type."""
    self.elements.append(dtype)

  def add(
    self, op: Opcode, type_: RegisterType, operands: tuple[int, ...]
  ) -> DType | None:
    """The element type of the next instruction, not a load, which `finish` may
    still change from f32 to f16."""
    halves = self._halves
    if halves:
      rounds = op is _ROUND_F16
      for value in operands:
        if value in halves:
          halves[value] = rounds and halves[value] is not False
    dtype = _SAID.get(op) or self._common(op, type_, operands)
    self.elements.append(DType.BOOL if op in TESTS else dtype)
    return dtype

  def _common(
    self, op: Opcode, type_: RegisterType, operands: tuple[int, ...]
  ) -> DType | None:
    """The type of an instruction's operands, if it computes in that."""
    natural = NATURAL[type_]
    if op in _AS_REGISTER:
      return None if op is _CONST else natural
    elements = self.elements
    dtype = None
    for value in operands[1:] if op is _SELECT else operands:
      found = elements[value]
      if found is None or found is dtype:
        continue
      if dtype is not None:
        return natural
      dtype = found
    if dtype is None or dtype is natural or dtype is _BF16:
      return natural
    if dtype is _F16:
      if op.row.exact_in_f16:
        return dtype
      self._halves[len(elements)] = None
      return natural
    return dtype if REGISTER[dtype] is type_ else natural

  def finish(self, instructions: Sequence[Instruction]) -> Code:
    """The program of the instructions, with the types that `add` gave them."""
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
  out = []
  for i in instructions:
    if i.op is _LOAD:
      typing.load(i.dtype)
      out.append(i)
    else:
      dtype = typing.add(i.op, i.type, i.operands)
      out.append(Instruction(i.op, i.type, i.operands, i.imm, dtype))
  return typing.finish(out)


def on_operands(code: Code, dtypes: Sequence[DType]) -> Code:
  """The same program on operands of these element types."""
  loads = [i for i in code if i.op is _LOAD]
  if all(i.dtype is dtypes[i.imm] for i in loads):
    return code
  return typed(
    i._replace(dtype=dtypes[i.imm]) if i.op is _LOAD else i for i in code
  )
