"""Large arrays stay out of MLIR, which copies them several times.

In the bytecode that is parsed, each is replaced by a *mark*: an array of the
same type with equal elements, whose bits no other array of the module has. The
importer puts the array in the place of the mark, and tells if one is lost. In
the bytecode of the parsed module they are put back (`attach`).

What is not understood is left as it is.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
from collections.abc import Iterator

from jaxlib.ipu.ir.bytecode import (
  Bytes,
  read_number,
  sections,
  write_number,
)

# The elements of arrays, by the bits of an element of their mark.
Arrays = dict[bytes, memoryview]

# Sections.
_ENTRIES, _SIZES = 2, 3
# Bytes of an array that is taken out of its module before MLIR reads that; a
# guess: smaller ones are read quickly.
LARGE = 1 << 20
# A limit: the elements of no type take more bytes.
_MOST_ITEM_BYTES = 16


@dataclasses.dataclass(frozen=True)
class Detached:
  """An artifact and what was taken out of it.

  Attributes:
    code: the artifact, with marks.
    arrays: what was taken out.
  """

  code: Bytes
  arrays: Arrays = dataclasses.field(default_factory=dict)


def detach(code: Bytes) -> Detached:
  """Takes the large arrays out of an artifact; they are views of it."""
  if len(code) < LARGE:
    return Detached(code)
  try:
    table = _Attributes(memoryview(code))
    found = [(i, a) for i, a in enumerate(table.arrays()) if a is not None]
    used = {bytes(a.bits) for _, a in found if len(a.bits) <= _MOST_ITEM_BYTES}
    arrays: Arrays = {}
    replaced: dict[int, list[Bytes]] = {}
    for i, array in found:
      if len(array.bits) < LARGE:
        continue
      mark = _unused(array.item_bytes, used)
      if mark is not None:
        arrays[mark] = array.bits
        replaced[i] = [array.head, write_number(len(mark)), mark]
    return Detached(b"".join(table.replace(replaced)), arrays)
  except (IndexError, ValueError):  # not bytecode, or damaged: left to MLIR
    return Detached(code)


def attach(code: Bytes, arrays: Arrays, own_piece: int) -> list[Bytes]:
  """Bytecode with the arrays in the place of their marks, in pieces. Arrays of
  at least `own_piece` bytes are a piece of their own.

  Raises:
    ValueError, IndexError: a mark is missing, or the bytecode is not
      understood.
  """
  table = _Attributes(memoryview(code))
  replaced: dict[int, list[Bytes]] = {}
  marks = 0
  for i, array in enumerate(table.arrays()):
    if array is None:
      continue
    bits = array.bits
    if array.splat and (mark := bytes(bits)) in arrays:
      marks += 1
      bits = arrays[mark]
    if len(bits) >= own_piece:
      replaced[i] = [array.head, write_number(len(bits)), bits]
  if marks != len(arrays):
    raise ValueError(f"{marks} of {len(arrays)} marks")
  return table.replace(replaced)


@dataclasses.dataclass(frozen=True)
class _Array:
  """The attribute of an array: a kind, a type, a size, and its bits.

  Attributes:
    head: what precedes the size.
    bits: of its elements, or of the one that all are equal to.
    item_bytes: of an element.
    splat: whether `bits` is one element.
  """

  head: memoryview
  bits: memoryview
  item_bytes: int
  splat: bool


class _Attributes:
  """The attributes and types of a module in bytecode.

  Raises:
    ValueError, IndexError: the bytecode is not understood.
  """

  def __init__(self, code: memoryview) -> None:
    self._code = code
    self._sections = list(sections(code))
    found = {s.number: (s.start, s.end) for s in self._sections}
    if not {_ENTRIES, _SIZES} <= found.keys():
      raise ValueError("no attributes")
    if any(s.aligned for s in self._sections):
      raise ValueError("sections that cannot be moved")
    at, end = found[_SIZES]
    self._attributes, at = read_number(code, at)
    types, at = read_number(code, at)
    # (dialect, entries) in order, and each entry's size times 2, and whether
    # its dialect encoded it.
    self._groups: list[tuple[int, int]] = []
    self._sizes: list[int] = []
    while len(self._sizes) < self._attributes + types:
      dialect, at = read_number(code, at)
      count, at = read_number(code, at)
      self._groups.append((dialect, count))
      for _ in range(count):
        size, at = read_number(code, at)
        self._sizes.append(size)
    starts = itertools.accumulate(
      (size >> 1 for size in self._sizes), initial=found[_ENTRIES][0]
    )
    self._starts = list(starts)
    if at != end or self._starts[-1] != found[_ENTRIES][1]:
      raise ValueError("attributes of another size")

  def arrays(self) -> Iterator[_Array | None]:
    """For each attribute, what it is if it is an array."""
    for i in range(self._attributes):
      yield self._array(i) if self._sizes[i] & 1 else None

  def _array(self, i: int) -> _Array | None:
    entry = self._code[self._starts[i] : self._starts[i + 1]]
    try:
      _, at = read_number(entry, 0)
      type_, head = read_number(entry, at)
      size, at = read_number(entry, head)
      if at + size != len(entry) or not size:
        return None
      count = self._elements(type_)
    except IndexError:
      return None
    for splat, items in ((False, count), (True, 1)):
      if items and size % items == 0:
        item_bytes = size // items
        if item_bytes in (1, 2, 4, 8, _MOST_ITEM_BYTES):
          return _Array(entry[:head], entry[at:], item_bytes, splat)
    return None

  def _elements(self, type_: int) -> int:
    """The number of elements of a tensor type: a kind, its dimensions, ..."""
    i = self._attributes + type_
    entry = self._code[self._starts[i] : self._starts[i + 1]]
    _, at = read_number(entry, 0)
    rank, at = read_number(entry, at)
    shape = []
    for _ in range(rank):
      size, at = read_number(entry, at)
      shape.append(size >> 1)  # the lowest bit is the sign
    return math.prod(shape)

  def replace(self, replaced: dict[int, list[Bytes]]) -> list[Bytes]:
    """The bytecode with some entries replaced, in pieces."""
    sizes = list(self._sizes)
    entries: list[Bytes] = []
    done = self._starts[0]
    for i, pieces in replaced.items():
      sizes[i] = sum(map(len, pieces)) << 1 | 1
      entries += [self._code[done : self._starts[i]], *pieces]
      done = self._starts[i + 1]
    entries.append(self._code[done : self._starts[-1]])
    table: list[Bytes] = [
      write_number(self._attributes),
      write_number(len(sizes) - self._attributes),
    ]
    rest = iter(sizes)
    for dialect, count in self._groups:
      table += [write_number(dialect), write_number(count)]
      table += map(write_number, itertools.islice(rest, count))
    new = {_ENTRIES: entries, _SIZES: table}
    out: list[Bytes] = [self._code[: self._sections[0].header]]
    for s in self._sections:
      contents = new.get(s.number, [self._code[s.start : s.end]])
      size = sum(map(len, contents))
      out += [bytes([s.number]), write_number(size), *contents]
    return out


def _unused(size: int, used: set[bytes]) -> bytes | None:
  """The bits of an element that no other array has, which are added to `used`;
  None if there are none. They look random, as no pass makes such a number."""
  for i in range(256):
    mark = hashlib.blake2b(bytes([i]), digest_size=size).digest()
    if mark not in used:
      used.add(mark)
      return mark
  return None
