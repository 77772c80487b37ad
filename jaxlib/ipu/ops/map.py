"""`ipu.map`: a fused group of element-wise operations (see passes/fuse.py)."""

from __future__ import annotations

import math

from jaxlib.ipu.codelets._hints import Hints
from jaxlib.ipu.codelets._profile import Profile
from jaxlib.ipu.codelets.map import CODELET
from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.ir.graph import Node
from jaxlib.ipu.ir.map_program import MAP, MapProgram
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.layout import Layout, project
from jaxlib.ipu.lower.align import aligned
from jaxlib.ipu.lower.builder import Builder, Written
from jaxlib.ipu.lower.exchange import Operand
from jaxlib.ipu.plan import cost
from jaxlib.ipu.plan.default_layout import COARSER, default_layout
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.view import View


def lower(builder: Builder, node: Node) -> None:
  """One compute set; its partition is the mapping of all its results."""
  program: MapProgram = node.attributes
  shape = program.shape
  views = [builder.view(v) for v in node.inputs]
  dims = tuple(range(len(shape)))
  operands = [
    Operand(v, dims if v.shape == shape else (-1,) * len(shape)) for v in views
  ]
  fields = schema.Map(program.code, list(program.outputs))
  partition = program.partition
  if partition is None:
    partition = choose_partition(builder, node, views)
    partition = _cheapest(builder, node, fields, operands, partition)
  results = [
    Written(builder.result(node, partition, i), dims)
    for i in range(len(node.results))
  ]
  builder.execute(fields, shape, partition, operands, results)


def choose_partition(builder: Builder, node: Node, views: list[View]) -> Layout:
  """Computes where most of the operands' bytes already are.

  An operand's layout counts only if it distributes the work as evenly as the
  default: an exchange is cheaper than idle tiles.
  """
  result = node.results[0]
  default = builder.default_layout(result.shape, result.dtype)
  default = _for_concatenation(builder, node, default)
  votes: dict[Layout, int] = {default: 0}
  for view in views:
    info = builder.tensors[view.root]
    if view.shape == result.shape and builder.is_identity(view):
      if not info.layout.replicas:
        size = view.size * SIZE[view.dtype]
        votes[info.layout] = votes.get(info.layout, 0) + size
  broadcast = any(not v.is_dense() for v in views)
  best, most = default, votes.pop(default)
  for layout, size in votes.items():
    if size <= most or layout.max_elements > COARSER * default.max_elements:
      continue
    if broadcast and layout.over(result.shape) is None:
      continue
    best, most = layout, size
  return best


def _for_concatenation(builder: Builder, node: Node, default: Layout) -> Layout:
  """The partition in which results that are only concatenated already have the
  mapping of their concatenation, if its default keeps its parts together."""
  if len(node.results) < 2 or 0 in node.results[0].shape:
    return default
  found: Node | None = None
  for value in node.results:
    readers = builder.readers(builder.read_as(value))
    if len(readers) != 1 or readers[0].op != "stablehlo.concatenate":
      return default
    if found is not None and readers[0] is not found:
      return default
    found = readers[0]
  assert found is not None
  whole = found.results[0]
  dims = tuple(d for d in range(len(whole.shape)) if d != found.attributes)
  shape = builder.read_as(whole).shape
  layout = builder.default_layout(shape, whole.dtype)
  own = project(layout, whole.shape, dims)
  if (
    own is None
    or own.replicas
    or own.num_elements != default.num_elements
    or own.max_elements > COARSER * default.max_elements
  ):
    return default
  return own


def _cheapest(
  builder: Builder,
  node: Node,
  fields: schema.Map,
  operands: list[Operand],
  known: Layout,
) -> Layout:
  """A known partition, or a finer one, or one in which parts and transposes of
  tensors stay in place, if that is clearly cheaper."""
  shape = node.results[0].shape
  dtypes = [o.view.dtype for o in operands], [v.dtype for v in node.results]
  hints = Hints().reading(shape, [o.dims for o in operands])
  candidates = [known, *_where_they_are(builder, shape, operands, known)]
  profile = CODELET.profile(fields, *dtypes, hints.scalars)
  finer = _finer(builder.target, shape, profile, dtypes[1], known)
  if finer is not None:
    candidates.append(finer)
  if len(candidates) == 1:
    return known

  def cycles(partition: Layout) -> float:
    computing = cost.compute_set(
      builder.target, fields, shape, partition, *dtypes, hints
    )
    moving = builder.exchange_cost(shape, partition, operands, dtypes[1])
    return cost.cycles(computing) + cost.cycles(moving)

  costs = [cycles(c) for c in candidates]
  back = _way_back(builder.target, known, dtypes[1])
  small = math.prod(shape) < _SMALL
  for i, candidate in enumerate(candidates):
    if candidate is finer or (small and i):
      costs[i] += back
  best = min(costs)
  return known if best > _CLEARLY * costs[0] else candidates[costs.index(best)]


def _way_back(target: Target, known: Layout, results: list[DType]) -> float:
  """Cycles of moving each result, in its own exchange, to the known partition,
  for readers that may expect it there."""
  sizes = [known.max_elements * SIZE[dtype] for dtype in results]
  return sum(
    cost.exchange_cycles(target, size, size) + target.sync_cycles
    for size in sizes
  )


def _where_they_are(
  builder: Builder,
  shape: tuple[int, ...],
  operands: list[Operand],
  known: Layout,
) -> list[Layout]:
  """Partitions in which parts and transposes of tensors need not move."""
  found: list[Layout] = []
  if math.prod(shape) < 2:
    return found
  for operand in operands:
    view = operand.view
    if view.shape != shape or builder.is_identity(view):
      continue
    layout = aligned(view, builder.tensors[view.root])
    if (
      layout is not None
      and layout not in (known, *found)
      and layout.max_elements <= COARSER * known.max_elements
      and layout.over(shape) is not None
    ):
      found.append(layout)
  return found


def _finer(
  target: Target,
  shape: tuple[int, ...],
  profile: Profile,
  results: list[DType],
  known: Layout,
) -> Layout | None:
  """A partition that gives each worker of a tile one vector, or one element if
  most of the work is scalar, if the known one leaves tiles idle while others
  take long."""
  each = profile.per_element.total
  least = 1 if 2 * profile.single.total > each else profile.unit
  # Powers of two divide most dimensions.
  least = 1 << (least * target.num_workers).bit_length() - 1
  if (
    known.max_elements <= least
    or known.max_elements * target.num_tiles <= 2 * math.prod(shape)
    or each * known.max_elements <= _LONG * target.sync_cycles
  ):
    return None
  item_bytes = SIZE[results[0]]
  return default_layout(target, shape, item_bytes, least * item_bytes)


# Work on smaller tensors takes less than an exchange, so moving the results
# back is counted. Measured: it changes nothing up to 131,072 elements that are
# transposed, `python -m benchmarks --thresholds`.
_SMALL = 4096
# Minimum work for a finer partition, in synchronisations. A guess: below it,
# the partition would only be priced in vain.
_LONG = 8
# Later steps are not considered, so a gain has to be significant.
_CLEARLY = 0.95


def _context(builder: Builder, node: Node) -> Layout:
  """See `Operation.context`: the readers of several results."""
  result = node.results[0]
  default = builder.default_layout(result.shape, result.dtype)
  return _for_concatenation(builder, node, default)


define(Operation(MAP, lower, context=_context))
