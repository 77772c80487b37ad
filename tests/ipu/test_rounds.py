"""Slices and updates at run-time indices, in rounds."""

from __future__ import annotations

import dataclasses
import functools

import ipu_test_util as util
import numpy as np
import pytest
from lowering_kit import check as check_on
from lowering_kit import phases

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu import fitting
from jaxlib.ipu import target as machines
from jaxlib.ipu.ops import _rounds
from jaxlib.ipu.plan import indexed
from jaxlib.ipu.program import container, schema
from jaxlib.ipu.tile.choices import Choices

N = 2_000_000
BATCHED = lax.GatherDimensionNumbers(
  offset_dims=(2,),
  collapsed_slice_dims=(),
  start_index_map=(1,),
  operand_batching_dims=(0,),
  start_indices_batching_dims=(0,),
)


@pytest.fixture(scope="module")
def x():
  return np.arange(N, dtype=np.float32)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int16, np.int64])
@pytest.mark.parametrize("start", [-5, 0, 1234, N])
def test_slice_and_update(check, x, start, dtype):
  """Starts are clamped once, not in each round."""
  start = np.array(start).astype(dtype)
  update = -x[: N // 2 + 1]

  def f(x, update, start):
    return (
      lax.dynamic_slice(x, (start,), (N // 2 + 3,)),
      lax.dynamic_update_slice(x, update, (start,)),
    )

  check(f, x, update, start)


def test_in_two_dimensions(check, x):
  grid = x.reshape(1000, 2000)

  def f(x, update, i, j):
    update = lax.dynamic_update_slice(x, update, (i, j))
    return update, lax.dynamic_slice(x, (j, i), (999, 1500))

  check(f, grid, -grid[:997, :1801], np.int32(2), np.int32(150))


def test_lookups(check, x):
  indices = np.random.default_rng(0).integers(-N, N, N).astype(np.int32)
  check(lambda x, i: x[i], x, indices)
  check(lambda x, i: x[i], x, indices.reshape(2, -1))


def test_lookups_of_batches(check, x):
  """The batching dimension is not split."""
  table = x.reshape(4, -1)
  indices = np.random.default_rng(0).integers(0, N // 4, (4, N // 4, 1))

  def f(table, indices):
    return lax.gather(table, indices, BATCHED, (1, 1))

  check(f, table, indices.astype(np.int32))


S = jax.ShapeDtypeStruct


def _fits(ipu, f, *arguments, donate=(), **options) -> bool:
  with jax.default_device(ipu):
    try:
      jax.jit(f, donate_argnums=donate, compiler_options=options).lower(
        *arguments
      ).compile()
    except jax.errors.JaxRuntimeError as e:
      assert "RESOURCE_EXHAUSTED" in str(e)
      return False
  return True


def _slice(n):
  return lambda x, i: lax.dynamic_slice(x, (i,) * x.ndim, n)


def _update(x, u, i):
  return lax.dynamic_update_slice(x, u, (i,) * x.ndim)


INDEX = S((), np.int32)


def floats(*shape):
  return S(shape, np.float32)


@pytest.mark.ipu_only
@pytest.mark.parametrize("n", [2, 3, 5, 5.2, 5.3, 30])
def test_updates_of_any_size_fit(ipu, n):
  n = int(n * 100_000)
  assert _fits(ipu, _update, floats(4194304), floats(n), INDEX)
  assert _fits(ipu, _update, floats(4194304), floats(n), INDEX, donate=(0,))


@pytest.mark.ipu_only
@pytest.mark.parametrize("n", [500, 600, 720, 730, 1500])
def test_slices_of_any_size_fit(ipu, n):
  assert _fits(ipu, _slice((n, n)), floats(3000, 3000), INDEX)


@pytest.mark.ipu_only
@pytest.mark.parametrize(
  ("shape", "size"),
  [((40000000,), (500000,)), ((1500, 100000), (1499, 300))],
)
def test_slices_of_large_arrays_fit(ipu, shape, size):
  assert _fits(ipu, _slice(size), floats(*shape), INDEX)
  assert _fits(ipu, _update, floats(*shape), floats(*size), INDEX, donate=(0,))


@pytest.mark.ipu_only
@pytest.mark.parametrize("n", [2**18, 2**19, 2**20, 2**20 + 1000, 2**22])
def test_any_number_of_lookups_fits(ipu, n):
  look_up = lambda x, i: x[i]
  assert _fits(ipu, look_up, floats(4000000), S((n,), np.int32))


@pytest.mark.ipu_only
@pytest.mark.parametrize("n", [2**15, 2**17, 2**18])
def test_slices_fit_few_tiles(ipu, n):
  x = floats(2**20)
  assert _fits(ipu, _slice((n,)), x, INDEX, ipu_num_tiles=16)
  assert _fits(ipu, _update, x, floats(n), INDEX, ipu_num_tiles=16)
  assert _fits(ipu, lambda x, i: x[i], x, S((n,), np.int32), ipu_num_tiles=16)


@pytest.mark.ipu_only
def test_smaller_sizes_fit_if_larger_ones_do(ipu):
  """On 16 tiles, until arguments and results alone do not fit."""
  x = floats(2**20)
  for f in (_slice, lambda n: lambda x, i: x[jnp.arange(n[0]) * i]):
    fit = [
      _fits(ipu, f((n,)), x, INDEX, ipu_num_tiles=16)
      for n in range(2**17, 2**20, 2**17)
    ]
    assert fit == sorted(fit, reverse=True) and fit[0] and fit[2]


@pytest.mark.ipu_only
def test_programs_of_many_rounds_are_small(ipu):
  """The rounds are loops."""
  target = machines.TARGETS["ipu2"]
  x, u = np.zeros(10**7, np.float32), np.zeros(8 * 10**6, np.float32)
  i = np.int32(3)
  for f, arguments in ((_slice((8 * 10**6,)), [x, i]), (_update, [x, u, i])):
    program, _ = container.read(phases(f, arguments, target).data)
    assert len(program.steps) < 200
    assert any(isinstance(s, schema.Repeat) for s in program.steps)


@pytest.mark.ipu_only
def test_the_table_is_exchanged_once_for_all_rounds():
  x, i = np.zeros(10**6, np.float32), np.zeros(10**6, np.int32)
  done = phases(lambda x, i: x[i], [x, i], machines.TARGETS["ipu2"])
  program, _ = container.read(done.data)
  gathers = [s for s in program.steps if isinstance(s, schema.Execute)]
  gathers = [s for s in gathers if isinstance(s.fields, schema.Gather)]
  assert len(gathers) > 1
  assert len({s.operands[0].tensor for s in gathers}) == 1


@pytest.fixture(params=["steps", "loop", "loop, frugal"])
def rounds(request, monkeypatch):
  """Each way in which rounds run; a third of the SRAM is code."""
  monkeypatch.setattr(indexed, "ROOMY", 0.4)
  if "loop" in request.param:
    monkeypatch.setattr(_rounds, "_MOST_UNROLLED", 1)
  if "frugal" in request.param:
    frugal = functools.partial(Choices, frugal=True)
    monkeypatch.setattr(fitting, "Choices", frugal)
  return request.param


SMALL = machines.Target(
  version="small", num_tiles=4, bytes_per_tile=21000, clock_hz=1e9
)


def _counts(x, i, u):
  return x.at[i].add(u)


def _largest(x, i, u):
  return x.at[i].max(u)


def _last(x, i, u):
  return x.at[i].set(u)


def _rows(x, i, u):
  return x.at[i].get(mode="fill", fill_value=7)


def _columns(x, i, u):
  return x.T[:, i]


@pytest.mark.ipu_only
@pytest.mark.parametrize(
  "f", [_counts, _largest, _last, _rows, _columns], ids=lambda f: f.__name__
)
def test_lookups_on_little_sram(cpu, f, rounds):
  """Each round applies its own updates, in order; the remainder comes last."""
  rows = 613
  x = np.round(util.sample(np.float32, (rows, 3), low=0, high=9))
  i = np.random.RandomState(0).permutation(rows + 9).astype(np.int32)
  if f in (_counts, _largest):
    i = i % 50
  u = np.round(util.sample(np.float32, (rows + 9, 3), key="u", low=0, high=9))
  check_on(cpu, f, [x, i, u], SMALL)
  program, _ = container.read(phases(f, [x, i, u], SMALL).data)
  kinds = (schema.Gather, schema.Scatter)
  steps = [s for s in program.steps if isinstance(s, schema.Execute)]
  loops = [s for s in program.steps if isinstance(s, schema.Repeat)]
  if rounds == "steps":
    assert sum(isinstance(s.fields, kinds) for s in steps) > 1
  else:
    assert loops


@pytest.mark.ipu_only
@pytest.mark.parametrize("start", [-4, 17, 5000])
def test_slices_on_little_sram(cpu, start, rounds):
  x = util.sample(np.float32, (1000,))
  u = util.sample(np.float32, (997,), key="u")

  def f(x, u, i):
    return (
      lax.dynamic_slice(x, (i,), (601,)),
      lax.dynamic_update_slice(x, u, (i,)),
      lax.dynamic_slice(x.reshape(20, 50), (i, i - 3), (19, 48)),
    )

  target = dataclasses.replace(SMALL, bytes_per_tile=15000)
  check_on(cpu, f, [x, u, np.int32(start)], target)


@pytest.mark.parametrize(
  "f",
  [
    lambda x, i, u: jax.numpy.roll(x, i),
    lambda x, i, u: lax.dynamic_update_slice(x, u, (i,)),
    lambda x, i, u: x[u.astype(np.int32)],
  ],
  ids=["roll", "update", "lookups"],
)
def test_indexed_operations_on_large_arrays_fit(ipu, f):
  shapes = [((10**7,), np.float32), ((), np.int32), ((5 * 10**6,), np.float32)]
  arguments = [jax.ShapeDtypeStruct(*s) for s in shapes]
  with jax.default_device(ipu):
    jax.jit(f).lower(*arguments).compile()
