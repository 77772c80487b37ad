"""How the IPUs of a machine are linked to each other.

IPUs 2k and 2k + 1 are a pair; each is also linked to the IPUs of the same side
in the pairs before and after: a ladder, of which the pairs are the rungs and
the two sides the rails. In a torus the last rung is joined to the first.

Figures are tagged as in target.py: [S] read in a public source, [D] derived
from such figures, [G] a guess.
"""

from __future__ import annotations

import dataclasses

# An IPU-Link carries 32 GB/s, both ways together: the 320 GB/s of a GC200's ten
# links (Graphcore's M2000 data sheet) [S].
_LINK = 16e9


@dataclasses.dataclass(frozen=True, kw_only=True)
class Topology:
  """IPUs and the links between them.

  Attributes:
    name: of the machine.
    num_ipus: IPUs in it, an even number or one.
    rung_bytes_per_second: between the IPUs of a pair, each way.
    rail_bytes_per_second: between an IPU and its neighbour on a rail, each way.
    closed: whether the rails are rings.
    hop_cycles: latency of a word through a link.
    sync_cycles: a synchronisation of all its IPUs.
  """

  name: str
  num_ipus: int
  # Six links in a pair, two up and two down the ladder: an M2000 has four IPUs
  # with ten links each and eight ports outside (its published block diagram)
  # [D].
  rung_bytes_per_second: float = 6 * _LINK
  rail_bytes_per_second: float = 2 * _LINK
  closed: bool = False
  # No public figure: some 150 ns [G].
  hop_cycles: int = 200
  # Target::getGlobalSyncCycles, as quoted by ipu-stack (cost.rs) [S].
  sync_cycles: int = 600


# Names of Graphcore's products. POD64's rails are rings (data sheet: 2D torus)
# [S]; those of directly attached PODs are taken to be open [D].
_ALONE = Topology(name="one IPU", num_ipus=1)
# Two cards, 1 Tb/s both ways over four links (ByteMLPerf's README) [S].
_CARDS = Topology(name="C600 pair", num_ipus=2, rung_bytes_per_second=62.5e9)
_PAIR = Topology(name="pair of IPUs", num_ipus=2)
_PODS = (
  Topology(name="POD4", num_ipus=4),
  Topology(name="POD16", num_ipus=16),
  Topology(name="POD64", num_ipus=64, closed=True),
)
# A limit: larger machines are not modelled.
LARGEST = _PODS[-1].num_ipus


def of(version: str, num_ipus: int) -> Topology:
  """The smallest described machine that has so many IPUs of a version.

  Raises:
    ValueError: there is none.
  """
  pair = _CARDS if version == "ipu21" else _PAIR
  for topology in (_ALONE, pair, *_PODS):
    if num_ipus <= topology.num_ipus:
      return topology
  raise ValueError(
    f"{num_ipus} IPUs: the largest machine that is modelled, a "
    f"{_PODS[-1].name}, has {LARGEST}"
  )


def markdown() -> str:
  """The table of machines for the documents."""
  rows = ["| IPUs | machine | in a pair | along a rail |", "|---|---|---|---|"]
  fewest = 2
  for topology in (_PAIR, _CARDS, *_PODS):
    most = topology.num_ipus
    count, rail = f"{most}", "none"
    if most > 2:
      count = f"{fewest} to {most}"
      shape = "a ring" if topology.closed else "open"
      rail = f"{topology.rail_bytes_per_second / 1e9:g} GB/s, {shape}"
    rung = f"{topology.rung_bytes_per_second / 1e9:g} GB/s"
    rows.append(f"| {count} | {topology.name} | {rung} | {rail} |")
    fewest = most + 1
  return "\n".join(rows) + "\n"
