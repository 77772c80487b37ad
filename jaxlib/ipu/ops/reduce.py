"""reduce: any region; monoids and arg-reductions have kernels of their own."""

from __future__ import annotations

import math

import numpy as np

from jaxlib.ipu.codelets._monoids import MONOIDS, identity
from jaxlib.ipu.codelets.reduce import (
  CODELET,
  Order,
  ReduceHints,
  partial_bytes,
  per_element,
  vector,
)
from jaxlib.ipu.dtypes import NUMPY, SIZE, DType
from jaxlib.ipu.ir.attributes import Reduction, ints
from jaxlib.ipu.ir.graph import Graph, Node, Value
from jaxlib.ipu.ir.map_program import MapProgram
from jaxlib.ipu.ir.region import (
  Combiner,
  argument_kind,
  combiner,
  inline,
  monoid,
)
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.kernel.element_types import REGISTER
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.kernel.isa import ReduceKind
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.kernel.writer import Writer, bits, permute
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.lower.builder import Builder, Written
from jaxlib.ipu.lower.exchange import Operand
from jaxlib.ipu.moves.distinct import overlapping
from jaxlib.ipu.moves.messages import WIDE
from jaxlib.ipu.plan import combine as combining
from jaxlib.ipu.plan import cost, reduction
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.view import View, merge

REDUCE = "stablehlo.reduce"
# Types whose partial sums are f32.
_NARROW = (DType.F16, DType.BF16)


def _lower(builder: Builder, node: Node) -> None:
  count = len(node.results)
  (region,) = node.regions
  inits = node.inputs[-count:]
  if any(_extents(node)[d] == 0 for d in node.attributes.dimensions):
    for i, value in enumerate(inits):
      builder.fill(builder.view(value), builder.result(node, index=i))
    return
  kind, combine = ReduceKind.GENERAL, Combiner(Code(), ())
  if count == 1:
    kind = monoid(region) or ReduceKind.GENERAL
  elif count == 2:
    kind = argument_kind(region) or ReduceKind.GENERAL
    if not starts_empty(node, kind):
      kind = ReduceKind.GENERAL
  if kind is ReduceKind.GENERAL:
    combine = combiner(region)
  start: bytes | None = b""
  if kind is ReduceKind.GENERAL:
    start = _start(inits)
    if start is None:
      combine = _started(region)
  if not _defined_as_view(builder, node, kind):
    _reduce(builder, node, kind, combine, start)
  if start is None or (kind in MONOIDS and not _is_identity(kind, inits[0])):
    _combine_init(builder, node, inits)


def _extents(node: Node) -> tuple[int, ...]:
  prologue = node.attributes.prologue
  return prologue.shape if prologue else node.inputs[0].shape


def _defined_as_view(builder: Builder, node: Node, kind: ReduceKind) -> bool:
  """Defines the result of a monoid over dimensions of extent 1 as a view of the
  operand; returns whether the node is such a reduction."""
  attributes: Reduction = node.attributes
  shape = node.inputs[0].shape
  if kind not in MONOIDS or attributes.prologue is not None:
    return False
  if any(shape[d] != 1 for d in attributes.dimensions):
    return False
  kept = [d for d in range(len(shape)) if d not in attributes.dimensions]
  view = merge(builder.view(node.inputs[0]), [[d] for d in kept])
  assert view is not None, "dropping a dimension of extent 1 keeps the others"
  builder.define(node.results[0], view)
  return True


