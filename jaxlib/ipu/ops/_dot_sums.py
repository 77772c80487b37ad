"""The sums of a part of a matrix product's result, to which steps add."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Sequence
from typing import NamedTuple

from jaxlib.ipu.codelets.dot import DotHints
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.lower.builder import Builder, Written
from jaxlib.ipu.lower.exchange import Operand
from jaxlib.ipu.ops._dot_loops import part_of
from jaxlib.ipu.ops._dot_split import Choice, Product, result_layout
from jaxlib.ipu.plan import cost, matmul, partials
from jaxlib.ipu.program import schema


class Block(NamedTuple):
  """Where a block begins and ends along each dimension."""

  begins: tuple[int, ...]
  ends: tuple[int, ...]

  @property
  def shape(self) -> tuple[int, ...]:
    """Its extents."""
    return tuple(map(operator.sub, self.ends, self.begins))


class Sums:
  """The sums of a part of a product's result.

  Attributes:
    builder: of the program.
    product: the product.
    choice: its split.
    dtype: of the sums.
    layout: their mapping.
    root: the tensor that holds them, of `product.kept` dimensions.
  """

  def __init__(
    self, builder: Builder, product: Product, choice: Choice, first: Block
  ) -> None:
    """`first` is the first step's block."""
    self.builder, self.product, self.choice = builder, product, choice
    many = choice.steps.terms > 1
    self.dtype = choice.accumulate if many else product.value.dtype
    self.layout = result_layout(
      builder, product, self._partition(first.shape), choice.partial,
      first.shape, self.dtype,
    )  # fmt: skip
    kept = tuple(first.shape[d] for d in product.kept)
    self.root = builder.new_root(kept, self.dtype, self.layout)

  def operands(self, block: Block) -> Sequence[Operand]:
    """What a step reads of both operands."""
    sides = self.product.sides
    if block.shape == self.product.shape:
      return sides
    return [part_of(side, block.begins, block.ends) for side in sides]

  def add(
    self,
    block: Block,
    operands: Sequence[Operand] | None = None,
    adds: bool = True,
  ) -> None:
    """Adds a step.

    Args:
      block: of the iteration space.
      operands: those of the step, if they are not parts of the product's.
      adds: whether the sums have a value, to which the step's is added.
    """
    builder, product, choice = self.builder, self.product, self.choice
    target, counts, part = builder.target, product.counts, block.shape
    split = self._partition(part)
    _, m, n, _ = (math.prod(product.shape[s]) for s in product.spans)
    known = product.fourier
    fourier = [schema.Fourier(*dataclasses.astuple(known))] if known else []
    fields = schema.Dot(choice.accumulate, int(adds), *counts, fourier)
    hints = DotHints(
      f16_sums=product.f16_sums,
      vector=min(m, n) == 1,
      stored=self.dtype,
      whole=not choice.partial,
    )
    casts = cost.casts(target, fields, part, split, product.dtypes[:2], hints)
    written = tuple(
      product.kept.index(d) if d in product.kept else -1
      for d in range(len(part))
    )
    builder.execute(
      fields,
      part,
      split,
      self.operands(block) if operands is None else operands,
      [Written(self.root, written)],
      epilogue=partials.epilogue(
        target, fields, split, part, product.outer, self.layout, casts
      ),
      # Steps save the SRAM that this takes.
      hoists=choice.steps == matmul.ONE,
      keeps=choice.steps.terms == 1,
      hints=hints,
    )

  def _partition(self, part: tuple[int, ...]) -> Layout:
    """The partition of a step's iteration space."""
    if part == self.choice.first:
      return self.choice.partition
    return matmul.partition(part, self.choice.parts, self.product.counts)
