"""Writes register programs, and makes new ones of existing ones.

What is simplified where: a `Writer` merges equal instructions, and the rows of
`ops/` write cheaper ones for known constants (`ops/_constant_operands.py`).
Costs are those of the program that is written. The engine simplifies further
when it loads it (`runtime/program/register_simplify.h`): it fuses instructions,
divides by constants without a division and leaves roundings to stores. That
only depends on how the engine's host computes, changes no result, and is not
priced.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.kernel.element_types import NARROW, REGISTER, Typing, typed
from jaxlib.ipu.kernel.instruction import Code, Instruction
from jaxlib.ipu.kernel.isa import RegisterType
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.kernel.registers import load

_FORMAT = {
  RegisterType.F32: "<f", RegisterType.F64: "<d", RegisterType.I32: "<i",
  RegisterType.U32: "<I", RegisterType.I64: "<q", RegisterType.U64: "<Q",
}  # fmt: skip
_HELD_IN_F32 = (np.float16, ml_dtypes.bfloat16, np.float32)
_CONVERSIONS = frozenset({Opcode.CONVERT, Opcode.BITCAST})

# An instruction without its element type.
_Key = tuple[Opcode, RegisterType, tuple[int, ...], int]


class Writer:
  """A register program under construction. An instruction that the program
  already has is not added again. Values are numbers of instructions."""

  def __init__(self) -> None:
    self._instructions: list[Instruction] = []
    self._known: dict[_Key, int] = {}
    self._typing = Typing()

  def emit(
    self, op: Opcode, type_: RegisterType, *operands: int, imm: int = 0
  ) -> int:
    """Adds an instruction other than a load; returns its value. The immediate
    of a conversion is found here."""
    if op in _CONVERSIONS:
      imm = self._instructions[operands[0]].result
    key = op, type_, operands, imm
    number = self._known.get(key)
    if number is None:
      number = self._known[key] = len(self._instructions)
      dtype = self._typing.add(op, type_, operands)
      self._instructions.append(Instruction(*key, dtype))
    return number

  def load(self, operand: int, dtype: DType) -> int:
    """Loads the element of an operand, in the register type of its dtype."""
    key = Opcode.LOAD, REGISTER[dtype], (), operand
    number = self._known.get(key)
    if number is None:
      number = self._known[key] = len(self._instructions)
      self._typing.load(dtype)
      self._instructions.append(Instruction(*key, dtype))
    return number

  def constant(self, value: Any, type_: RegisterType) -> int:
    """Adds a constant of a register type. The bits of a NumPy scalar are
    preserved."""
    return self.emit(Opcode.CONST, type_, imm=bits(value, type_))

  def known(self, value: int) -> float | int | None:
    """The number that a value is, if it is a constant; otherwise None."""
    i = self._instructions[value]
    if i.op is not Opcode.CONST:
      return None
    layout = struct.Struct(_FORMAT[i.type])
    (number,) = layout.unpack(i.imm.to_bytes(8, "little")[: layout.size])
    return number

  def iota(self, dim: int, dtype: DType) -> int:
    """The index along a dimension, in an element type."""
    return self.narrow(self.emit(Opcode.IOTA, REGISTER[dtype], imm=dim), dtype)

  def narrow(self, value: int, dtype: DType) -> int:
    """Wraps or rounds the result of arithmetic to the range of `dtype`."""
    op = NARROW.get(dtype)
    return value if op is None else self.emit(op, REGISTER[dtype], value)

  def convert(self, value: int, to: RegisterType) -> int:
    """Converts to a register type; no-op if the value has it."""
    if self._instructions[value].result == to:
      return value
    return self.emit(Opcode.CONVERT, to, value)

  def inline(self, code: Code, load: Callable[[int], int]) -> list[int]:
    """Adds the instructions of a program; returns its values.

    Args:
      load: the value in the place of each LOAD of an operand.
    """
    values: list[int] = []
    for i in code:
      if i.op is Opcode.LOAD:
        values.append(load(i.imm))
      else:
        operands = [values[v] for v in i.operands]
        values.append(self.emit(i.op, i.type, *operands, imm=i.imm))
    return values

  def finish(self) -> Code:
    """The finished program."""
    return self._typing.finish(self._instructions)


def bits(value: Any, type_: RegisterType) -> int:
  """The immediate of a constant; that of a NumPy scalar has the same bits."""
  if type_ not in (RegisterType.F32, RegisterType.F64):
    width = 64 if type_ in (RegisterType.I64, RegisterType.U64) else 32
    return int(value) & ((1 << width) - 1)
  if isinstance(value, np.generic) and value.dtype in _HELD_IN_F32:
    return int(load(np.asarray(value), RegisterType.F32).view(np.uint32))
  return int.from_bytes(struct.pack(_FORMAT[type_], float(value)), "little")


def permute(code: Code, order: tuple[int, ...]) -> Code:
  """The same program over permuted dimensions; dimension i is the former
  dimension `order[i]`."""
  return Code(
    i._replace(imm=order.index(i.imm)) if i.op is Opcode.IOTA else i
    for i in code
  )


def extract(
  code: Code, outputs: tuple[int, ...]
) -> tuple[Code, tuple[int, ...], tuple[int, ...]]:
  """The part of a program on which some of its values depend.

  Returns:
    The shorter program; the numbers of these values in it; and the operands of
    the original program that it loads, ascending. These are its own operands 0,
    1, ...
  """
  needed = set(outputs)
  for number in range(len(code) - 1, -1, -1):
    if number in needed:
      needed.update(code[number].operands)
  kept = sorted(needed)
  renamed = {number: i for i, number in enumerate(kept)}
  loads = {code[n].imm for n in kept if code[n].op is Opcode.LOAD}
  operands = sorted(loads)
  slots = {operand: i for i, operand in enumerate(operands)}
  out = []
  for number in kept:
    i = code[number]
    if i.op is Opcode.LOAD:
      out.append(i._replace(imm=slots[i.imm]))
    else:
      values = tuple([renamed[v] for v in i.operands])
      out.append(i._replace(operands=values))
  return typed(out), tuple(renamed[o] for o in outputs), tuple(operands)
