"""Programs of several devices as text, and how interpreter and engine run
them."""

from __future__ import annotations

from collections.abc import Sequence

import engine_kit
import numpy as np

from jax.interpreters import mlir
from jaxlib.ipu import pipeline
from jaxlib.ipu import target as machines
from jaxlib.ipu.check import interp
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"


def groups(devices: Sequence[Sequence[int]]) -> str:
  """The attribute of groups, padded to one size."""
  size = max(map(len, devices))
  rows = [[*group, *[-1] * (size - len(group))] for group in devices]
  return (
    f"replica_groups = dense<{rows}> : tensor<{len(rows)}x{size}xi64>, "
    f"{CHANNEL}"
  )


def module(count: int, body: str) -> str:
  """A module of `count` devices with the function @main."""
  return (
    f"module @test attributes {{mhlo.num_partitions = {count} : i32}} {{\n"
    f"{body}\n}}"
  )


def reduction(name: str, dtype: str) -> str:
  """The region of a reducing operation."""
  return f"""({{
    ^bb0(%left: tensor<{dtype}>, %right: tensor<{dtype}>):
      %both = stablehlo.{name} %left, %right : tensor<{dtype}>
      stablehlo.return %both : tensor<{dtype}>
  }})"""


def compiled(text: str, tiles: int = 16) -> bytes:
  """A module's program, checked after every phase."""
  with mlir.make_ir_context():
    parsed = ir.Module.parse(text)
    code = stablehlo.serialize_portable_artifact(
      parsed, stablehlo.get_current_version()
    )
  options = pipeline.Options(
    target=machines.resolve("ipu2", tiles), verify=True
  )
  return pipeline.compile_module(code, options).data


def run(
  text: str, arguments: Sequence[Sequence[np.ndarray]], tiles: int = 16
) -> list[list[np.ndarray]]:
  """The results of each device, on which interpreter and engine agree."""
  data = compiled(text, tiles)
  expected = [r.outputs for r in interp.run_together(data, arguments)]
  for threads in (False, True):
    actual = engine_kit.run_together(data, arguments, threads)
    for ours, theirs in zip(actual, expected, strict=True):
      for a, e in zip(ours, theirs, strict=True):
        engine_kit.same(a, e, zero_signs=False)
  return expected
