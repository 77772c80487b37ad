"""Numbers as a person reads them."""

from __future__ import annotations


def size(x: float) -> str:
  """Bytes in the largest unit of which there is at least one."""
  for unit in ("bytes", "KiB", "MiB", "GiB"):
    if abs(x) < 1024 or unit == "GiB":
      break
    x /= 1024
  return f"{x:,.0f} {unit}" if unit == "bytes" else f"{x:,.1f} {unit}"


def percent(part: float) -> str:
  """A part of 1."""
  return f"{100 * part:.1f} %"


def seconds(x: float) -> str:
  """A time in the largest unit of which there is at least one."""
  for unit in ("s", "ms", "µs"):
    if x >= 1:
      break
    if unit != "µs":
      x *= 1e3
  return f"{x:.3g} {unit}"


def change(before: float, after: float) -> str:
  """By how much a figure has changed."""
  if before == after:
    return "same"
  if not before:
    return "new"
  return f"{100 * (after - before) / before:+.1f} %"


def file_name(path: str) -> str:
  """The last part of a path of any system."""
  return path.replace("\\", "/").rpartition("/")[2]
