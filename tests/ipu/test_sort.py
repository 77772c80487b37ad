"""Sorts by any keys, along any dimension, with any comparator; top_k."""

from __future__ import annotations

import ipu_test_util as util
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ipu_test_util import ALL, WIDE
from lowering_kit import check as check_tiles
from lowering_kit import phases

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu.ops.sort import SORT
from jaxlib.ipu.program import container, schema

SHAPES = ((1,), (7,), (193,), (3, 0), (0, 3), (4, 40), (37, 3, 5))


def ties(dtype, shape, key=None):
  """Values with many ties, special ones included."""
  values = util.sample(dtype, shape, low=0, high=9, special=True, key=key)
  if util.is_float(dtype):
    values = np.where(np.isnan(values), values, np.round(values)).astype(dtype)
    odd = util.rng_of(shape).random(shape)
    values = np.where(odd < 0.1, -np.zeros_like(values), values)
    values = np.where(odd > 0.9, -np.full_like(values, np.nan), values)
  return values


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_sort(check, dtype, shape):
  def sorts(x):
    return {
      "sort": jnp.sort(x),
      "first dimension": jnp.sort(x, 0),
      "descending": jnp.sort(x, descending=True),
      "argsort": jnp.argsort(x),
      "argsort descending": jnp.argsort(x, 0, descending=True),
      # Either of two equal zeros may come first.
      "unstable": lax.sort(x, x.ndim - 1, is_stable=False) == 0,
    }

  check(sorts, ties(dtype, shape), exact=True)


