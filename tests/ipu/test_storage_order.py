"""Operands that are stored in another order than vertices access them."""

from __future__ import annotations

import itertools
import math
import operator

import ipu_test_util as util
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jax.numpy as jnp
from jax import lax
from jaxlib.ipu.moves.messages import VECTOR, vectors
from jaxlib.ipu.moves.storage_order import (
  StorageOrder,
  order_copies,
  storage_order,
)

pytestmark = pytest.mark.ipu_only


def pieces(cell, own, order):
  """Runs of elements that are consecutive in memory when a cell is traversed in
  an order."""
  sizes = (cell[d] for d in reversed(own))
  steps = itertools.accumulate(sizes, operator.mul, initial=1)
  inner = dict(zip(reversed(own), steps))
  walk = [d for d in order if d in own]
  places = [
    sum(i * inner[d] for i, d in zip(index, walk))
    for index in np.ndindex(*(cell[d] for d in walk))
  ]
  return 1 + sum(b != a + 1 for a, b in itertools.pairwise(places))


@st.composite
def cells(draw):
  cell = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
  every = list(range(len(cell)))
  whole = st.permutations(every)
  some = whole.flatmap(lambda p: st.integers(1, len(p)).map(lambda n: p[:n]))
  orders = [draw(whole), *draw(st.lists(some, max_size=3))]
  sizes = st.sampled_from([1, 2, 4, 8])
  return cell, [
    StorageOrder(i, tuple(o), draw(sizes)) for i, o in enumerate(orders)
  ]


@given(cells())
def test_operands_in_narrow_pieces_are_copied(drawn):
  cell, given = drawn
  costs = []
  for order in (one.order for one in given if len(one.order) == len(cell)):
    copies = 0
    for one in given:
      elements = math.prod(cell[d] for d in one.order)
      runs = pieces(cell, one.order, order)
      if runs > 1 and elements * one.item_bytes < VECTOR * runs:
        copies += vectors(elements * one.item_bytes, runs)
    costs.append(copies)
  assert sum(order_copies(cell, given).values()) == min(costs)


def test_storage_order_of_an_access():
  assert storage_order((1, -1, 0)) == (2, 0)


def took(ipu, f, *shapes, dtype=np.float32):
  found = util.costs(ipu, f, *(util.spec(*s, dtype=dtype) for s in shapes))
  return found["ipu cycles"], found["ipu peak tile bytes"]


SQUARES = (1472, 16, 16)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_operands_in_another_order_are_copied(ipu, dtype):
  same, less = took(ipu, lambda x, y: x + y, SQUARES, SQUARES, dtype=dtype)
  turned, more = took(
    ipu, lambda x, y: x.swapaxes(1, 2) + y, SQUARES, SQUARES, dtype=dtype
  )
  assert turned > 1.5 * same
  assert more >= less + 256 * np.dtype(dtype).itemsize


def test_rows_of_whole_vectors_are_read_in_place(ipu):
  shape = (1472, 4, 4, 16)
  same, _ = took(ipu, lambda x, y: x + y, shape, shape)
  turned, _ = took(ipu, lambda x, y: x.swapaxes(1, 2) + y, shape, shape)
  assert turned == same


@pytest.mark.parametrize(
  "part",
  [lambda x: x[:, ::2], lambda x: x[:, ::-1], lambda x: x[:, 1::4]],
  ids=["even", "reversed", "fourths"],
)
def test_strided_reads_cost_at_least_a_copy(ipu, part):
  copied, _ = took(ipu, part, (1472, 512))
  read, _ = took(ipu, lambda x: part(x) * 2, (1472, 512))
  assert read >= copied


def test_wide_slices_are_read_in_place(ipu):
  wide, _ = took(ipu, lambda x: x[:, 100:400] * 2, (1472, 512))
  whole, _ = took(ipu, lambda x: x * 2, (1472, 300))
  assert wide == whole


@pytest.mark.parametrize("first", [0, 1], ids=["read apart", "as vectors"])
def test_cost_does_not_depend_on_the_order_of_readers(ipu, first):
  """A reduction reads elements one by one; the map after it still needs its
  copy."""
  both = [lambda x: x[:, ::2].sum(1), lambda x: x[:, ::2] * 2]
  alone = sum(took(ipu, f, (1472, 512))[0] for f in both)
  one, other = both[first], both[1 - first]
  found, _ = took(ipu, lambda x: (one(x), other(x)), (1472, 512))
  assert found == alone


def test_copies_take_code_memory(ipu):
  def code(f, *shapes):
    found = util.costs(ipu, f, *(util.spec(*s) for s in shapes))
    return found["ipu peak tile code bytes"]

  assert code(lambda x: x[:, ::2] * 2, (1472, 512)) > code(
    lambda x: x[:, :256] * 2, (1472, 512)
  )
  assert code(lambda x, y: x.swapaxes(1, 2) + y, SQUARES, SQUARES) > code(
    jnp.add, SQUARES, SQUARES
  )


def test_transposes_of_loop_invariant_operands_are_hoisted(ipu):
  def loop(trips):
    f = lambda w, y: lax.fori_loop(0, trips, lambda i, c: w.T[None] + c / 2, y)
    return took(ipu, f, (50, 60), (30, 60, 50))[0]

  plain = lambda w, y: lax.fori_loop(0, 50, lambda i, c: w[None] + c / 2, y)
  most = took(ipu, plain, (60, 50), (30, 60, 50))[0] + loop(1)
  assert loop(50) < 1.1 * most


def test_exchanged_operands_arrive_in_order(ipu):
  """Packing transposes it: no further copy."""
  added, _ = took(ipu, lambda x, y: x.T + y, (1024, 1024), (1024, 1024))
  turned, _ = took(ipu, lambda x: x.T, (1024, 1024))
  plain, _ = took(ipu, jnp.add, (1024, 1024), (1024, 1024))
  assert added < 1.05 * (turned + plain)
