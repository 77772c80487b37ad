"""Serial steps of products as loops: the same sums, with less code."""

from __future__ import annotations

import dataclasses
import functools

import engine_kit
import ipu_test_util as util
import lowering_kit
import numpy as np
import pytest

import jax.numpy as jnp
from jax import lax
from jaxlib.ipu import fitting
from jaxlib.ipu import target as machines
from jaxlib.ipu.check import interp
from jaxlib.ipu.ops import _dot_split
from jaxlib.ipu.plan import matmul
from jaxlib.ipu.tile.choices import Choices
from jaxlib.ipu.tile.control_flow import Repeat

pytestmark = pytest.mark.ipu_only


@pytest.fixture
def in_steps(monkeypatch):
  """Plans products in given steps, as if fewer did not fit."""

  def plan_in(*steps, room=None):
    def planned(target, b, m, n, k, lhs, rhs, out, f16_sums=False, *_):
      few = matmul.Steps(*map(min, steps, (m, n, k)))
      sums = matmul._KEPT.get(out, out)
      found = matmul._plan_step(
        target, (b, m, n, k), (lhs, rhs, out, sums), few, f16_sums
      )
      size = found.tile_bytes
      if room is not None:
        size = int(target.bytes_for_products - room)
      return dataclasses.replace(found, fits=True, tile_bytes=size)

    monkeypatch.setattr(matmul, "plan", planned)

  # Nor do operands stay in place.
  monkeypatch.setattr(_dot_split._Cheaper, "_ways", lambda *_: iter(()))
  return plan_in


@pytest.fixture
def compiled(monkeypatch):
  """Compiles a function with unrolled steps, and with loops."""

  def compile_both(f, arguments, tiles):
    states = []
    for repeats in (False, True):
      choices = functools.partial(Choices, repeats=repeats)
      monkeypatch.setattr(fitting, "Choices", choices)
      states.append(lowering_kit.phases(f, arguments, tiles))
    return states

  return compile_both


