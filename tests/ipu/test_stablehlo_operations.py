"""StableHLO operations that JAX does not emit: against NumPy.

build/stablehlo_tests.py runs StableHLO's own tests; this is the part that
needed code of ours.
"""

from __future__ import annotations

import ipu_test_util as util
import numpy as np
import pytest

pytestmark = pytest.mark.ipu_only


def module(body: str, *types: str) -> str:
  """A module whose results have its arguments' types."""
  parameters = ", ".join(f"%a{i}: tensor<{t}>" for i, t in enumerate(types))
  results = ", ".join(f"tensor<{t}>" for t in types)
  return f"""func.func @main(%platform: tensor<i32>, {parameters})
      -> ({results}) {{
    {body}
    return {", ".join(f"%r{i}" for i in range(len(types)))} : {results}
  }}"""


def computed(ipu, body: str, types: list[str], *arguments: np.ndarray):
  f = util.from_stablehlo(module(body, *types), *arguments)
  return util.run_on(ipu, f, *arguments)


def complex_numbers(key: int) -> np.ndarray:
  parts = util.sample(np.float32, (2, 12), key=key)
  return (parts[0] + 1j * parts[1]).astype(np.complex64)


@pytest.mark.parametrize("name", ["maximum", "minimum", "atan2"])
def test_complex_functions_of_two(ipu, name):
  x, y = complex_numbers(0), complex_numbers(1)
  y.real[:4] = x.real[:4]
  x_first = (x.real > y.real) | (x.real == y.real) & (x.imag > y.imag)
  expected = {
    "maximum": np.where(x_first, x, y),
    "minimum": np.where(x_first, y, x),
    "atan2": -1j * np.log((y + 1j * x) / np.sqrt(x * x + y * y)),
  }[name]
  type_ = "12xcomplex<f32>"
  body = f"%r0 = stablehlo.{name} %a0, %a1 : tensor<{type_}>"
  body += f"\n%r1 = stablehlo.negate %a1 : tensor<{type_}>"
  actual, _ = computed(ipu, body, [type_] * 2, x, y)
  np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-6)


def test_complex_cube_root(ipu):
  x = complex_numbers(0)
  body = "%r0 = stablehlo.cbrt %a0 : tensor<12xcomplex<f32>>"
  (actual,) = computed(ipu, body, ["12xcomplex<f32>"], x)
  expected = x.astype(np.complex128) ** (1 / 3)
  np.testing.assert_allclose(actual, expected, rtol=4e-6)


def test_complex_bitcasts(ipu):
  """To a wider type, in which something is computed, and back."""
  x = complex_numbers(0)
  small, large = "tensor<6x2xcomplex<f32>>", "tensor<6xcomplex<f64>>"
  body = f"""
    %p = stablehlo.reshape %a0 : (tensor<12xcomplex<f32>>) -> {small}
    %b = stablehlo.bitcast_convert %p : ({small}) -> {large}
    %n = stablehlo.negate %b : {large}
    %s = stablehlo.bitcast_convert %n : ({large}) -> {small}
    %r0 = stablehlo.reshape %s : ({small}) -> tensor<12xcomplex<f32>>
  """
  (actual,) = computed(ipu, body, ["12xcomplex<f32>"], x)
  expected = (-x.view(np.complex128)).view(np.complex64)
  np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("start", [(0, 0), (2, 1)])
def test_slices_from_a_computed_start(ipu, start):
  x = util.sample(np.float32, (7, 5))
  at = np.array(start, np.int32)
  body = """
    %steps = stablehlo.constant dense<[2, 1]> : tensor<2xi32>
    %size = stablehlo.constant dense<[5, 4]> : tensor<2xi32>
    %end = stablehlo.add %a1, %size : tensor<2xi32>
    %s = stablehlo.real_dynamic_slice %a0, %a1, %end, %steps :
      (tensor<7x5xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>)
      -> tensor<3x4xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %r0 = stablehlo.pad %s, %zero, low = [0, 0], high = [4, 1],
      interior = [0, 0] : (tensor<3x4xf32>, tensor<f32>) -> tensor<7x5xf32>
    %r1 = stablehlo.negate %a1 : tensor<2xi32>
  """
  actual, _ = computed(ipu, body, ["7x5xf32", "2xi32"], x, at)
  i, j = start
  np.testing.assert_array_equal(actual[:3, :4], x[i : i + 5 : 2, j : j + 4])


def test_asynchronous_collectives(ipu):
  """JAX emits these too, but not from a public function."""
  x, y = (util.sample(np.float32, (4,), key=k) for k in (0, 1))
  type_ = "tensor<4xf32>"
  body = f"""
    %future = "stablehlo.async_start"(%a0) ({{
    ^bb0(%x: {type_}):
      %s = "stablehlo.all_gather"(%x) {{all_gather_dim = 0 : i64,
        replica_groups = dense<0> : tensor<1x1xi64>}} : ({type_}) -> {type_}
      stablehlo.return %s : {type_}
    }}) : ({type_}) -> !stablehlo.future<{type_}>
    %sum = stablehlo.multiply %a0, %a1 : {type_}
    %done = "stablehlo.async_done"(%future)
      : (!stablehlo.future<{type_}>) -> {type_}
    %r0 = stablehlo.add %done, %sum : {type_}
    %r1 = stablehlo.negate %done : {type_}
    stablehlo.custom_call @control_dep(%future, %r0) {{has_side_effect = true}}
      : (!stablehlo.future<{type_}>, {type_}) -> ()"""
  got = computed(ipu, body, ["4xf32"] * 2, x, y)
  np.testing.assert_array_equal(got[0], x + x * y)
  np.testing.assert_array_equal(got[1], -x)
