"""How products are split: serial steps, operands in place, memory, cycles."""

from __future__ import annotations

import dataclasses

import ipu_test_util as util
import lowering_kit
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu.ops import _dot_split, _dot_steps
from jaxlib.ipu.plan import matmul


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


def test_equal_splits_are_priced_once(monkeypatch):
  """The variants with whole windows are mostly the same."""
  offered, priced = [], []
  ways, least_cycles = _dot_split._Cheaper._ways, matmul.least_cycles

  def listed(self, *given):
    for way in ways(self, *given):
      offered.append((id(self), *way))
      yield way

  def counted(*given):
    priced.append(given)
    return least_cycles(*given)

  monkeypatch.setattr(_dot_split._Cheaper, "_ways", listed)
  monkeypatch.setattr(matmul, "least_cycles", counted)

  def convolved(x, kernel):
    return lax.conv(x, kernel, (1, 1), "SAME")

  x, kernel = (np.ones(s, np.float32) for s in ((1, 4, 9, 9), (8, 4, 3, 3)))
  lowering_kit.compiled(convolved, [x, kernel], 16)
  assert len(priced) == len(set(offered)) < len(offered)


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


@pytest.mark.ipu_only
def test_outer_products_are_fused_into_their_users(ipu):
  """One compute set, and its exchange."""

  def step(w, x, y):
    return w - 0.1 * jnp.einsum("i,j->ij", x, y)

  shapes = util.spec(64, 64), util.spec(64), util.spec(64)
  assert util.costs(ipu, step, *shapes)["ipu supersteps"] == 1
