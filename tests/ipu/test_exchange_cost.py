"""The cost of exchanges and host streams."""

from __future__ import annotations

import dataclasses

import ipu_test_util as util
import numpy as np
import pytest
from program_kit import everywhere

import jax.numpy as jnp
from jaxlib.ipu import layout
from jaxlib.ipu import target as machines
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.moves.affine import MoveEnd
from jaxlib.ipu.moves.messages import move_traffic
from jaxlib.ipu.moves.traffic import Traffic, traffic
from jaxlib.ipu.plan import cost

IPU1, IPU2 = machines.resolve("ipu1"), machines.resolve("ipu2")
F32, F16, I32 = DType.F32, DType.F16, DType.I32


def moved(a: layout.Layout, b: layout.Layout) -> Traffic:
  shape = (a.num_elements,)
  return traffic(MoveEnd(a, 0, (1,)), MoveEnd(b, 0, (1,)), shape, 4)


def test_a_move_between_equal_mappings_is_free():
  a = layout.linear(1000, 16)
  step = cost.exchange(IPU2, [moved(a, a)])
  assert not any(dataclasses.astuple(step))


def test_broadcast_is_sent_once():
  step = cost.exchange(IPU1, [moved(layout.single(10), everywhere(10, 8))])
  assert step.exchange_bytes == 7 * 40
  assert step.exchange_cycles == 10 + IPU1.route_cycles


def test_pairs_of_tiles_receive_the_same_at_twice_the_rate():
  move = moved(layout.single(10), everywhere(10, 8))
  assert move.alike
  step = cost.exchange(IPU2, [move])
  assert step.exchange_bytes == 7 * 40
  assert step.exchange_cycles == 5 + IPU2.route_cycles
  # Eight parts, each on two adjacent tiles; then on tiles that are eight apart.
  adjoining, apart = (
    layout.Layout((layout.Factor(80, 10, step),), (layout.Replica(2, replica),))
    for step, replica in ((2, 1), (1, 8))
  )
  assert adjoining.pairs_alike and not apart.pairs_alike
  assert not dataclasses.replace(adjoining, base=1).pairs_alike
  source = layout.single(80, 20)
  # The sender has 80 elements to send, at 8 bytes per cycle with its neighbour.
  step = cost.exchange(IPU2, [moved(source, adjoining)])
  assert step.exchange_cycles == 40 + IPU2.route_cycles
  step = cost.exchange(IPU2, [moved(source, apart)])
  assert step.exchange_cycles == 80 + IPU2.route_cycles


def test_transposition_is_all_to_all():
  rows = layout.grid((8, 8), (8, 1))
  columns = layout.grid((8, 8), (1, 8))
  # Each tile keeps one of its eight elements.
  step = cost.exchange(IPU2, [moved(rows, columns)])
  assert step.exchange_bytes == 8 * 7 * 4
  assert step.exchange_cycles == 7 + IPU2.route_cycles
  assert step.sync_cycles == IPU2.sync_cycles


def test_elements_that_stay_on_their_tile_are_counted():
  here, there = layout.linear(100, 4), layout.grid((100,), (4,))
  assert moved(here, there).kept.tolist() == [100] * 4
  # Rows to columns: one element of eight stays.
  rows, columns = layout.grid((8, 8), (8, 1)), layout.grid((8, 8), (1, 8))
  assert moved(rows, columns).kept.tolist() == [4] * 8


@pytest.mark.ipu_only
def test_single_words_are_packed(ipu):
  """Each takes a load and a store; what is one piece of another tile, and rows,
  are sent as they are."""
  n = ipu.num_tiles
  found = util.costs(ipu, lambda x: x.T, np.ones((n, n), np.float32))
  assert found["ipu compute cycles"] == 72 + 12  # the word that stays
  two = util.costs(ipu, lambda x: x.T, np.ones((2 * n, n), np.float32))
  # Two words for each other tile, where they are adjacent: they are packed.
  assert two["ipu compute cycles"] == 288 + 4 * (n - 1) + 72 + 24
  rows = util.costs(ipu, lambda x: x[::-1], np.ones((n, n), np.float32))
  assert rows["ipu compute cycles"] == 0


