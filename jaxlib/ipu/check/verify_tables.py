"""Checks of a program's tables: mappings, tensors, arguments and results, and
what the caller is told of the latter two. None of it depends on the steps."""

from __future__ import annotations

import math

from jaxlib.ipu.check.verify_memory import dense
from jaxlib.ipu.check.verify_state import Verifier
from jaxlib.ipu.dtypes import COMPLEX, SIZE, STORED, DType, stored
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.program import schema

_SPACES = (
  schema.ARENA, schema.ARGUMENT, schema.RESULT, schema.CONSTANT, schema.HOST,
)  # fmt: skip


def check(v: Verifier) -> None:
  """Checks all tables; records the placed tensors of each root in `v.views`."""
  p = v.program
  for i, layout in enumerate(v.layouts):
    v.where = f"mapping {i}"
    _mapping(v, p.mappings[i], layout)
  for i, t in enumerate(v.tensors):
    v.where = f"tensor {i}"
    _tensor(v, i, t)
  v.where = "program"
  for name, ends, space in (
    ("argument", p.arguments, schema.ARGUMENT),
    ("result", p.results, schema.RESULT),
  ):
    for i, number in enumerate(ends):
      t = v.tensor(number)
      v.require(
        t.root == number and (t.space, t.address) == (space, i),
        f"{name} {i} is tensor {number}, which is not stored there",
      )
  for h in p.host_types:
    _host_type(v, h)
  for one in p.layouts:
    _array_layout(v, one)
  for a in p.aliases:
    v.require(
      a.argument < len(p.arguments) and a.result < len(p.results),
      f"argument {a.argument} aliases result {a.result}; one is missing",
    )
  for d in p.donors:
    v.require(d < len(p.arguments), f"argument {d} is donated, missing")
  ends = [0, *(o.position for o in p.omissions), len(p.module)]
  v.require(ends == sorted(ends), f"omissions from the module at {ends[1:-1]}")


def _mapping(v: Verifier, m: schema.Mapping, layout: Layout) -> None:
  v.require(
    len(m.extents) == len(m.blocks) == len(m.strides)
    and len(m.replica_counts) == len(m.replica_strides),
    "its lists differ in length",
  )
  v.require(
    all(b >= 1 for b in m.blocks) and all(e >= 0 for e in m.extents),
    f"blocks {m.blocks} of extents {m.extents}",
  )
  spread = [(f.stride, f.parts) for f in layout.factors if f.parts > 1]
  spread += [(r.stride, r.count) for r in layout.replicas if r.count > 1]
  reach = 1
  for stride, count in sorted(spread):
    v.require(
      stride >= reach,
      f"tile strides do not nest: {count} parts {stride} tiles apart, "
      f"inside of which there are {reach}",
    )
    reach = stride * count
  tiles = v.program.target.num_tiles
  v.require(
    layout.last_tile < tiles,
    f"uses tile {layout.last_tile} of {tiles}",
  )


def _tensor(v: Verifier, number: int, t: schema.Tensor) -> None:
  v.require(t.dtype in STORED, f"unknown element type {t.dtype}")
  v.require(
    len(t.shape) == len(t.strides) and all(n >= 0 for n in t.shape),
    f"shape {t.shape} with strides {t.strides}",
  )
  size = math.prod(t.shape)
  elements = v.layout(t.mapping).num_elements
  v.require(elements == size, f"{size} elements under a mapping of {elements}")
  root = v.tensor(t.root)
  v.require(root.root == t.root, f"its root {t.root} is no root")
  if t.root != number:
    v.require(root.dtype == t.dtype, "its root has another element type")
    v.inside(t.root, t.offset, t.shape, t.strides)
    v.views.setdefault(t.root, []).append(number)
    return
  v.require(
    t.offset == 0 and t.strides == dense(t.shape), "a root must be dense"
  )
  v.require(t.space in _SPACES, f"unknown space {t.space}")
  if t.space in (schema.ARENA, schema.HOST):
    item = SIZE[DType(t.dtype)]
    v.require(
      t.address + size * item <= v.program.arena_bytes
      and t.address % item == 0,
      f"{size * item} bytes at {t.address} of an arena of "
      f"{v.program.arena_bytes}",
    )


def _end(
  v: Verifier, end: schema.HostType | schema.ArrayLayout
) -> tuple[str, schema.Tensor]:
  """The name and the tensor of an argument or a result."""
  ends = v.program.results if end.is_result else v.program.arguments
  kind = "result" if end.is_result else "argument"
  v.require(end.number < len(ends), f"there is no {kind} {end.number}")
  return f"{kind} {end.number}", v.tensor(ends[end.number])


def _host_type(v: Verifier, h: schema.HostType) -> None:
  name, t = _end(v, h)
  order = h.minor_to_major or list(range(len(h.shape)))[::-1]
  v.require(
    sorted(order) == list(range(len(h.shape))),
    f"{name} of shape {h.shape} in the order {h.minor_to_major}",
  )
  shape = [h.shape[d] for d in reversed(order)]
  shape += [2] * (h.dtype in COMPLEX)
  v.require(
    h.dtype in SIZE and (stored(DType(h.dtype)), shape) == (t.dtype, t.shape),
    f"{name} of shape {t.shape} and type {t.dtype} is {h.shape} of type "
    f"{h.dtype} to the caller",
  )
  ends = v.program.results if h.is_result else v.program.arguments
  streamed = any(
    isinstance(s, schema.HostCopy)
    and s.tensor == ends[h.number]
    and bool(s.to_device) is not bool(h.is_result)
    for s in v.program.steps
  )
  v.require(
    streamed is bool(h.on_host),
    f"{name} is {'' if streamed else 'not '}streamed, on_host={h.on_host}",
  )


def _array_layout(v: Verifier, one: schema.ArrayLayout) -> None:
  name, t = _end(v, one)
  layout = v.layout(one.mapping)
  v.require(
    layout.num_elements == math.prod(t.shape),
    f"{name} of shape {t.shape} has the layout {one.mapping} of "
    f"{layout.num_elements} elements",
  )
  held = layout.max_elements * SIZE[DType(t.dtype)]
  v.require(
    one.tile_bytes == held,
    f"{name} takes {held} bytes of a tile, not {one.tile_bytes}",
  )
