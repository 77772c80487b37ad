"""What the tests of the build share."""

from __future__ import annotations

import pathlib
import stat

ROOT = pathlib.Path(__file__).resolve().parents[2]


def program(path: pathlib.Path, text: str) -> pathlib.Path:
  """A shell script that can be run."""
  path.write_text(f"#!/bin/sh\n{text}\n")
  path.chmod(path.stat().st_mode | stat.S_IXUSR)
  return path
