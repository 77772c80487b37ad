"""Runs steps with run-time indices in rounds.

All lookups at once may not fit on the tiles that share a tensor: then they are
processed in sequence, as many at once as the plan says (plan/indexed.py). A few
rounds are separate steps. Many are a loop's iterations, which slice what they
read and update what they make: copies in which a dimension that counts the
rounds is whole on each tile or, if SRAM is short, the arrays in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from jaxlib.ipu.dtypes import NUMPY, DType
from jaxlib.ipu.ir.graph import Shape
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.lower.builder import Builder, Written
from jaxlib.ipu.lower.exchange import Operand
from jaxlib.ipu.ops._counters import plus, variable
from jaxlib.ipu.ops._indexing import moving_windows, whole_root
from jaxlib.ipu.ops._parts import Parts, moved, resized, slice_part, stack
from jaxlib.ipu.ops.concatenate import part
from jaxlib.ipu.plan.indexed import Found
from jaxlib.ipu.plan.indexed_blocks import Lookups
from jaxlib.ipu.plan.indexed_split import (
  IndexedSplit,
  one_by_one,
  slices_in_place,
  updates_in_place,
)
from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.control_flow import Repeat
from jaxlib.ipu.tile.view import View

# More rounds than this become a loop, to keep programs small. [G]
_MOST_UNROLLED = 16


class Cut(NamedTuple):
  """Rounds of `size` of `extent` indices; the last may be smaller."""

  extent: int
  size: int


class Along(NamedTuple):
  """A view of which rounds read a part each, and the dimension that is cut."""

  view: View
  dim: int


class Made(NamedTuple):
  """A value of which rounds make a part each, and the dimension that is cut."""

  shape: Shape
  dtype: DType
  dim: int


# Adds a round's steps to the program, given the round's parts of the views that
# are cut, its start index (None for that of the whole) and its size. Returns
# the round's part of the result, if there is a result.
Round = Callable[[Sequence[View], View | None, int], View | None]


def in_rounds(
  builder: Builder,
  cut: Cut,
  read: Sequence[Along],
  step: Round,
  *,
  start: View | None = None,
  made: Made | None = None,
  changed: Sequence[int] = (),
) -> View | None:
  """Runs a step's rounds, in order.

  Args:
    builder: of the program.
    cut: how many rounds there are.
    read: views that are cut.
    step: a round.
    start: a scalar I32 that is advanced by the size of earlier rounds.
    made: the value assembled from the rounds' results.
    changed: roots that every round writes a part of.

  Returns:
    The value, if any.
  """
  if cut.size >= cut.extent:
    return step([view for view, _ in read], start, cut.extent)
  rounds = -(-cut.extent // cut.size)
  if rounds > _MOST_UNROLLED:
    return _looped(builder, cut, read, step, start, made, changed)
  whole = None
  if made is not None:
    whole = builder.root_view(builder.new_root(made.shape, made.dtype))
    builder.assembled.add(whole.root)
  with builder.rounds():
    for begin in range(0, cut.extent, cut.size):
      end = min(begin + cut.size, cut.extent)
      found = step(
        [part(view, d, begin, end) for view, d in read],
        None if start is None else plus(builder, start, begin),
        end - begin,
      )
      if made is not None and whole is not None and found is not None:
        builder.copy_to([(found, part(whole, made.dim, begin, end))])
  return whole


def updates_in_rounds(
  builder: Builder,
  w: Lookups,
  found: Found,
  own: Layout,
  read: Sequence[View],
  step: Callable[[Sequence[View], View | None, IndexedSplit], None],
  root: int,
  start: View | None = None,
) -> None:
  """Runs the planned rounds of updates of `root`.

  Teams have the same tiles in all rounds. Remaining updates go to all of a
  team's tiles, each of which applies those that fall on its own elements.

  Args:
    builder: of the program.
    w: the windows of all rounds.
    found: the plan.
    own: the tensor's original mapping.
    read: views that are cut along `w.rounds_along`.
    step: a round, given parts of these.
    root: to be updated.
    start: see `in_rounds`.
  """
  d = w.rounds_along or 0
  extent = w.most_rounds
  full = extent // found.size * found.size
  whole = found.plan.team == 1 or found.size >= extent
  even = extent if whole else full

  def shared(parts: Sequence[View], start: View | None, size: int) -> None:
    step(parts, start, found.updates(w.of_round(size), own))

  def alone(parts: Sequence[View], start: View | None, size: int) -> None:
    some = w.of_round(found.size)
    step(parts, start, one_by_one(some, w.of_round(size), found.plan))

  for begin, end, size, one in (
    (0, even, found.size, shared),
    (even, extent, found.alone, alone),
  ):
    if begin == end:
      continue
    some = [Along(v if whole else part(v, d, begin, end), d) for v in read]
    at = None if start is None else plus(builder, start, begin)
    in_rounds(
      builder, Cut(end - begin, size), some, one, start=at, changed=[root]
    )


def _looped(
  builder: Builder,
  cut: Cut,
  read: Sequence[Along],
  step: Round,
  start: View | None,
  made: Made | None,
  changed: Sequence[int],
) -> View | None:
  size = cut.size
  count, rest = divmod(cut.extent, size)
  sources = [_source(builder, along, count, size) for along in read]
  results = _results(builder, made, count + (rest > 0), size)
  zero = builder.constant(np.zeros((), np.int32), DType.I32)
  nth = variable(builder, zero)
  variables = [(nth, 1)]
  begin = zero
  some = sources if results is None else [*sources, results]
  if not all(parts.stacked for parts in some):
    begin = variable(builder, zero)
    variables.append((begin, size))
  if start is not None:
    start = variable(builder, start)
    variables.append((start, size))
  written = {v.root for v, _ in variables} | set(changed)
  if results is not None:
    written.add(results.view.root)
  builder.enter(count, written)
  found = step(
    [slice_part(builder, source, nth, begin, size) for source in sources],
    start,
    size,
  )
  if results is not None and found is not None:
    _update(builder, results, found, nth, begin)
  builder.copy_to([(plus(builder, v, by), v) for v, by in variables])
  body = builder.leave()
  builder.steps.append(
    Repeat(count=count, body=body, location=builder.location)
  )
  if rest:
    parts = [part(view, d, count * size, cut.extent) for view, d in read]
    found = step(parts, start, rest)
    if results is not None and found is not None:
      last = _whole(results, size)
      to = part(last, results.dim, count * size, cut.extent)
      builder.copy_to([(found, to)])
  if results is None:
    return None
  return part(_whole(results, size), results.dim, 0, cut.extent)


def _source(builder: Builder, along: Along, count: int, size: int) -> Parts:
  whole, d = along
  if builder.choices.frugal and whole_root(builder, whole):
    some = resized(whole.shape, d, size)
    windows = moving_windows(
      some, whole.shape, whole.dtype, builder.target.num_tiles
    )
    if slices_in_place(windows, builder.tensors[whole.root].layout):
      return Parts(whole, d, False)
  view = moved(whole, d, 0)
  shape = (size, *view.shape[1:])
  root = stack(builder, count, shape, view.dtype)
  strides = size * view.strides[0], *view.strides
  parts = view._replace(shape=(count, *shape), strides=strides)
  builder.copy_to([(parts, root)])
  return Parts(root, d, True)


def _results(
  builder: Builder, made: Made | None, rounds: int, size: int
) -> Parts | None:
  if made is None:
    return None
  if builder.choices.frugal:
    view = builder.root_view(builder.new_root(made.shape, made.dtype))
  else:
    rest = [n for d, n in enumerate(made.shape) if d != made.dim]
    view = stack(builder, rounds, (size, *rest), made.dtype)
  zero = np.zeros((), NUMPY[made.dtype])
  builder.fill(builder.constant(zero, made.dtype), view.root)
  return Parts(view, made.dim, not builder.choices.frugal)


def _whole(parts: Parts, size: int) -> View:
  """The value, plus the padding of the last part."""
  if not parts.stacked:
    return parts.view
  shape = parts.view.shape
  flat = parts.view.reshape((shape[0] * size, *shape[2:]))
  assert flat is not None, "a root's dimensions can be joined"
  return moved(flat, 0, parts.dim)


def _update(
  builder: Builder, parts: Parts, some: View, nth: View, begin: View
) -> None:
  """Writes a round's part to its place."""
  view, dim, stacked = parts
  d, at = (0, nth) if stacked else (dim, begin)
  if stacked:
    some = moved(some, dim, 0)
    some = some._replace(shape=(1, *some.shape), strides=(0, *some.strides))
  rank = len(some.shape)
  windows = moving_windows(
    some.shape, view.shape, view.dtype, builder.target.num_tiles
  )
  plan = updates_in_place(windows, builder.tensors[view.root].layout)
  assert plan is not None, "a new root's blocks keep to dimensions"
  builder.execute(
    schema.DynamicUpdate([d]),
    some.shape,
    plan.partition,
    [Operand(some, tuple(range(rank))), Operand(at, (-1,) * rank)],
    [Written(view.root, (-1,) * rank)],
  )
