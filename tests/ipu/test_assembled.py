"""Concatenations whose parts move as soon as they are made."""

from __future__ import annotations

import functools
import math

import ipu_test_util as util
import numpy as np
import pytest
from lowering_kit import TILES, check_on_digits, phases

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu import target as machines
from jaxlib.ipu.diagnostics import CompileError
from jaxlib.ipu.plan import indexed
from jaxlib.ipu.tile_passes import assembled

pytestmark = pytest.mark.ipu_only


def totals(x, i: int):
  """What no map can write, and takes about as much as it makes."""
  return jnp.cumsum(jnp.roll(x, i, 0), 1)


def joined(x, axis: int, parts: int = 4):
  return jnp.concatenate([totals(x, i) for i in range(parts)], axis)


def stacked(x, axis: int, parts: int = 4):
  return jnp.stack([totals(x, i) for i in range(parts)], axis)


def last(x):
  return joined(x, 1) * 2


def first(x):
  return joined(x, 0) + 1


def returned(x):
  return joined(x, 1)


def of_several_sizes(x):
  parts = [totals(x[:, : 1 + i], 1) for i in range(x.shape[1] - 1)]
  return jnp.concatenate([x, *parts, x], 1)


def a_part_is_kept(x):
  parts = [totals(x, i) for i in range(4)]
  return jnp.concatenate(parts, 1).sum(0), parts[1]


def a_part_is_read(x):
  parts = [totals(x, i) for i in range(4)]
  whole = jnp.concatenate([parts[0], *parts], 0)
  return jnp.stack([whole * 2, jnp.cumsum(whole, 0)], 2), parts[2].sum()


def one_after_the_other(x):
  parts = [x]
  for i in range(3):
    parts.append(jnp.cumsum(parts[-1] * 0.5, i % 2))
  return jnp.concatenate(parts, 1).max(0)


def nested(x):
  rows = [stacked(x + i, 2, 3) for i in range(3)]
  return jnp.concatenate(rows, 1) * 2


def in_a_loop(x):
  def body(i, c):
    return joined(c, 1).reshape(c.shape[0], 4, -1).max(1) * 0.5 + x

  return lax.fori_loop(0, 3, body, x)


def in_a_branch(x):
  return lax.cond(
    x[0, 0] > 4, lambda v: stacked(v, 0).max(0), lambda v: first(v)[: len(v)], x
  )


def scanned(x):
  def body(c, row):
    whole = jnp.concatenate([jnp.cumsum(c), jnp.sort(row), c[::-1]])
    return whole[: len(row)] * 0.5 + row, whole

  return lax.scan(body, x[0], x)


PROGRAMS = [
  last, first, returned, of_several_sizes, a_part_is_kept, a_part_is_read,
  one_after_the_other, nested, in_a_loop, in_a_branch, scanned,
]  # fmt: skip


@pytest.fixture
def regardless_of_cost(monkeypatch):
  monkeypatch.setattr(assembled, "_LEAST_SHARE", 0)
  monkeypatch.setattr(assembled, "_MOST_CYCLES", math.inf)


@pytest.fixture
def undivided(monkeypatch):
  """A way to have each concatenation in one copy."""

  def undo():
    monkeypatch.setattr(assembled.Division, "divide", lambda *_: [])

  return undo


def assembled_roots(f, x, tiles) -> int:
  return len(phases(f, [x], tiles).builder.assembled)


@pytest.mark.usefixtures("regardless_of_cost")
@pytest.mark.parametrize("tiles", TILES)
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_engine_interpreter_and_oracle_agree(f, tiles, cpu):
  check_on_digits(cpu, f, tiles, {"float32": (6, 8), "float16": (12, 10)})


@pytest.mark.usefixtures("regardless_of_cost")
@pytest.mark.parametrize(
  "f", [last, first, returned, nested, in_a_loop, in_a_branch]
)
def test_parts_are_copied_one_by_one(f):
  assert assembled_roots(f, np.ones((96, 64), np.float32), 16)


def test_parts_of_small_arrays_are_copied_at_once():
  x = np.ones((96, 64), np.float32)
  assert not any(assembled_roots(f, x, 16) for f in PROGRAMS)


LARGE = [
  (last, 0.8),
  (lambda x: stacked(x, 2, 8).sum(), 0.8),
  (in_a_loop, 0.9),
]


@pytest.mark.parametrize(
  ("f", "share"), LARGE, ids=["joined", "stacked", "loop"]
)
def test_large_parts_take_less_sram_one_by_one(ipu, f, share, undivided):
  x = util.spec(4096, 2048)
  costs = functools.partial(util.costs, ipu, f, x, ipu_verify=True)
  divided = costs()
  undivided()
  whole = costs()
  key = "ipu peak tile bytes"
  assert divided[key] < share * whole[key]
  assert divided["ipu cycles"] < 1.02 * whole["ipu cycles"]


def test_programs_that_gain_nothing_take_the_same_cycles(ipu, undivided):
  """Most programs stay as they are."""

  def products(x, w):
    return jnp.concatenate([x @ (w * i) for i in range(4)], 1) @ x

  x, w = util.spec(512, 512), util.spec(512, 128)
  programs = [(f, [util.spec(512, 12)]) for f in PROGRAMS]
  programs += [(products, [x, w])]

  def costs():
    return [util.costs(ipu, f, *a)["ipu cycles"] for f, a in programs]

  divided = costs()
  undivided()
  assert divided == costs()


def test_a_program_that_fits_only_part_by_part(ipu, undivided):
  """Rows of the parts go to few tiles each: one by one that takes longer, and
  is done for the room alone."""
  x = util.spec(14336, 2048)

  def f(x):
    return joined(x, 0).max(1)

  assert util.costs(ipu, f, x)
  undivided()
  with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
    util.costs(ipu, f, x)


# --- Liveness --------------------------------------------------------------


def test_results_of_rounds_are_live_from_the_first_round_on(monkeypatch):
  monkeypatch.setattr(indexed, "ROOMY", 0.4)
  small = machines.Target(
    version="small", num_tiles=4, bytes_per_tile=21000, clock_hz=1e9
  )
  x, i = np.zeros((613, 3), np.float32), np.zeros(613, np.int32)
  state = phases(lambda x, i: (jnp.sort(x, 0) * 2)[i], [x, i], small)
  (root,) = state.builder.assembled
  ((begin, _),) = state.memory.lives[root]
  assert begin > 0


def test_reading_an_incomplete_root_is_an_error():
  x = np.ones((4096, 2048), np.float32)
  builder = phases(last, [x], 1472).builder
  assembled.verify(builder)
  (root,) = builder.assembled
  parts = [
    step
    for step in builder.steps
    if step.moves and step.moves[0].destination == root
  ]
  assert len(parts) == 4
  builder.steps.remove(parts[-1])
  with pytest.raises(CompileError, match="before all of it is written"):
    assembled.verify(builder)
