"""The model against published measurements: `ipu/docs/model_fidelity.md`.

  python -m benchmarks --fidelity            writes the page

Each measurement's program goes through `jax.jit(...).lower().compile()` on the
machine that it was measured on, in a process for each machine.
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
  """What was measured, and by which program (see measurements.toml)."""

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
    """Without what it takes to measure."""
    return self.value - self.counter


def _cycles(*names: str) -> Any:
  return lambda costs, memory: sum(costs[f"ipu {n} cycles"] for n in names)


# Graphcore's own model of IPUs compiles no code unless it is told to
# (`compile_ipu_code`): its reports have exchanges and vertices' state then, and
# no code of vertices or of the program, nor the stacks that follow from it.
_COMPILED = ("vertex code", "control code", "stack")


def _total_bytes(costs: dict[str, float], memory: Any) -> float:
  """Over all tiles, without compiled code: the tests in Graphcore's TensorFlow
  add up `tile.memory.total.excludingGaps` (assert_total_tile_memory)."""
  code = sum(costs[f"ipu {kind} bytes"] for kind in _COMPILED)
  return memory.peak_memory_in_bytes - code


def _tile_bytes(costs: dict[str, float], memory: Any) -> float:
  """Of the fullest tile, without compiled code."""
  return costs["ipu peak tile bytes"] - costs["ipu peak tile code bytes"]


# How a measured quantity is found in what compiled programs say of themselves:
# functions of `cost_analysis()` and `memory_analysis()`, and the machine's
# number of tiles.
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
  """All of them, in the page's order."""
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
  """What was measured and is no program of JAX's: `what` and `why`."""
  return _data()["inexpressible"]


@functools.cache
def _data() -> dict[str, Any]:
  return tomllib.loads((HERE / "measurements.toml").read_text())


def model(machine: str) -> list[float]:
  """What the model says of each measurement on `machine`, in this process,
  whose IPU is that machine."""
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
    # Within another jit, what a jitted function is donated would not be.
    jitted = f if hasattr(f, "lower") else jax.jit(f)
    compiled = jitted.lower(*shapes).compile(options)
    return compiled.cost_analysis(), compiled.memory_analysis()

  return [
    float(QUANTITIES[m.quantity](*analyses(m.program, m.args, m.tiles)))
    for m in measurements()
    if m.machine == machine
  ]


def modelled() -> list[float]:
  """What the model says of each measurement; a process for each machine."""
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
  """Prints what `model` says."""
  print(json.dumps(model(machine)))
