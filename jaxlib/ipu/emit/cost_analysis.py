"""The cost of a whole program: the figures of `compiled.cost_analysis()`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jaxlib.ipu.plan import cost
from jaxlib.ipu.program import schema
from jaxlib.ipu.sram.memory import MemoryPlan
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.step import Step
from jaxlib.ipu.tile.tensor import TensorInfo
from jaxlib.ipu.tile.totals import Totals, loops_counted_once

# The meaning of each key of `compiled.cost_analysis()`. Keys without "ipu" are
# XLA's own.
KEYS: dict[str, str] = {
  "flops": "arithmetic operations of one run, over all tiles",
  "bytes accessed": "bytes that vertices read and write, over all tiles",
  "optimal_seconds": "same as `ipu seconds`",
  "ipu cycles": (
    "tile clock cycles of one run whose arguments are on the device: the sum "
    "of the compute, exchange, link, sync and host cycles"
  ),
  "ipu seconds": "`ipu cycles` at the modelled machine's clock",
  "ipu compute cycles": "vertices, on the slowest tile of each superstep",
  "ipu exchange cycles": "data between tiles, on the busiest tile",
  "ipu link cycles": (
    "collectives: data over the busiest link between IPUs, and its latency"
  ),
  "ipu sync cycles": "synchronisations of all tiles, or of several IPUs",
  "ipu host cycles": (
    "round trips to host functions (callbacks, FFI): both streams and the "
    "host's response, excluding the function's own time; streams of feeds, and "
    "of values in host memory"
  ),
  "ipu cycles from sources": (
    "part of `ipu cycles` that was measured, or read in public sources (mostly "
    "PopLibs' cycle estimators)"
  ),
  "ipu cycles derived": (
    "part of `ipu cycles` that follows from such figures: vertex launches, "
    "synchronisations, loops over several chained operations"
  ),
  "ipu cycles guessed": "part of `ipu cycles` without any public source",
  "ipu loops counted once": (
    "loops whose trip count only data decide: one iteration of each is part of "
    "these figures; `device.ipu_last_run()` has those of a run. Refinements "
    "that few matrices need are not counted. A `cond` or `switch` counts as "
    "its costliest branch"
  ),
  "ipu exchange bytes": "bytes received by tiles that did not hold them",
  "ipu link bytes": (
    "bytes that collectives send over links between IPUs, each link counted"
  ),
  "ipu host bytes": (
    "bytes to and from host functions and feeds, and of values in host memory "
    "(`pinned_host`), arguments and results or not"
  ),
  "ipu host calls": "calls of host functions",
  "ipu supersteps": (
    "synchronisations between tiles, IPUs or with the host, each with its "
    "exchange and the vertices that follow"
  ),
  "ipu peak tile bytes": (
    "SRAM used on the fullest tile at its peak, all code included"
  ),
  "ipu always live tile bytes": (
    "part of the peak that is always live: code, constants, state, arguments "
    "that are not donated"
  ),
  "ipu not always live tile bytes": "the rest of the peak",
  "ipu peak tile bytes with gaps": (
    "SRAM required on the fullest tile once everything has an address, gaps "
    "between tensors included; has to fit a tile's SRAM"
  ),
  "ipu peak tile code bytes": (
    "part of the peak taken by vertex code, control code and stacks"
  ),
  "ipu executable tile bytes": (
    "vertex, exchange, control and host stream code on the tile that has most "
    "of it; has to fit the region that can hold code"
  ),
  "ipu executable tile limit": "bytes of that region",
  "ipu code bytes": (
    "everything but data, over all tiles: the sum of the next five"
  ),
  "ipu vertex code bytes": "codelets, once on each tile that runs them",
  "ipu vertex state bytes": "vertex state and vertex lists",
  "ipu exchange code bytes": (
    "exchange code, which grows with the messages that tiles send and "
    "receive; packet headers of streams to and from host functions"
  ),
  "ipu control code bytes": "code of the program's steps",
  "ipu stack bytes": "worker and supervisor stacks",
  "ipu argument layout cycles": (
    "not part of `ipu cycles`: moving the arguments from their default layout "
    "to the one that this program has chosen; an array stays there, so later "
    "runs do not pay for it again"
  ),
  "ipu argument stream cycles": (
    "not part of `ipu cycles`: transferring all arguments from the host, as a "
    "call with NumPy arrays or `jax.device_put` does"
  ),
  "ipu result stream cycles": (
    "not part of `ipu cycles`: transferring all results to the host"
  ),
}


def cost_analysis(
  target: Target,
  steps: Sequence[Step],
  sums: Totals,
  memory: MemoryPlan,
  layouts: Iterable[schema.ArrayLayout],
  arguments: Iterable[TensorInfo],
  results: Iterable[TensorInfo],
) -> dict[str, float]:
  """The entries of `compiled.cost_analysis()`, as `KEYS` describes them."""
  code, peak = memory.code, memory.peak_tile
  return {
    "flops": sums.flops,
    "bytes accessed": sums.bytes_accessed,
    "optimal_seconds": sums.cycles / target.clock_hz,
    "ipu cycles": sums.cycles,
    "ipu seconds": sums.cycles / target.clock_hz,
    "ipu compute cycles": sums.compute_cycles,
    "ipu exchange cycles": sums.exchange_cycles,
    "ipu link cycles": sums.link_cycles,
    "ipu sync cycles": sums.sync_cycles,
    "ipu host cycles": sums.host_cycles,
    "ipu cycles from sources": max(
      sums.cycles - sums.derived_cycles - sums.guessed_cycles, 0.0
    ),
    "ipu cycles derived": sums.derived_cycles,
    "ipu cycles guessed": sums.guessed_cycles,
    "ipu loops counted once": float(loops_counted_once(steps)),
    "ipu exchange bytes": sums.exchange_bytes,
    "ipu link bytes": sums.link_bytes,
    "ipu host bytes": sums.host_bytes,
    "ipu host calls": sums.host_calls,
    "ipu supersteps": sums.supersteps,
    "ipu peak tile bytes": float(memory.peak_tile_bytes),
    "ipu always live tile bytes": float(memory.always_bytes),
    "ipu not always live tile bytes": float(
      memory.peak_tile_bytes - memory.always_bytes
    ),
    "ipu peak tile bytes with gaps": float(memory.bytes_with_gaps),
    "ipu peak tile code bytes": float(
      code.vertices[peak] + code.control[peak] + code.stacks[peak]
    ),
    "ipu executable tile bytes": float(code.executable.max(initial=0)),
    "ipu executable tile limit": float(target.executable_bytes),
    "ipu code bytes": float(memory.code_bytes),
    "ipu vertex code bytes": float(code.vertices.sum()),
    "ipu vertex state bytes": float(code.state.sum()),
    "ipu exchange code bytes": float(code.exchange.sum() + code.host.sum()),
    "ipu control code bytes": float(code.control.sum()),
    "ipu stack bytes": float(code.stacks.sum()),
    "ipu argument layout cycles": sum(
      cost.cycles(layout.from_default)
      for layout in layouts
      if not layout.is_result
    ),
    "ipu argument stream cycles": _streamed(target, arguments),
    "ipu result stream cycles": _streamed(target, results, to_host=True),
  }


def _streamed(
  target: Target, tensors: Iterable[TensorInfo], to_host: bool = False
) -> float:
  """Cycles of a stream of all tensors that are not empty."""
  sizes = [t.bytes for t in tensors if t.bytes]
  return cost.cycles(cost.host_stream(target, sizes, to_host))
