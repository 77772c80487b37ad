"""The steps as a flow graph: what each of them reads and writes.

Liveness analysis traverses it backwards. A loop's or a branch's accesses are
summarised when its node is made, from the summaries of the nodes in it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxlib.ipu.tile.step import Effects


@dataclasses.dataclass(slots=True)
class Summary:
  """The effect of a list of nodes on roots.

  Attributes:
    exposed: roots that the nodes may read before they write them.
    written: roots that the nodes certainly write in full.
    touched: roots that the nodes may read or write.
  """

  exposed: set[int]
  written: set[int]
  touched: set[int]


@dataclasses.dataclass(slots=True)
class Loop:
  """A loop. If its trip count is known, the condition is empty.

  Attributes:
    condition, body: their nodes.
    condition_end, end: the times at which the condition and the body end.
    summary: the effect of the whole loop.
    body_touched: roots that the body may read or write.
  """

  condition: list[Any]
  condition_end: int
  body: list[Any]
  end: int
  summary: Summary
  body_touched: set[int]

  @classmethod
  def of(
    cls, condition: list[Any], condition_end: int, body: list[Any], end: int
  ) -> Loop:
    """A loop of these nodes and times."""
    test, once = summarise(condition), summarise(body)
    summary = Summary(
      test.exposed | (once.exposed - test.written),
      test.written,  # the body may not run at all
      test.touched | once.touched,
    )
    return cls(condition, condition_end, body, end, summary, once.touched)


@dataclasses.dataclass(slots=True)
class Fork:
  """Branches of which one runs.

  Attributes:
    time: the time before the branches.
    branches: the start time, nodes and end time of each.
    end: the time after the branches.
    summary: the effect of whichever branch runs.
  """

  time: int
  branches: list[tuple[int, list[Any], int]]
  end: int
  summary: Summary

  @classmethod
  def of(
    cls, time: int, branches: list[tuple[int, list[Any], int]], end: int
  ) -> Fork:
    """A fork of these branches and times."""
    sums = [summarise(nodes) for _, nodes, _ in branches]
    summary = Summary(
      set().union(*(s.exposed for s in sums)),
      set.intersection(*(s.written for s in sums)),
      set().union(*(s.touched for s in sums)),
    )
    return cls(time, branches, end, summary)


def summarise(nodes: list[Any]) -> Summary:
  """The effect of nodes that run one after the other."""
  exposed: set[int] = set()
  written: set[int] = set()
  touched: set[int] = set()
  for node in nodes:
    if isinstance(node, Effects):
      needs = (*node.early_reads, *node.reads, *node.partial_writes)
      exposed.update(root for root in needs if root not in written)
      written.update(node.full_writes)
      touched.update(needs, node.full_writes)
    else:
      exposed |= node.summary.exposed - written
      written |= node.summary.written
      touched |= node.summary.touched
  return Summary(exposed, written, touched)