@pytest.fixture
def both(compiled):
  """Also checks that both compute the same bits, in interpreter and engine."""

  def compare(f, arguments, tiles):
    states = compiled(f, arguments, tiles)
    for run in interp.run, engine_kit.run:
      results = [run(s.data, arguments).outputs for s in states]
      for x, y in zip(*results, strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()
    return states

  return compare


def _loops(state):
  return [s.count for s in state.builder.steps if isinstance(s, Repeat)]


def _sample(dtype, *shape, key=0):
  if np.issubdtype(dtype, np.integer):
    return util.sample(dtype, shape, low=-9, high=9, key=key)
  return util.sample(np.float32, shape, low=-1, high=1, key=key).astype(dtype)


@pytest.mark.parametrize(
  "dtype, tiles",
  [(np.float32, 1), (np.float32, 16), (np.float16, 3), (np.int8, 16)],
)
def test_loops_compute_the_bits_of_unrolled_steps(in_steps, both, dtype, tiles):
  in_steps(1, 1, 5)
  # Five steps of ten terms, or the last is smaller; few steps are no loop.
  for k, trips in (50, [5]), (48, [4]), (2, []):
    a, b = _sample(dtype, 37, k), _sample(dtype, k, 29, key=1)
    _, looped = both(jnp.matmul, [a, b], tiles)
    assert _loops(looped) == trips


@pytest.mark.parametrize(
  "f, shapes",
  [
    (lambda a, b: a.T @ b, [(48, 37), (48, 29)]),
    (lambda a, b: a @ b.T, [(37, 48), (29, 48)]),
    (lambda a, b: a[3:, 8:] @ b[8:, ::2], [(37, 48), (48, 29)]),
    (lambda a, b: a[:, ::-1] @ b, [(37, 48), (48, 29)]),
    (lambda a, b: jnp.einsum("bhik,bkhj->bijh", a, b),
     [(2, 3, 5, 24), (2, 24, 3, 7)]),
    # Products of less than 16 terms add them in the order of their strides.
    (lambda a, b: jnp.einsum("mij,jin->mn", a, b), [(9, 4, 20), (20, 4, 7)]),
  ],
)  # fmt: skip
def test_any_operands_are_sliced(in_steps, both, f, shapes):
  in_steps(1, 1, 4)
  operands = [_sample(np.float32, *s, key=i) for i, s in enumerate(shapes)]
  _, looped = both(f, operands, 16)
  assert _loops(looped)


def test_loops_over_channels_of_a_convolution(in_steps, both):
  """Windows overlap; what is sliced is the padded image."""
  in_steps(1, 1, 4)
  x, k = _sample(np.float32, 2, 9, 9, 16), _sample(np.float32, 3, 3, 16, 8)
  dims = ("NHWC", "HWIO", "NHWC")

  def f(x, k):
    return lax.conv_general_dilated(
      x, k, (2, 1), "SAME", dimension_numbers=dims
    )

  _, looped = both(f, [x, k], 16)
  assert _loops(looped) == [4]
  # Of four channels: windows would be copied in larger stacks.
  sizes = {t.size for t in looped.builder.tensors if t.shape[:1] == (4,)}
  assert sizes and max(sizes) <= 2 * 11 * 11 * 16


def test_loops_for_each_part_of_a_result_in_a_users_loop(in_steps, both):
  in_steps(2, 1, 4)
  a, b = _sample(np.float32, 8, 16), _sample(np.float32, 16, 16, key=1)
  f = lambda a, b: lax.fori_loop(0, 3, lambda i, x: x @ b, a)
  _, looped = both(f, [a, b], 16)
  (body,) = [s.body for s in looped.builder.steps if isinstance(s, Repeat)]
  assert sum(isinstance(s, Repeat) for s in body) == 2


def test_without_room_for_a_copy_there_are_several_loops(in_steps, both):
  a, b = _sample(np.float32, 16, 48), _sample(np.float32, 48, 16, key=1)
  in_steps(1, 1, 12, room=1 << 20)
  _, whole = both(jnp.matmul, [a, b], 16)
  in_steps(1, 1, 12, room=200)
  _, parts = both(jnp.matmul, [a, b], 16)
  assert _loops(whole) == [12]
  loops = _loops(parts)
  assert 1 < len(loops) <= matmul.MOST_LOOPS and sum(loops) == 12
  stacks = [
    max(t.bytes for t in s.builder.tensors if len(t.shape) == 3)
    for s in (whole, parts)
  ]
  assert stacks[1] <= stacks[0] / 2


def test_code_of_loops_does_not_grow_with_their_steps(in_steps, compiled):
  a, b = _sample(np.float32, 64, 256), _sample(np.float32, 256, 64, key=1)
  codes = []
  for steps in (8, 32):
    in_steps(1, 1, steps, room=1 << 20)
    states = compiled(jnp.matmul, [a, b], 16)
    codes.append([int(s.memory.code.exchange.max()) for s in states])
  (few, looped), (many, still) = codes
  assert many > 2 * few
  assert still < 1.25 * looped
  assert still < many


def test_a_product_of_two_thirds_of_the_sram_fits(ipu):
  """Its operands and its result take 65 % of it; in unrolled steps there is no
  room for their code and for operands of the size that few steps need."""
  costs = util.costs(ipu, jnp.matmul, *[util.spec(7168, 7168)] * 2)
  assert costs["ipu peak tile bytes with gaps"] <= 624 * 1024
  assert costs["ipu executable tile bytes"] < 30_000
  assert 7168**3 / (1472 * 16) > 0.7 * costs["ipu cycles"]


def test_steps_become_loops_if_their_code_does_not_fit(in_steps):
  """It is not enough that a program's data fits."""
  in_steps(1, 1, 32, room=1 << 20)
  arguments = [util.spec(64, 256), util.spec(256, 64)]
  tiles = machines.resolve("ipu2", 16)
  roomy = lowering_kit.phases(jnp.matmul, arguments, tiles)
  assert not _loops(roomy)
  code = int(roomy.memory.code.executable.max())
  smaller = dataclasses.replace(tiles, executable_bytes=code - 1)
  for target, budget in (smaller, None), (tiles, code - 1):
    tight = lowering_kit.phases(
      jnp.matmul, arguments, target, code_budget=budget
    )
    assert _loops(tight) == [32]
    assert tight.memory.code.executable.max() < code
