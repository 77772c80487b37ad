"""The pinned wheels of JAX that ours are made of."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
import re
import sys
import tempfile

from tools import command
from tools.command import CACHE, ROOT, BuildError

PINS = ROOT / "third_party" / "jax" / "requirements.txt"


@dataclasses.dataclass(frozen=True)
class Pin:
  """A requirement that names one version and the wheels that it may be."""

  name: str
  version: str
  sha256: frozenset[str]

  def requirement(self) -> str:
    """The pin as pip reads it."""
    hashes = [f" --hash=sha256:{digest}" for digest in sorted(self.sha256)]
    return f"{self.name}=={self.version}{''.join(hashes)}\n"


def read_pins(path: pathlib.Path = PINS) -> dict[str, Pin]:
  """The pins in a requirements file, by name.

  Raises:
    BuildError: a line is no `name==version` with sha256 hashes.
  """
  text = re.sub(r"#.*", "", path.read_text()).replace("\\\n", " ")
  pins = {}
  for line in filter(str.strip, text.splitlines()):
    requirement, *options = line.split()
    name, _, version = requirement.partition("==")
    hashes = [option.removeprefix("--hash=sha256:") for option in options]
    if not version or not hashes or any(len(h) != 64 for h in hashes):
      raise BuildError(
        f"{path}: {line.strip()!r} is no pin. Write name==version and one"
        " --hash=sha256:… for each wheel."
      )
    pins[name] = Pin(name, version, frozenset(hashes))
  return pins


def _in_cache(pin: Pin, folder: pathlib.Path) -> pathlib.Path | None:
  """A wheel of `pin` for this Python, if it was downloaded before."""
  python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
  for tag in (f"{python}-{python}-*", "py3-none-any"):
    for path in folder.glob(f"{pin.name}-{pin.version}-{tag}.whl"):
      with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() in pin.sha256:
          return path
  return None


def wheel(
  name: str,
  python: str | os.PathLike[str],
  folder: pathlib.Path = CACHE / "upstream",
) -> pathlib.Path:
  """Upstream's pinned wheel `name` for this Python, downloaded at most once.

  Args:
    name: `jax` or `jaxlib`.
    python: a Python of this version that has pip. pip does the download, with
      the user's own settings, and compares the hash.
    folder: where downloads are kept.
  """
  pin = read_pins()[name]
  if path := _in_cache(pin, folder):
    return path
  command.say(f"downloading {name} {pin.version}")
  folder.mkdir(parents=True, exist_ok=True)
  with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
    file.write(pin.requirement())
    file.flush()
    pip = [python, "-m", "pip", "--disable-pip-version-check", "download"]
    options = ["--quiet", "--no-deps", "--only-binary=:all:"]
    options += ["--require-hashes", f"--requirement={file.name}"]
    command.run(
      [*pip, *options, f"--dest={folder}"],
      hint=f"pip could not get the wheel that {PINS.relative_to(ROOT)} names"
      f" for Python {sys.version_info[0]}.{sys.version_info[1]}: either there"
      " is none, or your index has none (`pip config list`), or this Python"
      " has no pip.",
    )
  if path := _in_cache(pin, folder):
    return path
  raise BuildError(
    f"pip downloaded no wheel of {name} {pin.version} for this Python into"
    f" {folder}. Remove that folder and try again."
  )
