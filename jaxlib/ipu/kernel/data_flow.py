"""The data flow of a register program, and the patterns in it that cost less
than their instructions do one by one: scalar operands, multiples that are only
added to something, comparisons that only determine which floats become zero."""

from __future__ import annotations

from jaxlib.ipu.dtypes import FLOATS, DType
from jaxlib.ipu.kernel.element_types import TESTS
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.kernel.isa import RegisterType
from jaxlib.ipu.kernel.opcode import Opcode

COMPARES = frozenset({op for op in TESTS if len(op.row.operands) == 2})


class DataFlow:
  """Where the values of a register program come from and go to.

  Attributes:
    invariant: whether each value is the same for all elements.
    users: for each value that is used, the instructions that take it.
  """

  def __init__(
    self,
    code: Code,
    outputs: tuple[int, ...],
    operand_dtypes: tuple[DType, ...],
    scalars: tuple[int, ...],
  ) -> None:
    self.outputs = outputs
    self.dtypes = operand_dtypes
    self.instructions = code
    self.invariant: list[bool] = []
    for i in code:
      self.invariant.append(
        i.imm in scalars
        if i.op == Opcode.LOAD
        else i.op != Opcode.IOTA and all(self.invariant[a] for a in i.operands)
      )
    self.users: dict[int, list[int]] = {}
    for index, i in enumerate(code):
      for a in i.operands:
        self.users.setdefault(a, []).append(index)

  def only_zeroes(self, mask: int, of: DType) -> bool:
    """Whether a comparison, perhaps joined with others, is only used to replace
    floats of a type by zeros."""
    instructions = self.instructions
    users = self.users.get(mask, [])
    if not users or mask in self.outputs:
      return False
    for user in users:
      i = instructions[user]
      first, *others = i.operands
      if i.op == Opcode.SELECT:
        good = first == mask and any(
          instructions[v].op == Opcode.CONST and not instructions[v].imm
          for v in others
        )
        good = good and all(self._is_float(v, of) for v in others)
      elif i.op not in (Opcode.AND, Opcode.OR):
        good = False
      else:
        (other,) = others
        other = first if other == mask else other
        good = (
          instructions[other].op in COMPARES
          and not self.invariant[other]
          and self.users[other] == [user]
          and other not in self.outputs
          and all(self._is_float(v, of) for v in instructions[other].operands)
          and self.only_zeroes(user, of)
        )
      if not good:
        return False
    return True

  def _is_float(self, value: int, dtype: DType) -> bool:
    """Whether a value is of a type; constants are of any."""
    i = self.instructions[value]
    if i.op == Opcode.CONST:
      return i.type == RegisterType.F32
    if i.op == Opcode.LOAD:
      return i.dtype == dtype
    return i.type == RegisterType.F32 and all(
      d == dtype for d in self.dtypes if d in FLOATS
    )

  def by_scalar(self, index: int) -> bool:
    """Whether an instruction's second operand is the same for all elements."""
    i = self.instructions[index]
    a, b = i.operands
    return (i.op.row.commutes and self.invariant[a]) or self.invariant[b]

  def added_by(self, index: int) -> Opcode | None:
    """The only user of a value, if it adds it to, or subtracts it from,
    another."""
    users = self.users.get(index, [])
    if len(users) == 1 and self.instructions[users[0]].op == Opcode.ROUND_F16:
      index, users = users[0], self.users.get(users[0], [])
    if len(users) != 1:
      return None
    user = self.instructions[users[0]]
    if user.op not in (Opcode.ADD, Opcode.SUB):
      return None
    a, b = user.operands
    other = a if b == index else b
    if other == index or self.invariant[other]:
      return None
    return user.op if user.op == Opcode.ADD or b == index else None
