"""Passes that make programs do less: products of slices leave loops, parts of a
gradient are joined without zeros, and equal reductions are one."""

from __future__ import annotations

import ipu_test_util as util
import lowering_kit
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu.ir.graph import Graph
from jaxlib.ipu.ir.map_program import MapProgram
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.pipeline import Phase


def graph(f, *arguments) -> Graph:
  state = lowering_kit.phases(f, list(arguments), 16, stop_after=Phase.FUSE)
  return state.module.graph


def count(inner: Graph, name: str, regions: bool = True) -> int:
  found = sum(n.op == f"stablehlo.{name}" for n in inner.nodes)
  for node in inner.nodes if regions else ():
    found += sum(count(region, name) for region in node.regions)
  return found


def test_planes_of_a_complex_result_are_one_map(check):
  z = util.sample(np.float32, (2, 2000))
  z = (z[0] + 1j * z[1]).astype(np.complex64)
  for f in (jnp.negative, lambda z: z + z):
    assert sum(n.op == "ipu.map" for n in graph(f, z).nodes) == 1
    check(f, z, rtol=0)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sums_of_halves_read_what_is_stored(check, dtype):
  x = util.sample(np.dtype(jnp.dtype(dtype)), (40, 70))
  exponentials = sum(
    i.op is Opcode.EXP
    for node in graph(jax.nn.softmax, x).nodes
    for program in (node.attributes, getattr(node.attributes, "prologue", None))
    if isinstance(program, MapProgram)
    for i in program.code
  )
  assert exponentials == 1
  check(jax.nn.softmax, x, rtol=float(jnp.finfo(dtype).eps))


XS, W = util.sample(np.float32, (6, 4, 3)), util.sample(np.float32, (3, 5))


def scan(product, xs=XS):
  """A scan whose state each product is added to."""

  def f(xs, w):
    def step(carry, x):
      carry = jnp.tanh(carry + product(x, w))
      return carry, carry.sum(0)

    shape = jax.eval_shape(product, xs[0], w).shape
    return lax.scan(step, jnp.zeros(shape, xs.dtype), xs)

  return f


