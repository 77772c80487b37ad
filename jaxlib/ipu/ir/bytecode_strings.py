"""Reads the strings of an MLIR bytecode artifact before it is parsed.

Names, files, symbols, call targets and string attributes are all in one section
of the artifact, as bytes: which operations a module has can be seen there,
without a search of its constants. jaxlib's bindings hand them to Python as
text: one that is not UTF-8 raises a UnicodeDecodeError or, in a location, ends
the process.
"""

from __future__ import annotations

import itertools
import operator

from jaxlib.ipu.diagnostics import invalid_argument
from jaxlib.ipu.ir.bytecode import Bytes, read_number, sections

_STRINGS = 0  # the section's number


class Strings:
  """What is in the strings of an artifact.

  Args:
    code: the artifact.
  """

  def __init__(self, code: Bytes) -> None:
    self._code = code
    try:
      self._section = _section(code)
    except IndexError:
      self._section = b""

  def mentions(self, *words: bytes) -> bool:
    """Whether one of the words is in a string. What is no bytecode, or is cut,
    is searched as a whole."""
    section = self._section or bytes(self._code)
    return any(word in section for word in words)

  def check(self) -> None:
    """Raises INVALID_ARGUMENT if a string is not UTF-8. What is no bytecode,
    or is cut, is left to MLIR's parser."""
    try:
      strings = _strings(self._section)
    except IndexError:
      return
    for string in strings:
      try:
        string.decode()
      except UnicodeDecodeError as e:
        raise invalid_argument(
          f"the StableHLO module is damaged: the string {string[:200]!r} (a "
          "name, a file or an attribute) is not UTF-8"
        ) from e


def _section(code: Bytes) -> bytes:
  """The section of strings.

  Raises:
    IndexError: the artifact is cut.
  """
  for section in sections(code):
    if section.number == _STRINGS:
      return bytes(code[section.start : section.end])
  return b""


def _strings(section: bytes) -> list[bytes]:
  """The strings, without the NUL after each; none if all are ASCII. Their
  lengths, which come first, begin with the last one's; a damaged length cuts a
  character."""
  count, at = read_number(section, 0)
  if section[at + count :].isascii():  # a length takes at least a byte
    return []
  sizes = []
  for _ in range(count):
    size, at = read_number(section, at)
    sizes.append(size)
  ends = itertools.accumulate(sizes, operator.sub, initial=len(section))
  return [
    section[max(end - size, 0) : max(end - 1, 0)]
    for end, size in zip(ends, sizes)
  ]
