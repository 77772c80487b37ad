"""Invariants of all programs, whatever machine they are planned for."""

from __future__ import annotations

import tracemalloc

import ipu_test_util as util
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import serialize_executable
from jax.sharding import SingleDeviceSharding
from jaxlib.ipu.emit.cost_analysis import KEYS
from jaxlib.ipu.plan import cost as plan_cost
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import resolve

pytestmark = pytest.mark.ipu_only

TILES = (1, 2, 7, 16, 1472)


def elementwise(x, i):
  return jnp.tanh(x) * i.sum(), i * i[:, :1], x > i


def reduction(x, i):
  return i.sum(0), i.max(1), x.argmax(), x.max(0), i.prod()


def movement(x, i):
  return x.T.reshape(30, -1), jnp.roll(i, 3), x[::-2, 1:], jnp.tile(i, (1, 3))


def indexing(x, i):
  rows = i[0] % x.shape[0]
  return x[rows], i.at[rows].add(i[:1]), x.at[:, rows % 5].max(1.0)


def product(x, i):
  return i @ i.T, x @ x.T, jnp.einsum("ij,kj->ik", i, i[:3])


def loop(x, i):
  def step(n, state):
    x, i = state
    return jnp.where(n % 2, x[::-1], x) * 0.5, i ^ (i << 1)

  return lax.fori_loop(0, 5, step, (x, i))


def random(x, i):
  return jax.random.bits(jax.random.key(i[0, 0]), (77,)), x


PROGRAMS = (elementwise, reduction, movement, indexing, product, loop, random)


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_results_do_not_depend_on_the_number_of_tiles(ipu, f):
  x = util.sample(np.float32, (30, 22))
  i = util.sample(np.int32, (30, 22), key="i")
  results = []
  numbers = [n for n in TILES if n <= ipu.num_tiles]
  for tiles in numbers:
    jitted = jax.jit(f, compiler_options={"ipu_num_tiles": tiles})
    out = jitted(*jax.device_put((x, i), ipu))
    results.append(jax.tree.map(util.to_numpy, out))
  # Partial sums of floats may be added in another order.
  for tiles, result in zip(numbers[1:], results[1:], strict=True):
    fault = _fault(result, results[0])
    assert fault is None, f"{tiles} tiles and 1 tile differ: {fault}"


def _fault(result, expected) -> str | None:
  try:
    util.check_equal(result, expected, rtol=1e-6, atol=1e-6)
  except AssertionError as e:
    return str(e)
  return None


def test_cycles_are_proportional_to_the_trip_count(ipu):
  def f(n):
    return lambda x: lax.fori_loop(0, n, lambda _, x: jnp.sin(x), x)

  x = np.ones(1000, np.float32)
  one, ten, hundred = (
    util.costs(ipu, f(n), x)["ipu cycles"] for n in (1, 10, 100)
  )
  step = (hundred - ten) / 90
  assert step > 0
  np.testing.assert_allclose((ten - one) / 9, step, rtol=0.05)


def test_flops_of_a_product_are_exact(ipu):
  a, b = np.ones((64, 32), np.float32), np.ones((32, 48), np.float32)
  assert util.costs(ipu, jnp.matmul, a, b)["flops"] == 2 * 64 * 32 * 48


def test_local_copies_are_charged_unless_they_are_in_place(ipu):
  x = jax.ShapeDtypeStruct((1472, 1000), np.float32)
  with jax.default_device(ipu):
    copied, kept = (
      jax.jit(lambda x: x, donate_argnums=d).lower(x).compile().cost_analysis()
      for d in ((), 0)
    )
  # 8 bytes per cycle, one for the piece, and a call of the workers.
  assert copied["ipu cycles"] == copied["ipu compute cycles"] == 288 + 501
  assert kept["ipu cycles"] == 0

  def swapped(n):
    f = lambda x, y: lax.fori_loop(0, n, lambda _, c: (c[1], c[0]), (x, y))
    return util.costs(ipu, f, x, x)["ipu cycles"]

  # Each iteration moves both arrays, and counts.
  assert swapped(12) - swapped(2) == 10 * (288 + 1002 + 43)


def test_stored_values_are_not_recomputed(ipu):
  def f(x):
    c = jnp.exp(x - 1)
    return c, (c * c).sum(1)

  x = np.ones((1472, 100), np.float32)
  # A difference, an exponential, a square and a sum per element.
  assert util.costs(ipu, f, x)["flops"] == 4 * x.size
  for dtype in ("float16", "bfloat16"):
    assert util.costs(ipu, f, x.astype(dtype))["flops"] == 4 * x.size


def test_loop_invariant_values_are_hoisted(ipu):
  def product(trips):
    def f(x):
      y = x @ x
      return lax.fori_loop(0, trips, lambda i, c: c + y.T, x)

    return f

  def sums(trips):
    def f(x):
      y = jnp.exp(jnp.sin(x) * jnp.tanh(x))
      return lax.fori_loop(0, trips, lambda i, c: c * 2 + y.sum(0), x[0])

    return f

  x = np.ones((32, 32), np.float32)
  # The sum is computed once, too.
  for f, iteration in ((product, 32 * 32), (sums, 2 * 32)):
    few, many = (util.costs(ipu, f(n), x)["flops"] for n in (3, 13))
    assert many - few == 10 * iteration


