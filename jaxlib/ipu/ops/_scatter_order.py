"""Scatters whose updates have an order: the last one wins."""

from __future__ import annotations

import dataclasses
import math

from jaxlib.ipu.ir.attributes import Indexing
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.region import monoid


def decompose(e: Emitter, node: Node) -> list[Value] | None:
  """Moves lookups to one dimension, so that rounds keep their order; None if
  they are there already, or if order does not matter."""
  operand, indices, updates = node.inputs
  indexing: Indexing = node.attributes
  (region,) = node.regions
  overwrites = region.results[0] is region.parameters[1]
  if monoid(region) is not None or (overwrites and indexing.unique):
    return None
  of_updates = indexing.batch_dims(len(updates.shape))
  last = indexing.index_vector_dim
  of_indices = [d for d in range(len(indices.shape)) if d != last]
  along = [of_indices.index(d) for d in indexing.index_batch]
  free = [k for k in range(len(of_indices)) if k not in along]
  if sum(updates.shape[of_updates[k]] > 1 for k in free) < 2:
    return None
  order = [of_indices[k] for k in (*along, *free)]
  if last < len(indices.shape):
    order.append(last)
  shape = [indices.shape[of_indices[k]] for k in along]
  count = math.prod(indices.shape[of_indices[k]] for k in free)
  depth = len(indexing.index_map)
  indices = e.reshape(e.transpose(indices, order), (*shape, count, depth))
  window = [updates.shape[d] for d in indexing.window_dims]
  order = [of_updates[k] for k in (*along, *free)] + list(indexing.window_dims)
  updates = e.reshape(e.transpose(updates, order), (*shape, count, *window))
  first = len(shape) + 1
  indexing = dataclasses.replace(
    indexing,
    window_dims=tuple(range(first, first + len(window))),
    index_batch=tuple(range(len(along))),
    index_vector_dim=first,
  )
  combine = "set" if overwrites else lambda *x: e.call(region, list(x))
  return [e.scatter(operand, indices, updates, indexing, combine)]
