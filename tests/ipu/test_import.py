"""The import terminates, and preserves what a program computes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu import diagnostics, options, pipeline
from jaxlib.ipu.ir import canonical, importer
from jaxlib.ipu.passes import dce, simplify
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

DATA = Path(__file__).parent / "data"


def artifact(module: ir.Module) -> bytes:
  with module.context:
    return stablehlo.serialize_portable_artifact(
      module, stablehlo.get_current_version()
    )


def imported(f, *arguments) -> list[str]:
  """The operations of a function that is ready to be lowered."""
  lowered = jax.jit(lambda *a: f(*a)).lower(*arguments)
  module = importer.parse(artifact(lowered.compiler_ir("stablehlo")))
  graph = simplify.simplify(importer.import_module(module).graph)
  return [node.op for node in dce.eliminate(graph).nodes]


def context() -> ir.Context:
  """A context with JAX's dialects."""
  return jax.jit(lambda: 0).lower().compiler_ir("stablehlo").context


def test_a_module_with_many_operations_without_elements():
  text = (DATA / "scatter_of_constants.mlir").read_text()
  module = ir.Module.parse(text, context())
  target = options.Settings().target
  state = pipeline.compile_module(
    artifact(module), pipeline.Options(target=target, verify=True)
  )
  assert state.data


def affine(x):
  return x * 3 + 1


@pytest.mark.parametrize("update", [affine, jnp.square, lambda x: 7 - x])
def test_a_scatter_of_constants_by_a_function(check, update):
  check(lambda: jnp.full(5, 2).at[jnp.array([1, 3, 1])].apply(update))
  check(lambda: jnp.full(5, 2.0).at[2].apply(update))


KEEPS_OLD = """
func.func @main() -> tensor<3xf32> {
  %x = stablehlo.constant dense<1.0> : tensor<3xf32>
  %index = stablehlo.constant dense<0> : tensor<1xi32>
  %y = stablehlo.constant dense<2.0> : tensor<3xf32>
  %0 = "stablehlo.scatter"(%x, %index, %y) <{
    scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0],
      scatter_dims_to_operand_dims = [0]>}> ({
    ^bb0(%old: tensor<f32>, %new: tensor<f32>):
      stablehlo.return %old : tensor<f32>
  }) : (tensor<3xf32>, tensor<1xi32>, tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
"""


def test_a_scatter_that_keeps_its_operand_is_not_folded():
  code = artifact(ir.Module.parse(KEEPS_OLD, context()))
  graph = importer.import_module(importer.parse(code)).graph
  assert [node.op for node in graph.nodes][-1] == "stablehlo.scatter"


def test_an_empty_scatter(check):
  nothing = np.zeros(0, np.int32)
  check(lambda: jnp.full(3, 2.0).at[nothing].set(1.0))
  check(lambda: jnp.full(3, 2.0).at[nothing].add(nothing))
  check(lambda: jnp.zeros((0, 3)).at[:, 1].set(2.0))


def test_constants_and_broadcasts_of_splats_are_folded():
  def f(x):
    return x + jnp.full((4, 4), 2.0) * jnp.sqrt(jnp.full((4, 4), 4.0))

  operations = imported(f, np.ones((4, 4), np.float32))
  assert sorted(operations) == ["stablehlo.add", "stablehlo.constant"]


