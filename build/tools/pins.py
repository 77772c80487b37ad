"""The releases of JAX that the backend is built into and tested with.

`third_party/jax/pins.json` maps the file name of each upstream wheel to its
sha256; the name contains project, version and Python. One release of each minor
series is pinned. A fork of JAX is made from the newest one that supports the
Python used for building.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import Self

from tools import command
from tools.command import ROOT, BuildError

PATH = ROOT / "third_party" / "jax" / "pins.json"
PROJECTS = ("jax", "jaxlib")

# Minor versions of Python 3 that --update_pins queries.
_MINORS = range(11, 20)
# A manylinux wheel runs on any Linux with at least the glibc in its tag.
_PLATFORMS = [f"manylinux_2_{n}_x86_64" for n in range(17, 46)]


def numbers(version: str) -> tuple[int, ...]:
  """(1, 12, 0, 1) for `1.12.0.1+ipu`, which compares as versions do.

  Raises:
    BuildError: it is not a release version.
  """
  parts = version.partition("+")[0].split(".")
  if len(parts) < 2 or not all(part.isdecimal() for part in parts):
    raise BuildError(f"{version!r} is not a release version")
  return tuple(map(int, parts))


@dataclasses.dataclass(frozen=True)
class Pin:
  """An upstream wheel; `python` is its tag, `cp311` or `py3`."""

  project: str
  version: str
  python: str
  file: str
  sha256: str

  @classmethod
  def parse(cls, file: str, sha256: str) -> Self:
    """Parses a row of the data file. Raises BuildError if it is malformed."""
    parts = file.removesuffix(".whl").split("-")
    well_formed = file.endswith(".whl") and len(parts) == 5
    if not well_formed or parts[0] not in PROJECTS or len(sha256) != 64:
      raise BuildError(
        f"{PATH}: {file!r}: {sha256!r} is not a pin. Pins map the file name of"
        f" a wheel of {' or '.join(PROJECTS)} to its sha256; build/build.py"
        " --update_pins VERSION writes them."
      )
    numbers(parts[1])
    # A free-threaded Python has the tag cp314 and the ABI cp314t.
    python = parts[3] if parts[3] != "none" else parts[2]
    return cls(parts[0], parts[1], python, file, sha256)

  def requirement(self) -> str:
    """The pin in the format of pip's requirements."""
    return f"{self.project}=={self.version} --hash=sha256:{self.sha256}\n"


def read(path: pathlib.Path = PATH) -> list[Pin]:
  """All pins, the newest release first."""
  try:
    rows = json.loads(path.read_text())
  except (OSError, ValueError) as error:
    raise BuildError(f"{path} cannot be read: {error}") from None
  pins = [Pin.parse(file, sha256) for file, sha256 in rows.items()]
  pins.sort(key=lambda p: numbers(p.version), reverse=True)
  if not pins:
    raise BuildError(f"{path} contains no pins")
  return pins


def this_python() -> str:
  """The tag of the running Python: `cp313`, or `cp313t` without the GIL."""
  return f"cp{sys.version_info[0]}{sys.version_info[1]}{sys.abiflags}"


def release(python: str | None = None) -> str:
  """The newest pinned release that supports a Python.

  Args:
    python: its tag; the running Python's by default.

  Raises:
    BuildError: there is none.
  """
  wanted = python or this_python()
  pins = [pin for pin in read() if pin.project == "jaxlib"]
  for pin in pins:
    if pin.python == wanted:
      return pin.version
  known = ", ".join(sorted({pin.python for pin in pins}))
  raise BuildError(
    f"no wheel of jaxlib is pinned for this Python ({wanted}), only for"
    f" {known}. Use one of those (--python), or pin a newer release:"
    " build/build.py --update_pins VERSION"
  )


