"""The serial steps of a matrix product (`matmul.Steps`)."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

from jaxlib.ipu.codelets.dot import DotHints
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.kernel.writer import Writer
from jaxlib.ipu.lower.builder import Builder, Written
from jaxlib.ipu.lower.exchange import Operand
from jaxlib.ipu.ops._dot_loops import JoinedDims, part_of
from jaxlib.ipu.ops._dot_split import Choice, Product, choose, result_layout
from jaxlib.ipu.ops.elementwise import convert
from jaxlib.ipu.plan import cost, matmul, partials
from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.view import View

# Where a block begins and ends along each dimension.
_Block = tuple[tuple[int, ...], tuple[int, ...]]


def compute(
  builder: Builder,
  product: Product,
  loops: Sequence[JoinedDims],
  left: View,
  right: View,
) -> int:
  """Adds a product's steps; returns the root of its result."""
  choice = choose(builder, product)
  outer = product.outer
  parts = _blocks(product.shape[:outer], choice.first[:outer])
  if choice.steps.results == 1:
    (whole,) = parts
    return _compute_part(builder, product, choice, loops, left, right, whole)
  dtype = product.value.dtype
  result = builder.new_root(
    tuple(product.shape[d] for d in product.kept),
    dtype,
    builder.wanted(product.value),
  )
  every = builder.root_view(result)
  for part in parts:
    root = _compute_part(builder, product, choice, loops, left, right, part)
    begins, ends = ([place[d] for d in product.kept] for place in part)
    place = every.slice(begins, ends, [1] * len(begins))
    builder.copy_to([(builder.root_view(root), place)])
  builder.assembled.add(result)
  return result


def _compute_part(
  builder: Builder,
  product: Product,
  choice: Choice,
  loops: Sequence[JoinedDims],
  left: View,
  right: View,
  place: _Block,
) -> int:
  """Adds the steps that make a part of a product's result; returns its root."""
  shape, outer, counts = product.shape, product.outer, product.counts
  dtype = product.value.dtype
  many = choice.steps.terms > 1
  sums = choice.accumulate if many else dtype
  written = tuple(
    product.kept.index(d) if d in product.kept else -1
    for d in range(len(shape))
  )
  _, m, n, _ = (math.prod(shape[s]) for s in product.spans)
  known = product.fourier
  fourier = [schema.Fourier(*dataclasses.astuple(known))] if known else []
  root = -1
  for terms in _blocks(shape[outer:], choice.first[outer:]):
    begins, ends = (a + b for a, b in zip(place, terms, strict=True))
    part = tuple(e - b for b, e in zip(begins, ends, strict=True))
    split = choice.partition
    if part != choice.first:
      split = matmul.partition(part, choice.parts, counts)
    first = root < 0
    if first:
      layout = result_layout(
        builder, product, split, choice.partial, part, sums
      )
      kept = tuple(part[d] for d in product.kept)
      root = builder.new_root(kept, sums, layout)
    fields = schema.Dot(choice.accumulate, int(not first), *counts, fourier)
    hints = DotHints(
      f16_sums=product.f16_sums,
      vector=min(m, n) == 1,
      stored=sums,
      whole=not choice.partial,
    )
    builder.execute(
      fields,
      part,
      split,
      [
        part_of(left, begins, ends, [loop.lhs for loop in loops]),
        part_of(right, begins, ends, [loop.rhs for loop in loops]),
      ],
      [Written(root, written)],
      epilogue=partials.epilogue(
        builder.target, fields, split, part, outer, layout,
        cost.casts(
          builder.target, fields, part, split, product.dtypes[:2], hints
        ),
      ),
      # Steps save the SRAM that this takes.
      hoists=choice.steps == matmul.ONE,
      keeps=not many,
      hints=hints,
    )  # fmt: skip
  return root if sums is dtype else _rounded(builder, root, dtype)


def _blocks(extents: Sequence[int], sizes: Sequence[int]) -> list[_Block]:
  """The consecutive blocks of some size, the last of a dimension maybe
  smaller."""
  found = []
  for begins in itertools.product(
    *(range(0, n, b) for n, b in zip(extents, sizes, strict=True))
  ):
    ends = (min(a + b, n) for a, b, n in zip(begins, sizes, extents))
    found.append((begins, tuple(ends)))
  return found


def _rounded(builder: Builder, sums: int, dtype: DType) -> int:
  """Converts a root's values to another type, in place on their tiles."""
  info = builder.tensors[sums]
  root = builder.new_root(info.shape, dtype, info.layout)
  code = Writer()
  number = convert(code, code.load(0, info.dtype), info.dtype, dtype)
  dims = tuple(range(len(info.shape)))
  builder.execute(
    schema.Map(code.finish(), [number]),
    info.shape,
    info.layout,
    [Operand(builder.root_view(sums), dims)],
    [Written(root, dims)],
  )
  return root
