"""The data flow of a register program, and the patterns in it that cost less
than their instructions do one by one: scalar operands, multiples that are only
added to something, comparisons that only determine which floats become zero."""

from __future__ import annotations

from jaxlib.ipu.codelets._instructions import arguments, decode
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.program.isa import Opcode, RegisterType

TO_BOOL = frozenset(
  {
    Opcode.IS_FINITE, Opcode.EQ, Opcode.NE, Opcode.LT, Opcode.LE, Opcode.GT,
    Opcode.GE,
  }
)  # fmt: skip
COMPARES = TO_BOOL - {Opcode.IS_FINITE}
_FLOATS = (DType.F16, DType.BF16, DType.F32, DType.F64)
_COMMUTATIVE = frozenset(
  {
    Opcode.ADD, Opcode.MUL, Opcode.MAX, Opcode.MIN, Opcode.AND, Opcode.OR,
    Opcode.XOR, Opcode.EQ, Opcode.NE,
  }
)  # fmt: skip


class DataFlow:
  """Where the values of a register program come from and go to.

  Attributes:
    inputs: the instructions whose values each instruction takes.
    invariant: whether each value is the same for all elements.
    users: for each value that is used, the instructions that take it.
  """

  def __init__(
    self,
    code: bytes,
    outputs: tuple[int, ...],
    operand_dtypes: tuple[DType, ...],
    scalars: tuple[int, ...],
  ) -> None:
    self.outputs = outputs
    self.dtypes = operand_dtypes
    self.instructions = decode(code)
    self.inputs = [arguments(i) for i in self.instructions]
    self.invariant: list[bool] = []
    for i, inputs in zip(self.instructions, self.inputs, strict=True):
      self.invariant.append(
        i.imm in scalars
        if i.op == Opcode.LOAD
        else i.op != Opcode.IOTA and all(self.invariant[a] for a in inputs)
      )
    self.users: dict[int, list[int]] = {}
    for index, inputs in enumerate(self.inputs):
      for a in inputs:
        self.users.setdefault(a, []).append(index)

  def only_zeroes(self, mask: int, of: DType) -> bool:
    """Whether a comparison, perhaps joined with others, is only used to replace
    floats of a type by zeros."""
    users = self.users.get(mask, [])
    if not users or mask in self.outputs:
      return False
    for user in users:
      i = self.instructions[user]
      first, *others = self.inputs[user]
      if i.op == Opcode.SELECT:
        good = first == mask and any(
          self.instructions[v].op == Opcode.CONST
          and not self.instructions[v].imm
          for v in others
        )
        good = good and all(self._is_float(v, of) for v in others)
      elif i.op not in (Opcode.AND, Opcode.OR):
        good = False
      else:
        (other,) = others
        other = first if other == mask else other
        good = (
          self.instructions[other].op in COMPARES
          and not self.invariant[other]
          and self.users[other] == [user]
          and other not in self.outputs
          and all(self._is_float(v, of) for v in self.inputs[other])
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
      return self.dtypes[i.imm] == dtype
    return i.type == RegisterType.F32 and all(
      d == dtype for d in self.dtypes if d in _FLOATS
    )

  def by_scalar(self, index: int) -> bool:
    """Whether an instruction's second operand is the same for all elements."""
    a, b = self.inputs[index]
    swaps = self.instructions[index].op in _COMMUTATIVE and self.invariant[a]
    return swaps or self.invariant[b]

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
    a, b = self.inputs[users[0]]
    other = a if b == index else b
    if other == index or self.invariant[other]:
      return None
    return user.op if user.op == Opcode.ADD or b == index else None

  def only_rounded_to_f16(self, index: int) -> bool:
    """Whether all users of a value round it to f16."""
    users = self.users.get(index, [])
    return bool(users) and all(
      self.instructions[u].op == Opcode.ROUND_F16 for u in users
    )
