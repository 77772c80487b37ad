"""What a check of a program knows at a step: the program's tables, and which
tensors have their values."""

from __future__ import annotations

import math
from collections.abc import Sequence

from jaxlib.ipu.check import verify_memory
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.moves.distinct import overlapping
from jaxlib.ipu.program import schema


class InvalidProgram(Exception):
  """An invalid program; names the defect and its place."""


class Verifier:
  """Accesses of tensors, checked in the order of the steps.

  Attributes:
    read_only: arguments and constants.
    defined: roots that an earlier step has written, and whose memory no other
      root has overwritten since.
    fresh: placed tensors that equal the view of their root here.
    views: the placed tensors of each root.
    constants: the program's, if they are known.
  """

  def __init__(
    self, program: schema.Program, constants: bytes | None = None
  ) -> None:
    self.program = program
    self.constants = constants
    self.tensors = program.tensors
    self.layouts = [Layout.from_record(m) for m in program.mappings]
    self.where = "program"
    self.defined: set[int] = set()
    self.read_only: set[int] = set()
    self.fresh: set[int] = set()
    self.views: dict[int, list[int]] = {}
    self.sharers: dict[int, set[int]] = {}

  def fail(self, message: str) -> None:
    raise InvalidProgram(f"{self.where}: {message}")

  def require(self, condition: bool, message: str) -> None:
    if not condition:
      self.fail(message)

  # --- Tensors and mappings -------------------------------------------------

  def tensor(self, number: int) -> schema.Tensor:
    self.require(
      0 <= number < len(self.tensors), f"there is no tensor {number}"
    )
    return self.tensors[number]

  def layout(self, number: int) -> Layout:
    self.require(
      0 <= number < len(self.layouts), f"there is no mapping {number}"
    )
    return self.layouts[number]

  def inside(
    self,
    tensor: int,
    offset: int,
    shape: Sequence[int],
    strides: Sequence[int],
  ) -> None:
    """Checks that a view is inside its tensor."""
    self.require(len(shape) == len(strides), "a view without its strides")
    if 0 in shape:
      return
    reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    low = offset + sum(min(r, 0) for r in reach)
    high = offset + sum(max(r, 0) for r in reach)
    size = math.prod(self.tensor(tensor).shape)
    self.require(
      0 <= low and high < size,
      f"a view reaches from {low} to {high} in tensor {tensor} of {size} "
      "elements",
    )

  # --- Data flow ------------------------------------------------------------

  def reads(self, number: int, streams: bool = False) -> None:
    """Checks a step's read of a tensor; what is in the host's memory has to be
    streamed."""
    t = self.tensor(number)
    self.require(
      streams or self.tensor(t.root).space != schema.HOST,
      f"tensor {number}, which is in the host's memory, is read on tiles",
    )
    if not math.prod(t.shape):
      return
    self.require(
      t.root in self.defined, f"tensor {t.root} is read before it is written"
    )
    self.require(
      t.root == number or number in self.fresh,
      f"placed tensor {number} is used without an exchange since its root "
      f"{t.root} was written",
    )

  def writes(self, number: int) -> None:
    """Checks and records a step's write of a root."""
    t = self.tensor(number)
    self.require(t.root == number, f"writes to {number}, a view of {t.root}")
    self.require(
      number not in self.read_only,
      f"writes to tensor {number}, an argument or a constant",
    )
    self.defined.difference_update(self.sharers.get(number, ()))
    self.defined.add(number)
    self.fresh.difference_update(self.views.get(number, ()))

  def writes_part(self, number: int) -> None:
    """Checks and records a step's write of a view of a root."""
    t = self.tensor(number)
    shape, strides = tuple(t.shape), tuple(t.strides)
    self.require(
      not overlapping(shape, strides)
      and all(s or n == 1 for n, s in zip(shape, strides, strict=True)),
      f"writes to {number}, a view that has elements of {t.root} twice",
    )
    self.writes(t.root)

  def keeps_apart(self, source: int, result: int, in_place: bool) -> None:
    """Checks that a compute set's root that is read and one that is written do
    not overlap. (The moves of a copy happen at once, wherever tensors are.)

    Args:
      source: a root that is read.
      result: a root that is written.
      in_place: whether each element of `source` is read where the same
        element of `result` is then written.
    """
    if result not in self.sharers.get(source, ()):
      return
    same = verify_memory.place(self.program, source) == verify_memory.place(
      self.program, result
    )
    self.require(
      same and in_place,
      f"writes to tensor {result}, which overlaps its operand {source}",
    )
