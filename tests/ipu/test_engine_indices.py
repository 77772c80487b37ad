"""The engine matches the interpreter: run-time indices.

The splits are made by `plan/indexed_split`: such a step takes several
supersteps, and its partition determines which tiles send candidates or partial
results to which owners. The interpreter performs them one by one and refuses
other partitions (`test_interp_indices.py`); the engine computes the result at
once and ignores the partition.
"""

from __future__ import annotations

import math

import engine_kit
import hypothesis
import ipu_test_util as util
import pytest
from hypothesis import given
from hypothesis import strategies as st
from program_kit import BOOL, Kit, code, everywhere, load
from program_strategies import (
  DTYPES,
  INDEX_DTYPES,
  TILES,
  near_and_far,
  partitions,
  values,
  window_maps,
)

from jaxlib.ipu.codelets import CODELETS
from jaxlib.ipu.codelets._windows import along_dynamic
from jaxlib.ipu.dtypes import NUMPY
from jaxlib.ipu.kernel.element_types import REGISTER
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.kernel.isa import ReduceKind
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.plan import indexed_blocks, indexed_split
from jaxlib.ipu.program import schema

pytestmark = pytest.mark.ipu_only


def _windows(
  codelet, fields, shape, windowed, num_batch
) -> indexed_blocks.Lookups:
  along = codelet.along(fields, shape, windowed)
  return indexed_blocks.Lookups(shape, windowed, along, num_batch, 4, 4, TILES)


