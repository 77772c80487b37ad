"""SRAM that holds no tensors: code, vertices, stacks, packet headers."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lowering_kit import TILES, phases

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu.sram.memory import tile_code

pytestmark = pytest.mark.ipu_only

KINDS = (
  "vertex code", "vertex state", "exchange code", "control code", "stack",
)  # fmt: skip


def ones(*shape, dtype=np.float32):
  return np.ones(shape, dtype)


@pytest.fixture
def code(ipu):
  """Bytes over all tiles, by kind, of a function on so many tiles."""

  def count(f, *arguments, tiles):
    with jax.default_device(ipu):
      lowered = jax.jit(f).lower(*arguments)
    compiled = lowered.compile({"ipu_num_tiles": tiles})
    figures = compiled.cost_analysis()
    found = {kind: int(figures[f"ipu {kind} bytes"]) for kind in KINDS}
    total = compiled.memory_analysis().generated_code_size_in_bytes
    assert sum(found.values()) == figures["ipu code bytes"] == total
    return found

  return count


def test_a_scalar_takes_the_code_of_one_tile(code):
  """Tiles that take no part have none: nothing is exchanged."""
  found = code(lambda x: x + 1, np.float32(1), tiles=1472)
  # Six workers' stacks and a supervisor's; the list's address, runall, sync;
  # pointers, scalars and the list's entry.
  assert found == {
    "vertex code": found["vertex code"],
    "vertex state": 16 + 4 + 8,
    "exchange code": 0,
    "control code": 3 * 4,
    "stack": 6 * 512 + 96,
  }
  assert 96 < found["vertex code"] < 512


def test_programs_without_exchanges_have_no_exchange_code(code):
  found = code(lambda x: x * x + 1, ones(64, 8), tiles=64)
  computing = found["vertex state"] // (16 + 4 + 8)
  assert found["exchange code"] == 0
  assert found["control code"] == computing * 3 * 4 and computing > 1


def test_a_transpose_between_two_tiles_is_a_message_for_each_row(code):
  """A tile has eight rows, and sends eight columns of each: `delay` and `send`.
  They arrive one after the other at one place: a source and a pointer; the
  neutral source, `delay`, the return."""
  found = code(lambda x: jnp.sin(x.T), ones(16, 16), tiles=2)
  assert found["exchange code"] == 2 * (8 * 2 + 1 + 1 + 3) * 4
  # The exchange's call, a copy into the order of the results, the vertices.
  assert found["control code"] == 2 * (8 + 4 + 3) * 4


def test_single_words_are_packed(code):
  """Data for the other tile is one message, packed in that tile's order: 64
  elements, none of which are adjacent in both memories. They arrive in rows,
  each half of one, of which at least one stays: one source, 15 pointers."""
  found = code(lambda x: jnp.sin(x).T.reshape(-1) * 2, ones(16, 16), tiles=2)
  assert found["exchange code"] == 2 * (2 + 1 + 15 + 3) * 4


def test_a_broadcast_is_sent_once(code):
  """A row on one tile of sixteen, which all of them add."""
  rows = code(lambda x, y: x + y, ones(16, 64), ones(1, 64), tiles=16)
  few = code(lambda x, y: x + y, ones(16, 64), ones(64), tiles=16)
  # 64 elements are on several tiles, each of which sends its part.
  assert rows["exchange code"] == few["exchange code"]
  scalar = code(lambda x, y: x + y, ones(16, 64), np.float32(1), tiles=16)
  # One tile sends a word; fifteen others receive it.
  assert scalar["exchange code"] == ((2 + 3) + 15 * (2 + 3)) * 4


def test_idle_tiles_have_synchronisation_code_only(code):
  """Of a hundred tiles a few exchange; all take part in the synchronisation."""
  found = code(lambda x: -x.T, ones(16, 16), tiles=100)
  computing = found["vertex state"] // (16 + 4 + 8)
  assert 1 < computing < 10 < found["exchange code"]
  # All tiles wait; those that exchange call it, pack, copy what stays in the
  # order of the results, and run their vertices.
  assert found["control code"] == (100 * 3 + computing * (5 + 4 + 4 + 3)) * 4
  assert found["stack"] == 100 * 96 + computing * 6 * 512


def test_twice_as_many_exchanges_take_twice_the_code(code):
  x = ones(16, 16)
  once = code(lambda x: jnp.sin(x.T), x, tiles=2)
  twice = code(lambda x: jnp.cos(jnp.sin(x.T).T), x, tiles=2)
  assert twice["exchange code"] == 2 * once["exchange code"] > 0


def test_code_of_a_loop_does_not_depend_on_its_trip_count(code):
  def trips(count):
    body = lambda i, x: jnp.sin(x.T)
    return code(
      lambda x: lax.fori_loop(0, count, body, x), ones(16, 16), tiles=2
    )

  assert trips(10) == trips(1000)
  assert trips(10)["exchange code"] > 0


def test_long_messages_take_no_more_code_than_short_ones(code):
  """Except for `sendoff` after 64 words."""
  f = lambda x: jnp.sin(x[::-1])
  short = code(f, ones(2, 64), tiles=2)
  long = code(f, ones(2, 4096), tiles=2)
  assert long["exchange code"] == short["exchange code"] + 2 * 4 > 8


def test_only_programs_with_host_functions_have_stream_code(code):
  def f(x):
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.pure_callback(np.sin, shape, x)

  x = ones(2, 256)
  assert code(jnp.sin, x, tiles=2)["exchange code"] == 0
  # Of each tile: 1 KiB there, in four packets, and back in one; a header of two
  # words each, two rows.
  there = (12 + 4 * 3) * 4 + 4 * 8
  back = (12 + 1) * 4 + 8
  assert code(f, x, tiles=2)["exchange code"] == 2 * (there + back)


STEPS = {
  "transpose": lambda x: x.T,
  "sine": jnp.sin,
  "product": lambda x: x @ x,
  "sum": lambda x: x + x.sum(0),
  "shift": lambda x: jnp.roll(x, 3, 0),
  "sort": lambda x: jnp.sort(x, axis=0),
  "rows": lambda x: x[jnp.argmax(x, axis=0)],
  "loop": lambda x: lax.fori_loop(0, 5, lambda i, x: jnp.cos(x.T), x),
}


@settings(max_examples=15)
@given(
  st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5),
  st.sampled_from(TILES),
)
def test_code_does_not_shrink_when_steps_are_added(names, tiles):
  def f(x):
    for name in names:
      x = STEPS[name](x)
    return x

  state = phases(f, [ones(12, 12)], tiles)
  assert state.tiles is not None and state.memory is not None
  steps = list(state.tiles.steps)
  parts = operator.attrgetter("state", "exchange", "control", "host")
  last = tile_code(state.tiles)
  for count in reversed(range(len(steps))):
    state.tiles.steps[:] = steps[:count]
    less = tile_code(state.tiles)
    assert all((a <= b).all() for a, b in zip(parts(less), parts(last)))
    assert (less.total >= 0).all()
    last = less
