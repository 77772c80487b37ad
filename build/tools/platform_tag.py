"""Determines the platform tag of a shared library (PEP 600)."""

from __future__ import annotations

import math
import pathlib
import re
from collections.abc import Iterable

from tools import command
from tools.command import BuildError

# Libraries that PEP 600 lets a wheel expect on any Linux with the right glibc.
_ALLOWED = {
  "ld-linux-x86-64.so.2",
  "libc.so.6",
  "libdl.so.2",
  "libgcc_s.so.1",
  "libm.so.6",
  "libpthread.so.0",
  "librt.so.1",
}


_LINUX = "linux_x86_64"


def glibc_needed(readelf: str) -> tuple[int, int]:
  """The glibc that a library needs, from the output of `readelf -d -V`.

  Raises:
    BuildError: it needs a library that is not on every Linux.
  """
  needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", readelf))
  if extra := needed - _ALLOWED:
    raise BuildError(
      f"the library needs {', '.join(sorted(extra))}, which manylinux wheels"
      " may not. Link it statically; did --bazel_options disable that?"
    )
  versions = re.findall(r"\bGLIBC_(\d+)\.(\d+)", readelf)
  return max((int(major), int(minor)) for major, minor in versions)


def of_library(library: pathlib.Path) -> str:
  """The most compatible tag that is valid for `library`.

  `manylinux_X_Y_x86_64`, or `linux_x86_64` if it was built against the Poplar
  SDK and needs its libraries.
  """
  printed = command.run(
    ["readelf", "--wide", "--dynamic", "--version-info", library],
    quiet=True,
    hint=f"readelf comes with g++ (binutils); {library} must be x86-64 ELF.",
  )
  if "[libpoplar.so" in printed:
    return _LINUX
  major, minor = glibc_needed(printed)
  return f"manylinux_{major}_{minor}_x86_64"


def newest(tags: Iterable[str]) -> str:
  """The most restrictive of these tags."""

  def glibc(tag: str) -> tuple[float, ...]:
    if tag == _LINUX:
      return (math.inf,)
    match = re.fullmatch(r"manylinux_(\d+)_(\d+)_x86_64", tag)
    if match is None:
      raise BuildError(f"{tag!r} is not a tag for x86-64 Linux")
    return tuple(map(int, match.groups()))

  return max(tags, key=glibc)
