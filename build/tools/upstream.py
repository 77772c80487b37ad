"""Upstream's pinned wheels of JAX, from which ours are made."""

from __future__ import annotations

import hashlib
import os
import pathlib
import tempfile

from tools import command, pins
from tools.command import CACHE, ROOT, BuildError


def _in_cache(pin: pins.Pin, folder: pathlib.Path) -> pathlib.Path | None:
  """The wheel of `pin`, if it has been downloaded before."""
  path = folder / pin.file
  if path.exists():
    with path.open("rb") as file:
      if hashlib.file_digest(file, "sha256").hexdigest() == pin.sha256:
        return path
  return None


def wheel(
  pin: pins.Pin,
  python: str | os.PathLike[str],
  folder: pathlib.Path = CACHE / "upstream",
) -> pathlib.Path:
  """A pinned wheel, downloaded at most once.

  Args:
    pin: the wheel's pin.
    python: a Python of the pinned version that has pip. pip does the download,
      with the user's own settings, and checks the hash.
    folder: the download folder.

  Raises:
    BuildError: pip could not get it.
  """
  if path := _in_cache(pin, folder):
    return path
  folder.mkdir(parents=True, exist_ok=True)
  with (
    command.stage(f"downloading {pin.file}"),
    tempfile.NamedTemporaryFile("w", suffix=".txt") as file,
  ):
    file.write(pin.requirement())
    file.flush()
    pip = [python, "-m", "pip", "--disable-pip-version-check", "download"]
    options = ["--quiet", "--no-deps", "--only-binary=:all:"]
    options += ["--require-hashes", f"--requirement={file.name}"]
    command.run(
      [*pip, *options, f"--dest={folder}"],
      hint=f"pip could not get the wheel that {pins.PATH.relative_to(ROOT)}"
      " names: your index does not have it (`pip config list`), or this Python"
      " has no pip.",
    )
  if path := _in_cache(pin, folder):
    return path
  raise BuildError(
    f"pip downloaded no {pin.file} into {folder}. Remove that folder and try"
    " again."
  )