@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_sort_of_64_bits(check, dtype):
  with jax.enable_x64(True):
    x = ties(dtype, (5, 300))
    check(lambda x: (jnp.sort(x), jnp.argsort(x, 0)), x, exact=True)
    check(lambda x: lax.sort((x, -x, x), num_keys=2), x, exact=True)
    check(lambda x: lax.top_k(x, 9), x, exact=True)


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32], ids=str)
@pytest.mark.parametrize("n", [20_000, 100_001])
def test_long_rows(check, dtype, n):
  """They are shared by threads and use wide digits."""
  x = util.sample(dtype, (n,))
  check(lambda x: (jnp.sort(x), jnp.argsort(x)), x, exact=True)
  x[n // 2] = 0
  check(lambda x: (jnp.sort(-x), lax.top_k(x, 100)), x, exact=True)
  check(lambda x: jnp.sort(x * 0 + 1), x, exact=True)


def test_several_keys(check):
  a = ties(np.int8, (6, 50))
  b = ties(np.float32, (6, 50))
  c = ties(np.uint16, (6, 50))

  def sorts(a, b, c):
    return [
      lax.sort((a, b, c), dimension, num_keys=keys)
      for dimension in (0, 1)
      for keys in (1, 2, 3)
    ]

  check(sorts, a, b, c, exact=True)
  check(lambda a, b, c: jnp.lexsort((a, b, c)), a, b, c)
  check(lambda b: lax.sort((b, -b, b * 2, b), num_keys=3), b, exact=True)


@pytest.mark.parametrize("k", [0, 1, 3, 40])
@pytest.mark.parametrize("dtype", ALL[1:], ids=str)
def test_top_k(check, dtype, k):
  x = ties(dtype, (5, 40))
  if util.is_float(dtype):
    x = np.abs(x)  # NaN of either sign: see the next test
  check(lambda x: lax.top_k(x, k), x, exact=True)
  check(lambda x: lax.top_k(x, min(k, 5), axis=0), x, exact=True)


@pytest.mark.parametrize("shape, k", [((0, 3), 0), ((0, 3), 2), ((5, 3), 0)])
def test_empty_top_k(check, shape, k):
  check(lambda x: lax.top_k(x, k), np.zeros(shape, np.float32), exact=True)


@pytest.mark.parametrize("k", [1, 10, 2000, 20_000])
def test_top_k_of_long_rows(check, k):
  x = util.sample(np.float32, (2, 50_000))
  check(lambda x: lax.top_k(x, k), x, exact=True)
  check(lambda x: lax.top_k(jnp.round(x), k), x, exact=True)
  check(lambda x: lax.top_k(jnp.sort(x), k), x, exact=True)


def test_sliced_sorts_become_partial_sorts():
  def kept(f):
    state = phases(f, [np.zeros((4, 90), np.float32)], 16)
    nodes = [n for n in state.module.graph.nodes if n.op == SORT]
    return [n.attributes.keep for n in nodes]

  assert kept(lambda x: lax.top_k(x, 3)) == [3]
  assert kept(lambda x: jnp.sort(x)[:, 5:7]) == [7]
  assert kept(lambda x: jnp.sort(x)[:, ::-1]) == [None]
  assert kept(lambda x: (jnp.sort(x)[:, :3], jnp.sort(x))) == [None]


def cycles(ipu, f, *args):
  return util.costs(ipu, f, *args)["ipu cycles"]


def test_top_k_with_a_large_k_takes_no_longer_than_a_sort(ipu):
  x = np.zeros(100_000, np.float32)
  many = cycles(ipu, lambda x: lax.top_k(x, 40_000), x)
  assert many < 1.1 * cycles(ipu, jnp.argsort, x)


@pytest.mark.parametrize(
  "f", [jnp.sort, jnp.argsort, lambda x: lax.top_k(x, 5)]
)
@pytest.mark.parametrize("shape", [(192, 192), (16, 1024), (100, 10)], ids=str)
def test_narrow_elements_take_no_longer(ipu, f, shape):
  narrow, wide = (
    cycles(ipu, f, np.zeros(shape, d)) for d in (np.int8, np.int32)
  )
  assert narrow < 1.2 * wide


def test_approximate_top_k(check):
  x = util.sample(np.float32, (3, 5000))

  def f(x):
    return {
      "max": lax.approx_max_k(x, 10),
      "min": lax.approx_min_k(x, 7),
      "rows": lax.approx_max_k(x, 2, reduction_dimension=0),
      "not aggregated": lax.approx_min_k(x, 3, aggregate_to_topk=False),
    }

  check(f, x, exact=True)
  check(jax.grad(lambda x: lax.approx_max_k(x, 10)[0].sum()), x)


def test_functions_based_on_sort(check):
  x = ties(np.float32, (7, 31), "users")
  i = ties(np.int32, (60,), "users")

  def uses(x, i):
    return {
      "median": jnp.median(x, 1),
      "quantile": jnp.quantile(x, jnp.array([0.1, 0.9]), axis=0),
      "percentile": jnp.nanpercentile(x, 30.0),
      "searchsorted": jnp.searchsorted(jnp.sort(i), i),
      "partition": jnp.partition(i, 12),
      "argpartition": jnp.argpartition(i, 12)[12],
      "key, value": lax.sort_key_val(i, jnp.arange(60)),
      "unique": jnp.unique(i, size=20),
      "inverse": jnp.unique(i, size=9, return_inverse=True)[1],
      "by sort": jnp.searchsorted(jnp.sort(i), i, method="sort"),
      "union": jnp.union1d(i, i * 2, size=30),
      "isin": jnp.isin(i, i[:7], method="sort"),
      "mode": jax.scipy.stats.mode(i).mode,
    }

  check(uses, x, i)


def test_random_permutations(check):
  def draw(n):
    key = jax.random.key(n[0, 0])
    return {
      "permutation": jax.random.permutation(key, 100),
      "rows": jax.random.permutation(key, jnp.arange(40.0).reshape(5, 8)),
      "each": jax.random.permutation(key, n, independent=True),
      "choice": jax.random.choice(key, 50, (20,), replace=False),
      "weighted": jax.random.choice(
        key, 9, (4,), replace=False, p=jnp.arange(9) / 36.0
      ),
    }

  check(draw, np.arange(30, dtype=np.int32).reshape(5, 6))


def test_gradients_and_vmap(check):
  x = util.sample(np.float32, (4, 12), low=-9, high=9)

  def loss(x):
    w = jnp.arange(48.0).reshape(4, 12)
    return (jnp.sort(x) * w).sum() + (lax.top_k(x, 3)[0] ** 2).sum()

  def pairs(x):
    return lax.sort_key_val(x, jnp.sin(x))[1] * jnp.arange(12)

  check(jax.grad(loss), x)
  check(jax.vmap(pairs), x)
  check(jax.vmap(jax.grad(lambda x: pairs(x).sum())), x)
  check(jax.vmap(lambda x: jnp.sort(x), in_axes=1, out_axes=1), x)
  check(lambda x: jax.jvp(jnp.sort, (x,), (x * 2,)), x)


def test_sorts_in_loops(check):
  def body(x, y):
    x = jnp.sort(x + y)
    return x, lax.top_k(x, 2)[1]

  x = util.sample(np.float32, (30,))
  check(lambda x: lax.scan(body, x, x[:4]), x)
  check(lambda x: lax.cond(x[0] > 0, jnp.sort, lambda x: -jnp.sort(x), x), x)


COMPARATORS = {
  "absolute value": """
    %c = stablehlo.abs %a : tensor<f32>
    %d = stablehlo.abs %b : tensor<f32>
    %r = stablehlo.compare LT, %c, %d : (tensor<f32>, tensor<f32>) -> tensor<i1>
  """,
  "the second operand alone": """
    %r = stablehlo.compare GT, %i, %j : (tensor<i32>, tensor<i32>) -> tensor<i1>
  """,
  "mixed directions": """
    %l = stablehlo.compare GT, %i, %j : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %e = stablehlo.compare EQ, %j, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %d = stablehlo.compare LT, %a, %b, TOTALORDER :
      (tensor<f32>, tensor<f32>) -> tensor<i1>
    %f = stablehlo.and %d, %e : tensor<i1>
    %r = stablehlo.or %f, %l : tensor<i1>
  """,
  "a partial order": """
    %r = stablehlo.compare LT, %b, %a : (tensor<f32>, tensor<f32>) -> tensor<i1>
  """,
  "remainders": """
    %s = stablehlo.constant dense<7> : tensor<i32>
    %c = stablehlo.remainder %i, %s : tensor<i32>
    %d = stablehlo.remainder %j, %s : tensor<i32>
    %r = stablehlo.compare LT, %c, %d : (tensor<i32>, tensor<i32>) -> tensor<i1>
  """,
  "nothing": "%r = stablehlo.constant dense<false> : tensor<i1>",
}


@pytest.mark.parametrize("dimension", [0, 1])
@pytest.mark.parametrize("comparator", COMPARATORS)
def test_comparators(check, comparator, dimension):
  shape = (9, 700) if dimension else (300, 5)
  type_ = "x".join(map(str, shape))
  text = f"""
    func.func @main(%p: tensor<i32>, %x: tensor<{type_}xf32>,
        %y: tensor<{type_}xi32>)
        -> (tensor<{type_}xf32>, tensor<{type_}xi32>) {{
      %z:2 = "stablehlo.sort"(%x, %y) <{{
          dimension = {dimension} : i64, is_stable = true}}> ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>, %i: tensor<i32>,
             %j: tensor<i32>):
          {COMPARATORS[comparator]}
          stablehlo.return %r : tensor<i1>
      }}) : (tensor<{type_}xf32>, tensor<{type_}xi32>)
          -> (tensor<{type_}xf32>, tensor<{type_}xi32>)
      return %z#0, %z#1 : tensor<{type_}xf32>, tensor<{type_}xi32>
    }}"""
  x = np.round(util.sample(np.float32, shape, low=-20, high=20))
  y = util.sample(np.int32, shape, low=-30, high=30)
  check(util.from_stablehlo(text, x, y), x, y, exact=True)


@given(st.data())
def test_any_sort(check, data):
  shape = tuple(data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=3)))
  dimension = data.draw(st.integers(0, len(shape) - 1))
  dtypes = data.draw(st.lists(st.sampled_from(ALL), min_size=1, max_size=4))
  keys = data.draw(st.integers(1, len(dtypes)))
  operands = [ties(d, shape, j) for j, d in enumerate(dtypes)]
  limit = data.draw(st.integers(1, shape[dimension]))

  def f(*operands):
    found = lax.sort(operands, dimension, num_keys=keys)
    return [lax.slice_in_dim(x, 0, limit, axis=dimension) for x in found]

  check(f, *operands, exact=True)


