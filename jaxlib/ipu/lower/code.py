"""Writes element-wise register programs (`program/isa.py`)."""

from __future__ import annotations

import struct
from typing import Any

import ml_dtypes
import numpy as np

from jaxlib.ipu.codelets._instructions import NARROW, load, register_type
from jaxlib.ipu.dtypes import STORED, DType
from jaxlib.ipu.program.isa import (
  INSTRUCTION,
  Opcode,
  RegisterType,
  arity,
  encode,
)

# The register type that holds each element type.
REGISTER: dict[DType, RegisterType] = {d: register_type(d) for d in STORED}
_FORMAT = {
  RegisterType.F32: "<f", RegisterType.F64: "<d", RegisterType.I32: "<i",
  RegisterType.U32: "<I", RegisterType.I64: "<q", RegisterType.U64: "<Q",
}  # fmt: skip
_HELD_IN_F32 = (np.float16, ml_dtypes.bfloat16, np.float32)


class Code:
  """A register program under construction. An instruction that the program
  already has is not added again."""

  def __init__(self) -> None:
    self._instructions: list[bytes] = []
    self._known: dict[bytes, int] = {}

  def __len__(self) -> int:
    return len(self._instructions)

  def emit(
    self, op: int, type_: int, a: int = 0, b: int = 0, c: int = 0, imm: int = 0
  ) -> int:
    """Adds an instruction; returns the number of its value."""
    word = encode(op, type_, a, b, c, imm)
    number = self._known.get(word)
    if number is None:
      number = self._known[word] = len(self._instructions)
      self._instructions.append(word)
    return number

  def load(self, operand: int, dtype: DType) -> int:
    """Loads the element of an operand, in the register type of its dtype."""
    return self.emit(Opcode.LOAD, REGISTER[dtype], imm=operand)

  def constant(self, value: Any, type_: RegisterType) -> int:
    """Adds a constant of a register type. The bits of a NumPy scalar are
    preserved."""
    if type_ not in (RegisterType.F32, RegisterType.F64):
      bits = 64 if type_ in (RegisterType.I64, RegisterType.U64) else 32
      imm = int(value) & ((1 << bits) - 1)
    elif isinstance(value, np.generic) and value.dtype in _HELD_IN_F32:
      imm = int(load(np.asarray(value), RegisterType.F32).view(np.uint32))
    else:
      raw = struct.pack(_FORMAT[type_], float(value))
      imm = int.from_bytes(raw, "little")
    return self.emit(Opcode.CONST, type_, imm=imm)

  def known(self, value: int) -> float | int | None:
    """The number that a value is, if it is a constant; otherwise None."""
    op, type_, _, _, _, imm = INSTRUCTION.unpack(self._instructions[value])
    if op != Opcode.CONST:
      return None
    kind = RegisterType(type_)
    wide = kind in (RegisterType.F64, RegisterType.I64, RegisterType.U64)
    raw = imm.to_bytes(8, "little")[: 8 if wide else 4]
    (number,) = struct.unpack(_FORMAT[kind], raw)
    return number

  def narrow(self, value: int, dtype: DType) -> int:
    """Wraps or rounds the result of arithmetic to the range of `dtype`."""
    op = NARROW.get(dtype)
    return value if op is None else self.emit(op, REGISTER[dtype], value)

  def convert(self, value: int, source: RegisterType, to: RegisterType) -> int:
    """Converts between register types; no-op if they are equal."""
    if source == to:
      return value
    return self.emit(Opcode.CONVERT, to, value, source)

  def bytes(self) -> bytes:
    """The finished program."""
    return b"".join(self._instructions)


def permute(program: bytes, order: tuple[int, ...]) -> bytes:
  """The same program over permuted dimensions; dimension i is the former
  dimension `order[i]`."""
  size = INSTRUCTION.size
  words = []
  for at in range(0, len(program), size):
    word = program[at : at + size]
    if word[0] == Opcode.IOTA:
      op, type_, a, b, c, dim = INSTRUCTION.unpack(word)
      word = encode(op, type_, a, b, c, order.index(dim))
    words.append(word)
  return b"".join(words)


def extract(
  program: bytes, outputs: tuple[int, ...]
) -> tuple[bytes, tuple[int, ...], tuple[int, ...]]:
  """The part of a program on which some of its values depend.

  Returns:
    The shorter program; the numbers of these values in it; and the operands of
    the original program that it loads, ascending. These are its own operands 0,
    1, ...
  """
  words = list(INSTRUCTION.iter_unpack(program))
  needed = set(outputs)
  for number in range(len(words) - 1, -1, -1):
    if number in needed:
      op, _, a, b, c, _ = words[number]
      needed.update((a, b, c)[: arity(op)])
  kept = sorted(needed)
  renamed = {number: i for i, number in enumerate(kept)}
  operands = sorted({words[n][5] for n in kept if words[n][0] == Opcode.LOAD})
  slots = {operand: i for i, operand in enumerate(operands)}
  out = []
  for number in kept:
    op, type_, a, b, c, imm = words[number]
    values = [a, b, c]
    for i in range(arity(op)):
      values[i] = renamed[values[i]]
    if op == Opcode.LOAD:
      imm = slots[imm]
    a, b, c = values
    out.append(encode(op, type_, a, b, c, imm))
  return (
    b"".join(out),
    tuple(renamed[o] for o in outputs),
    tuple(operands),
  )
