"""Matrix products in all forms of dot_general."""

from __future__ import annotations

import dataclasses

import ipu_test_util as util
import lowering_kit
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ipu_test_util import FLOATS, INTEGERS

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu.lower import consumer_layouts
from jaxlib.ipu.ops import _dot_split, _dot_steps
from jaxlib.ipu.plan import matmul

# Error of a sum of products, relative to the largest result.
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5}


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


@pytest.mark.ipu_only
def test_f16_accumulation_takes_fewer_cycles(ipu):
  x = jax.device_put(util.sample(np.float16, (1472, 96), low=-1, high=1), ipu)

  def compiled(algorithm):
    f = lambda x: jnp.matmul(x, x.T, precision=algorithm)
    return jax.jit(f).lower(x).compile()

  f32, f16 = (compiled(f"F16_F16_{sums}") for sums in ("F32", "F16"))
  np.testing.assert_array_equal(f32(x), f16(x))
  key = "ipu compute cycles"
  assert f16.cost_analysis()[key] < 0.75 * f32.cost_analysis()[key]


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


# --- Serial steps -------------------------------------------------------------


@pytest.mark.ipu_only
def test_serial_steps_over_results_and_terms(cpu, monkeypatch):
  """In any number of steps, as if none with fewer fitted."""
  steps = matmul.ONE
  seen = set()

  def in_steps(target, b, m, n, k, lhs, rhs, out, f16_sums=False, *_):
    few = matmul.Steps(*map(min, steps, (m, n, k)))
    seen.add(few)
    sums = matmul._KEPT.get(out, out)
    found = matmul._plan_step(
      target, (b, m, n, k), (lhs, rhs, out, sums), few, f16_sums
    )
    return dataclasses.replace(found, fits=True)

  monkeypatch.setattr(matmul, "plan", in_steps)
  # Nor do operands stay in place.
  monkeypatch.setattr(_dot_split._Cheaper, "_ways", lambda *_: iter(()))

  @settings(max_examples=20)
  @given(
    extents=st.tuples(*[st.integers(1, 12)] * 3),
    several=st.tuples(*[st.integers(1, 3)] * 3),
    transposed=st.tuples(st.booleans(), st.booleans()),
    loop=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float16, np.int32]),
    tiles=st.sampled_from([1, 3, 16]),
  )
  def products(extents, several, transposed, loop, dtype, tiles):
    nonlocal steps
    steps = matmul.Steps(*several)
    m, n, k = extents
    # Integers: sums do not depend on their order, and halves hold them.
    a = util.sample(np.int8, (2, m, 3, k), low=-3, high=4).astype(dtype)
    b = util.sample(np.int8, (k, 3, n), low=-3, high=4, key=1).astype(dtype)

    def product(a, b):
      out = "bnm" if transposed[0] else "mbn"
      if transposed[1]:
        found = jnp.einsum(f"bmik,kin->{out}", a, b)
      else:
        found = jnp.einsum(f"bmik,kjn->{out}ij", a, b)
      return found + 1

    def repeated(a, b):
      total = jnp.zeros_like(product(a, b))
      return lax.fori_loop(0, 3, lambda i, x: x + product(a, b), total)

    f = repeated if loop else product
    lowering_kit.check(cpu, f, [a, b], tiles)

  products()
  assert any(s.rows > 1 < s.terms for s in seen)
  assert any(s.columns > 1 < s.rows for s in seen)


@pytest.mark.ipu_only
def test_large_products_fit(ipu):
  """Operands and result take 43 % of the SRAM, or 48 %; sums of halves in f32
  as much as both operands."""
  for dtype, n in (np.float16, 8192), (np.float32, 6144):
    costs = util.costs(ipu, jnp.matmul, *[util.spec(n, n, dtype=dtype)] * 2)
    assert costs["ipu peak tile bytes with gaps"] <= 624 * 1024
    # At least 70 % of the matrix unit's rate.
    rate = 32 if dtype is np.float16 else 16
    assert n**3 / (1472 * rate) > 0.7 * costs["ipu cycles"]


# --- Operands that stay in place ----------------------------------------------


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


