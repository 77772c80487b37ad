"""Concatenations that are written in place by the vertices of their parts."""

from __future__ import annotations

import ipu_test_util as util
import numpy as np
import pytest
from lowering_kit import TILES, check, check_on_digits, compiled

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu.program import container, schema

pytestmark = pytest.mark.ipu_only


def rotated(x):
  a, b = jnp.split(x, 2, -1)
  return jnp.concatenate([a * 2 - b, b * 2 + a], -1)


def interleaved(x):
  return jnp.stack([x + 1, x * 2, x * x, -x], -1)


def pairs(x):
  return jnp.stack([x + 1, x * 2], -1) * 3


def blocks(x):
  return jnp.stack([x + 1, x * 2, -x], 1)


def carried(x):
  def body(i, c):
    a, b = jnp.split(c, 2, -1)
    return jnp.concatenate([a + b, b * 0.5 - a], -1) * 0.5 + x

  return lax.fori_loop(0, 5, body, x)


def stacked_up(x):
  def body(c, row):
    pair = jnp.stack([c + row, c * 0.5])
    return pair.sum(0), pair + 1

  return lax.scan(body, x[0], x)


def multiplied(x):
  def body(i, c):
    return jnp.concatenate([c + 1, c * 2], 1) @ jnp.concatenate([x.T, x.T]) @ x

  return lax.fori_loop(0, 2, body, x)


def twice(x):
  parts = [x + 1, x * 2]
  return jnp.concatenate(parts, 1), jnp.concatenate(parts[::-1], 1)


def part_kept(x):
  parts = [x + 1, x * 2]
  return jnp.concatenate(parts, 1), parts[0]


def branches(x):
  return lax.cond(
    x[0, 0] > 4, lambda v: rotated(v + 1), lambda v: rotated(v) * 2, x
  )


PROGRAMS = [
  rotated, interleaved, pairs, blocks, carried, stacked_up, multiplied, twice,
  part_kept, branches,
]  # fmt: skip


@pytest.mark.parametrize("tiles", TILES)
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_engine_interpreter_and_oracle_agree(f, tiles, cpu):
  check_on_digits(cpu, f, tiles, {"float32": (6, 8), "float16": (5, 34)})


@pytest.mark.parametrize("dtype", ["int8", "uint16", "uint32", "bool"])
def test_words_of_any_width(dtype, cpu):
  def f(x):
    return jnp.stack([x, ~x, x & x[::-1], x | x[::-1]], -1)

  for shape in (3, 40), (1024,):
    x = util.rng_of(dtype, shape).integers(0, 9, shape).astype(dtype)
    check(cpu, f, [x], 16)


def parts_written(f, x, tiles=16):
  """The results of maps that are parts of roots."""
  program, _ = container.read(compiled(f, [x], tiles))

  def walk(steps):
    for step in steps:
      if isinstance(step, schema.Repeat):
        yield from walk(step.body)
      elif isinstance(step, schema.Execute):
        for access in step.results:
          if program.tensors[access.tensor].root != access.tensor:
            yield access.tensor

  return len(list(walk(program.steps)))


def test_parts_are_written_in_place():
  x = np.ones((64, 64), np.float32)
  assert parts_written(interleaved, x) == 4
  assert parts_written(blocks, x) == 3
  assert parts_written(multiplied, x) == 2


def test_parts_with_other_users_are_copied():
  x = np.ones((64, 64), np.float32)
  assert not parts_written(twice, x)
  assert not parts_written(part_kept, x)


def random_bits(n):
  state = util.spec(4, dtype=np.uint32)
  return lambda s: lax.rng_bit_generator(s, (n,), np.uint16)[1], [state]


def test_random_bits_are_stored_once(ipu):
  n = 1472 * 16384
  f, arguments = random_bits(n)
  costs = util.costs(ipu, f, *arguments)
  code = costs["ipu peak tile code bytes"]
  code += costs["ipu exchange code bytes"] / 1472
  assert costs["ipu peak tile bytes"] < 1.5 * 2 * n / 1472 + code


def test_initializers_need_almost_no_temporary_memory(ipu):
  weights = jax.nn.initializers.truncated_normal(0.01)
  key = jax.eval_shape(lambda: jax.random.key(0, impl="unsafe_rbg"))

  def f(key):
    keys = jax.random.split(key, 12)
    return [weights(k, (1400, 1400), jnp.float16) for k in keys]

  on = jax.sharding.SingleDeviceSharding(ipu)
  there = jax.ShapeDtypeStruct(key.shape, key.dtype, sharding=on)
  memory = jax.jit(f).lower(there).compile().memory_analysis()
  assert memory.temp_size_in_bytes < 0.02 * memory.output_size_in_bytes


def test_packing_words_is_charged(ipu):
  n = 1472 * 16384

  def apart(s):
    return lax.rng_bit_generator(s, (n // 4,), np.uint32)[1]

  f, arguments = random_bits(n)
  narrow = util.costs(ipu, f, *arguments)["ipu compute cycles"]
  assert narrow > util.costs(ipu, apart, *arguments)["ipu compute cycles"]