@pytest.mark.parametrize("divisor", [7, -7])
def test_a_quotient_that_is_rounded_down_needs_no_sign(check, divisor):
  x = np.arange(-15, 16, dtype=np.int32)
  assert "stablehlo.sign" not in imported(lambda x: x // divisor, x)
  check(lambda x: [x // divisor, jnp.sign(x) != divisor // 7], x)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_an_unsigned_remainder_needs_no_sign(check, dtype):
  x = np.arange(200, dtype=dtype)
  found = imported(lambda x: jnp.mod(x, 7), x)
  assert not {"stablehlo.compare", "stablehlo.select"} & set(found)
  check(lambda x: [x % 7, x < 0, x >= 0, dtype(0) > x, dtype(0) <= x], x)


@pytest.mark.parametrize("divisor", [7, -7])
def test_a_remainder_that_is_rounded_down_needs_one_comparison(check, divisor):
  x = np.arange(-15, 16, dtype=np.int32)
  operations = imported(lambda x: x % divisor, x)
  assert operations.count("stablehlo.compare") == 1
  assert "stablehlo.and" not in operations
  check(lambda x: x % divisor, x)


def test_comparisons_of_booleans_with_constants(check):
  x = np.array([False, True])

  def f(x):
    equal = jnp.equal(x, True), jnp.equal(x, False)
    differs = jnp.not_equal(x, True), jnp.not_equal(False, x)
    return *equal, *differs, jnp.less(x, True)

  operations = imported(f, x)
  assert operations.count("stablehlo.compare") == 1
  check(f, x)


def test_comparisons_that_imply_others(check):
  x = np.array([-1.0, -0.0, 0.0, 1.0, np.nan], np.float32)
  y = np.array([0.0, np.nan, -1.0, 2.0, 0.0], np.float32)

  def f(x, y):
    one = (x < y) & (x != y), (x != 2.0) & (x > 2.0)
    return *one, (x < y) & (x != 2.0), (x <= y) & (x != y), (x < y) | (x != y)

  assert imported(f, x, y).count("stablehlo.and") == 2
  check(f, x, y)


def test_opposite_comparisons(check):
  x, y = np.arange(-2, 3, dtype=np.int32), np.zeros(5, np.int32)

  def f(x, y):
    all_of = x == y, x != y, x < y, x <= y, x > y, x >= y
    return *(~c for c in all_of), (x != y) & (y <= x)

  assert "stablehlo.not" not in imported(f, x, y)
  check(f, x, y)
  check(f, np.float32([np.nan, 1, -1, 0, -0.0]), np.zeros(5, np.float32))


NOT_NEGATIVE = [
  lambda x, u: x % 7,
  lambda x, u: jnp.clip(x, 0, 3),
  lambda x, u: jnp.maximum(x, 0),
  lambda x, u: x & 3,
  lambda x, u: u.astype(jnp.int32),
  lambda x, u: (x > 0).astype(jnp.int32),
  lambda x, u: lax.div(jnp.arange(5)[::-1], 2),
  lambda x, u: lax.shift_right_arithmetic(x % 7, x % 7),
  lambda x, u: jnp.where(x > 1, x % 7, x & 3).reshape(5, 1) % 4,
  lambda x, u: lax.population_count(x),
]


@pytest.mark.parametrize("f", NOT_NEGATIVE)
def test_numbers_that_are_not_negative(check, f):
  x, u = np.arange(-2, 3, dtype=np.int32), np.arange(254, 259).astype(np.uint8)
  operations = imported(lambda x, u: (f(x, u) < 0, f(x, u) >= -1), x, u)
  assert set(operations) == {"stablehlo.constant"}
  check(lambda x, u: jnp.arange(20)[f(x, u)], x, u)


NEGATIVE = [
  lambda x, u: x % -7,
  lambda x, u: lax.rem(x, 7),
  lambda x, u: jnp.minimum(x, 3),
  lambda x, u: x | 3,
  lambda x, u: u.astype(jnp.int8),
  lambda x, u: (x % 7) // (x % 3),
  lambda x, u: jnp.where(x > 0, x, x % 3),
  lambda x, u: (x * 1.5).astype(jnp.int32),
]


@pytest.mark.parametrize("f", NEGATIVE)
def test_numbers_that_may_be_negative(check, f):
  x, u = np.arange(-2, 3, dtype=np.int32), np.arange(254, 259).astype(np.uint8)
  check(lambda x, u: (f(x, u) < 0, f(x, u) >= 0), x, u)


def sine() -> bytes:
  lowered = jax.jit(jnp.sin).lower(np.float32(1))
  return artifact(lowered.compiler_ir("stablehlo"))


def test_concurrent_compilation():
  device = jax.devices("ipu")[0]
  x = jax.device_put(np.arange(8, dtype=np.float32), device)

  def run(number: int) -> float:
    f = jax.jit(lambda x: jax.lax.fori_loop(0, number, lambda i, y: y + x, x))
    return float(f(x).sum())

  with ThreadPoolExecutor(4) as pool:
    found = list(pool.map(run, range(24)))
  assert found == [28.0 * (n + 1) for n in range(24)]


def test_compilations_share_a_context(monkeypatch):
  monkeypatch.setattr(canonical, "_idle", [])  # none that is nearly full
  code = sine()
  first, second = importer.parse(code), importer.parse(code)
  assert first.context == second.context
  with canonical.passes(len(code)) as passes:  # one that compiles meanwhile
    assert importer.parse(code).context != passes.context
  with canonical.passes(canonical._MOST_BYTES) as full:
    pass
  assert importer.parse(code).context != full.context


def test_a_context_in_which_something_failed_is_not_used_again():
  code = sine()
  before = importer.parse(code).context
  with pytest.raises(diagnostics.CompileError, match="cannot read"):
    importer.parse(code[: len(code) // 2])
  assert importer.parse(code).context != before