def moved_by_sort(cpu, f, x, tiles: int) -> tuple[float, float]:
  """Bytes that change tile in a function's only sort, and planned bytes."""
  result = check_tiles(cpu, f, [x], tiles)
  program, _ = container.read(phases(f, [x], tiles).data)
  (sort,) = (
    str(i)
    for i, step in enumerate(program.steps)
    if isinstance(step, schema.Execute) and isinstance(step.fields, schema.Sort)
  )
  (step,) = (e for e in result.exchanges if e.step == sort)
  return step.actual, step.planned


@pytest.mark.parametrize("tiles", [2, 16])
def test_pairs_of_tiles_exchange_halves_both_ways(cpu, tiles):
  x = ties(np.float32, (tiles * 64,))
  rounds = tiles.bit_length() - 1
  supersteps = rounds * (rounds + 1)
  for f, item in ((jnp.sort, 4), (jnp.argsort, 8)):  # key, number
    actual, planned = moved_by_sort(cpu, f, x, tiles)
    assert actual == planned == supersteps * x.size / 2 * item


def test_top_k_merges_tiles_pairwise(cpu):
  x = ties(np.float32, (11 * 64,))
  # Of 11 tiles 5, 3, 1 and 1 send 5 keys with their numbers to another.
  actual, planned = moved_by_sort(cpu, lambda x: lax.top_k(x, 5), x, 11)
  merged = (5 + 3 + 1 + 1) * 5 * 8
  assert merged <= actual <= planned <= merged + 5 * 8


