"""Register programs as data: immutable instructions, and their wire format.

On the wire an instruction takes 16 bytes: its opcode and register type, one
byte each; three operands of two bytes (of conversions the second one is the
register type of the first); an immediate of eight. Element types are not part
of it: an engine knows those of the tensors.

This file does not need NumPy (see `isa.py`).
"""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxlib.ipu.kernel.isa import OWN, SOURCE, RegisterType
from jaxlib.ipu.kernel.opcode import Opcode

if TYPE_CHECKING:
  from jaxlib.ipu.dtypes import DType

_CONVERSIONS = (Opcode.CONVERT, Opcode.BITCAST)
_WORD = struct.Struct("<BBHHHQ")
_OPCODES = {int(op): op for op in Opcode}
_TYPES = {int(t): t for t in RegisterType}


class Instruction(NamedTuple):
  """An instruction, and the value that it makes.

  Attributes:
    op: what it does.
    type: the register type in which it does it.
    operands: the numbers of the values that it reads.
    imm: the immediate, see `Opcode`.
    dtype: the element type in which it computes, and except for comparisons
      that of its value. None: of a constant, which has that of whatever it is
      combined with; and of all instructions that were decoded.
  """

  op: Opcode
  type: RegisterType
  operands: tuple[int, ...] = ()
  imm: int = 0
  dtype: DType | None = None

  @property
  def result(self) -> int:
    """The register type of the value."""
    return self.resolve(self.op.row.result)

  def resolve(self, type_: int) -> int:
    """A type of the opcode's row, for this instruction."""
    if type_ == OWN:
      return self.type
    return self.imm if type_ == SOURCE else type_

  def __str__(self) -> str:
    operands = [f"v{value}" for value in self.operands]
    if self.op in _CONVERSIONS:
      operands.append(f"from {_TYPES[self.imm].name.lower()}")
    elif not operands:
      operands.append(hex(self.imm))
    name = f"{self.op.name.lower()}.{self.type.name.lower()}"
    return f"{name} {' '.join(operands)}"


class Code(tuple[Instruction, ...]):
  """The instructions of a register program; instruction i makes value i."""

  def __add__(self, more: tuple[Any, ...]) -> Code:
    return Code((*self, *more))

  def __hash__(self) -> int:
    return self._hash

  @functools.cached_property
  def _hash(self) -> int:
    return super().__hash__()

  @functools.cached_property
  def wire(self) -> bytes:
    """The instructions' bytes."""
    return b"".join(map(_encode, self))

  @functools.cached_property
  def abstract(self) -> Code:
    """The same instructions, all constants zero."""
    return Code(
      i._replace(imm=0) if i.op is Opcode.CONST and i.imm else i for i in self
    )

  @property
  def constants(self) -> tuple[int, ...]:
    """The bits of its constants, in order."""
    return tuple(i.imm for i in self if i.op is Opcode.CONST)

  @staticmethod
  def of_wire(data: bytes) -> Code:
    """The instructions with these bytes.

    Raises:
      ValueError: the bytes are truncated or contain unknown numbers.
    """
    if len(data) % _WORD.size:
      raise ValueError(
        f"{len(data)} bytes of register program are no multiple of {_WORD.size}"
      )
    try:
      return Code(_decode(*word) for word in _WORD.iter_unpack(data))
    except KeyError as e:
      raise ValueError(f"register program: unknown number {e}") from e

  def lines(self) -> list[str]:
    """A line of text for each instruction."""
    return [f"v{number} = {i}" for number, i in enumerate(self)]


def _encode(i: Instruction) -> bytes:
  a, b, c = (*i.operands, 0, 0, 0)[:3]
  if i.op in _CONVERSIONS:
    return _WORD.pack(i.op, i.type, a, i.imm, 0, 0)
  return _WORD.pack(i.op, i.type, a, b, c, i.imm)


def _decode(
  op: int, type_: int, a: int, b: int, c: int, imm: int
) -> Instruction:
  opcode = _OPCODES[op]
  operands = (a, b, c)[: len(opcode.row.operands)]
  if opcode in _CONVERSIONS:
    imm = _TYPES[b]
  return Instruction(opcode, _TYPES[type_], operands, imm)
