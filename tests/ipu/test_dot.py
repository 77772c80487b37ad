"""Matrix products in all forms of dot_general."""

from __future__ import annotations

import ipu_test_util as util
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ipu_test_util import FLOATS, INTEGERS

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu.lower import consumer_layouts

# Error of a sum of products, relative to the largest result.
TOLERANCE = {
  "float16": 4e-3,
  "bfloat16": 3e-2,
  "float32": 2e-5,
  "float64": 4e-14,
}


def check_product(check, f, *args):
  """Compares products with a bound that scales with the results."""
  dtype = args[0].dtype
  if not util.is_float(dtype):
    return check(f, *args)
  bound = TOLERANCE[dtype.name]
  depth = max((n for a in args for n in a.shape), default=1)
  check(f, *args, rtol=bound, atol=bound * np.sqrt(depth) / 4)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
def test_orientations(check, dtype):
  def products(a, b, at, bt):
    return {
      "ab": a @ b,
      "a'b": at.T @ b,
      "ab'": a @ bt.T,
      "a'b'": at.T @ bt.T,
      "(ba)'": lax.dot_general(b, a, (((0,), (1,)), ((), ()))),
      "row": a[0] @ b,
      "column": a @ b[:, 0],
      "inner": a[0] @ b[:, 0],
      "outer": jnp.outer(a[:, 0], b[0]),
    }

  a = util.sample(dtype, (37, 53), **_range(dtype))
  b = util.sample(dtype, (53, 29), **_range(dtype))
  check_product(check, products, a, b, a.T.copy(), b.T.copy())


@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=str)
def test_a_product_in_serial_steps(check, dtype):
  a = util.sample(dtype, (2500, 3072), **_range(dtype))
  b = util.sample(dtype, (3072, 2000), **_range(dtype), key=1)
  check_product(check, lambda a, b: a @ b, a, b)


@pytest.mark.ipu_only
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
def test_serial_steps_keep_sums_in_a_wide_type(ipu, cpu, dtype):
  """On one tile, whose SRAM has no room for copies of the operands."""
  a = util.sample(dtype, (301, 2900), **_range(dtype))
  b = util.sample(dtype, (2900, 317), **_range(dtype), key=1)
  options = {"ipu_num_tiles": 1, "ipu_allow_out_of_memory": True}
  product = jax.jit(jnp.matmul, compiler_options=options)
  actual = np.asarray(product(*jax.device_put((a, b), ipu)))
  expected = np.asarray(jax.jit(jnp.matmul)(*jax.device_put((a, b), cpu)))
  if not util.is_float(dtype):
    np.testing.assert_array_equal(actual, expected)
    return
  bound = TOLERANCE[dtype.name]
  np.testing.assert_allclose(
    actual.astype(np.float32), expected.astype(np.float32), bound, bound * 30
  )


def _range(dtype) -> dict[str, float]:
  return {"low": -1, "high": 1} if util.is_float(dtype) else {}


@pytest.mark.parametrize(
  "m,k,n",
  [
    (1, 1, 1), (0, 3, 4), (3, 0, 4), (3, 4, 0), (1, 1000, 1), (1000, 1, 1000),
    (1, 784, 1024), (32, 784, 1024), (128, 128, 128), (257, 129, 65),
    (3, 5000, 2), (2000, 7, 3), (512, 512, 512), (1472, 16, 16),
  ],
)  # fmt: skip
def test_shapes(check, m, k, n):
  a = util.sample(np.float32, (m, k), low=-1, high=1)
  b = util.sample(np.float32, (k, n), low=-1, high=1)
  check_product(check, jnp.matmul, a, b)


@pytest.mark.parametrize("b", [0, 1, 3])
@pytest.mark.parametrize(
  "m,k,n", [(2, 3, 4), (0, 3, 4), (2, 0, 4), (2, 3, 0), (1, 1, 0)]
)
def test_batches_of_small_products(check, b, m, k, n):
  lhs = util.sample(np.float32, (b, m, k), low=-1, high=1)
  rhs = util.sample(np.float32, (b, k, n), low=-1, high=1)
  check_product(check, jnp.matmul, lhs, rhs)


@pytest.mark.parametrize(
  "dtype", [np.float32, np.float64, np.int32, np.uint32, np.int64], ids=str
)
def test_products_that_fit_in_registers(check, dtype):
  """Also with a part of a register left over."""
  most = 16

  def products(a, b, bt):
    return [
      (a[:, :k] @ b[:k, :n], a[:, :k] @ bt[:n, :k].T, a[0, :k] @ bt[0, :k])
      for k, n in ((2, 8), (7, 4), (9, 3), (16, 13))
    ]

  a = util.sample(dtype, (2, most), **_range(dtype))
  b = util.sample(dtype, (most, most), **_range(dtype), key=1)
  with jax.enable_x64(a.itemsize == 8):
    check_product(check, products, a, b, b.T.copy())