@pytest.mark.parametrize("tiles", [3, 7, 13])
@pytest.mark.parametrize("shape", [(3, 700), (1, 450), (900, 2)])
def test_any_number_of_tiles(cpu, shape, tiles):
  check_tiles(
    cpu,
    lambda x: (jnp.sort(x), jnp.argsort(x), jnp.sort(x)[:, : shape[1] - 1]),
    [ties(np.float32, shape)],
    tiles,
  )


def test_element_indices_are_no_operand(check):
  """No iota is stored, unless it is a key or counts along another dimension."""

  def places(f, *shape):
    module = phases(f, [np.zeros(shape, np.float32)], 16).module
    return [
      (node.attributes.number, len(node.inputs))
      for node in module.graph.nodes
      if node.op == SORT
    ]

  assert places(jnp.argsort, 40) == [(1, 1)]
  assert places(lambda x: lax.top_k(x, 3), 4, 40) == [(1, 1)]
  assert places(jnp.sort, 40) == [(None, 1)]

  def by_number(x):
    i = lax.broadcasted_iota(jnp.int32, x.shape, 0)
    j = lax.broadcasted_iota(jnp.int32, x.shape, 1)
    return [
      lax.sort((i, x, j), num_keys=2),
      lax.sort((x, i, j, x * 2)),
      lax.sort((j, x), num_keys=1),
      lax.sort((x, j), 0),
    ]

  assert places(by_number, 5, 7) == [(2, 2), (2, 3), (None, 2), (None, 2)]
  check(by_number, ties(np.float32, (5, 7)), exact=True)
