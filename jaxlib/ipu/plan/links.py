"""The cost of collectives between IPUs: which links carry what, for how long.

A collective moves pieces of an operand of `size` bytes per IPU in steps; in
each step every IPU sends at the same time, and the step takes as long as the
link with most to carry. All groups of a collective run at once, so that links
which several groups share are charged with the sum.

The methods are those of Graphcore's collectives library (GCL) [S]: rings that
go both ways and meet in the middle, pairs first and then rings along the rails,
or everything sent directly (its broadcast). The cheapest is taken, as GCL's
automatic mode does. Formulas of their time follow from the links [D].
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from jaxlib.ipu.codelets._cycles import derived
from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.plan import cost, partials
from jaxlib.ipu.target import Target
from jaxlib.ipu.topology import Topology

Groups = tuple[tuple[int, ...], ...]


class Link(NamedTuple):
  """One direction of the links between two neighbours, by their IPU numbers."""

  sender: int
  receiver: int

  @property
  def is_rung(self) -> bool:
    return self.sender // 2 == self.receiver // 2


class LinkCost(NamedTuple):
  """What a collective takes outside the tiles.

  Attributes:
    method: how it is done.
    cycles: of the links, latencies included.
    sync_cycles: of the synchronisations of all IPUs.
    bytes: that cross links, each link counted.
    guessed: of `cycles`, those without a public source.
    added: bytes of other IPUs' operands that an IPU combines with its own.
    supersteps: steps, each with a synchronisation.
  """

  method: str
  cycles: float
  sync_cycles: float
  bytes: float
  guessed: float
  added: float
  supersteps: int

  @property
  def total(self) -> float:
    return self.cycles + self.sync_cycles


class _Phase(NamedTuple):
  """Steps of one kind.

  Attributes:
    loads: how often a whole operand crosses each link in all of them.
    steps: one after the other.
    hops: links that a piece crosses in each step, at most.
  """

  loads: dict[Link, float]
  steps: int
  hops: int

  def times(self, factor: float) -> _Phase:
    loads = {link: load * factor for link, load in self.loads.items()}
    return self._replace(loads=loads)


class _Method(NamedTuple):
  """A way to do a collective.

  Attributes:
    name: what it is called.
    phases: one after the other.
    added: operands that an IPU combines with its own.
  """

  name: str
  phases: tuple[_Phase, ...]
  added: float = 0.0

  def times(self, factor: float) -> _Method:
    phases = tuple(phase.times(factor) for phase in self.phases)
    return _Method(self.name, phases, self.added * factor)


def collective(
  target: Target,
  topology: Topology,
  kind: str,
  size: float,
  groups: Sequence[Sequence[int]],
) -> LinkCost:
  """The cost of a collective.

  Args:
    target: the IPU, for its clock.
    topology: the links.
    kind: StableHLO's name of the operation, such as `all_reduce`.
    size: bytes of the operand on each IPU.
    groups: of IPUs that take part together, by their place in the topology;
      pairs of sender and receiver for `collective_permute`.
  """
  methods = _methods(topology, kind, tuple(tuple(g) for g in groups))
  costs = [_cost(target, topology, method, size) for method in methods]
  return min(costs, key=lambda cost: cost.total)


def copy(
  target: Target, topology: Topology, sender: int, receiver: int
) -> tuple[int, int]:
  """What a copy from one IPU to another takes: cycles whatever its size, and
  bytes per second of the narrowest link."""
  size = 1 << 30
  pair = [(sender, receiver)]
  latency, found = (
    collective(target, topology, "collective_permute", s, pair)
    for s in (0, size)
  )
  seconds = (found.total - latency.total) / target.clock_hz
  return round(latency.total), round(size / seconds) if seconds else 1


def superstep(target: Target, found: LinkCost, dtype: DType) -> cost.Sourced:
  """The cost of a collective as that of a step; what crosses links is in the
  fields of an exchange (tile/totals.py).

  Args:
    target: the IPU, whose tiles share the combining of operands.
    found: see `collective`.
    dtype: of the operands.
  """
  compute = derived(0.0)
  if found.added:
    elements = found.added / SIZE[dtype] / target.num_tiles
    compute += partials.adding_cycles(target, dtype)(elements, 2)
  return cost.Sourced(
    compute_cycles=float(compute.total),
    exchange_cycles=found.cycles,
    sync_cycles=found.sync_cycles,
    exchange_bytes=found.bytes,
    flops=found.added / SIZE[dtype],
    derived=float(compute.derived + found.cycles - found.guessed),
    guessed=float(compute.guessed + found.guessed),
    syncs=float(found.supersteps),
  )


def _cost(
  target: Target, topology: Topology, method: _Method, size: float
) -> LinkCost:
  def seconds(link: Link, load: float) -> float:
    rung, rail = topology.rung_bytes_per_second, topology.rail_bytes_per_second
    return load * size / (rung if link.is_rung else rail)

  busy = crossed = 0.0
  steps = latency = 0
  for loads, number, hops in method.phases:
    busy += max((seconds(*item) for item in loads.items()), default=0.0)
    crossed += sum(loads.values()) * size
    steps += number
    latency += number * hops * topology.hop_cycles
  return LinkCost(
    method.name,
    busy * target.clock_hz + latency,
    float(steps * topology.sync_cycles),
    crossed,
    float(latency),
    method.added * size,
    steps,
  )


@functools.lru_cache(maxsize=1024)
def _methods(
  topology: Topology, kind: str, groups: Groups
) -> tuple[_Method, ...]:
  """The ways to do a collective."""
  if kind == "collective_permute":
    return (_direct(topology, groups),)
  groups = tuple(group for group in groups if len(group) > 1)
  if not groups:
    return (_Method("nothing to move", ()),)
  largest = max(map(len, groups))
  match kind:
    case "all_to_all" | "ragged_all_to_all":
      return (_direct(topology, _pairs(groups)).times(1 / largest),)
    case "collective_broadcast":
      return (_tree(topology, groups),)
    case "reduce_scatter":
      return tuple(_scatters(topology, groups))
    case "all_gather":
      # The operand is a part; a scatter's is the whole.
      return tuple(
        _gather(scatter).times(largest)
        for scatter in _scatters(topology, groups)
      )
    case "all_reduce":
      both = [
        scatter._replace(phases=scatter.phases + _gather(scatter).phases)
        for scatter in _scatters(topology, groups)
      ]
      # For short operands: all of it to everybody, in a single step.
      at_once = _direct(topology, _pairs(groups))
      both.append(_Method("broadcast", at_once.phases, largest - 1.0))
      return tuple(both)
  raise ValueError(f"not a collective: {kind}")


def _scatters(topology: Topology, groups: Groups) -> Iterator[_Method]:
  """Ways in which each IPU gets its part of a sum."""
  yield _ring(topology, groups)
  largest = max(map(len, groups))
  direct = _direct(topology, _pairs(groups)).times(1 / largest)
  yield direct._replace(added=_others(groups))
  if rails := _rails(groups):
    pairs = [(i, i ^ 1) for group in groups for i in group]
    halves = _direct(topology, pairs).times(0.5)
    rings = _ring(topology, rails).times(0.5)
    yield _Method(
      "pairs, then rings along the rails",
      halves.phases + rings.phases,
      0.5 + rings.added,
    )


def _gather(scatter: _Method) -> _Method:
  """A scatter backwards: each IPU sends its part to all others."""
  return _Method(scatter.name, scatter.phases[::-1])


def _rails(groups: Groups) -> Groups:
  """The halves of groups of whole pairs on each side of the ladder; none if
  there are other groups."""
  for group in groups:
    if len(group) < 4 or {i ^ 1 for i in group} != set(group):
      return ()
  return tuple(
    tuple(i for i in group if i % 2 == side)
    for group in groups
    for side in (0, 1)
  )


def _ring(topology: Topology, groups: Groups) -> _Method:
  """Each piece goes both ways around a ring, up one side of the ladder and down
  the other, and meets itself in the middle."""
  loads: dict[Link, float] = defaultdict(float)
  hops = 0
  for group in groups:
    # Half of the other pieces pass each neighbour, each way.
    share = (len(group) - 1) / len(group) / 2
    up = sorted(i for i in group if i % 2 == 0)
    ring = up + sorted((i for i in group if i % 2), reverse=True)
    for here, there in itertools.pairwise([*ring, ring[0]]):
      for way in ((here, there), (there, here)):
        route = _route(topology, *way)
        hops = max(hops, len(route))
        for link in route:
          loads[link] += share
  steps = max(map(len, groups)) // 2
  return _Method("ring", (_Phase(loads, steps, hops),), _others(groups))


def _direct(topology: Topology, pairs: Iterable[Sequence[int]]) -> _Method:
  """Each sender's operand goes to its receivers on the shortest ways."""
  loads: dict[Link, float] = defaultdict(float)
  hops = 0
  for sender, receiver in pairs:
    route = _route(topology, sender, receiver)
    hops = max(hops, len(route))
    for link in route:
      loads[link] += 1
  return _Method("direct", (_Phase(loads, min(hops, 1), hops),))


