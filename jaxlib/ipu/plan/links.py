"""What collectives take on the links between IPUs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from jaxlib.ipu.target import Target

# Bytes that a device sends to a neighbour in a second, in each direction: two
# links up and two down the ladder of an IPU-M2000 [G].
_LINK_BYTES_PER_SECOND = 32e9
# A synchronisation of all IPUs, cycles (public planner code) [S].
_SYNC_CYCLES = 600

# What the busiest link carries, of the operands of all devices of a ring of n,
# as a function of n; both directions are used [D].
_RING = {
  "all_reduce": lambda n: (n - 1) / n,
  "reduce_scatter": lambda n: (n - 1) / n / 2,
  "all_gather": lambda n: (n - 1) / 2,
  "all_to_all": lambda n: n / 8,
  "ragged_all_to_all": lambda n: n / 8,
  "collective_broadcast": lambda n: 0.5 * (n > 1),
  "collective_permute": lambda n: 1.0 * (n > 1),
}


def collective_cycles(
  target: Target, kind: str, size: int, groups: Sequence[Sequence[int]]
) -> float:
  """Cycles of a collective, synchronisations included; all of them a guess.

  Args:
    target: the machine.
    kind: the operation's name in StableHLO.
    size: bytes of the operands of one device.
    groups: the devices that exchange data.
  """
  largest = max(map(len, groups), default=1)
  if largest == 1:
    return 0.0
  seconds = _RING[kind](largest) * size / _LINK_BYTES_PER_SECOND
  return _SYNC_CYCLES + math.ceil(seconds * target.clock_hz)
