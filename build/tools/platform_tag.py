"""The platform tag that a shared library deserves (PEP 600)."""

from __future__ import annotations

import math
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


_LINUX = "linux_x86_64"


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
  """The tag that is true for `library` and fits most machines.

  `manylinux_X_Y_x86_64`, but `linux_x86_64` for one that was built against the
  Poplar SDK and needs its libraries.
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
  """Of such tags the one that is true for all."""

  def glibc(tag: str) -> tuple[float, ...]:
    if tag == _LINUX:
      return (math.inf,)
    match = re.fullmatch(r"manylinux_(\d+)_(\d+)_x86_64", tag)
    if match is None:
      raise BuildError(f"{tag!r} is no tag of x86-64 Linux")
    return tuple(map(int, match.groups()))

  return max(tags, key=glibc)