def _reduce(
  builder: Builder,
  node: Node,
  kind: ReduceKind,
  combine: Combiner,
  start: bytes | None,
) -> None:
  """One compute set over (kept dimensions, reduced dimensions).

  Without a start, one more output tells whether anything was combined yet.
  """
  count = len(node.results)
  reduced = node.attributes.dimensions
  full = _extents(node)
  rank = len(full)
  kept = tuple(d for d in range(rank) if d not in reduced)
  order = kept + reduced
  shape = tuple(full[d] for d in order)
  views = [builder.view(v) for v in node.inputs[:-count]]
  code, outputs = _reduced_values(node, order, views)
  dtypes = [v.dtype for v in node.results]
  if start is None:
    dtypes.append(DType.BOOL)
    start = bytes(8 * len(dtypes))
    code, outputs = _with_true(code, outputs)
  dims = tuple(range(rank))
  fields = schema.Reduce(
    num_reduced=len(reduced),
    kind=kind,
    code=code,
    outputs=outputs,
    combine=combine.code,
    combine_outputs=list(combine.outputs),
    init=start,
  )
  work = _work(builder.target, fields, views, full, dtypes)
  operands = [
    Operand(v, order if v.shape == full else (-1,) * rank) for v in views
  ]
  plan, partition, beside = _split(
    builder, full, order, len(kept), operands, work
  )
  walked = dims[: len(kept)] + (-1,) * len(reduced)
  layout = reduction.result_layout(
    builder.target, partition, plan, shape, len(kept),
    min(SIZE[d] for d in dtypes),
  )  # fmt: skip
  roots = [builder.result(node, layout, i) for i in range(count)]
  for dtype in dtypes[count:]:
    roots.append(builder.new_root(node.results[0].shape, dtype, layout))
  results = [Written(root, walked) for root in roots]
  epilogue = combining.epilogue(
    builder.target,
    partition,
    shape,
    len(kept),
    layout,
    work.partial_bytes,
    reduction.combining_cycles(builder.target, work),
    combining.REDUCTIONS,
  )
  builder.execute(
    fields,
    shape,
    partition,
    operands,
    results,
    epilogue=epilogue,
    hints=ReduceHints(
      kept=plan.kept_block, reduced=plan.reduced_block, order=beside
    ),
  )


def _work(
  target: Target,
  fields: schema.Reduce,
  views: list[View],
  full: tuple[int, ...],
  dtypes: list[DType],
) -> reduction.ReductionCosts:
  scalars = tuple(i for i, v in enumerate(views) if v.shape != full)
  operands = tuple(v.dtype for v in views)
  wide = [DType.F32 if d in _NARROW else d for d in dtypes]
  each, made = CODELET.per_element(fields, operands, tuple(dtypes), scalars)
  return reduction.ReductionCosts(
    item_bytes=sum(SIZE[v.dtype] for v in views if v.shape == full) or 1,
    each=each,
    partial_bytes=sum(partial_bytes(d) for d in dtypes),
    combine=per_element(
      ReduceKind(fields.kind), wide, fields.combine, fields.combine_outputs
    ),
    width=vector(target, fields, operands),
    made=made,
  )


def _reduced_values(
  node: Node, order: tuple[int, ...], views: list[View]
) -> tuple[Code, list[int]]:
  """The register program, over dimensions in `order`, that computes the reduced
  values, and their numbers."""
  prologue: MapProgram | None = node.attributes.prologue
  if prologue is not None:
    return permute(prologue.code, order), list(prologue.outputs)
  code = Writer()
  outputs = [code.load(i, v.dtype) for i, v in enumerate(views)]
  return code.finish(), outputs


def _with_true(code: Code, outputs: list[int]) -> tuple[Code, list[int]]:
  """Adds one more output: true, as there is an element."""
  true = Writer()
  true.constant(1, REGISTER[DType.BOOL])
  return code + true.finish(), [*outputs, len(code)]


def _split(
  builder: Builder,
  full: tuple[int, ...],
  order: tuple[int, ...],
  num_kept: int,
  operands: list[Operand],
  work: reduction.ReductionCosts,
) -> tuple[reduction.ReductionSplit, Layout, Order]:
  """The cheaper of reducing the largest operand in place and of moving
  everything to the best split."""
  shape = tuple(full[d] for d in order)
  views = [operand.view for operand in operands]
  extents = math.prod(shape[:num_kept]), math.prod(shape[num_kept:])
  plan, cycles, at_hand = reduction.plan(builder.target, *extents, work)
  there: tuple[reduction.ReductionSplit, Layout, Order] | None = None
  least = math.inf
  for view in views:
    if view.shape == full and builder.is_identity(view):
      layout = builder.tensors[view.root].layout
      found = reduction.in_place(
        builder.target, layout, full, order, num_kept, work
      )
      if found is not None and found[3] < least:
        there, least = found[:3], found[3]
  if there is not None and least <= cycles:
    return there
  if 0 not in shape and any(overlapping(v.shape, v.strides) for v in views):
    tiles = builder.target.num_tiles
    return *reduction.boxes(shape, num_kept, plan, tiles), Order.ANY

  def moving(plan: reduction.ReductionSplit) -> float:
    partition = reduction.partition(shape, num_kept, plan)
    found = builder.exchange_cost(
      shape, partition, operands, apart=CODELET.reads_apart
    )
    return cost.cycles(found)

  if 0 not in shape:
    estimate, cycles = cycles, at_hand + moving(plan)
    if cycles > estimate:
      # Blocks of a word or two of each row take long to pack.
      wide, _, own = reduction.plan(builder.target, *extents, work, WIDE)
      own += moving(wide)
      if own < cycles:
        plan, cycles = wide, own
  if there is not None and least <= cycles:
    return there
  return plan, reduction.partition(shape, num_kept, plan), Order.ANY