@st.composite
def _splits(draw, w: indexed_blocks.Lookups, lookups: bool = True):
  """At most TILES parts of the indexed dimensions, of the others, and of the
  lookups."""
  parts = [1, 1, 1]
  left = TILES
  for i in draw(st.permutations(range(3))):
    parts[i] = draw(st.integers(1, left)) if lookups or i != 1 else 1
    left //= parts[i]
  sliced = w.places
  return -(-sliced // -(-sliced // parts[0])), parts[1], parts[2]


def _drawn(
  data, w: indexed_blocks.Lookups, own: Layout, slices: bool, teams: bool
):
  """A plan in which the tensor stays in place, or is moved."""
  stay = (
    indexed_split.slices_in_place if slices else indexed_split.updates_in_place
  )
  split = indexed_split.split_slices if slices else indexed_split.split_updates
  found = stay(w, own) if data.draw(st.booleans()) else None
  return found or split(w, *data.draw(_splits(w, teams)))


@given(st.data())
@hypothesis.settings(max_examples=150)
def test_gather(data):
  w = data.draw(window_maps())
  shape = w["batch"] + w["window"]
  fields = schema.Gather(
    len(w["batch"]), w["map"], w["sizes"], w["batch_dims"], w["window_dims"]
  )
  own = data.draw(partitions(w["shape"]))
  windows = _windows(
    CODELETS[schema.Gather], fields, shape, w["shape"], len(w["batch"])
  )
  plan = _drawn(data, windows, own, True, True)
  dtype = data.draw(st.sampled_from(DTYPES))
  kit = Kit(TILES)
  a = kit.argument(w["shape"], dtype, own)
  index = data.draw(st.sampled_from(INDEX_DTYPES))
  named = (*w["batch"], len(w["map"]))
  i = kit.argument(named, index)
  everyone = kit.placed(i, everywhere(math.prod(named), TILES))
  there = kit.placed(a, plan.windowed)
  kit.copy(kit.move(everyone), kit.move(there))
  r = kit.result(shape, dtype, plan.result)
  dims = tuple(range(len(w["batch"]))) + (-1,) * len(w["window"])
  kit.execute(fields, shape, [(there, (-1,) * len(shape)), (everyone, dims)],
              [(r, tuple(range(len(shape))))], plan.partition)  # fmt: skip
  arguments = [values(dtype, w["shape"], 0), near_and_far(index, named)]
  engine_kit.check(kit.bytes(), arguments)


@given(st.data())
@hypothesis.settings(max_examples=150)
def test_scatter(data):
  w = data.draw(window_maps())
  shape = w["batch"] + w["window"]
  dtype = data.draw(st.sampled_from(DTYPES))
  kinds = [ReduceKind.SET, ReduceKind.MAX, ReduceKind.MIN]
  if dtype == BOOL:
    kinds = [ReduceKind.SET, ReduceKind.AND, ReduceKind.OR]
  else:
    kinds += [ReduceKind.SUM, ReduceKind.PRODUCT]
  kind = data.draw(st.sampled_from(kinds))
  general = kind != ReduceKind.SET and data.draw(st.booleans())
  register = REGISTER[dtype]
  combine = Code()
  if general:
    op = Opcode.OR if dtype == BOOL else Opcode.SUB
    combine = code(load(0, register), load(1, register), (op, register, 0, 1))
    kind = ReduceKind.GENERAL
  fields = schema.Scatter(
    len(w["batch"]), w["map"], w["sizes"], w["batch_dims"], w["window_dims"],
    kind, register, combine, [2] if general else [], 0,
  )  # fmt: skip
  own = data.draw(partitions(w["shape"]))
  codelet = CODELETS[schema.Scatter]
  windows = _windows(codelet, fields, shape, w["shape"], len(w["batch"]))
  teams = codelet.partial_bytes(fields, dtype) > 0
  plan = _drawn(data, windows, own, False, teams)
  split = plan.partition
  kit = Kit(TILES)
  a = kit.argument(w["shape"], dtype, own)
  index = data.draw(st.sampled_from(INDEX_DTYPES))
  named = (*w["batch"], len(w["map"]))
  i, u = kit.argument(named, index), kit.argument(shape, dtype)
  r = kit.result(w["shape"], dtype, plan.windowed)
  everyone = kit.placed(i, everywhere(math.prod(named), TILES))
  kit.copy(kit.move(everyone), kit.whole(a, r))
  every = tuple(range(len(shape)))
  updates = kit.loaded(u, shape, every, split)
  dims = tuple(range(len(w["batch"]))) + (-1,) * len(w["window"])
  kit.execute(fields, shape, [(everyone, dims), (updates, every)],
              [(r, (-1,) * len(shape))], split)  # fmt: skip
  # Sums and products of these are exact, however a team splits them.
  arguments = [
    util.sample("int32", w["shape"], low=0, high=2).astype(NUMPY[dtype]),
    near_and_far(index, named),
    util.sample("int32", shape, low=0, high=2, key=1).astype(NUMPY[dtype]),
  ]
  engine_kit.check(kit.bytes(), arguments)


@given(st.data())
@hypothesis.settings(max_examples=100)
def test_dynamic_slice_and_update(data):
  shape = tuple(data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
  sizes = tuple(data.draw(st.integers(1, n)) for n in shape)
  moving = [d for d in range(len(shape)) if data.draw(st.booleans())]
  dtype = data.draw(st.sampled_from(DTYPES))
  own = data.draw(partitions(shape))
  windows = indexed_blocks.Lookups(
    sizes, shape, along_dynamic(sizes, shape), len(shape), 4, 0, TILES
  )
  plan = _drawn(data, windows, own, True, True)
  update_plan = _drawn(data, windows, own, False, True)
  kit = Kit(TILES)
  a, u = kit.argument(shape, dtype, own), kit.argument(sizes, dtype)
  there = kit.placed(a, plan.windowed)
  kit.copy(kit.move(there))
  starts, arguments = [], [
    values(dtype, shape, 0), values(dtype, sizes, 1)
  ]  # fmt: skip
  still = (-1,) * len(shape)
  for _ in moving:
    index = data.draw(st.sampled_from(INDEX_DTYPES))
    number = kit.argument((), index)
    arguments.append(near_and_far(index, ()).astype(NUMPY[index])[()])
    placed = kit.placed(number, everywhere(1, TILES))
    kit.copy(kit.move(placed))
    starts.append((placed, still))
  s = kit.result(sizes, dtype, plan.result)
  r = kit.result(shape, dtype, update_plan.windowed)
  every = tuple(range(len(shape)))
  kit.execute(schema.DynamicSlice(moving), sizes, [(there, still), *starts],
              [(s, every)], plan.partition)  # fmt: skip
  kit.copy(kit.whole(a, r))
  update = kit.loaded(u, sizes, every, update_plan.partition)
  kit.execute(schema.DynamicUpdate(moving), sizes,
              [(update, every), *starts], [(r, still)],
              update_plan.partition)  # fmt: skip
  engine_kit.check(kit.bytes(), arguments)
