"""The manylinux tag that a shared library deserves (PEP 600)."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable

from tools import command
from tools.command import BuildError

# What PEP 600 lets a wheel expect of any Linux with the right glibc.
_ALLOWED = {
  "ld-linux-x86-64.so.2",
  "libc.so.6",
  "libdl.so.2",
  "libgcc_s.so.1",
  "libm.so.6",
  "libpthread.so.0",
  "librt.so.1",
}


def glibc_needed(readelf: str) -> tuple[int, int]:
  """The glibc that a library needs, of what `readelf -d -V` prints of it.

  Raises:
    BuildError: it needs a library that is not on every Linux.
  """
  needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", readelf))
  if extra := needed - _ALLOWED:
    raise BuildError(
      f"the library needs {', '.join(sorted(extra))}, which a manylinux wheel"
      " must not. Link it statically; did --bazel_options undo it?"
    )
  versions = re.findall(r"\bGLIBC_(\d+)\.(\d+)", readelf)
  return max((int(major), int(minor)) for major, minor in versions)


def of_library(library: pathlib.Path) -> str:
  """`manylinux_X_Y_x86_64`, the oldest that is true for `library`."""
  printed = command.run(
    ["readelf", "--wide", "--dynamic", "--version-info", library],
    quiet=True,
    hint=f"readelf comes with g++ (binutils); {library} must be x86-64 ELF.",
  )
  major, minor = glibc_needed(printed)
  return f"manylinux_{major}_{minor}_x86_64"


def newest(tags: Iterable[str]) -> str:
  """Of manylinux tags the one that satisfies all."""

  def glibc(tag: str) -> tuple[int, ...]:
    match = re.fullmatch(r"manylinux_(\d+)_(\d+)_x86_64", tag)
    if match is None:
      raise BuildError(f"{tag!r} is no manylinux_X_Y_x86_64 tag")
    return tuple(map(int, match.groups()))

  return max(tags, key=glibc)
