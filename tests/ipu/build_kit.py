"""Shared helpers for the tests of the build."""

from __future__ import annotations

import pathlib
import stat

ROOT = pathlib.Path(__file__).resolve().parents[2]


def program(path: pathlib.Path, text: str) -> pathlib.Path:
  """An executable shell script."""
  path.write_text(f"#!/bin/sh\n{text}\n")
  path.chmod(path.stat().st_mode | stat.S_IXUSR)
  return path
