"""Compiles functions without JAX's runtime, and compares how interpreter,
engine and XLA:CPU run the programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import engine_kit
import ipu_test_util as util
import numpy as np

import jax
from jaxlib.ipu import pipeline
from jaxlib.ipu import target as machines
from jaxlib.ipu.check import interp
from jaxlib.ipu.dtypes import NUMPY, DType
from jaxlib.ipu.program import container, schema
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import stablehlo

# Numbers of tiles to plan for.
TILES = (1, 3, 16, 1472)


def compiled(
  f: Callable[..., Any], arguments: list[Any], tiles: int | machines.Target
) -> bytes:
  """The program of a function, checked after every phase."""
  return phases(f, arguments, tiles).data


def phases(
  f: Callable[..., Any],
  arguments: list[Any],
  tiles: int | machines.Target,
  donated: tuple[int, ...] = (),
  code_budget: int | None = None,
) -> pipeline.State:
  """The result of each phase for a function."""
  # A new function object: serialising changes the module that JAX keeps.
  g = jax.jit(lambda *a: f(*a), keep_unused=True, donate_argnums=donated)
  traced = g.trace(*arguments)
  code = lowered_code(traced.lower(lowering_platforms=("ipu",)))
  if isinstance(tiles, int):
    tiles = machines.resolve("ipu2", tiles)
  options = pipeline.Options(target=tiles, verify=True, code_budget=code_budget)
  return pipeline.compile_module(code, options)


def lowered_code(lowered: Any) -> bytes:
  """The input that a plugin gets for a lowered function; changes its module."""
  module = lowered.compiler_ir("stablehlo")
  with module.context:
    # As jaxlib does before it passes a module to a plugin, except for
    # shardings, which VHLO does not know.
    stablehlo.register_stablehlo_passes()
    module.operation.walk(_without_sharding_rule)
    passes = "sdy-drop-sharding-and-mesh,func.func(chlo-legalize-to-stablehlo)"
    manager = passmanager.PassManager.parse(f"builtin.module({passes})")
    manager.run(module.operation)
  return stablehlo.serialize_portable_artifact(
    module, stablehlo.get_current_version()
  )


def _without_sharding_rule(op: Any) -> ir.WalkResult:
  if "sdy.sharding_rule" in op.attributes:
    del op.attributes["sdy.sharding_rule"]
  return ir.WalkResult.ADVANCE


def _stored(
  values: list[Any], program: schema.Program, tensors: list[int]
) -> list[np.ndarray]:
  """Arguments or results as the program's tensors store them: complex numbers
  as pairs, narrow types as bytes."""
  out = []
  for value, number in zip(values, tensors, strict=True):
    t = program.tensors[number]
    flat = np.array(value).reshape(-1)
    out.append(flat.view(NUMPY[DType(t.dtype)]).reshape(t.shape))
  return out


def check(
  cpu: Any,
  f: Callable[..., Any],
  arguments: list[np.ndarray],
  tiles: int | machines.Target,
  ulps: int = 0,
) -> interp.Result:
  """All three agree, floats to within `ulps` units and, where these are
  allowed, 1e-6.

  Returns the interpreter's results.

  Args:
    cpu: XLA:CPU's device.
    f: from arrays to a tree of arrays.
    arguments: of `f`.
    tiles: of an ipu2, or the machine to plan for.
    ulps: units in the last place by which floats may differ.
  """
  with jax.default_device(cpu):
    expected = jax.tree.leaves(jax.jit(f)(*arguments))
    data = compiled(f, arguments, tiles)
  program, _ = container.read(data)
  kept = _stored(arguments, program, program.arguments)
  expected = _stored(expected, program, program.results)
  engine_kit.check(data, kept, ulps=ulps, atol=1e-6 * bool(ulps))
  result = interp.run(data, kept)
  for actual, e in zip(result.outputs, expected, strict=True):
    engine_kit.same(actual, np.asarray(e), ulps, 1e-6 * bool(ulps))
  return result


def check_on_digits(
  cpu: Any,
  f: Callable[..., Any],
  tiles: int,
  shapes: dict[str, tuple[int, ...]],
) -> None:
  """All three agree on arrays of random digits, one shape for each type."""
  for dtype, shape in shapes.items():
    x = util.rng_of(f.__name__, dtype).integers(0, 9, shape).astype(dtype)
    check(cpu, f, [x], tiles, ulps=2)
