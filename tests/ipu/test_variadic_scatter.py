"""Scatters into several arrays at once, which JAX itself does not emit."""

from __future__ import annotations

import ipu_test_util as util
import numpy as np
import pytest

from jax import lax

BODIES = {
  "each by itself": """
    %s = stablehlo.add %a, %u : tensor<f32>
    %t = stablehlo.maximum %b, %v : tensor<f32>
  """,
  "a product of complex numbers": """
    %p = stablehlo.multiply %a, %u : tensor<f32>
    %q = stablehlo.multiply %b, %v : tensor<f32>
    %s = stablehlo.subtract %p, %q : tensor<f32>
    %g = stablehlo.multiply %a, %v : tensor<f32>
    %h = stablehlo.multiply %b, %u : tensor<f32>
    %t = stablehlo.add %g, %h : tensor<f32>
  """,
  "one decides for both": """
    %c = stablehlo.constant dense<0.5> : tensor<f32>
    %w = stablehlo.add %u, %c : tensor<f32>
    %k = stablehlo.compare LT, %a, %w : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %s = stablehlo.select %k, %u, %a : tensor<i1>, tensor<f32>
    %t = stablehlo.select %k, %v, %b : tensor<i1>, tensor<f32>
  """,
}
# (operand, indices, updates, dimension numbers)
FORMS = {
  "rows": ((9, 5), (6, 1), (6, 5), """
    update_window_dims = [1], inserted_window_dims = [0],
    scatter_dims_to_operand_dims = [0], index_vector_dim = 1"""),
  "scalars": ((7,), (4, 5), (4, 5), """
    inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
    index_vector_dim = 2"""),
  "windows": ((5, 6, 7), (2, 8), (3, 8, 2, 7), """
    update_window_dims = [0, 2, 3], scatter_dims_to_operand_dims = [1, 0],
    index_vector_dim = 0"""),
  "batches": ((4, 9), (4, 3, 1), (4, 3, 2), """
    update_window_dims = [2], input_batching_dims = [0],
    scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1],
    index_vector_dim = 2"""),
  "nothing": ((4,), (0, 1), (0,), """
    inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
    index_vector_dim = 1"""),
}  # fmt: skip


def text(body: str, form: str) -> str:
  *shapes, numbers = FORMS[form]
  x, i, u = ("".join(f"{n}x" for n in shape) for shape in shapes)
  return f"""
    func.func @main(%platform: tensor<i32>, %x: tensor<{x}f32>,
        %y: tensor<{x}f32>, %i: tensor<{i}i32>, %m: tensor<{u}f32>,
        %n: tensor<{u}f32>) -> (tensor<{x}f32>, tensor<{x}f32>,
        tensor<{i}i32>, tensor<{u}f32>, tensor<{u}f32>) {{
      %r:2 = "stablehlo.scatter"(%x, %y, %i, %m, %n) <{{
        scatter_dimension_numbers = #stablehlo.scatter<{numbers}>}}> ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>, %u: tensor<f32>,
             %v: tensor<f32>):
          {BODIES[body]}
          stablehlo.return %s, %t : tensor<f32>, tensor<f32>
      }}) : (tensor<{x}f32>, tensor<{x}f32>, tensor<{i}i32>, tensor<{u}f32>,
             tensor<{u}f32>) -> (tensor<{x}f32>, tensor<{x}f32>)
      return %r#0, %r#1, %i, %m, %n : tensor<{x}f32>, tensor<{x}f32>,
        tensor<{i}i32>, tensor<{u}f32>, tensor<{u}f32>
    }}"""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("body", BODIES)
def test_scatter_into_two_arrays(check, body, form):
  x, i, u, _ = FORMS[form]
  arguments = [
    util.sample(np.float32, x),
    util.sample(np.float32, x, key=1),
    # Some are out of bounds, some are duplicates.
    util.sample(np.int32, i, low=-2, high=max(x)),
    util.sample(np.float32, u, low=-2, high=2),
    util.sample(np.float32, u, low=-2, high=2, key=1),
  ]
  f = util.from_stablehlo(text(body, form), *arguments)
  check(f, *arguments, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("index", [np.int8, np.uint8])
def test_indices_too_narrow_for_their_dimension(check, index):
  numbers = lax.ScatterDimensionNumbers((1,), (0,), (0,))

  def f(x, i, u):
    result = lax.scatter_mul(x, i, u, numbers, mode="drop")
    return result.real, result.imag

  x, u = (
    (a + 1j * b).astype(np.complex64)
    for a, b in (util.sample(np.float32, (2, n, 3)) for n in (300, 4))
  )
  i = np.array([[0], [5], [127], [-1]]).astype(index)
  check(f, x, i, u, rtol=1e-5, atol=1e-6)