@st.composite
def dot_generals(draw):
  """Operand shapes with their batch, contracting and free dimensions."""
  batch = draw(st.lists(st.integers(1, 4), max_size=2))
  contracting = draw(st.lists(st.integers(0, 6), max_size=2))
  shapes, dims = [], []
  for _ in range(2):
    free = draw(st.lists(st.integers(0, 5), max_size=2))
    sizes = [*batch, *contracting, *free]
    order = draw(st.permutations(range(len(sizes))))
    shapes.append([sizes[i] for i in order])
    place = [order.index(i) for i in range(len(sizes))]
    dims.append((place[: len(batch)], place[len(batch) :][: len(contracting)]))
  (lhs_batch, lhs_contract), (rhs_batch, rhs_contract) = dims
  return shapes, ((lhs_contract, rhs_contract), (lhs_batch, rhs_batch))


@given(dot_generals(), st.sampled_from([np.float32, np.int32, np.int8]))
def test_any_dimension_numbers(check, case, dtype):
  (lhs, rhs), numbers = case
  a, b = (
    util.sample(dtype, shape, low=-3, high=3, key=i)
    for i, shape in enumerate((lhs, rhs))
  )
  check_product(check, lambda a, b: lax.dot_general(a, b, numbers), a, b)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_batched(check, dtype):
  def products(a, b, c):
    return {
      "batched": a @ b,
      "broadcast": jnp.matmul(a, c),
      "attention": jnp.einsum("bik,bjk->bij", a, a),
      "batch in the middle": jnp.einsum("bik,bkj->ibj", a, b),
      "two batch dimensions": jnp.einsum(
        "bhik,bhkj->bhij", a.reshape(2, 3, 20, 24), b.reshape(2, 3, 24, 16)
      ),
      "two contracting dimensions": jnp.einsum("bik,bkj->ij", a, b),
      "free dimensions": jnp.einsum("bik,kj->bij", a, c),
    }

  a = util.sample(dtype, (6, 20, 24), low=-1, high=1)
  b = util.sample(dtype, (6, 24, 16), low=-1, high=1)
  c = util.sample(dtype, (24, 16), low=-1, high=1, key="c")
  check_product(check, products, a, b, c)


def test_preferred_element_type(check):
  def products(f16, bf16, i8, u8):
    numbers = (((1,), (0,)), ((), ()))

    def dot(a, to):
      return lax.dot_general(a, a.T, numbers, preferred_element_type=to)

    return {
      "f16 to f32": dot(f16, jnp.float32),
      "bf16 to f32": dot(bf16, jnp.float32),
      "i8 to i32": dot(i8, jnp.int32),
      "u8 to u32": dot(u8, jnp.uint32),
      "i8 to f32": dot(i8, jnp.float32),
    }

  f16, bf16, _ = (util.sample(t, (40, 300), low=-1, high=1) for t in FLOATS)
  i8, u8 = (util.sample(t, (40, 300)) for t in (np.int8, np.uint8))
  check(products, f16, bf16, i8, u8, rtol=1e-4, atol=1e-3)


def test_precision_argument(check):
  a = util.sample(np.float32, (64, 64), low=-1, high=1)
  for precision in ("default", "high", "highest"):
    check_product(check, lambda a: jnp.matmul(a, a, precision=precision), a)


def test_a_product_of_a_product_with_a_bias_and_an_activation(check):
  def layer(x, w, b):
    h = jnp.maximum(x @ w + b, 0)
    return h, (h @ w.T).sum(0), jnp.dot(h.T, x)

  check_product(
    check,
    layer,
    util.sample(np.float32, (48, 100), low=-1, high=1),
    util.sample(np.float32, (100, 72), low=-1, high=1),
    util.sample(np.float32, (72,), low=-1, high=1),
  )


def test_operands_that_are_views(check):
  """Slices, reversals and broadcasts as operands of products."""

  def products(a):
    return [
      a[::2] @ a[:, ::2],
      a[::-1] @ a[:, 3:9],
      a @ jnp.broadcast_to(a[:, :1], (60, 5)),
      jnp.concatenate([a, a], 1) @ jnp.concatenate([a, a], 0),
      a.reshape(30, 120) @ a.reshape(120, 30),
    ]

  check_product(
    check, products, util.sample(np.float32, (60, 60), low=-1, high=1)
  )


