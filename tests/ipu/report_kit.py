"""Reports of programs, made without running them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import jax
from jaxlib.ipu import report


def lowered(ipu: Any, f: Callable[..., Any], *args: Any, **options: Any) -> Any:
  """A function, lowered for an IPU for arguments of these shapes."""
  sharding = jax.sharding.SingleDeviceSharding(ipu)
  specs = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(
      np.shape(x), np.asarray(x).dtype, sharding=sharding
    ),
    args,
  )
  # Each phase's checks have tests of their own.
  unchecked = {"ipu_verify": False}
  compiler_options = unchecked | options.pop("compiler_options", {})
  jitted = jax.jit(
    lambda *a: f(*a), compiler_options=compiler_options, **options
  )
  return jitted.lower(*specs)


def check_sums(found: report.Report) -> None:
  """The sums that every report has to keep."""
  cost, tiles = found.cost, found.tiles
  cycles = cost["ipu cycles"]
  # Figures pass through f64 sums in another order.
  assert np.isclose(found.cycles.sum(), cycles, rtol=1e-12)
  assert np.isclose(sum(line.cycles for line in found.lines), cycles, rtol=1e-6)
  for part in ("compute", "exchange", "sync", "host"):
    figure = (found.steps[part] * found.steps["times"]).sum()
    assert np.isclose(figure, cost[f"ipu {part} cycles"], rtol=1e-12)
  for kind in ("derived", "guessed"):
    figure = (found.steps[kind] * found.steps["times"]).sum()
    assert np.isclose(figure, cost[f"ipu cycles {kind}"], rtol=1e-9)
  held = tiles["memory"].sum(0)
  assert held.max() == cost["ipu peak tile bytes"]
  peak = found.data["memory"]["peak_tile"]
  assert held[peak] == held.max()
  # The same moment by what is live, and by the curve over time.
  code = held[peak] - sum(size for size, _ in found.live(peak))
  names = found.data["categories"]
  kinds = found.data["liveness"]["tile"]
  assert code == tiles["memory"][: len(names) - len(kinds), peak].sum()
  assert kinds.sum(0).max(initial=0) + code == held.max()
  # No tile computes longer than the slowest of each step together.
  most = cost["ipu compute cycles"]
  assert tiles["busy"].max(initial=0) <= most * (1 + 1e-6)
  _check_rows(found)


def _check_rows(found: report.Report) -> None:
  """No tile computes longer than its step, and together they receive what an
  exchange moves."""
  steps, rows = found.steps, found.data["rows"]
  for step, compute in enumerate(steps["compute"]):
    busy, received = (steps[f"{k}_row"][step] for k in ("busy", "received"))
    if busy >= 0:
      assert rows["busy"][busy].max() <= compute * (1 + 1e-6)
    if received >= 0:
      moved = rows["received"][received].sum(dtype=np.float64)
      assert moved == steps["bytes"][step]