@pytest.mark.ipu_only
def test_only_the_vector_is_exchanged(ipu):
  costs = util.costs(ipu, jnp.matmul, util.spec(10000, 1000), util.spec(1000))
  tiles = -(-10000 // 7)  # seven rows each
  assert costs["ipu exchange bytes"] < tiles * 4000 * 1.1
  assert costs["ipu exchange cycles"] < 700


@pytest.mark.ipu_only
def test_any_operand_may_stay_in_place(cpu, monkeypatch):
  """Regardless of cost: pretends that no other plan fits the tiles."""
  planned, choose, stayed = matmul.plan, _dot_steps.choose, []

  def fits_nowhere(*args):
    return dataclasses.replace(planned(*args), fits=False)

  def chosen(builder, product):
    found = choose(builder, product)
    stayed.append(not found.parts)
    return found

  monkeypatch.setattr(matmul, "plan", fits_nowhere)
  monkeypatch.setattr(_dot_steps, "choose", chosen)

  @given(
    extents=st.tuples(*[st.integers(1, 70)] * 3),
    transposed=st.tuples(st.booleans(), st.booleans()),
    batch=st.integers(1, 3),
    tiles=st.sampled_from(lowering_kit.TILES),
  )
  def products(extents, transposed, batch, tiles):
    m, n, k = extents
    shape = (batch, k, m) if transposed[0] else (batch, m, k)
    # Integers: sums do not depend on their order.
    a = util.sample(np.int8, shape, low=1, high=9).astype(np.float32)
    shape = (n, k) if transposed[1] else (k, n)
    b = util.sample(np.int8, shape, low=1, high=9, key=1).astype(np.float32)

    def product(a, b):
      a = a.swapaxes(1, 2) if transposed[0] else a
      return (a + 1) @ (b.T if transposed[1] else b)

    lowering_kit.check(cpu, product, [a, b], tiles)

  products()
  assert sum(stayed) > len(stayed) / 2


def _convolution(x, w):
  numbers = ("NHWC", "HWIO", "NHWC")
  return lax.conv_general_dilated(
    x, w, (1, 1), "SAME", dimension_numbers=numbers
  )


@pytest.mark.ipu_only
@pytest.mark.parametrize(
  "f, shapes",
  [
    (jnp.matmul, ((1024, 2048), (2048, 1024))),
    (_convolution, ((8, 28, 28, 128), (3, 3, 128, 128))),
  ],
  ids=["product", "convolution"],
)
def test_products_respect_the_available_memory_proportion(ipu, f, shapes):
  """With less SRAM they use serial steps or smaller blocks, and take longer."""
  arguments = jax.device_put([np.ones(s, np.float32) for s in shapes], ipu)

  def compiled(**options):
    return jax.jit(f).lower(*arguments).compile(options or None)

  found = [
    compiled(ipu_available_memory_proportion=share).cost_analysis()
    for share in (0.6, 0.15, 0.06)
  ]
  assert compiled().cost_analysis() == found[0]
  first, middle, last = (c["ipu peak tile bytes"] for c in found)
  assert first > middle > last
  cycles = [c["ipu cycles"] for c in found]
  assert cycles == sorted(cycles)
  least = compiled(ipu_available_memory_proportion=0.06)
  np.testing.assert_array_equal(least(*arguments), compiled()(*arguments))


@pytest.mark.ipu_only
@pytest.mark.parametrize("n", [100, 512, 1000, 1024])
def test_f16_products_are_split_at_whole_words(ipu, n):
  """Blocks that split words would have to be reassembled on arrival."""
  for f in (jnp.matmul, lambda x, y: x @ y.T):
    f32, f16 = (
      util.costs(ipu, f, *[util.spec(n, n, dtype=dtype)] * 2)["ipu cycles"]
      for dtype in (np.float32, np.float16)
    )
    assert f16 < (0.65 if n > 100 else 1) * f32


# Cycles of a compute set that casts a vector on each worker.
CAST = 222


@pytest.mark.ipu_only
@pytest.mark.parametrize(
  "m, k, n", [(2, 33, 512), (3, 15, 512), (300, 20, 512)]
)
def test_small_f16_products_cost_no_more_than_f32(ipu, m, k, n):
  f32, f16 = (
    util.costs(
      ipu,
      jnp.matmul,
      util.spec(m, k, dtype=dtype),
      util.spec(k, n, dtype=dtype),
    )["ipu cycles"]
    for dtype in (np.float32, np.float16)
  )
  # Sums of more terms than the matrix unit chains are cast from f32.
  assert f16 < f32 + (CAST if k > 16 else 0)


@pytest.mark.ipu_only
def test_f16_products_are_summed_in_f32_and_cast(ipu):
  """Long sums have a buffer and are charged for a cast; sums of no more terms
  than the matrix unit chains are rounded as they are stored."""

  def product(terms, to):
    left, right = (
      jax.ShapeDtypeStruct(shape, np.float16)
      for shape in ((1024, terms), (terms, 1024))
    )
    f = jax.jit(lambda x, y: lax.dot(x, y, preferred_element_type=to))
    with jax.default_device(ipu):
      found = f.lower(left, right).compile()
    cycles = found.cost_analysis()["ipu compute cycles"]
    return cycles, found.memory_analysis().temp_size_in_bytes

  cast, buffered = product(64, np.float16)
  sums, size = product(64, np.float32)
  assert cast > sums + CAST and buffered >= size + 4 * 1024**2
  assert product(16, np.float16) < product(16, np.float32)


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


@pytest.mark.ipu_only
def test_outer_products_are_fused_into_their_users(ipu):
  """One compute set, and its exchange."""

  def step(w, x, y):
    return w - 0.1 * jnp.einsum("i,j->ij", x, y)

  shapes = util.spec(64, 64), util.spec(64), util.spec(64)
  assert util.costs(ipu, step, *shapes)["ipu supersteps"] == 1


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