PRODUCTS = {
  "left": (lambda x, w: x @ w, XS, W),
  "right": (
    lambda x, w: lax.dot_general(w, x, (((0,), (1,)), ((), ()))), XS, W
  ),
  "batch": (
    lambda x, w: jnp.einsum("bij,bkj->ibk", x, w),
    util.sample(np.float32, (4, 2, 3, 5)),
    util.sample(np.float32, (2, 7, 5)),
  ),
  "batch, right": (
    lambda x, w: jnp.einsum("bkj,bij->kbi", w, x),
    util.sample(np.float32, (4, 2, 3, 5)),
    util.sample(np.float32, (2, 7, 5)),
  ),
  "f16": (lambda x, w: x @ w, XS.astype(np.float16), W.astype(np.float16)),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_slices_leave_a_loop(check, name):
  product, xs, w = PRODUCTS[name]
  f = scan(product)
  whole = graph(f, xs, w)
  assert count(whole, "dot_general") == 1
  assert count(whole, "dot_general", regions=False) == 1
  check(f, xs, w, rtol=2e-3 if xs.dtype == np.float16 else 1e-5, atol=1e-3)


def test_slices_in_any_order(check):
  """Indices are clamped, and repeat."""

  def f(xs, w, order):
    def step(i, total):
      x = lax.dynamic_index_in_dim(xs, order[i], keepdims=False)
      return total * 0.5 + x @ w

    return lax.fori_loop(0, 8, step, jnp.zeros((4, 5), np.float32))

  order = np.int32([0, 5, 9, 2, 2, 1, 3, 7])
  assert count(graph(f, XS, W, order), "dot_general", regions=False) == 1
  check(f, XS, W, order)


def few_of_many(xs, w):
  """Two iterations of a loop over six slices."""

  def step(i, total):
    return total + xs[i] @ w

  return lax.fori_loop(0, 2, step, jnp.zeros((4, 5), np.float32))


def of_what_changes(xs, w):
  def step(w, x):
    return jnp.tanh(w + 1), x @ w

  return lax.scan(step, w, xs)


def of_unknown_length(xs, w):
  def step(state):
    i, total = state
    return i + 1, total + xs[i] @ w

  start = jnp.int32(0), jnp.zeros((4, 5), np.float32)
  return lax.while_loop(lambda s: s[1].sum() + s[0] < 3, step, start)[1]


@pytest.mark.parametrize("f", [few_of_many, of_what_changes, of_unknown_length])
def test_products_that_stay_in_their_loop(check, f):
  assert count(graph(f, XS, W), "dot_general", regions=False) == 0
  # Three terms of up to 4, which XLA adds in another order.
  check(f, XS, W, rtol=1e-6, atol=3 * 4 * np.finfo(np.float32).eps)


def test_large_products_stay_in_their_loop():
  """What all iterations would compute takes a large part of the SRAM."""
  xs, w = util.spec(64, 64, 4), util.spec(4, 1024)
  assert (
    count(graph(scan(lambda x, w: x @ w), xs, w), "dot_general", False) == 0
  )


def taken_apart(x):
  a, b, c = jnp.tanh(x)
  return (a * b - jnp.exp(c)).sum()


def split(x):
  a, b = x[:, :2], x[:, 2:]
  return (a.sum(1) * jnp.exp(b).sum(1)).sum()


@pytest.mark.parametrize("f", [taken_apart, split])
def test_gradients_of_parts_are_joined(check, f):
  x = util.sample(np.float32, (3, 5))
  found = graph(jax.grad(f), x)
  assert (count(found, "pad"), count(found, "concatenate")) == (0, 1)
  check(jax.grad(f), x, rtol=1e-4, atol=1e-6)


def sum_of_pads(*places):
  """A sum of arrays between zeros, before and after each of them."""

  def f(*parts):
    padded = [
      jnp.pad(p, [(0, 0), place])
      for p, place in zip(parts, places, strict=True)
    ]
    return sum(padded[1:], padded[0])

  return f


PARTS = np.float32([[-0.0, 0.0, 1.0], [-2.0, 5.0, -0.0]])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
@pytest.mark.parametrize(
  "places", [((4, 0), (1, 3)), ((0, 6), (3, 3), (6, 0))], ids=str
)
def test_sums_of_padded_neighbours(check, dtype, places):
  """In the signs of zeros too: -0 + 0 is 0."""
  parts = [PARTS.astype(dtype)] * len(places)
  f = sum_of_pads(*places)
  found = graph(f, *parts)
  assert count(found, "concatenate") == 1
  assert count(found, "pad") == (places[0] == (4, 0))
  check(f, *parts, exact=True)


@pytest.mark.parametrize(
  "places", [((0, 3), (2, 1)), ((0, 4), (4, 0))], ids=str
)
def test_sums_of_other_padded_arrays(check, places):
  """They overlap, or something is between them."""
  parts = [PARTS[:, : 6 - sum(p)] if sum(p) > 3 else PARTS for p in places]
  f = sum_of_pads(*places)
  assert count(graph(f, *parts), "concatenate") == 0
  check(f, *parts, exact=True)


def test_pads_with_other_numbers_are_added(check):
  def f(x):
    ones = jnp.pad(x, (0, 3), constant_values=1)
    return ones + jnp.pad(x, (3, 0), constant_values=1)

  x = np.float32([1, 2, 3])
  assert count(graph(f, x), "concatenate") == 0
  check(f, x, exact=True)


def test_pooling_and_its_gradient_share_the_maximum(check):
  def pooled(x):
    size = (1, 2, 2, 1)
    y = lax.reduce_window(x, -jnp.inf, lax.max, size, size, "VALID")
    return (y * y).sum()

  x = util.sample(np.float32, (2, 8, 8, 4))
  # The maximum, the place of it, and the sum.
  both = jax.value_and_grad(pooled)
  alone = count(graph(pooled, x), "reduce")
  assert count(graph(jax.grad(pooled), x), "reduce") == alone + 1 + 1 - 1
  check(both, x)
