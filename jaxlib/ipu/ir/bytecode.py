"""The sections of MLIR bytecode, and its numbers.

The format is described at https://mlir.llvm.org/docs/BytecodeFormat. Portable
artifacts keep its version 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

Bytes = bytes | memoryview

_MAGIC = b"ML\xefR"
_ALIGNED = 0x80  # set in a section's number if padding follows


class Section(NamedTuple):
  """A section: its number, whether it is aligned, where its header and its
  contents start, and where they end."""

  number: int
  aligned: bool
  header: int
  start: int
  end: int


def sections(code: Bytes) -> Iterator[Section]:
  """The sections of an artifact in order; none of what is no bytecode.

  Raises:
    IndexError: the artifact is cut.
  """
  if bytes(code[: len(_MAGIC)]) != _MAGIC:
    return
  _, at = read_number(code, len(_MAGIC))  # the format's version
  while code[at]:  # the producer
    at += 1
  at += 1
  while at < len(code):
    header, number = at, code[at]
    size, at = read_number(code, at + 1)
    if number & _ALIGNED:
      alignment, at = read_number(code, at)
      if alignment:
        at += -at % alignment
    aligned = bool(number & _ALIGNED)
    yield Section(number & ~_ALIGNED, aligned, header, at, at + size)
    at += size


# The bytes of a number, by its first one: as many more as that has trailing
# zeros.
_WIDTH = [9] + [(n & -n).bit_length() for n in range(1, 256)]


def read_number(code: Bytes, at: int) -> tuple[int, int]:
  """A number of variable width, and where it ends."""
  width = _WIDTH[code[at]]
  end = at + width
  if width == 9:
    return int.from_bytes(code[at + 1 : end], "little"), end
  return int.from_bytes(code[at:end], "little") >> width, end


def write_number(value: int) -> bytes:
  """The bytes that `read_number` reads."""
  width = max(1, -(-value.bit_length() // 7))
  if width > 8:
    return b"\0" + value.to_bytes(8, "little")
  return ((value << 1 | 1) << (width - 1)).to_bytes(width, "little")
