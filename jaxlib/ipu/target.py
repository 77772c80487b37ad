"""The machines that programs can be compiled for.

Figures are tagged: [S] read in a public source, [D] derived from such figures,
[G] a guess.
"""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from pathlib import Path

# Allowed values of a target's properties. Plans hold arrays over all tiles; a
# convolution unit multiplies four pairs of f16 in a cycle. A limit of
# everything else: sums and products of a few such numbers are exact in 64 bits.
_MOST = 1 << 48
_LIMITS = {
  "num_tiles": (1, 1 << 20),
  "fp16_macs": (4, _MOST),
  "tiles_per_bus": (1, 2),
  "route_cycles": (0, _MOST),
  "sync_cycles": (0, _MOST),
  "launch_cycles": (0, _MOST),
  "branch_cycles": (0, _MOST),
  "copy_call_cycles": (0, _MOST),
  "short_copy_cycles": (0, _MOST),
  "host_sync_cycles": (0, _MOST),
  "host_copy_cycles": (0, _MOST),
  "host_command_cycles": (0, _MOST),
  "host_link_header_bytes": (0, _MOST),
  "tile_packet_header_bytes": (0, _MOST),
  "host_stream_seconds": (0, 1),
  "host_call_seconds": (0, 1),
  "available_memory_proportion": (0, 1),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
  """One IPU, as far as planning and costs depend on it.

  Attributes:
    version: its name, `ipu2` and so on.
    num_tiles: tiles per IPU.
    bytes_per_tile: SRAM of a tile, bytes.
    executable_bytes: of these, the first ones, which alone can hold code; all
      others are interleaved: two loads of 64 bits from there are one of 128. A
      tile with no more bytes than these has no regions.
    clock_hz: tile clock, cycles per second.
    num_workers: worker threads per tile.
    exchange_bytes_per_cycle: bytes that a tile can receive, and at the same
      time send, per cycle.
    tiles_per_bus: tiles (2i and 2i + 1) that receive at twice the rate, if both
      receive the same.
    route_cycles: latency of a word in an exchange.
    data_path_bytes: bytes of a vector load or store (64 bits).
    fp32_macs, fp16_macs: multiply-accumulates per cycle of the matrix unit,
      f32 with f32 partials and f16 with f32 partials.
    coefficient_load_bytes: bytes per cycle when the matrix unit loads its
      weights.
    sync_cycles: an on-chip synchronisation.
    launch_cycles: cycles of a compute set before its vertices run.
    branch_cycles: cycles to test a word and branch.
    copy_call_cycles: fixed cycles of a copy within a tile by all workers.
    short_copy_cycles: fixed cycles of a copy within a tile by one worker.
    worker_stack_bytes, supervisor_stack_bytes: bytes of a worker's stack, of
      which a tile has one for each worker, and of its supervisor's.
    host_bytes_per_second: host link, each way.
    host_sync_cycles: a synchronisation with the host.
    host_copy_cycles: fixed cost of an array in a host stream.
    host_window_bytes: bytes that a stream loads to a tile before it has to ask
      the host again; they arrive in a window of the tile's memory.
    host_command_cycles: the routing of such a request.
    packet_from_host_bytes, packet_to_host_bytes: data of a packet.
    tile_packet_header_bytes: bytes on the tile for the header of a packet.
    host_link_header_bytes: bytes that the host link carries for each packet
      besides its data.
    host_stream_seconds: to begin and end a stream of any number of arrays,
      including a synchronisation.
    host_call_seconds: from the host's receiving a callback's operands to its
      sending the results, without the function's own time.
    available_memory_proportion: the share of a tile's SRAM that a product or
      a convolution may use.
  """

  version: str
  num_tiles: int
  bytes_per_tile: int
  clock_hz: float
  # Region 0 of ipu2 and ipu21 (ipu-stack, memory.rs) [S].
  executable_bytes: int = 208 * 1024
  num_workers: int = 6
  exchange_bytes_per_cycle: int = 4
  data_path_bytes: int = 8
  fp32_macs: int = 16
  fp16_macs: int = 32
  coefficient_load_bytes: int = 16
  # getTilesPerSharedExchangeBus, popops/ExchangeEstimator.cpp [S].
  tiles_per_bus: int = 2
  # By the fabric's geometry: the distance of a receiver's choice of its source
  # from the sender's word, the mean over all pairs of tiles (ipu-stack,
  # topology.rs) [D].
  route_cycles: int = 23
  # 90 is the constant of PopLibs' CTC planner for an exchange's sync [S],
  # tessellate's tests allow 150 for one on a chip: the middle [D].
  sync_cycles: int = 120
  # The measured excess of a MultiVertex step over its formula [D]: +82.
  launch_cycles: int = 82
  # ForLoopCounter, the vertex that ends a loop (popopsCycleEstimators.cpp) [S].
  # A condition is tested in the same way: a word is read, then broadcast to all
  # tiles by a synchronisation [D].
  branch_cycles: int = 43
  # In addition to its 8 bytes a cycle (`Target::getMemcpyBytesPerCycle`;
  # ipu-stack, cost.rs), and of Poplar's ShortMemcpy, 72 to 76 cycles in
  # profiles of tutorials [S].
  copy_call_cycles: int = 288
  short_copy_cycles: int = 72
  # The 3,168 bytes of a tile in the memory report that Graphcore's guide to
  # TensorFlow shows are six of the one and one of the other [S]; PopART and
  # PopLibs' tools ask for 512 too.
  worker_stack_bytes: int = 512
  supervisor_stack_bytes: int = 96
  # PCIe Gen4 x16: 64 GB/s both ways together [S], 128 of 130 bits are data [D].
  host_bytes_per_second: float = 31.5e9
  # Target::getGlobalSyncCycles, as quoted by ipu-stack (cost.rs) [S].
  host_sync_cycles: int = 600
  # A stream copy of one int: mid phase 1,491 to 1,771 cycles [S].
  host_copy_cycles: int = 1600
  # Of the window, packets and their headers on the tile: ipu-stack
  # (exchange.rs, memory.rs) [S].
  host_window_bytes: int = 16 * 1024
  host_command_cycles: int = 73
  packet_from_host_bytes: int = 1024
  packet_to_host_bytes: int = 256
  tile_packet_header_bytes: int = 8
  # PCIe: 4 bytes framing, 16 header, 4 checksum [D].
  host_link_header_bytes: int = 24
  # The same tutorial's begin phase of 77,330 to 88,338 cycles and its end of
  # 79,556 to 84,180, their middles at 1.33 GHz [S]: tiles and host synchronise.
  host_stream_seconds: float = 124e-6
  # A thread that polls a stream's buffer wakes and calls a function [G].
  host_call_seconds: float = 10e-6
  # The default of poplin's option of this name [S].
  available_memory_proportion: float = 0.6

  def __hash__(self) -> int:
    return self._hash

  @functools.cached_property
  def _hash(self) -> int:
    return hash(dataclasses.astuple(self))

  @property
  def has_regions(self) -> bool:
    """Whether some of a tile's SRAM is interleaved and cannot hold code."""
    return self.bytes_per_tile > self.executable_bytes

  @property
  def bytes_for_products(self) -> float:
    """Bytes of a tile that the blocks of a product may use."""
    return self.bytes_per_tile * self.available_memory_proportion

  def __post_init__(self) -> None:
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if isinstance(value, str):
        if not value or not value.isprintable():
          raise ValueError(f"{field.name} is {value!r}, it must be a name")
        continue
      least, most = _LIMITS.get(field.name, (1, _MOST))
      if not least <= value <= most:
        raise ValueError(
          f"target {self.version}: {field.name} is {value}, it must be from "
          f"{least:,} to {most:,}"
        )


# Sources: Mk1 304 MiB over 1216 tiles, 1.6 GHz; Mk2 624 KiB per tile, cycle
# counts and times of the public profiling tutorials give 1.33 GHz; Bow
# reports version ipu2 at 1.85 GHz; ipu21 is the FP8-capable C600, whose
# published peak gives 1.49 GHz [D].
_KIB = 1024
TARGETS: dict[str, Target] = {
  "ipu1": Target(
    version="ipu1",
    num_tiles=1216,
    bytes_per_tile=256 * _KIB,
    clock_hz=1.6e9,
    # TMEM_REGION0_SIZE in the public architecture constants of ipu1 [S].
    executable_bytes=128 * _KIB,
    fp32_macs=8,
    fp16_macs=32,
    coefficient_load_bytes=8,
    tiles_per_bus=1,
  ),
  "ipu2": Target(
    version="ipu2", num_tiles=1472, bytes_per_tile=624 * _KIB, clock_hz=1.33e9
  ),
  "bow": Target(
    version="bow", num_tiles=1472, bytes_per_tile=624 * _KIB, clock_hz=1.85e9
  ),
  "ipu21": Target(
    version="ipu21", num_tiles=1472, bytes_per_tile=624 * _KIB, clock_hz=1.49e9
  ),
}
DEFAULT = "ipu2"
# Other names of the same chips: Graphcore calls the Colossus Mk1 GC2 (1,216
# tiles) and the Mk2 GC200 (1,472) [S]; a C600 card has an ipu21 (the topology
# `c600` of ipu-stack's `ipu21`) [S]. Devices call themselves by the version.
ALIASES = {
  "mk1": "ipu1",
  "gc2": "ipu1",
  "mk2": "ipu2",
  "gc200": "ipu2",
  "c600": "ipu21",
}


def names() -> str:
  """The known machines with their other names, for errors and documents."""
  texts = []
  for version in TARGETS:
    others = [alias for alias, of in ALIASES.items() if of == version]
    texts.append(f"{version} ({', '.join(others)})" if others else version)
  return ", ".join(texts)


def version_of(name: str) -> str:
  """The version that a machine's name stands for, in any case; else `name`."""
  lower = name.strip().lower()
  lower = ALIASES.get(lower, lower)
  return lower if lower in TARGETS else name


@functools.lru_cache
def resolve(version: str = DEFAULT, num_tiles: int | None = None) -> Target:
  """The machine called `version`, or described by a TOML file of that name.

  Args:
    version: a key of `TARGETS` or `ALIASES`, or a path that ends in `.toml`.
      The file's keys are the attributes of `Target`; `base = "ipu2"` starts
      from a known one.
    num_tiles: use only so many tiles.

  Raises:
    ValueError: names the value and what is allowed.
  """
  if version.endswith(".toml"):
    target = _read(Path(version))
  elif (known := version_of(version)) in TARGETS:
    target = TARGETS[known]
  else:
    raise ValueError(
      f"unknown IPU version {version!r}: use one of {names()}, or a .toml file "
      "that describes a machine"
    )
  if num_tiles is None:
    return target
  if not 1 <= num_tiles <= target.num_tiles:
    raise ValueError(
      f"{num_tiles} tiles requested, {target.version} has 1 to "
      f"{target.num_tiles}"
    )
  return dataclasses.replace(target, num_tiles=num_tiles)


def _read(path: Path) -> Target:
  try:
    values = tomllib.loads(path.read_text())
  except OSError as e:
    raise ValueError(f"cannot read the machine in {path}: {e}") from e
  except tomllib.TOMLDecodeError as e:
    raise ValueError(f"{path} is not TOML: {e}") from e
  except RecursionError as e:
    raise ValueError(f"{path} is nested too deeply") from e
  except ValueError as e:  # not UTF-8, or a NUL in the path
    raise ValueError(f"cannot read the machine in {str(path)!r}: {e}") from e
  base = values.pop("base", DEFAULT)
  if not isinstance(base, str) or version_of(base) not in TARGETS:
    raise ValueError(f"{path}: base = {base!r} is not one of {names()}")
  base = version_of(base)
  known = {f.name: f for f in dataclasses.fields(Target)}
  for name, value in values.items():
    if name not in known:
      raise ValueError(
        f"{path}: unknown property {name!r}; known: {', '.join(known)}"
      )
    expected = type(getattr(TARGETS[base], name))
    numeric = expected is float and isinstance(value, int)
    if isinstance(value, bool) or not (isinstance(value, expected) or numeric):
      raise ValueError(
        f"{path}: {name} = {value!r} must be of type {expected.__name__}"
      )
  values.setdefault("version", path.stem)
  return dataclasses.replace(TARGETS[base], **values)
