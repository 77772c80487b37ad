"""Scalars that count a loop's iterations and indices."""

from __future__ import annotations

from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.kernel.element_types import REGISTER
from jaxlib.ipu.kernel.isa import RegisterType
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.kernel.writer import Writer
from jaxlib.ipu.lower.builder import Builder, Written
from jaxlib.ipu.lower.exchange import Operand
from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.view import View


def clamped(builder: Builder, value: View, limit: int) -> View:
  """A start index clamped to [0, limit], as I32."""
  code = Writer()
  type_ = REGISTER[value.dtype]
  low, high = code.constant(0, type_), code.constant(limit, type_)
  inside = code.emit(Opcode.CLAMP, type_, low, code.load(0, value.dtype), high)
  return _scalar(builder, value, code, code.convert(inside, RegisterType.I32))


def plus(builder: Builder, value: View, by: int) -> View:
  """An I32 and a constant."""
  if not by:
    return value
  code = Writer()
  type_ = RegisterType.I32
  more = code.constant(by, type_)
  total = code.emit(Opcode.ADD, type_, code.load(0, DType.I32), more)
  return _scalar(builder, value, code, total)


def variable(builder: Builder, value: View) -> View:
  """A root that is initialised with a scalar."""
  view = builder.root_view(builder.new_root((), value.dtype))
  builder.copy_to([(value, view)])
  return view


def _scalar(builder: Builder, value: View, code: Writer, output: int) -> View:
  root = builder.new_root((), DType.I32)
  builder.execute(
    schema.Map(code.finish(), [output]),
    (),
    builder.tensors[root].layout,
    [Operand(value, ())],
    [Written(root, ())],
  )
  return builder.root_view(root)