def _combine_init(
  builder: Builder, node: Node, inits: tuple[Value, ...]
) -> None:
  """Applies the region once more, to start values that are not the identity."""
  shape = node.results[0].shape
  reduced = [builder.view(v) for v in node.results]
  info = builder.tensors[reduced[0].root]
  layout = info.layout
  if math.prod(info.shape) != math.prod(shape):  # a part of another tensor
    layout = builder.default_layout(shape, node.results[0].dtype)
  (region,) = node.regions
  combine = combiner(region)
  roots = [builder.new_root(shape, v.dtype, layout) for v in node.results]
  dims = tuple(range(len(shape)))
  builder.execute(
    schema.Map(combine.code, list(combine.outputs)),
    shape,
    layout,
    [
      *(Operand(builder.view(v), (-1,) * len(dims)) for v in inits),
      *(Operand(v, dims) for v in reduced),
    ],
    [Written(root, dims) for root in roots],
  )
  for value, root in zip(node.results, roots, strict=True):
    builder.define(value, builder.root_view(root))


def _scalar(value: Value) -> np.generic | None:
  node = value.node
  if node is None or node.op != "stablehlo.constant":
    return None
  return node.attributes[(0,) * node.attributes.ndim]


def _is_identity(kind: ReduceKind, init: Value) -> bool:
  scalar = _scalar(init)
  return scalar is not None and bool(
    scalar == identity(kind, NUMPY[init.dtype])
  )


def starts_empty(node: Node, kind: ReduceKind) -> bool:
  """Whether an arg-reduction's start value loses against every element."""
  value, index = (_scalar(v) for v in node.inputs[-2:])
  if value is None or index is None or index != 0:
    return False
  return bool(value == identity(kind, NUMPY[node.results[0].dtype]))


def _start(inits: tuple[Value, ...]) -> bytes | None:
  """The start values as `schema.Reduce.init`; None if they are not constant."""
  words = []
  for init in inits:
    scalar = _scalar(init)
    if scalar is None:
      return None
    words.append(bits(scalar, REGISTER[init.dtype]).to_bytes(8, "little"))
  return b"".join(words)


def _started(region: Graph) -> Combiner:
  """A region that returns its first elements unchanged.

  Its last value, a bool, tells whether the accumulators hold anything.
  """
  code = Writer()
  dtypes = [p.dtype for p in region.parameters]
  count = len(dtypes) // 2
  old = [code.load(i, d) for i, d in enumerate(dtypes[:count])]
  some = code.load(count, DType.BOOL)
  new = [code.load(count + 1 + i, d) for i, d in enumerate(dtypes[count:])]
  more = code.load(2 * count + 1, DType.BOOL)
  outputs = [
    code.emit(Opcode.SELECT, REGISTER[d], some, both, first)
    for d, both, first in zip(dtypes, inline(code, region, old + new), new)
  ]
  outputs.append(code.emit(Opcode.OR, REGISTER[DType.BOOL], some, more))
  return Combiner(code.finish(), tuple(outputs))


def _context(
  builder: Builder, node: Node
) -> tuple[ReduceKind, np.generic | None] | None:
  """See `Operation.context`: reductions by a monoid, and their start value."""
  kind = monoid(node.regions[0]) if len(node.results) == 1 else None
  return None if kind is None else (kind, _scalar(node.inputs[-1]))


define(
  Operation(
    REDUCE,
    _lower,
    lambda operation: Reduction(ints(operation.attributes["dimensions"])),
    context=_context,
  )
)
