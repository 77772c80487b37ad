"""Running other programs, and saying what went wrong."""

from __future__ import annotations

import os
import pathlib
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / ".cache"


class BuildError(Exception):
  """Something the user can mend; the message says how."""


def say(text: str) -> None:
  """One line about the progress, in order with what other programs print."""
  print(f"build.py: {text}", file=sys.stderr, flush=True)


def run(
  words: Sequence[str | os.PathLike[str]],
  *,
  hint: str,
  cwd: pathlib.Path = ROOT,
  env: Mapping[str, str] | None = None,
  quiet: bool = False,
) -> str:
  """Runs a program to its end and returns what it printed, if `quiet`.

  Raises:
    BuildError: the program is missing or failed; `hint` says what to do.
  """
  text = shlex.join(os.fspath(word) for word in words)
  try:
    done = subprocess.run(
      words,
      cwd=cwd,
      env=None if env is None else {**os.environ, **env},
      text=True,
      capture_output=quiet,
    )
  except OSError as error:
    raise BuildError(f"cannot run `{text}`: {error.strerror}. {hint}") from None
  if done.returncode:
    printed = f"\n{done.stdout}{done.stderr}\n" if quiet else ""
    raise BuildError(
      f"`{text}` ended with code {done.returncode}.{printed} {hint}"
    )
  return done.stdout or ""
