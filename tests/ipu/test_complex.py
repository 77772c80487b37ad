"""Complex numbers: pairs of real planes inside programs, interleaved
outside."""

from __future__ import annotations

import itertools
from typing import Any

import lowering_kit
import numpy as np
import pytest
from ipu_test_util import (
  RTOL,
  costs,
  from_stablehlo,
  rng_of,
  run_on,
  run_python,
  spec,
)

import jax
import jax.numpy as jnp
from jax import lax


def sample(shape: tuple[int, ...], key: Any = 0, scale: float = 1.0):
  """Normally distributed complex64 values."""
  rng = rng_of("complex", shape, key)
  parts = rng.normal(size=(2, *shape)) * scale
  return (parts[0] + 1j * parts[1]).astype(np.complex64)


@pytest.fixture
def check_complex(ipu, cpu):
  """f gives the same on both devices, within `tol` of the largest result or, if
  `each`, of each result's magnitude.
  """

  def check(f, *args, tol: float = 2e-6, each: bool = False) -> None:
    got, want = (jax.tree.leaves(run_on(d, f, *args)) for d in (ipu, cpu))
    for a, b in zip(got, want, strict=True):
      assert (a.dtype, a.shape) == (b.dtype, b.shape)
      if b.dtype.kind not in "fc":
        np.testing.assert_array_equal(a, b)
        continue
      size = np.abs(b) if each else np.abs(b).max(initial=0.0)
      assert (np.abs(a - b) <= tol * size + np.finfo(b.dtype).tiny).all()

  return check


