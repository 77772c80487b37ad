"""The serial steps of a matrix product (`matmul.Steps`)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.kernel.writer import Writer
from jaxlib.ipu.lower.builder import Builder, Written
from jaxlib.ipu.lower.exchange import Operand
from jaxlib.ipu.ops import _dot_repeat
from jaxlib.ipu.ops._dot_split import Choice, Product, choose
from jaxlib.ipu.ops._dot_sums import Block, Sums
from jaxlib.ipu.ops.elementwise import convert
from jaxlib.ipu.program import schema


def compute(builder: Builder, product: Product) -> int:
  """Adds a product's steps; returns the root of its result."""
  choice = choose(builder, product)
  outer = product.outer
  parts = _blocks(product.shape[:outer], choice.first[:outer])
  if choice.steps.results == 1:
    (whole,) = parts
    return _compute_part(builder, product, choice, whole)
  dtype = product.value.dtype
  result = builder.new_root(
    tuple(product.shape[d] for d in product.kept),
    dtype,
    builder.wanted(product.value),
  )
  every = builder.root_view(result)
  for part in parts:
    root = _compute_part(builder, product, choice, part)
    begins, ends = ([place[d] for d in product.kept] for place in part)
    place = every.slice(begins, ends, [1] * len(begins))
    builder.copy_to([(builder.root_view(root), place)])
  builder.assembled.add(result)
  return result


def _compute_part(
  builder: Builder, product: Product, choice: Choice, place: Block
) -> int:
  """Adds the steps that make a part of a product's result; returns its root."""
  outer, dtype = product.outer, product.value.dtype
  terms = [
    Block((*place.begins, *b), (*place.ends, *e))
    for b, e in _blocks(product.shape[outer:], choice.first[outer:])
  ]
  sums = Sums(builder, product, choice, terms[0])
  if choice.repeats:
    _dot_repeat.add_terms(sums, terms)
  else:
    for i, block in enumerate(terms):
      sums.add(block, adds=i > 0)
  return sums.root if sums.dtype is dtype else _rounded(builder, sums, dtype)


def _blocks(extents: Sequence[int], sizes: Sequence[int]) -> list[Block]:
  """The consecutive blocks of some size, the last of a dimension maybe
  smaller."""
  found = []
  for begins in itertools.product(
    *(range(0, n, b) for n, b in zip(extents, sizes, strict=True))
  ):
    ends = (min(a + b, n) for a, b, n in zip(begins, sizes, extents))
    found.append(Block(begins, tuple(ends)))
  return found


def _rounded(builder: Builder, sums: Sums, dtype: DType) -> int:
  """Converts sums to another type, in place on their tiles."""
  info = builder.tensors[sums.root]
  root = builder.new_root(info.shape, dtype, info.layout)
  code = Writer()
  number = convert(code, code.load(0, info.dtype), info.dtype, dtype)
  dims = tuple(range(len(info.shape)))
  builder.execute(
    schema.Map(code.finish(), [number]),
    info.shape,
    info.layout,
    [Operand(builder.root_view(sums.root), dims)],
    [Written(root, dims)],
  )
  return root
