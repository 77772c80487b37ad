"""Runs other programs and reports errors."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / ".cache"
# Between two lines that say that a stage still goes on.
REMINDER_SECONDS = 30


class BuildError(Exception):
  """An error that the user can fix; the message says how."""


def say(text: str) -> None:
  """Prints a line of progress, in order with the output of other programs."""
  print(f"build.py: {text}", file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
  """`41 s` or `3 min 5 s`."""
  minutes, rest = divmod(round(seconds), 60)
  return f"{minutes} min {rest} s" if minutes else f"{rest} s"


@contextlib.contextmanager
def stage(what: str, *, reminders: bool = True) -> Iterator[None]:
  """Prints that a stage begins, and at its end how long it took.

  Args:
    what: it does, such as `installing g++`.
    reminders: whether to print, meanwhile, that it goes on; False for programs
      that report their progress themselves.
  """
  say(what)
  begin = time.monotonic()
  done = threading.Event()

  def remind() -> None:
    while not done.wait(REMINDER_SECONDS):
      say(f"still {what}, {duration(time.monotonic() - begin)}")

  thread = threading.Thread(target=remind, daemon=True)
  if reminders:
    thread.start()
  try:
    yield
    took = duration(time.monotonic() - begin)
  finally:
    done.set()
    if reminders:
      thread.join()
  say(f"{what} took {took}")


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
