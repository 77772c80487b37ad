"""Formats measurements as an aligned table and as JSON, with geometric
means."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from benchmarks.measure import Measurement

# Families that do not count in the mean run time; they have their own limits.
NOT_RUN_TIME = ("dispatch", "compile")
GEOMEAN_LIMIT = 1.2


def human(seconds: float) -> str:
  """Formats seconds with three digits and a unit: 3.42 us, 12 ms."""
  for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
    if seconds >= scale or unit == "ns":
      return f"{seconds / scale:.3g} {unit}"
  raise AssertionError("unreachable")


def align(rows: Sequence[Sequence[str]], left: int = 2) -> str:
  """Formats rows as lines; the first `left` columns are left-aligned."""
  widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
  lines = []
  for row in rows:
    cells = [
      cell.ljust(width) if i < left else cell.rjust(width)
      for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    lines.append("  ".join(cells).rstrip())
  return "\n".join(lines)


def table(measurements: Sequence[Measurement], names: tuple[str, str]) -> str:
  """One line per workload; `!` marks a ratio above the workload's limit."""
  rows = [("family", "workload", *names, "ratio", "limit", "")]
  for m in measurements:
    rows.append(
      (
        m.workload.family,
        m.workload.name,
        human(m.median),
        human(m.baseline_median),
        f"{m.ratio:.2f}",
        f"{m.workload.limit:g}",
        "!" if m.ratio > m.workload.limit else "",
      )
    )
  return align(rows)


def geometric_means(measurements: Sequence[Measurement]) -> dict[str, float]:
  """The mean ratio of each family, and of all run times as `run time`."""
  families: dict[str, list[float]] = {}
  for m in measurements:
    families.setdefault(m.workload.family, []).append(m.ratio)
    if m.workload.family not in NOT_RUN_TIME:
      families.setdefault("run time", []).append(m.ratio)
  total = families.pop("run time", None)
  means = {f: statistics.geometric_mean(r) for f, r in families.items()}
  return means | (
    {"run time": statistics.geometric_mean(total)} if total else {}
  )


def means_table(means: dict[str, float]) -> str:
  rows = [("geometric mean", "ratio")]
  rows += [(name, f"{mean:.2f}") for name, mean in means.items()]
  return align(rows, left=1)


def over_limit(measurements: Sequence[Measurement]) -> list[str]:
  """Describes what exceeds its limit."""
  faults = [
    f"{m.workload.full_name}: {m.ratio:.2f}, limit {m.workload.limit:g}"
    for m in measurements
    if m.ratio > m.workload.limit
  ]
  mean = geometric_means(measurements).get("run time", 0)
  if mean > GEOMEAN_LIMIT:
    faults.append(f"mean of run time: {mean:.2f}, limit {GEOMEAN_LIMIT:g}")
  return faults


def as_json(
  measurements: Sequence[Measurement],
  failures: dict[str, str],
  devices: tuple[jax.Device, jax.Device],
) -> dict[str, Any]:
  """All measurements, with the machine and devices."""
  return {
    "machine": machine(),
    "jax": jax.__version__,
    "devices": [describe(d) for d in devices],
    "workloads": [
      {
        "family": m.workload.family,
        "name": m.workload.name,
        "seconds": m.median,
        "baseline_seconds": m.baseline_median,
        "ratio": m.ratio,
        "limit": m.workload.limit,
        "samples": m.seconds,
        "baseline_samples": m.baseline,
      }
      for m in measurements
    ],
    "geometric_means": geometric_means(measurements),
    "failures": failures,
  }


def machine() -> dict[str, Any]:
  """The processor of this machine."""
  model = platform.processor()
  info = Path("/proc/cpuinfo")
  if info.exists():
    lines = [x for x in info.read_text().splitlines() if "model name" in x]
    model = lines[0].split(":", 1)[1].strip() if lines else model
  return {"processor": model, "cores": len(os.sched_getaffinity(0))}


def describe(device: jax.Device) -> dict[str, Any]:
  """A device and, if it has any, its number of tiles."""
  return {
    "platform": device.platform,
    "kind": device.device_kind,
    "num_tiles": getattr(device, "num_tiles", None),
  }
