"""Reports which machine the build is for."""

from __future__ import annotations

import os


def describe() -> str:
  """One line for the user; Bazel checks the SDK itself (third_party/poplar)."""
  base = os.environ.get("TF_POPLAR_BASE")
  if base:
    return f"building against the Poplar SDK in TF_POPLAR_BASE={base}"
  return "building for the IPU model only (TF_POPLAR_BASE is not set)"
