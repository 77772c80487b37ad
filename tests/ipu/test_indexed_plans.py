"""Splits of slices and updates: the search's estimate is what the split that it
returns is charged."""

from __future__ import annotations

import dataclasses
import math

import hypothesis
import ipu_test_util as util
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jax
import jax.numpy as jnp
from jaxlib.ipu import target as machines
from jaxlib.ipu.codelets._cycles import Cycles
from jaxlib.ipu.plan import cost, indexed, indexed_cycles
from jaxlib.ipu.plan.default_layout import default_layout
from jaxlib.ipu.plan.indexed_blocks import Lookups, largest_cell

pytestmark = pytest.mark.ipu_only

SUMS = indexed_cycles.Partials(4, Cycles(1.0), 4)


def cycles(lookups, window, parts, entries, team=1):
  each = lookups * window / parts
  return Cycles(30.0 + each + 0.01 * entries + 5 * (team > 1))


@st.composite
def windows(draw):
  """A tensor of up to four dimensions, some of which are indexed."""
  windowed = tuple(draw(st.lists(st.integers(1, 60), min_size=1, max_size=4)))
  named = draw(st.sets(st.integers(0, len(windowed) - 1), min_size=1))
  batch = tuple(draw(st.lists(st.integers(1, 3000), min_size=1, max_size=2)))
  window = tuple(n for d, n in enumerate(windowed) if d not in named)
  walked = iter(range(len(batch), len(batch) + len(window)))
  along = tuple(
    -1 if d in named else next(walked) for d in range(len(windowed))
  )
  return Lookups(batch + window, windowed, along, len(batch), 4, 4, 1472)


targets = st.sampled_from([5, 16, 1472]).map(
  lambda tiles: dataclasses.replace(machines.TARGETS["ipu2"], num_tiles=tiles)
)


def exchanged(target, bytes_in, bytes_out=0):
  sync = target.sync_cycles if bytes_in else 0
  return cost.exchange_cycles(target, bytes_in, bytes_out) + sync


def figures(epilogue):
  """Cycles and bytes of the supersteps after the vertices."""
  if epilogue is None:
    return 0.0, 0
  return cost.cycles(epilogue.cost), int(epilogue.buffers.max())


@given(windows(), targets)
@hypothesis.settings(max_examples=60)
def test_estimates_of_updates_match_their_costs(w, target):
  own = default_layout(target, w.windowed, 4)
  found = indexed.updating(target, w, own, False, SUMS, cycles)
  plan, taken, w = found.plan, found.estimate, w.of_round(found.size)
  lookups, window = largest_cell(w, plan.partition)
  comes = plan.windowed.max_elements * 4
  arrives = lookups * (w.index_bytes + window * 4)
  after, buffers = figures(indexed_cycles.partials(target, plan, SUMS))
  total = 2 * exchanged(target, comes, own.max_elements * 4)
  total += exchanged(target, arrives) + after
  total += cycles(lookups, window, plan.parts, plan.entries, plan.team).total
  assert taken.cycles == pytest.approx(total, rel=0.01)
  assert taken.held + taken.step == comes + arrives + buffers


@given(windows(), targets)
@hypothesis.settings(max_examples=60)
def test_estimates_of_slices_match_their_costs(w, target):
  own = default_layout(target, w.windowed, 4)
  found = indexed.slicing(target, w, own, False, cycles)
  plan, taken, w = found.plan, found.estimate, w.of_round(found.size)
  lookups, window = largest_cell(w, plan.partition)
  comes = plan.windowed.max_elements * 4
  arrives = lookups * w.index_bytes
  after, buffers = figures(indexed_cycles.candidates(target, w, plan, cycles))
  total = exchanged(target, comes, own.max_elements * 4) + after
  total += exchanged(target, arrives)
  total += cycles(lookups, window, plan.parts, plan.entries).total
  assert taken.cycles == pytest.approx(total, rel=0.01)
  assert taken.held + taken.step == comes + arrives + buffers


@given(windows(), targets, st.booleans())
@hypothesis.settings(max_examples=40)
def test_rounds_stay_within_their_memory_budget(w, target, stays):
  """As far as a single lookup does; together, rounds cover all lookups."""
  w = w._replace(shape=(40 * w.shape[0], *w.shape[1:]))
  own = default_layout(target, w.windowed, 4)
  for share in (indexed.ROOMY, indexed.FRUGAL):
    limit = target.bytes_per_tile * share
    for found in (
      indexed.slicing(target, w, own, stays, cycles, share),
      indexed.updating(target, w, own, stays, SUMS, cycles, share),
    ):
      extent = w.shape[w.rounds_along]
      assert 1 <= found.size <= extent
      taken = found.estimate
      if found.size < extent:
        assert taken.held + taken.step <= limit or found.size == 1


@given(st.data(), targets)
def test_indexed_dimensions_are_split_jointly(data, target):
  """Reshaping an array along the indexed dimensions does not change the
  split."""
  named = tuple(data.draw(st.lists(st.integers(2, 20), min_size=2, max_size=4)))
  lookups, row = data.draw(st.integers(1, 10**6)), data.draw(st.integers(1, 50))
  found = []
  for shape in (named, (math.prod(named),)):
    along = (-1,) * len(shape) + (1,)
    w = Lookups((lookups, row), (*shape, row), along, 1, 4, 4, target.num_tiles)
    own = default_layout(target, (math.prod(w.windowed),), 4)
    found.append(
      [
        indexed.updating(target, w, own, False, SUMS, cycles).plan,
        indexed.slicing(target, w, own, False, cycles).plan,
      ]
    )
  assert found[0] == found[1]


@pytest.mark.parametrize("points", [2**14, 2**18, 2**20])
def test_histograms_of_any_rank(ipu, points):
  """Of 4,096 bins: they fit, and cost much the same."""
  found = []
  for shape in [(4096,), (64, 64), (16, 16, 16)]:

    def histogram(u, *i, shape=shape):
      return jnp.zeros(shape).at[i].add(u)

    indices = [util.spec(points, dtype=jnp.int32)] * len(shape)
    found.append(
      util.costs(ipu, histogram, util.spec(points), *indices)["ipu cycles"]
    )
  assert max(found) < 1.5 * found[0]


@pytest.mark.parametrize("shape", [(128, 128), (30, 30, 30), (4,) * 6])
def test_large_histograms_fit(ipu, shape):
  with jax.default_device(ipu):
    jax.jit(lambda u, *i: jnp.zeros(shape).at[i].add(u)).lower(
      util.spec(2**20), *[util.spec(2**20, dtype=jnp.int32)] * len(shape)
    ).compile()


@pytest.mark.parametrize("proportion", [0, 1e-6, 1])
def test_available_memory_proportion_does_not_limit_indexed_operations(
  ipu, proportion
):
  """Scatters and gathers have a memory budget of their own."""
  option = {"ipu_available_memory_proportion": proportion}
  lookups = util.spec(2000, dtype=jnp.int32)
  with jax.default_device(ipu):
    compiled = [
      jax.jit(lambda x, i, u: (x.at[i].set(u), x[i]), compiler_options=o)
      .lower(util.spec(1000), lookups, util.spec(2000))
      .compile()
      for o in ({}, option)
    ]
  before, after = (c.cost_analysis()["ipu cycles"] for c in compiled)
  assert before == after
