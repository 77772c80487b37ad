"""Links between IPUs, and what collectives take on them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxlib.ipu import target, topology
from jaxlib.ipu.plan import links

IPU2 = target.resolve("ipu2")
KINDS = [
  "all_reduce",
  "all_gather",
  "reduce_scatter",
  "all_to_all",
  "collective_broadcast",
]


def cost(kind, size, groups, num_ipus=64):
  return links.collective(
    IPU2, topology.of("ipu2", num_ipus), kind, size, groups
  )


def seconds(found):
  return found.cycles / IPU2.clock_hz


@pytest.mark.parametrize(
  ("count", "name"), [(1, "one IPU"), (3, "POD4"), (5, "POD16"), (64, "POD64")]
)
def test_counts_map_to_machines(count, name):
  assert topology.of("ipu2", count).name == name


def test_c600_cards_are_pairs():
  pair = topology.of("ipu21", 2)
  assert pair.name == "C600 pair"
  assert (
    pair.rung_bytes_per_second < topology.of("ipu2", 2).rung_bytes_per_second
  )


def test_too_many_ipus():
  with pytest.raises(ValueError, match="65 IPUs.*POD64, has 64"):
    topology.of("ipu2", 65)


def test_a_pair_exchanges_halves():
  found = cost("reduce_scatter", 96e6, [(0, 1)], 2)
  assert seconds(found) == pytest.approx(0.5e-3, rel=1e-3)
  assert found.supersteps == 1


def test_all_ipus_of_a_pod64():
  """By hand: half over the rungs at 96 GB/s, 31 of 32 halves over the rails at
  64 GB/s both ways, there and back."""
  size = 100e6
  found = cost("all_reduce", size, [range(64)])
  expected = 2 * (size / 2 / 96e9 + 31 / 32 * size / 2 / 64e9)
  assert found.method == "pairs, then rings along the rails"
  assert seconds(found) == pytest.approx(expected, rel=0.01)


def test_short_operands_take_one_step():
  found = cost("all_reduce", 4, [range(4)], 4)
  assert (found.method, found.supersteps) == ("broadcast", 1)
  assert found.added == 3 * 4


def test_shared_rails_carry_the_sum():
  """Groups at a stride go along the same rails, pairs have links of their
  own."""
  size = 1e8
  one = seconds(cost("all_gather", size, [(0, 8)], 16))
  stride = [(i, i + 8) for i in range(0, 8, 2)]
  assert seconds(cost("all_gather", size, stride, 16)) > 3.9 * one
  pair = seconds(cost("all_gather", size, [(0, 1)], 16))
  pairs = [(i, i + 1) for i in range(0, 16, 2)]
  assert seconds(cost("all_gather", size, pairs, 16)) == pytest.approx(pair)


def test_the_rails_of_a_torus_are_rings():
  """The first and the last pair are neighbours in a POD64 alone."""
  near = seconds(cost("collective_permute", 1e6, [(0, 62)], 64))
  assert near == pytest.approx(
    seconds(cost("collective_permute", 1e6, [(0, 2)], 64))
  )
  open_ends = cost("collective_permute", 1e6, [(0, 14)], 16)
  assert open_ends.bytes == 7e6


def test_nothing_to_move():
  for kind in KINDS:
    assert cost(kind, 1e6, [(0,), (1,)]).total == 0
  assert cost("collective_permute", 1e6, [(3, 3)]).total == 0


GROUPS = st.tuples(st.permutations(range(16)), st.integers(1, 16)).map(
  lambda drawn: [
    drawn[0][i : i + drawn[1]] for i in range(0, 16 - drawn[1] + 1, drawn[1])
  ]
)


@given(st.sampled_from(KINDS), GROUPS, st.floats(1, 1e9))
def test_no_ipu_receives_faster_than_its_links(kind, groups, size):
  machine = topology.of("ipu2", 16)
  found = cost(kind, size, groups, 16)
  others = len(groups[0]) - 1
  received = {
    "all_reduce": 2 * size * others / (others + 1),
    "all_gather": size * others,
    "reduce_scatter": size * others / (others + 1),
    "all_to_all": size * others / (others + 1),
    "collective_broadcast": size * (others > 0),
  }[kind]
  fastest = machine.rung_bytes_per_second + 2 * machine.rail_bytes_per_second
  assert seconds(found) >= received / fastest * (1 - 1e-9)
  assert found.guessed <= found.cycles
  assert found.sync_cycles == found.supersteps * machine.sync_cycles


@given(st.sampled_from(KINDS), GROUPS, st.floats(1, 1e9), st.floats(1, 8))
def test_more_bytes_take_longer(kind, groups, size, factor):
  less, more = (cost(kind, s, groups, 16) for s in (size, size * factor))
  assert more.total >= less.total * (1 - 1e-9)
