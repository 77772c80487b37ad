"""The workloads, one file per family, each with a list `WORKLOADS`."""

from __future__ import annotations

import importlib
import pkgutil

from benchmarks.workload import Workload

# The order of the table; families that are not listed come last.
_ORDER = (
  "dispatch",
  "compilation",
  "eager",
  "transfers",
  "elementwise",
  "reductions",
  "sorting",
  "products",
  "convolutions",
  "running_totals",
  "linear_algebra",
  "movement",
  "loops",
  "constants",
  "callbacks",
  "random_numbers",
  "training",
)


def all_workloads() -> list[Workload]:
  """Every workload of every module in this folder.

  Raises:
    ValueError: two workloads have the same name.
  """
  modules = [m.name for m in pkgutil.iter_modules(__path__)]
  modules.sort(key=lambda m: _ORDER.index(m) if m in _ORDER else len(_ORDER))
  found: dict[str, Workload] = {}
  for name in modules:
    module = importlib.import_module(f"{__name__}.{name}")
    for workload in module.WORKLOADS:
      if workload.full_name in found:
        raise ValueError(f"two workloads are named {workload.full_name}")
      found[workload.full_name] = workload
  return list(found.values())


def find(full_name: str) -> Workload:
  """The workload with the given family/name."""
  for workload in all_workloads():
    if workload.full_name == full_name:
      return workload
  raise KeyError(f"there is no workload {full_name!r}; see --list")