def test_infinity_and_nan_propagate(check):
  a = np.ones((8, 16), np.float32)
  a[1, 2], a[3, 4], a[5, 6] = np.inf, np.nan, -np.inf
  b = util.sample(np.float32, (16, 8), low=0.5, high=1)
  check(jnp.matmul, a, b, rtol=1e-5)


@pytest.mark.ipu_only
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32], ids=str)
def test_a_large_matrix_stays_in_place(check, ipu, monkeypatch, dtype):
  a = util.sample(dtype, (30000, 64), **_range(dtype))
  x = util.sample(dtype, (64,), **_range(dtype), key=1)
  y = util.sample(dtype, (30000,), **_range(dtype), key=2)

  def products(a, x, y):
    return a @ x, y @ a, (a * 2) @ x

  check_product(check, products, a, x, y)
  chosen = util.costs(ipu, products, a, x, y)
  monkeypatch.setattr(consumer_layouts, "_choose", lambda *_: {})
  # A function of its own: JAX keeps what it has compiled.
  usual = util.costs(ipu, lambda a, x, y: products(a, x, y)[::-1], a, x, y)
  assert usual["ipu exchange bytes"] < a.nbytes / 3
  assert chosen["ipu cycles"] <= usual["ipu cycles"]


def test_means_of_huge_numbers(check):
  # The sum of any two of them overflows; sums of their shares do not.
  x = np.full((400, 16), 3e38, np.float32)
  check(lambda x: x @ jnp.full((16, 4), 1 / 16, jnp.float32), x)


@pytest.mark.parametrize("dtype", [*FLOATS, np.int8, np.int32], ids=str)
def test_outer_products(check, dtype):
  def products(a, b, c):
    outer = jnp.einsum("bi,bj->bij", a, b)
    wide = np.float32 if dtype in FLOATS else np.int32
    return {
      "batched": outer,
      "signs of zeros": jnp.signbit(outer.astype(np.float32)),
      "of vectors": jnp.einsum("i,j->ji", a[0], b[1]),
      "by a scalar": jnp.tensordot(a, c, 0),
      "wider": jnp.einsum(
        "bi,bj->jbi", a, b, preferred_element_type=wide
      ),
      "step": a - jnp.einsum("i,j->ij", b[:, 0], a[0]),
    }  # fmt: skip

  a, b = (
    util.sample(dtype, (5, n), low=-2, high=2, key=n).round() for n in (7, 4)
  )
  a[0, :2], b[0, :2] = [0, -0.0], [-1, 0]
  check(products, a, b, a[0, 0], rtol=0)


@st.composite
def small_products(draw):
  """Many products of a few elements, of which one may be shared by all: an
  equation and the operands' shapes.
  """
  sizes = {d: draw(st.integers(1, 5)) for d in "mkn"}
  sizes["b"] = draw(st.sampled_from([1, 15, 16, 63, 64, 65, 200]))
  lhs, rhs = (draw(st.permutations(x)) for x in ("bmk", "bkn"))
  if draw(st.booleans()):
    rhs.remove("b")
  for dims in lhs, rhs:
    for d in draw(st.sampled_from(["", "m", "n"])):
      if d in dims:
        dims.remove(d)
  kept = sorted({*lhs, *rhs} - {"k"})
  result = draw(st.permutations(kept))
  equation = f"{''.join(lhs)},{''.join(rhs)}->{''.join(result)}"
  return equation, [[sizes[d] for d in dims] for dims in (lhs, rhs)]


@given(
  small_products(),
  st.sampled_from([*FLOATS, np.int32, np.int8, np.uint8]),
)
def test_many_small_products(check, case, dtype):
  equation, shapes = case
  a, b = (
    util.sample(dtype, shape, low=0, high=4, key=i).round()
    for i, shape in enumerate(shapes)
  )
  check_product(check, lambda a, b: jnp.einsum(equation, a, b), a, b)


@pytest.mark.parametrize("k", [1, 3, 8, 9])
def test_few_terms_for_each_of_many_columns(check, k):
  a = util.sample(np.float32, (1000, k), low=-1, high=1)
  b = util.sample(np.float32, (k,), low=-1, high=1)
  check_product(check, lambda a, b: (a @ b, b @ a.T, a[::2] @ b), a, b)


def test_outer_products_of_mixed_types(check):
  def product(a, b):
    return lax.dot_general(
      a, b, (((), ()), ((), ())), preferred_element_type=jnp.float32
    )

  with jax.enable_x64(True):
    b = np.array([0.3, 1.7, -0.0], np.float32)
    for dtype in (np.int8, np.int64, np.float16):
      check(product, np.arange(1, 5).astype(dtype), b, rtol=0)
