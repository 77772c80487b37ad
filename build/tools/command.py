"""Runs other programs and reports errors."""

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
  """An error that the user can fix; the message says how."""


def say(text: str) -> None:
  """Prints a line of progress, in order with the output of other programs."""
  print(f"build.py: {text}", file=sys.stderr, flush=True)


def run(
  words: Sequence[str | os.PathLike[str]],
  *,
  hint: str,
  cwd: pathlib.Path = ROOT,
  env: Mapping[str, str] | None = None,
  quiet: bool = False,
) -> str:
  """Runs a program to completion and returns its output, if `quiet`.

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
