"""bitcast_convert: an element-wise instruction between types of one width;
otherwise elements are split or combined by shifts."""

from __future__ import annotations

from jaxlib.ipu.dtypes import SIZE, DType, bits
from jaxlib.ipu.ir.graph import Node
from jaxlib.ipu.ir.registry import ElementwiseRow, Operation, define
from jaxlib.ipu.kernel.element_types import REGISTER
from jaxlib.ipu.kernel.isa import RegisterType
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.kernel.writer import Writer
from jaxlib.ipu.lower.builder import Builder, Written
from jaxlib.ipu.lower.exchange import Operand
from jaxlib.ipu.ops.concatenate import part
from jaxlib.ipu.ops.elementwise import unsigned_bits
from jaxlib.ipu.program import schema

UNSIGNED = {1: DType.U8, 2: DType.U16, 4: DType.U32, 8: DType.U64}

_BITS = {DType.F16: Opcode.BITS_F16, DType.BF16: Opcode.BITS_BF16}
_FROM_BITS = {
  DType.F16: Opcode.FROM_BITS_F16,
  DType.BF16: Opcode.FROM_BITS_BF16,
}


def bitcast(code: Writer, value: int, source: DType, to: DType) -> int:
  """The same bits as another element type of the same width."""
  type_, width_type = REGISTER[source], source
  if source in _BITS:
    type_, width_type = RegisterType.U32, DType.U16
    value = code.emit(_BITS[source], type_, value)
  if to in _FROM_BITS:
    value = unsigned_bits(code, value, width_type)
    value = _reinterpret(code, value, type_, RegisterType.U32)
    return code.emit(_FROM_BITS[to], RegisterType.F32, value)
  return code.narrow(_reinterpret(code, value, type_, REGISTER[to]), to)


def _reinterpret(
  code: Writer, value: int, source: RegisterType, to: RegisterType
) -> int:
  if source == to:
    return value
  return code.emit(Opcode.BITCAST, to, value)


def _same_width(node: Node) -> bool:
  return bits(node.inputs[0].dtype) == bits(node.results[0].dtype)


def _emit(code: Writer, args: list[int], node: Node) -> int:
  return bitcast(code, args[0], node.inputs[0].dtype, node.results[0].dtype)


def _lower(builder: Builder, node: Node) -> None:
  source, to = node.inputs[0].dtype, node.results[0].dtype
  if SIZE[source] > SIZE[to]:
    _take_apart(builder, node, source, to)
  else:
    _put_together(builder, node, source, to)


def _take_apart(builder: Builder, node: Node, source: DType, to: DType) -> None:
  """Element (..., j) is byte group j of the wide element, low bytes first."""
  value = node.results[0]
  wide = UNSIGNED[SIZE[source]]
  type_ = REGISTER[wide]
  rank = len(value.shape)
  code = Writer()
  bits = bitcast(code, code.load(0, source), source, wide)
  index = code.emit(Opcode.IOTA, type_, imm=rank - 1)
  width = code.constant(8 * SIZE[to], type_)
  shift = code.emit(Opcode.MUL, type_, index, width)
  bits = code.emit(Opcode.SHR_LOGICAL, type_, bits, shift)
  narrow = UNSIGNED[SIZE[to]]
  bits = code.convert(bits, REGISTER[narrow])
  bits = code.narrow(bits, narrow)
  number = bitcast(code, bits, narrow, to)
  root = builder.result(node)
  dims = tuple(range(rank))
  builder.execute(
    schema.Map(code.finish(), [number]),
    value.shape,
    builder.tensors[root].layout,
    [Operand(builder.view(node.inputs[0]), (*dims[:-1], -1))],
    [Written(root, dims)],
  )


def _put_together(
  builder: Builder, node: Node, source: DType, to: DType
) -> None:
  """Combines the groups along the last dimension by shifts."""
  value = node.results[0]
  view = builder.view(node.inputs[0])
  last = len(view.shape) - 1
  narrow, wide = UNSIGNED[SIZE[source]], UNSIGNED[SIZE[to]]
  type_ = REGISTER[wide]
  code = Writer()
  bits = code.constant(0, type_)
  operands = []
  dims = tuple(range(len(value.shape)))
  for j in range(view.shape[-1]):
    piece = part(view, last, j, j + 1).reshape(value.shape)
    assert piece is not None
    operands.append(Operand(piece, dims))
    one = bitcast(code, code.load(j, source), source, narrow)
    one = code.convert(one, type_)
    by = code.constant(8 * SIZE[source] * j, type_)
    one = code.emit(Opcode.SHL, type_, one, by)
    bits = code.emit(Opcode.OR, type_, bits, one)
  number = bitcast(code, bits, wide, to)
  root = builder.result(node)
  builder.execute(
    schema.Map(code.finish(), [number]),
    value.shape,
    builder.tensors[root].layout,
    operands,
    [Written(root, dims)],
  )


define(
  Operation(
    "stablehlo.bitcast_convert",
    _lower,
    elementwise=ElementwiseRow(_emit, applies=_same_width),
  )
)
