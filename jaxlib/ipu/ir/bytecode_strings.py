"""Reads the strings of an MLIR bytecode artifact before it is parsed.

Names, files, symbols, call targets and string attributes are all in one section
of the artifact, as bytes: which operations a module has can be seen there,
without a search of its constants. jaxlib's bindings hand them to Python as text: one
that is not UTF-8 raises a UnicodeDecodeError or, in a location, ends the
process.

The format is described at https://mlir.llvm.org/docs/BytecodeFormat.
"""

from __future__ import annotations

import itertools
import operator

from jaxlib.ipu.diagnostics import invalid_argument

_MAGIC = b"ML\xefR"
_STRINGS = 0  # the section's number
_ALIGNED = 0x80  # set in a section's number if padding follows


def mentions(code: bytes | memoryview, *words: bytes) -> bool:
  """Whether one of the words is in a string of the artifact. What is no
  bytecode, or is cut, is searched as a whole."""
  try:
    strings = _section(code)
  except IndexError:
    strings = b""
  return any(word in (strings or bytes(code)) for word in words)


def check(code: bytes | memoryview) -> None:
  """Raises INVALID_ARGUMENT if a string of the artifact is not UTF-8. What is
  no bytecode, or is cut, is left to MLIR's parser."""
  try:
    strings = _strings(_section(code))
  except IndexError:
    return
  for string in strings:
    try:
      string.decode()
    except UnicodeDecodeError as e:
      raise invalid_argument(
        f"the StableHLO module is damaged: the string {string[:200]!r} (a name,"
        " a file or an attribute) is not UTF-8"
      ) from e


def _section(code: bytes | memoryview) -> bytes:
  """The section of strings.

  Raises:
    IndexError: the artifact is cut.
  """
  if bytes(code[: len(_MAGIC)]) != _MAGIC:
    return b""
  _, at = _number(code, len(_MAGIC))  # the format's version
  while code[at]:  # the producer
    at += 1
  at += 1
  while at < len(code):
    section = code[at]
    size, at = _number(code, at + 1)
    if section & _ALIGNED:
      alignment, at = _number(code, at)
      if alignment:
        at += -at % alignment
    if section & ~_ALIGNED == _STRINGS:
      return bytes(code[at : at + size])
    at += size
  return b""


def _strings(section: bytes) -> list[bytes]:
  """The strings, without the NUL after each; none if all are ASCII. Their
  lengths, which come first, begin with the last one's; a damaged length cuts a
  character."""
  count, at = _number(section, 0)
  sizes = []
  for _ in range(count):
    size, at = _number(section, at)
    sizes.append(size)
  if section[at:].isascii():
    return []
  ends = itertools.accumulate(sizes, operator.sub, initial=len(section))
  return [
    section[max(end - size, 0) : max(end - 1, 0)]
    for end, size in zip(ends, sizes)
  ]


# The bytes of a number, by its first one: as many more as that has trailing
# zeros.
_WIDTH = [9] + [(n & -n).bit_length() for n in range(1, 256)]


def _number(code: bytes | memoryview, at: int) -> tuple[int, int]:
  """A number of variable width, and where it ends."""
  width = _WIDTH[code[at]]
  end = at + width
  if width == 9:
    return int.from_bytes(code[at + 1 : end], "little"), end
  return int.from_bytes(code[at:end], "little") >> width, end
