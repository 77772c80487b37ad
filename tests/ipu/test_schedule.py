"""Independent operations are scheduled for the least SRAM."""

from __future__ import annotations

import math
import random

import ipu_test_util as util
import lowering_kit
import pytest

import jax
import jax.numpy as jnp
from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.walk import exchanges
from jaxlib.ipu.tile_passes import order

pytestmark = pytest.mark.ipu_only

OPERATIONS = {
  "sin": jnp.sin,
  "multiply": lambda a, b: a * b + 1,
  "transpose": lambda a: a.T + 1,
  "product": lambda a, b: a @ b,
  "roll": lambda a: jnp.roll(a, 3, 0) - a,
  "sort": lambda a: jnp.sort(a, 1),
  "sum": lambda a: jnp.sum(a * 2),
  "rows": lambda a: a.max(0),
}
SIDE = 1536
_BINARY = ("multiply", "product")
SCALARS = ("sum", "rows")  # not an operand of others


def draw(rng: random.Random, count: int) -> list[tuple]:
  """Statements (name, operation, operands), each after its operands."""
  matrices = ["x", "y"]
  statements = []
  for i in range(count):
    op = rng.choice([*OPERATIONS, "sum"])
    recent = matrices[-6:] if rng.random() < 0.7 else matrices
    operands = [rng.choice(recent) for _ in range(1 + (op in _BINARY))]
    statements.append((f"v{i}", op, operands))
    if op not in SCALARS:
      matrices.append(f"v{i}")
  return statements


def shuffled(rng: random.Random, statements: list[tuple]) -> list[tuple]:
  """The same statements in another valid order."""
  left, done, out = list(statements), {"x", "y"}, []
  while left:
    chosen = rng.choice([s for s in left if done.issuperset(s[2])])
    left.remove(chosen)
    done.add(chosen[0])
    out.append(chosen)
  return out


def program(statements: list[tuple]):
  used = {o for _, _, operands in statements for o in operands}

  def f(x, y):
    values = {"x": x, "y": y}
    for name, op, operands in statements:
      values[name] = OPERATIONS[op](*(values[o] for o in operands))
    return sum(jnp.sum(v) for n, v in values.items() if n not in used)

  return f


def analysed(ipu, f, side: int):
  x = util.spec(side, side)
  return util.costs(ipu, f, x, x, ipu_allow_out_of_memory=True)


def tile_bytes(ipu, f, side: int) -> float:
  return analysed(ipu, f, side)["ipu peak tile bytes"]


@pytest.mark.usefixtures("without_code")
@pytest.mark.parametrize("seed", (133, 146, 149, 288, 294))
def test_peak_memory_does_not_depend_on_the_program_order(
  ipu, seed, monkeypatch
):
  rng = random.Random(seed)
  statements = draw(rng, rng.choice([8, 16, 24]))
  orders = [statements, *(shuffled(rng, statements) for _ in range(3))]

  def analyse():
    found = [analysed(ipu, program(order), SIDE) for order in orders]
    return [
      [c[f"ipu {k}"] for c in found] for k in ("peak tile bytes", "cycles")
    ]

  peaks, cycles = analyse()
  assert max(peaks) <= 1.1 * min(peaks)
  # The peak never exceeds that of program order, and cycles are equal.
  monkeypatch.setattr(
    order, "schedule", lambda tasks, *_: [s for t in tasks for s in t.steps]
  )
  as_written, same = analyse()
  assert all(a <= b for a, b in zip(peaks, as_written, strict=True))
  assert cycles == same
  # For these programs the order matters.
  assert max(as_written) > 1.2 * min(as_written)


def large(x, i: int):
  return jnp.cumsum(jnp.roll(x, i, 1), 0)


def small(a):
  return a[0].sum() + a.max(1)[3]


def one_by_one(x, y):
  return sum(small(large(x, i)) for i in range(5))


def side_by_side(x, y):
  values = [large(x, i) for i in range(5)]
  return sum(small(v) for v in values)


def in_a_loop(f):
  def iteration(_, state):
    x, y = state
    return x + f(x, y), y + 1

  return lambda x, y: jax.lax.fori_loop(0, 3, iteration, (x, y))


@pytest.mark.parametrize("around", [lambda f: f, in_a_loop], ids=["", "loop"])
def test_independent_chains_are_scheduled_one_after_another(ipu, around):
  good = tile_bytes(ipu, around(one_by_one), 1024)
  assert tile_bytes(ipu, around(side_by_side), 1024) <= 1.05 * good


def test_results_replace_donated_arguments_after_their_readers(
  from_repository,
):
  models = from_repository("benchmarks.models")
  state = models.momentum_state(models.MNIST)
  compiled = lowering_kit.phases(
    models.momentum_step, [state, *models.digits(32)], 1472, donated=(0,)
  )
  tiles = compiled.tiles
  tensors = tiles.tensors
  # A result made before the last reader would be copied to its place.
  for step in exchanges(tiles.steps):
    for move in step.moves:
      source, to = tensors[move.source], tensors[move.destination]
      whole = source.size == to.size == math.prod(move.shape)
      assert not (whole and to.space == schema.RESULT and to.size > 2**16)


def test_effects_stay_in_order(on_ipu):
  seen = []

  def f(x):
    for i in range(6):
      y = jnp.sort(x * i, 0)  # the later, the less is left of it
      jax.experimental.io_callback(
        lambda y, i=i: seen.append(i), None, y[: 60 // (i + 1)], ordered=True
      )
    return x

  jax.block_until_ready(jax.jit(f)(jnp.ones((64, 64), jnp.float32)))
  jax.effects_barrier()
  assert seen == list(range(6))