def _tree(topology: Topology, groups: Groups) -> _Method:
  """The first IPU's operand goes to all others of its group, over each link
  once."""
  loads: dict[Link, float] = defaultdict(float)
  hops = 0
  for group in groups:
    routes = [_route(topology, group[0], other) for other in group[1:]]
    hops = max(hops, *map(len, routes))
    for link in {link for route in routes for link in route}:
      loads[link] += 1
  return _Method("tree", (_Phase(loads, 1, hops),))


def _route(topology: Topology, sender: int, receiver: int) -> list[Link]:
  """The links of a shortest way: along the rail, then to the other side."""
  rungs = topology.num_ipus // 2
  distance = receiver // 2 - sender // 2
  if topology.closed and abs(distance) > rungs / 2:
    distance -= rungs if distance > 0 else -rungs
  step = 2 if distance > 0 else -2
  stops = [
    (sender + i * step) % topology.num_ipus for i in range(abs(distance) + 1)
  ]
  if stops[-1] != receiver:
    stops.append(receiver)
  return [Link(*ends) for ends in itertools.pairwise(stops)]


def _pairs(groups: Groups) -> list[tuple[int, int]]:
  """All pairs of two IPUs of a group."""
  return [(a, b) for group in groups for a in group for b in group if a != b]


def _others(groups: Groups) -> float:
  """How many operands an IPU adds to its own part in a scatter."""
  return 1 - 1 / max(map(len, groups))