FUNCTIONS = {
  "exp": jnp.exp, "expm1": jnp.expm1, "log": jnp.log, "log1p": jnp.log1p,
  "sqrt": jnp.sqrt, "rsqrt": lax.rsqrt, "sin": jnp.sin, "cos": jnp.cos,
  "tan": jnp.tan, "tanh": jnp.tanh, "cosh": jnp.cosh, "asin": jnp.arcsin,
  "acos": jnp.arccos, "atan": jnp.arctan, "asinh": jnp.arcsinh,
  "acosh": jnp.arccosh, "atanh": jnp.arctanh, "sign": jnp.sign,
  "abs": jnp.abs, "angle": jnp.angle, "square": jnp.square,
  "reciprocal": jnp.reciprocal, "sigmoid": jax.nn.sigmoid,
  "real": jnp.real, "imag": jnp.imag, "conj": jnp.conj, "negate": lax.neg,
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(check_complex, name):
  # Results of about 1e-3, 1 and 30, and arguments near 1.
  scales = [sample((150,), s, s) for s in (1e-3, 1.0, 4.0)]
  x = np.concatenate([*scales, 1 + sample((50,), 1, 1e-4)])
  check_complex(FUNCTIONS[name], x, each=True)


def test_sinh(check_complex):
  """The real part is a difference of exponentials."""
  check_complex(jnp.sinh, sample((300,)))


@pytest.mark.parametrize("scale", (1.0, 1e18, 1e-18))
def test_arithmetic(check_complex, scale):
  def f(x, y):
    return {
      "add": x + y, "subtract": x - y, "multiply": x * y, "divide": x / y,
      "inverse": y / x,
    }  # fmt: skip

  check_complex(f, sample((300,), 0, scale), sample((300,), 1), each=True)


def test_power(check_complex):
  f = lambda x, y: (x**y, x**2, x**-3, x**0.5, jnp.float32(2) ** x, 0 * x**0)
  check_complex(f, sample((300,)), sample((300,), 1), each=True, tol=6e-6)


def test_atan2(check_complex):
  y, x = sample((300,)), sample((300,), 1)
  check_complex(jax.lax.atan2, y, x, tol=2e-5)


def test_map(check):
  x = sample((3, 5))
  f = from_stablehlo(
    """
    func.func @main(%p: tensor<i32>, %x: tensor<3x5xcomplex<f32>>)
        -> tensor<3x5xcomplex<f32>> {
      %y = "stablehlo.map"(%x, %x) ({
      ^bb0(%a: tensor<complex<f32>>, %b: tensor<complex<f32>>):
        %c = stablehlo.multiply %a, %b : tensor<complex<f32>>
        stablehlo.return %c : tensor<complex<f32>>
      }) {dimensions = array<i64: 0, 1>} : (tensor<3x5xcomplex<f32>>,
          tensor<3x5xcomplex<f32>>) -> tensor<3x5xcomplex<f32>>
      return %y : tensor<3x5xcomplex<f32>>
    }
    """,
    x,
  )
  check(lambda x: (f(x)[0].real, f(x)[0].imag), x)


# Cases where C's Annex G and XLA:CPU agree.
EDGES = (0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan)


@pytest.mark.parametrize(
  "name", ("rsqrt", "sin", "cos", "asin", "atanh", "sign", "reciprocal")
)
def test_edge_values(check, name):
  x = np.array([complex(a, b) for a in EDGES for b in EDGES], np.complex64)

  def f(x):
    z = FUNCTIONS[name](x)
    return z.real, z.imag

  check(f, x, rtol=RTOL["float32"], atol=1e-7)


def test_division_at_the_edges(check):
  edges = np.array([complex(a, b) for a in EDGES for b in EDGES], np.complex64)
  x, y = (a.reshape(-1) for a in np.meshgrid(edges, edges))

  def f(x, y):
    z = x / y
    return z.real, z.imag

  check(f, x, y)


def test_magnitudes_neither_overflow_nor_vanish(ipu):
  x = np.array([3e30 + 4e30j, 3e-30 + 4e-30j, complex(np.inf, np.nan)])
  got = run_on(ipu, jnp.abs, x.astype(np.complex64))
  np.testing.assert_allclose(got, [5e30, 5e-30, np.inf], rtol=1e-6)


def test_comparisons(check_complex):
  x, y = sample((4, 5)), sample((4, 5))
  y[0] += 1
  y[1] += 1j
  check_complex(lambda x, y: (x == y, x != y, x.astype(bool)), x, y)


def test_clamp(ipu, cpu):
  parts = (0.0, 1.0, 2.0, np.nan)
  values = [complex(x, y) for x in parts for y in parts]
  low, x, high = np.array(
    list(itertools.product(values, repeat=3)), np.complex64
  ).T

  def clamp(low, x, high):
    return lax.clamp(low, x, high), lax.clamp(low[0], x, high[0])

  for got, want in zip(*(run_on(d, clamp, low, x, high) for d in (ipu, cpu))):
    np.testing.assert_array_equal(got.real, want.real)
    np.testing.assert_array_equal(got.imag, want.imag)


def test_data_movement(check_complex):
  def f(x, i):
    return [
      x.T, x[1:, ::2], x[::-1], jnp.concatenate([x, 2j * x]), x[i],
      lax.dynamic_slice(x, (i[0], i[1]), (2, 3)),
      lax.dynamic_update_slice(x, x[:2, :2], (i[0], i[1])),
      x.at[i].set(x[:3]), x.at[np.array([1, 1, 2])].add(x[:3]),
      jnp.pad(x, 1, constant_values=1j), jnp.broadcast_to(x, (2, 6, 7)),
      jnp.where(x.real > 0, x, 1j), x[:0], x.reshape(-1), jnp.roll(x, 2, 1),
    ]  # fmt: skip

  check_complex(f, sample((6, 7)), np.array([3, 0, 2], np.int32))


def test_constants_and_conversions(check_complex):
  table, denormal = sample((40,)), np.complex64(complex(1e-40, -1e-42))

  def f(x, i):
    return (
      x + jnp.asarray(table), jnp.full((3,), 2 - 1j), jnp.asarray(denormal),
      i.astype(jnp.complex64), x.real.astype(jnp.complex64),
      jnp.arange(5, dtype=jnp.complex64), jnp.zeros((0,), jnp.complex64),
    )  # fmt: skip

  check_complex(f, sample((40,), 1), np.arange(4, dtype=np.int32))


def test_control_flow(check_complex):
  def f(x, n):
    return (
      lax.fori_loop(0, n, lambda j, c: c * c[::-1] * (0.5 + 0.1j), x),
      lax.scan(lambda c, r: (c + r, c * r), x[0], x),
      lax.cond(n > 2, lambda a: a * 2, lambda a: a.conj(), x),
      lax.while_loop(lambda c: jnp.abs(c) < 9, lambda c: c * (1 + 1j), x[0, 0]),
    )

  check_complex(f, sample((6, 7)), np.int32(3))


def test_reductions(check_complex):
  f = lambda x: (
    x.sum(0),
    x.prod(1),
    x.mean(),
    jnp.linalg.norm(x),
    x[:0].sum(0),
  )
  check_complex(f, sample((60, 7)))


def test_windows(check_complex):
  def f(x):
    image = x.reshape(1, 1, 6, 7)
    return (
      jnp.cumsum(x, 0), jnp.cumprod(x, 1), jnp.convolve(x[0], x[1]),
      lax.conv(image, image[..., :3, :2], (2, 1), "SAME"),
      lax.conv(image, image[..., :3, :2].real + 0j, (1, 1), "VALID"),
      lax.reduce_window(x, 0j, lax.add, (2, 3), (1, 2), "SAME"),
    )  # fmt: skip

  check_complex(f, sample((6, 7)))


def test_sort(check_complex):
  x = sample((6, 7))
  x.real[::2] = 1  # ties are broken by imaginary parts
  check_complex(lambda x: (jnp.sort(x, 0), jnp.argsort(x, 1)), x)


def test_products(check_complex):
  def f(x, y):
    return (
      x @ y, x @ y.real, x.imag @ y, x.T @ x.conj(), jnp.vdot(x, x),
      jnp.einsum("ij,kj->ik", x.conj(), x), jnp.linalg.matrix_power(x @ y, 2),
    )  # fmt: skip

  check_complex(f, sample((6, 9)), sample((9, 6), 1))


@pytest.mark.parametrize(
  "dims", ("bij,bjk->bik", "ijb,jkb->kbi", "ijk,kjl->il", "ij,kl->likj")
)
def test_products_over_any_dimensions(check_complex, dims):
  def f(x, y):
    pairs = (x, y), (x.real + 0j, y), (x, y.imag), (1j * x.imag, y)
    return [jnp.einsum(dims, *p) for p in pairs]

  sizes = dict(zip("bijkl", (2, 3, 4, 5, 6)))
  shapes = ([sizes[n] for n in side] for side in dims.split("->")[0].split(","))
  check_complex(f, *(sample(tuple(s), k) for k, s in enumerate(shapes)))


@pytest.mark.ipu_only
@pytest.mark.parametrize(("n", "count"), ((8, 1), (1024, 4)))
def test_all_planes_of_small_matrices_are_one_product(n, count):
  a = np.zeros((n, n), np.complex64)
  graph = lowering_kit.phases(lambda a: a @ a, [a], 1472).module.graph
  ops = [node.op for node in graph.nodes]
  assert ops.count("stablehlo.dot_general") == count


def test_real_operands_take_half_of_the_products(ipu):
  """A product with a real operand takes two real products, not four."""

  def flops(f):
    return costs(ipu, f, spec(32, 32, dtype=np.complex64))["flops"]

  full = flops(lambda x: x @ x)
  half = flops(lambda x: x @ x.real.astype(jnp.complex64))
  assert 2 * 4 * 32**3 <= full < 2 * 4 * 32**3 * 1.1
  part = flops(lambda x: x @ x.real.astype(jnp.complex64).T[:, :16])
  assert 2 * 2 * 32**3 <= half < 2 * 2 * 32**3 * 1.1
  assert 2 * 32**3 <= part < 2 * 32**3 * 1.1


def test_infinity_times_a_real_matrix(ipu):
  """The imaginary part of a real operand is not a zero that could make NaN."""
  real = np.array([[1, 2], [-3, 4]], np.float32)
  other = np.array([[np.inf + 1j, 1], [2, 3j]], np.complex64)
  f = jax.jit(lambda a, b: a.astype(b.dtype) @ b)
  product = np.asarray(f(*jax.device_put((real, other), ipu)))
  np.testing.assert_array_equal(product.real, real @ other.real)
  np.testing.assert_array_equal(product.imag, real @ other.imag)


def test_gradients(check_complex):
  holomorphic = jax.grad(lambda z: (z**3 + jnp.sin(z)).sum(), holomorphic=True)
  real = jax.grad(lambda z: (jnp.abs(z) ** 2).sum() + jnp.exp(z).imag.sum())
  check_complex(lambda z: (holomorphic(z), real(z)), sample((5, 7)))


def test_jvp_and_vmap(check_complex):
  f = lambda z: jax.jvp(jnp.tanh, (z,), (1j * z,))
  check_complex(
    lambda z: (f(z), jax.vmap(lambda r: r @ r.conj())(z)), sample((5, 7))
  )


def test_eager_and_donated(on_ipu):
  x = jnp.asarray(np.array([1 + 2j, 3 - 1j], np.complex64))
  y = jax.jit(lambda x: x * 1j, donate_argnums=0)(x)
  assert x.is_deleted()
  np.testing.assert_array_equal(np.asarray(y), [-2 + 1j, 1 + 3j])
  np.testing.assert_array_equal(np.asarray(y.conj() + 1), [-1 - 1j, 2 - 3j])
  assert y.dtype == jnp.complex64 and y.real.dtype == jnp.float32


@pytest.mark.parametrize("size", [1, 15, 65, 128, 131, 1000])
@pytest.mark.parametrize("rows", [(), (3,)])
def test_planes_are_stored_in_the_place_of_an_operand(on_ipu, rows, size):
  x, y = sample((*rows, size)), sample((size,), 1)
  expected = x * x.conj() + x * y
  f = jax.jit(lambda x, y: x * x.conj() + x * y, donate_argnums=0)
  found = f(jnp.asarray(x), jnp.asarray(y))
  np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("tiles", lowering_kit.TILES)
def test_tile_by_tile(cpu, tiles):
  def f(x, y):
    z = lax.fori_loop(0, 2, lambda i, c: jnp.exp(c * 0.1j) + y[i], x)
    return z @ z.T, (z / y[0]).sum(1), z[1]

  lowering_kit.check(
    cpu, f, [sample((6, 5)), sample((2, 5), 1)], tiles, ulps=64
  )


def test_complex128():
  run_python("""
import jax
jax.config.update("jax_enable_x64", True)
import numpy as np
import jax.numpy as jnp
rng = np.random.default_rng(0)
x = rng.normal(size=(2, 4, 4)).view(np.complex128).reshape(2, 2, 4)
def f(x):
  z = x[0] / x[1] + jnp.exp(x[0]) * (2 + 1e-9j)
  return z, z @ z.T, jnp.abs(z), jnp.log(z), z.astype(jnp.complex64)
ipu, cpu = (jax.devices(p)[0] for p in ("ipu", "cpu"))
a, b = (jax.jit(f)(jax.device_put(x, device)) for device in (ipu, cpu))
for u, v in zip(a, b):
  assert u.dtype == v.dtype
  rtol = 1e-6 if u.dtype == np.complex64 else 1e-13
  np.testing.assert_allclose(np.asarray(u), np.asarray(v), rtol=rtol)
""")