def pin(project: str, version: str, python: str | None = None) -> Pin:
  """The wheel of `project` in a release; `python` as in `release`."""
  wanted = (python or this_python(), "py3")
  for row in read():
    if (row.project, row.version) == (project, version) and (
      row.python in wanted
    ):
      return row
  raise BuildError(f"{PATH} has no {project} {version} for {wanted[0]}")


@dataclasses.dataclass(frozen=True)
class Supported:
  """The versions that one build of the backend supports, from the pins.

  Attributes:
    oldest: the oldest supported version of jax and jaxlib.
    newest: the newest tested version.
    below: versions from this one on are not tested.
    pythons: the tags of the Pythons that have any of them, oldest first.
  """

  oldest: str
  newest: str
  below: str
  pythons: tuple[str, ...]


def supported() -> Supported:
  """The versions of JAX and Python that the pins span."""
  pins = [pin for pin in read() if pin.project == "jaxlib"]
  major, minor, *_ = numbers(pins[0].version)
  return Supported(
    oldest=pins[-1].version,
    newest=pins[0].version,
    below=f"{major}.{minor + 1}",
    pythons=tuple(sorted({pin.python for pin in pins})),
  )


def _ask_index(version: str, minor: int, python: str) -> list[Pin]:
  """The wheels of a release for Python 3.`minor`; [] if there are none.

  Uses pip, so that the user's own index and settings apply.
  """
  pip = [python, "-m", "pip", "--disable-pip-version-check"]
  options = ["install", "--quiet", "--dry-run", "--ignore-installed"]
  options += ["--no-deps", "--only-binary=:all:", "--ignore-requires-python"]
  options += [f"--python-version=3.{minor}", "--target=unused", "--report=-"]
  options += [f"--platform={name}" for name in _PLATFORMS]
  wheels = [f"{project}=={version}" for project in PROJECTS]
  done = subprocess.run(
    [*pip, *options, *wheels], capture_output=True, text=True, cwd=ROOT
  )
  if done.returncode:
    if "No matching distribution" in done.stderr:
      return []
    raise BuildError(f"pip could not look up JAX {version}:\n{done.stderr}")
  infos = [row["download_info"] for row in json.loads(done.stdout)["install"]]
  return [
    Pin.parse(
      info["url"].rpartition("/")[2], info["archive_info"]["hashes"]["sha256"]
    )
    for info in infos
  ]


def renewed(old: Iterable[Pin], new: Sequence[Pin]) -> dict[str, str]:
  """The data file's contents after adding the release `new` to the pins `old`.

  It replaces the release of its own minor series, if there is one.
  """
  series = {numbers(pin.version)[:2] for pin in new}
  kept = [pin for pin in old if numbers(pin.version)[:2] not in series]
  rows = sorted(
    {*kept, *new}, key=lambda p: (numbers(p.version), p.project, p.python)
  )
  return {row.file: row.sha256 for row in rows}


def update(
  version: str, path: pathlib.Path = PATH, python: str = sys.executable
) -> None:
  """Pins a release for every Python for which the package index has it.

  Args:
    version: the release.
    path: the data file.
    python: a Python whose pip is used.

  Raises:
    BuildError: the index has no such release.
  """
  numbers(version)
  found: list[Pin] = []
  for minor in _MINORS:
    found += _ask_index(version, minor, python)
  if not found:
    raise BuildError(
      f"--update_pins {version}: your package index has no wheels of jax and"
      f" jaxlib {version} for x86-64 Linux"
    )
  old = read(path) if path.exists() else []
  path.write_text(json.dumps(renewed(old, found), indent=1) + "\n")
  pythons = sorted({p.python for p in found if p.project == "jaxlib"})
  command.say(
    f"pinned JAX {version} for {', '.join(pythons)} in"
    f" {path.name}; now run the tests: python3 build/test_matrix.py --record"
  )


if __name__ == "__main__":
  # PYTHONPATH=build python -m tools.pins prints pip requirements for this
  # Python.
  newest = release()
  print("".join(pin(name, newest).requirement() for name in PROJECTS), end="")
