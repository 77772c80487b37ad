"""What goes into a partitioning, and what comes out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from jaxlib.ipu.program import schema


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sharding:
  """What the compile options say of a program for several devices.

  Attributes:
    num_partitions: the number of devices, at least 2.
    uses_shardy: whether the module has Shardy's shardings, not GSPMD's.
    free_arguments, free_results: for each, or for all, whether the partitioner
      may choose its sharding.
    places: of the devices among the IPUs of the machine, by partition; empty:
      in order.
  """

  num_partitions: int
  uses_shardy: bool
  free_arguments: tuple[bool, ...]
  free_results: tuple[bool, ...]
  places: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Partitioned:
  """The program of each device.

  Attributes:
    code: its module, a StableHLO portable artifact.
    shardings: of the whole arguments and, after them, of all results.
    name: the module's.
    given: the whole module as text, made when it is asked for.
  """

  code: bytes | memoryview
  shardings: list[schema.Sharding]
  name: str
  given: Callable[[], str]