def test_half_words_are_unpacked_by_the_receiver():
  far, near = layout.linear(64, 64), layout.single(64)
  single = move_traffic(MoveEnd(far, 0, (1,)), MoveEnd(near, 0, (1,)), (64,), 2)
  assert single.packed is None and single.unpacked.max() == 8 * 2 * 63
  step = cost.exchange(IPU2, [single])
  assert step.compute_cycles == cost.local_copy(IPU2, 8 * 2 * 63).compute_cycles
  assert step.derived >= step.compute_cycles > 0
  words = move_traffic(MoveEnd(far, 0, (1,)), MoveEnd(near, 0, (1,)), (64,), 8)
  assert words.packed is words.unpacked is None
  assert cost.exchange(IPU2, [words]).compute_cycles == 0


def test_packing_before_a_loop_is_charged_by_share():
  far, near = layout.linear(64, 64), layout.single(64)
  single = move_traffic(MoveEnd(far, 0, (1,)), MoveEnd(near, 0, (1,)), (64,), 2)
  whole, part = (cost.packing(IPU2, [single], share) for share in (1, 0.25))
  assert cost.cycles(part) == 0.25 * cost.cycles(whole) > 0


def test_short_copies_use_one_worker():
  assert cost.cycles(cost.local_copy(IPU2, 8)) == 72 + 6
  assert cost.cycles(cost.local_copy(IPU2, 8000)) == 288 + 1000


def test_an_exchange_costs_what_its_busiest_tile_moves():
  one, other = layout.single(10, 0), layout.single(10, 1)
  there, back = moved(one, other), moved(other, one)
  way = IPU2.route_cycles
  assert cost.exchange(IPU2, [there, back]).exchange_cycles == 10 + way
  assert cost.exchange(IPU2, [there, there]).exchange_cycles == 20 + way


def test_host_streams_run_at_the_rate_of_the_link():
  small, large = (cost.host_stream(IPU2, [n]) for n in (4, 32_000_000))
  begin_and_end = IPU2.host_stream_seconds * IPU2.clock_hz
  # The measured begin and end include a synchronisation.
  assert cost.cycles(small) == pytest.approx(
    begin_and_end + IPU2.host_copy_cycles, abs=2
  )
  assert small.sync_cycles == IPU2.host_sync_cycles
  seconds = (large.exchange_cycles - small.exchange_cycles) / IPU2.clock_hz
  packets = 32_000_000 / 1024
  link = (32_000_000 + packets * 24) / IPU2.host_bytes_per_second
  assert seconds == pytest.approx(link, rel=1e-3)
  # Packets to the host are smaller; a tile receives 16 KiB at once.
  back = cost.host_stream(IPU2, [32_000_000], to_host=True)
  assert back.exchange_cycles > 1.05 * large.exchange_cycles
  assert large.sync_cycles == 2 * small.sync_cycles == 2 * IPU2.host_sync_cycles


def test_arrays_of_one_stream_share_its_start_and_end():
  one, three = (cost.host_stream(IPU2, [4] * n) for n in (1, 3))
  more = three.exchange_cycles - one.exchange_cycles
  assert more == pytest.approx(2 * IPU2.host_copy_cycles, abs=2)
  assert cost.cycles(cost.host_stream(IPU2, [])) == 0


@pytest.mark.parametrize("n", [127, 1471, 2943])
@pytest.mark.parametrize(
  "dtype", [np.float16, np.int8], ids=lambda d: d.__name__
)
def test_an_odd_number_of_elements_needs_no_packing(ipu, n, dtype):
  """One tile then has part of a word, at the end of an array."""
  f = jnp.sin if dtype is np.float16 else lambda x: x + 1
  odd, even = (
    util.costs(ipu, f, util.spec(k, dtype=dtype))["ipu cycles"]
    for k in (n, n + 1)
  )
  assert odd <= even


def test_facts_about_a_machine_are_its_properties():
  sizes, base = [32_000_000], cost.host_stream(IPU2, [32_000_000])
  small = dataclasses.replace(IPU2, packet_from_host_bytes=128)
  assert cost.host_stream(small, sizes).exchange_cycles > base.exchange_cycles
  window = dataclasses.replace(IPU2, host_window_bytes=8 * 1024)
  assert cost.host_stream(window, sizes).sync_cycles > base.sync_cycles
  slow = dataclasses.replace(IPU2, branch_cycles=IPU2.branch_cycles + 10)
  for price in (cost.iteration, cost.branch):
    assert cost.cycles(price(slow)) == cost.cycles(price(IPU2)) + 10
  calls = dataclasses.replace(IPU2, short_copy_cycles=172)
  more = cost.local_copy(calls, 8).compute_cycles
  assert more == cost.local_copy(IPU2, 8).compute_cycles + 100