def test_cost_analysis_has_the_keys_that_are_documented(ipu):
  x, w = np.ones((1, 512), np.float32), np.ones((512, 512), np.float32)

  def f(x, w):
    return jnp.tanh(jax.pure_callback(np.sin, x, x) @ w)

  costs = util.costs(ipu, f, x, w)
  assert costs.keys() == KEYS.keys()
  assert costs["ipu loops counted once"] == 0
  assert costs["ipu link cycles"] == costs["ipu link bytes"] == 0
  others = KEYS.keys() - {
    "ipu loops counted once", "ipu link cycles", "ipu link bytes",
  }  # fmt: skip
  missing = [key for key in others if not costs[key] > 0]
  assert not missing, f"not positive: {missing} of {costs}"
  parts = ("compute", "exchange", "sync", "host")
  assert costs["ipu cycles"] == sum(costs[f"ipu {p} cycles"] for p in parts)
  clock = resolve("ipu2").clock_hz
  assert costs["ipu seconds"] == pytest.approx(costs["ipu cycles"] / clock)


@pytest.mark.parametrize("f, dtype, derived, guessed", [
  (lambda x: x + x, "f", (0, 0.3), (0, 0)),  # a row of PopLibs and a launch
  (lambda x: jnp.tanh(x) * x + 1, "f", (0.9, 1), (0, 0)),  # chained
  (lambda x: x / 3, "bfloat16", (0, 0.5), (0.3, 1)),
  (lambda x: x @ x.T, "f", (0, 0.3), (0, 0)),
  # The cast before rests on guesses, the product does not.
  (lambda x: x @ x.T, "bfloat16", (0, 0.1), (0.1, 0.3)),
  (lambda x: x @ x.T, "i", (0.8, 1), (0, 0)),
  (lambda x: jax.pure_callback(np.sin, x, x), "f", (0, 0.2), (0.01, 0.2)),
  (lambda x: x.sum(1), "f", (0.9, 1), (0, 0)),  # workers share a row
  (lambda x: x.reshape(-1, 32).sum(1), "f", (0, 0.3), (0, 0)),
  (lambda x: x.sum(1), "i", (0.8, 1), (0, 0)),
  # Each receives 64 elements from 64 tiles, and assembles them.
  (lambda x: x.sum(1), "bfloat16", (0.6, 0.8), (0.2, 0.4)),
  (lambda x: jnp.exp(x).sum(1), "f", (0.9, 1), (0, 0)),
  (lambda x: jnp.cumsum(x, 1), "f", (0.7, 1), (0, 0)),
], ids=[
  "row", "chain", "bf16", "product", "bf16 product", "i32 product", "callback",
  "long sum", "sum", "i32 sum", "bf16 sum", "chain and sum", "scan",
])  # fmt: skip
def test_cycles_are_split_by_source(ipu, f, dtype, derived, guessed):
  costs = util.costs(ipu, f, np.ones((1472, 512), jnp.dtype(dtype)))
  parts = [
    costs[f"ipu cycles {source}"] / costs["ipu cycles"]
    for source in ("from sources", "derived", "guessed")
  ]
  assert sum(parts) == pytest.approx(1) and min(parts) >= 0
  assert derived[0] <= parts[1] <= derived[1]
  assert guessed[0] <= parts[2] <= guessed[1]


def test_cycles_of_f64_are_guessed(ipu):
  x = jax.ShapeDtypeStruct((1472, 512), np.float64)
  with jax.enable_x64(True), jax.default_device(ipu):
    for f in (lambda x: x + x, lambda x: x.sum(1)):
      costs = jax.jit(f).lower(x).compile().cost_analysis()
      assert costs["ipu cycles guessed"] > 0.9 * costs["ipu compute cycles"]


@pytest.mark.parametrize(
  "f",
  [
    lambda x: x + 1,
    lambda x: x[::-1].sum() * (x @ x.T),
    lambda x: jnp.sort(x, 0),
    lambda x: jax.lax.fori_loop(0, 7, lambda i, x: x.T + x[i], x),
    lambda x: jax.lax.cond(x[0, 0] > 0, jnp.sin, lambda x: x.T, x),
  ],
  ids=["local", "exchanges", "sort", "loop", "branch"],
)
def test_every_superstep_has_a_synchronisation(ipu, f):
  costs = util.costs(ipu, f, np.ones((300, 300), np.float32))
  sync_cycles = resolve("ipu2").sync_cycles
  assert costs["ipu sync cycles"] == costs["ipu supersteps"] * sync_cycles


def test_a_cost_without_sources_is_a_guess():
  known = plan_cost.sourced(schema.Cost(1.0, 2.0, 3.0, 4.0, 5.0))
  assert known.guessed == 6 and known.derived == 0


