"""Runs register programs on NumPy arrays, by the definitions of their
instructions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from jaxlib.ipu.kernel import meaning
from jaxlib.ipu.kernel.instruction import Code, Instruction
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.kernel.registers import NUMPY_REGISTER, Array, convert, load


def _function(op: Opcode) -> Callable[..., Array]:
  name = op.row.meaning
  found = getattr(meaning, name, None) or getattr(np, name)
  return meaning.in_double(found) if op.row.in_double else found


# The definition of each instruction but for sources and conversions.
FUNCTIONS = {op: _function(op) for op in Opcode if op.row.meaning}

Loads = Callable[[int], Array] | Sequence[Array]


def evaluate(
  code: Code,
  outputs: Sequence[int],
  loads: Loads,
  iota: Callable[[int], Array] | None = None,
) -> list[Array]:
  """Runs a register program over arrays.

  Args:
    code: the instructions.
    outputs: the numbers of the values to return.
    loads: the operands' elements, by number; they broadcast against each
      other.
    iota: for each dimension the index along it, to broadcast as well. If
      missing, IOTA is an error.

  Returns:
    The register values of each output; not broadcast.

  Raises:
    ValueError: there is an IOTA, but no iteration space.
  """
  get = loads if callable(loads) else loads.__getitem__
  values: list[Array] = []
  with np.errstate(all="ignore"):
    for i in code:
      values.append(_step(i, values, get, iota))
  return [values[o] for o in outputs]


def _step(
  i: Instruction,
  values: Sequence[Array],
  get: Callable[[int], Array],
  iota: Callable[[int], Array] | None,
) -> Array:
  to = NUMPY_REGISTER[i.type]
  if i.op == Opcode.LOAD:
    return load(np.asarray(get(i.imm)), i.type)
  if i.op == Opcode.CONST:
    raw = i.imm.to_bytes(8, "little")[: to.itemsize]
    return np.frombuffer(raw, to)[0].reshape(())
  if i.op == Opcode.IOTA:
    if iota is None:
      raise ValueError("IOTA in a register program without an iteration space")
    return np.asarray(iota(i.imm)).astype(to)
  x = [np.asarray(values[v]) for v in i.operands]
  if i.op == Opcode.CONVERT:
    return convert(x[0], i.type)
  if i.op == Opcode.BITCAST:
    return x[0].view(to).reshape(x[0].shape)
  out = np.asarray(FUNCTIONS[i.op](*x))
  if out.dtype == np.bool_ and i.op != Opcode.SELECT:
    return out.astype(np.uint32)
  return out
