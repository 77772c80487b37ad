"""Decomposes scatters into several arrays at once."""

from __future__ import annotations

import math

import numpy as np

from jaxlib.ipu.dtypes import NUMPY, DType
from jaxlib.ipu.ir.attributes import Indexing
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Graph, Node, Shape, Value
from jaxlib.ipu.ops._regions import on_elements


def decompose(e: Emitter, node: Node) -> list[Value] | None:
  """A scatter for each array if they are independent, else a loop over the
  updates. None for a scatter into one array."""
  count = len(node.results)
  if count == 1:
    return None
  (region,) = node.regions
  parts = [_part(region, i) for i in range(count)]
  operands, updates = node.inputs[:count], node.inputs[count + 1 :]
  indices = node.inputs[count]
  if None in parts:
    return _loop(e, node.attributes, operands, indices, updates, region)
  return [
    e.scatter(
      operand,
      indices,
      update,
      node.attributes,
      lambda old, new, part=part: e.call(part, [old, new]),
    )
    for operand, update, part in zip(operands, updates, parts, strict=True)
  ]


def _part(region: Graph, i: int) -> Graph | None:
  """The part of a region that computes result i from the old and the new
  element of array i; None if it depends on others."""
  count = len(region.results)
  needed = {region.results[i]}
  nodes = []
  for node in reversed(region.nodes):
    if needed & set(node.results):
      needed.update(node.inputs)
      nodes.append(node)
  parameters = [region.parameters[i], region.parameters[count + i]]
  if needed & (set(region.parameters) - set(parameters)):
    return None
  return Graph(parameters, nodes[::-1], [region.results[i]])


def _loop(
  e: Emitter,
  indexing: Indexing,
  operands: tuple[Value, ...],
  indices: Value,
  updates: tuple[Value, ...],
  region: Graph,
) -> list[Value]:
  """Applies updates one by one; those that do not fit are skipped."""
  shape = operands[0].shape
  rank = len(updates[0].shape)
  batch = indexing.batch_dims(rank)
  order = batch + indexing.window_dims
  batch_shape = tuple(updates[0].shape[d] for d in batch)
  count = math.prod(batch_shape)
  sizes = tuple(
    1 if w < 0 else updates[0].shape[indexing.window_dims[w]]
    for w in indexing.operand_window(len(shape))
  )
  if not count or any(s > n for s, n in zip(sizes, shape, strict=True)):
    return list(operands)
  starts, fits = _starts(e, indexing, indices, shape, sizes, batch_shape)
  rows = [e.reshape(e.transpose(u, order), (count, *sizes)) for u in updates]
  zeros = [0] * len(shape)

  def body(i: Value, *old: Value) -> list[Value]:
    def at(column: Value) -> Value:
      return e.reshape(e.dynamic_slice(column, [i], [1]), ())

    start = [at(s) for s in starts]
    before = [e.dynamic_slice(o, start, sizes) for o in old]
    new = [
      e.reshape(e.dynamic_slice(r, [i, *zeros], (1, *sizes)), sizes)
      for r in rows
    ]
    after = on_elements(e, region, [*before, *new], sizes)
    return [
      e.dynamic_update_slice(o, e.select(at(fits), a, b), start)
      for o, a, b in zip(old, after, before, strict=True)
    ]

  return e.fori_loop(count, operands, body)


def _starts(
  e: Emitter,
  indexing: Indexing,
  indices: Value,
  shape: Shape,
  sizes: Shape,
  batch_shape: Shape,
) -> tuple[list[Value], Value]:
  """The start of the updates' windows in each dimension, and which fit."""
  count = math.prod(batch_shape)
  last = indexing.index_vector_dim
  order = [d for d in range(len(indices.shape)) if d != last]
  if last < len(indices.shape):
    order.append(last)
  depth = len(indexing.index_map)
  vectors = e.reshape(e.transpose(indices, order), (count, depth))
  starts = [e.constant(0, DType.I32, (count,)) for _ in shape]
  fits = e.constant(True, DType.BOOL, (count,))
  for k, d in enumerate(indexing.index_map):
    column = e.reshape(e.slice(vectors, [0, k], [count, k + 1]), (count,))
    # A narrow index type may not reach the limit.
    limit = min(shape[d] - sizes[d], np.iinfo(NUMPY[column.dtype]).max)
    inside = e.and_(e.compare(column, 0, "GE"), e.compare(column, limit, "LE"))
    fits = e.and_(fits, inside)
    starts[d] = e.convert(column, DType.I32)
  for d, k in enumerate(indexing.operand_batch_dims(len(shape))):
    if k >= 0:
      place = e.reshape(e.iota(DType.I32, batch_shape, k), (count,))
      starts[d] = e.add(starts[d], place)
  return starts, fits