def test_arrays_on_the_device_are_not_streamed(ipu):
  x = np.ones((ipu.num_tiles, 1000), np.float32)
  costs = util.costs(ipu, lambda x, y: (x + y, x - y), x, x)
  assert costs["ipu cycles"] == costs["ipu compute cycles"]
  assert costs["ipu host cycles"] == costs["ipu host bytes"] == 0
  # Two arrays each way, at the bandwidth of the host link.
  machine = resolve("ipu2")
  for key, packet in (("argument", 1024), ("result", 256)):
    seconds = machine.host_stream_seconds
    link = 2 * x.nbytes * (1 + 24 / packet)
    seconds += link / machine.host_bytes_per_second
    cycles = seconds * machine.clock_hz
    assert costs[f"ipu {key} stream cycles"] == pytest.approx(cycles, rel=0.02)


def test_host_functions_do_not_change_cycles_on_the_device(ipu):
  x = np.ones((ipu.num_tiles, 1000), np.float32)
  without, beside = (
    util.costs(ipu, f, x)
    for f in (
      lambda x: x + 1,
      lambda x: jax.pure_callback(np.sin, x, x) + 1,
    )
  )
  for key in ("ipu compute cycles", "ipu exchange cycles"):
    assert without[key] == beside[key]
  assert beside["ipu host bytes"] == 2 * x.nbytes
  assert beside["ipu host calls"] == 1


def test_moving_a_result_to_the_default_layout_is_charged(ipu):
  """A product's blocks are placed by its plan: it is charged for moving its
  result to where the next program expects it."""
  x = np.ones((96, 96), np.float32)
  product = util.costs(ipu, lambda x: x @ x, x)
  both = util.costs(ipu, lambda x: (x @ x) @ x, x)
  twice = {k: 2 * product[k] for k in ("ipu cycles", "ipu exchange bytes")}
  assert all(both[k] < twice[k] for k in twice)


@pytest.mark.parametrize("f, busiest", [
  # One tile has the row, and sends what remains after 32 bytes per tile.
  (lambda x: x[0], 1024 - 32),
  # Whole rows stay on their tile, whatever is read of them.
  (lambda x: x[:, 1:] - x[:, :-1], 0),
  (lambda x: jnp.concatenate([x[:700], x[700:]]), 0),
  (lambda x: x.reshape(1472, 32, 32)[:, ::-1, 3], 0),
  # Each tile has one element of every column.
  (lambda x: x.at[:, 0].get() * 2, 32),
], ids=["row", "difference", "concatenate", "part", "column"])  # fmt: skip
def test_exchanges_take_what_the_busiest_tile_sends_or_receives(
  ipu, f, busiest
):
  found = util.costs(ipu, f, util.spec(1472, 1024))
  way = resolve("ipu2").route_cycles if busiest else 0
  assert found["ipu exchange cycles"] == busiest + way


@pytest.mark.parametrize("dtype", util.ALL, ids=str)
def test_compiling_takes_no_memory_for_the_elements_of_tensors(ipu, dtype):
  """64 Mi elements: an array with one entry per element would be 64 MiB or
  more."""
  x = jax.ShapeDtypeStruct(
    (1 << 13, 1 << 13), dtype, sharding=SingleDeviceSharding(ipu)
  )

  def f(x):
    y = jnp.where(x > 1, x, jnp.ones_like(x)) * jnp.full(x.shape, 3, x.dtype)
    shifted = jnp.pad(y.T[1:], ((0, 1), (0, 0)))
    return shifted, y.sum(0), y.max(), y[jnp.arange(5), 2:3]

  # On few tiles it needs more SRAM than there is.
  options = {"ipu_allow_out_of_memory": True}
  first, second = (
    jax.jit(g, compiler_options=options).lower(x)
    for g in (f, lambda x: f(x)[::-1])
  )
  first.compile()  # does all imports
  tracemalloc.start()
  try:
    second.compile()
    _, peak = tracemalloc.get_traced_memory()
  finally:
    tracemalloc.stop()
  assert peak < 8 << 20


def _compiled_bytes(ipu, f, *args) -> bytes:
  jax.clear_caches()
  compiled = jax.jit(f).lower(*jax.device_put(args, ipu)).compile()
  return compiled.runtime_executable().serialize()


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_compiling_twice_gives_the_same_bytes(ipu, f):
  x = util.sample(np.float32, (30, 22))
  i = util.sample(np.int32, (30, 22), key="i")
  # On one line, because programs record their source lines.
  one, two = (_compiled_bytes(ipu, f, x, i) for _ in range(2))
  assert one == two


def test_a_serialised_executable_runs(ipu):
  x = jax.device_put(np.arange(6, dtype=np.float32), ipu)
  compiled = jax.jit(lambda x: x * 3 + 1).lower(x).compile()
  loaded = serialize_executable.deserialize_and_load(
    *serialize_executable.serialize(compiled),
    backend=ipu.client,
    execution_devices=[ipu],
  )
  np.testing.assert_array_equal(loaded(x), compiled(x))
