"""Compares the model with published measurements.

  python -m benchmarks --fidelity        writes `ipu/docs/model_fidelity.md`

Each measured program is compiled by `jax.jit(...).lower().compile()` for the
machine that it was measured on, in one process per machine.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import json
import tomllib
from pathlib import Path
from typing import Any

from benchmarks import memory

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "ipu" / "docs" / "model_fidelity.md"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measurement:
  """A measured value and the program to compare (see measurements.toml)."""

  name: str
  kind: str
  program: str
  args: tuple[int, ...]
  machine: str
  tiles: int
  quantity: str
  value: float
  source: str
  bound: bool = False
  counter: float = 0.0
  about: str = ""

  @property
  def measured(self) -> float:
    """The value without the overhead of measuring."""
    return self.value - self.counter


def _cycles(*names: str) -> Any:
  return lambda costs, memory: sum(costs[f"ipu {n} cycles"] for n in names)


# Graphcore's own model of IPUs compiles no code unless told to
# (`compile_ipu_code`). Its reports then include exchanges and the state of
# vertices, but neither the code of vertices and of the program nor the stacks,
# whose size follows from it.
_COMPILED = ("vertex code", "control code", "stack")


def _total_bytes(costs: dict[str, float], memory: Any) -> float:
  """Bytes over all tiles, without compiled code.

  The tests in Graphcore's TensorFlow add up `tile.memory.total.excludingGaps`
  (assert_total_tile_memory).
  """
  code = sum(costs[f"ipu {kind} bytes"] for kind in _COMPILED)
  return memory.peak_memory_in_bytes - code


def _tile_bytes(costs: dict[str, float], memory: Any) -> float:
  """Bytes of the fullest tile, without compiled code."""
  return costs["ipu peak tile bytes"] - costs["ipu peak tile code bytes"]


# How to compute each measured quantity from `cost_analysis()` and
# `memory_analysis()`.
QUANTITIES = {
  "compute": _cycles("compute"),
  "exchange": _cycles("exchange"),
  "sync": _cycles("sync"),
  "total": lambda costs, memory: costs["ipu cycles"],
  "argument stream": _cycles("argument stream"),
  "streams": _cycles("argument stream", "result stream"),
  "total with streams": lambda costs, memory: (
    costs["ipu cycles"]
    + _cycles("argument stream", "result stream")(costs, memory)
  ),
  "tile bytes": lambda costs, memory: costs["ipu peak tile bytes"],
  "tile bytes without compiled code": _tile_bytes,
  "total bytes without compiled code": _total_bytes,
}


def measurements() -> list[Measurement]:
  """All measurements, in the order of the page."""
  found = [
    Measurement(**{**m, "args": tuple(m["args"])})
    for m in _data()["measurement"]
  ]
  lines = (HERE / "amp_1x1_bow.csv").read_text().splitlines()
  for point in csv.DictReader(x for x in lines if x[:1] != "#"):
    rows = int(point["rows"])
    found.append(
      Measurement(
        name=f"f16 product {rows} x 16 x 16 on each tile, f16 sums",
        kind="products f16",
        program="amp_1x1",
        args=(1472, rows),
        machine="bow",
        tiles=1472,
        quantity="compute",
        value=float(point["cycles"]),
        source="tessellate, notebooks/IPU Peak Flops.ipynb",
      )
    )
  return found


def inexpressible() -> list[dict[str, str]]:
  """Measurements that no JAX program can express: `what` and `why`."""
  return _data()["inexpressible"]


@functools.cache
def _data() -> dict[str, Any]:
  return tomllib.loads((HERE / "measurements.toml").read_text())


def model(machine: str) -> list[float]:
  """The modelled value of each measurement on `machine`, in this process,
  whose IPU has to be that machine."""
  import jax
  from benchmarks.fidelity import programs
  from jax.sharding import SingleDeviceSharding

  device = jax.devices("ipu")[0]
  sharding = SingleDeviceSharding(device)

  @functools.cache
  def analyses(program: str, args: tuple[int, ...], tiles: int) -> Any:
    f, shapes = getattr(programs, program)(*args)
    shapes = jax.tree.map(
      lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sharding),
      shapes,
    )
    options = {"ipu_num_tiles": tiles, "ipu_allow_out_of_memory": True}
    # An outer jit would drop the donations of an inner one.
    jitted = f if hasattr(f, "lower") else jax.jit(f)
    compiled = jitted.lower(*shapes).compile(options)
    return compiled.cost_analysis(), compiled.memory_analysis()

  return [
    float(QUANTITIES[m.quantity](*analyses(m.program, m.args, m.tiles)))
    for m in measurements()
    if m.machine == machine
  ]


def modelled() -> list[float]:
  """The modelled value of each measurement, using one process per machine."""
  every = measurements()
  answers = {
    machine: iter(
      memory.answer(
        ["--fidelity-child", machine],
        "ipu",
        JAX_IPU_USE_MODEL="true",
        JAX_IPU_MODEL_VERSION=machine,
      )
    )
    for machine in dict.fromkeys(m.machine for m in every)
  }
  return [next(answers[m.machine]) for m in every]


def child(machine: str) -> None:
  """Prints the result of `model`."""
  print(json.dumps(model(machine)))
