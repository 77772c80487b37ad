"""Where tensors are placed, and the cost of moving them to their users."""

from __future__ import annotations

import math

import ipu_test_util as util
import lowering_kit
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu import fitting, target
from jaxlib.ipu.layout import Layout
from jaxlib.ipu.lower import consumer_layouts
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.ops import control_flow
from jaxlib.ipu.plan.default_layout import blocks, default_layout
from jaxlib.ipu.program import container

pytestmark = pytest.mark.ipu_only


def cost(ipu, f, *shapes, **options) -> dict[str, float]:
  return util.costs(ipu, f, *(util.spec(*s) for s in shapes), **options)


def per_iteration(ipu, loop, *shapes, first=4) -> dict[str, float]:
  """The cost of one more iteration; `loop(trips)` is a function."""
  few, many = (cost(ipu, loop(n), *shapes) for n in (first, first + 10))
  return {key: (many[key] - few[key]) / 10 for key in few}


def loop_of(step):
  return lambda n: (
    lambda x, *ws: lax.fori_loop(0, n, lambda _, x: step(x, *ws), x)
  )


@pytest.fixture
def default_layouts(monkeypatch):
  """Weights are not where their products want them."""
  monkeypatch.setattr(consumer_layouts, "_choose", lambda *_: {})


@pytest.mark.usefixtures("default_layouts")
def test_loop_invariant_operands_are_hoisted(ipu):
  """The weights of a recurrent layer, and the vector that is added."""
  shapes = (8, 512), (512, 512), (512,)
  step = per_iteration(
    ipu, loop_of(lambda x, w, b: jnp.tanh(x @ w + b)), *shapes
  )
  # Each tile that multiplies gets its share of x, and of partial products.
  assert step["ipu exchange bytes"] < 1472 * 8 * 512 * 4 / 8
  once = cost(ipu, lambda x, w, b: jnp.tanh(x @ w + b), *shapes)
  assert step["ipu exchange cycles"] < 0.7 * once["ipu exchange cycles"]


@pytest.mark.usefixtures("default_layouts")
def test_loop_invariant_operands_are_hoisted_out_of_nested_loops(ipu):
  def nested(step):
    inner = lambda x, w: lax.fori_loop(0, 3, lambda _, x: step(x, w), x)
    return loop_of(inner)

  shapes = (8, 640), (640, 640)
  step = lambda x, w: jnp.tanh(x @ w)
  flat = per_iteration(ipu, loop_of(step), *shapes)
  three = per_iteration(ipu, nested(step), *shapes)
  once = cost(ipu, step, *shapes)
  for key in ("ipu exchange bytes", "ipu cycles"):
    assert three[key] == pytest.approx(3 * flat[key], rel=0.1)
    assert three[key] < 0.95 * 3 * once[key]


def test_results_with_hoisted_operands(check):
  rng = np.random.default_rng(0)
  x, w, b = (
    rng.normal(size=s).astype(np.float32) / 8
    for s in ((5, 33), (33, 33), (33,))
  )

  def f(x, w, b):
    def iteration(i, carry):
      x, w2 = carry
      x = lax.cond(i % 2 == 0, lambda x: x @ w + b, lambda x: x @ w.T, x)
      x = lax.while_loop(lambda x: jnp.abs(x).max() > 1, lambda x: x @ w2, x)
      return jnp.tanh(x), w2.T * 0.5 + w

    return lax.fori_loop(0, 5, iteration, (x, w))

  check(f, x, w, b, rtol=1e-4, atol=1e-5)


def test_operands_are_not_hoisted_if_their_copies_would_not_fit(ipu):
  """Operands of several products, each sent to many tiles."""
  shapes = (512, 2048), *((2048, 2048),) * 9

  def step(x, *ws):
    for w in ws:
      x = jnp.tanh(x @ w)
    return x

  found = cost(ipu, loop_of(step)(3), *shapes)
  assert found["ipu peak tile bytes"] <= 624 * 1024
  alone = cost(ipu, loop_of(step)(3), *shapes[:2])
  assert found["ipu peak tile bytes"] > alone["ipu peak tile bytes"]


def test_backward_products_reuse_copies_of_the_forward_product(ipu):
  """The weight gradient finds one operand in place, transposed."""
  x, w, dy = (64, 1024), (1024, 1024), (64, 1024)
  layer = [
    lambda x, w, dy: x @ w,
    lambda x, w, dy: dy @ w.T,
    lambda x, w, dy: x.T @ dy,
  ]
  all_three = cost(ipu, lambda *a: [f(*a) for f in layer], x, w, dy)
  each = [cost(ipu, f, x, w, dy) for f in layer]
  key = "ipu exchange bytes"
  assert all_three[key] < 0.85 * sum(c[key] for c in each)


@pytest.mark.usefixtures("without_code")
def test_copies_for_reuse_are_limited_by_sram(ipu):
  """Many operands that are all used again when all products are done."""

  def twice(w, *xs):
    first = [x @ w for x in xs]
    w = w + sum(first)[:1, :1]
    return [x @ w for x in xs]

  key = "ipu exchange bytes"
  few, many = (
    cost(ipu, twice, (1024, 1024), *[(128, 1024)] * n) for n in (4, 40)
  )
  assert few[key] / 4 < 0.6 * many[key] / 40
  assert many["ipu peak tile bytes"] < few["ipu peak tile bytes"]


@pytest.mark.usefixtures("without_code")
def test_copies_for_reuse_in_a_loop_are_limited_by_sram(ipu):
  """The product before the loop leaves copies that iterations could read."""

  def f(x, w):
    step = lambda i, c: jnp.tanh(c @ w) + x
    return lax.fori_loop(0, 20, step, x @ w)

  x = util.spec(1024, 1024)
  costs = util.costs(ipu, f, x, x, ipu_num_tiles="66")
  assert costs["ipu peak tile bytes"] < 450_000


def test_programs_that_never_fit_are_not_made_slower(ipu, monkeypatch):
  args = util.spec(3000, 70), util.spec(200_000, dtype=np.int32)
  options = {"ipu_num_tiles": "16", "ipu_allow_out_of_memory": True}

  def cycles() -> float:
    return util.costs(ipu, lambda x, i: x[i], *args, **options)["ipu cycles"]

  found = cycles()
  monkeypatch.setattr(fitting, "smaller", lambda choices, used: ())
  assert found == cycles()


@pytest.mark.parametrize(
  "f, each",
  [
    (lambda x: (jnp.zeros((1472, 1000)), x), 1),
    (lambda x: jnp.broadcast_to(x, (1472, 1000)), 1000),
    (lambda x: jnp.broadcast_to(x[:, None], (1000, 1472)), 1),
    (lambda x: lax.fori_loop(0, 9, lambda i, c: c + x,
                             jnp.zeros((1472, 1000))), 1000),
  ], ids=["zeros", "rows", "columns", "loop"],
)  # fmt: skip
def test_a_broadcast_is_sent_once_to_each_tile(ipu, f, each):
  """Once per tile, however many elements it fills: vertices write them
  there."""
  found = cost(ipu, f, (1000,))
  # Some hundred bytes, of what fills an array or counts iterations.
  assert found["ipu exchange bytes"] < ipu.num_tiles * (4 * each + 100)


@pytest.mark.parametrize("f, shape, dtype", [
  (lambda x: jnp.broadcast_to(x, (1000, 1001)), (1001,), "int8"),
  (lambda x: jnp.tile(x, (10, 1)), (1000, 50), "float32"),
  (lambda x: jnp.broadcast_to(x, (4, 4)), (4,), "float32"),
], ids=["bytes", "tile", "small"])  # fmt: skip
def test_broadcasts_are_copied_where_vertices_would_be_slower(
  ipu, monkeypatch, f, shape, dtype
):
  def cycles():
    return util.costs(ipu, f, util.spec(*shape, dtype=dtype))["ipu cycles"]

  found = cycles()
  monkeypatch.setattr(Builder, "_fills_faster", lambda *_: True)
  jax.clear_caches()
  assert found < cycles()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bool", "int8"])
def test_loop_carried_and_returned_broadcasts(check, dtype):
  x = np.random.default_rng(0).integers(0, 2, (5, 7)).astype(dtype)

  def step(_, state):
    a, b, c = state
    row = jnp.broadcast_to(c[1], a.shape)
    return b, row, jnp.where(a == row, c, a[:, :1])

  def f(x):
    zeros = jnp.zeros_like(x)
    state = lax.fori_loop(0, 3, step, (zeros, x, x[::-1]))
    return *state, jnp.broadcast_to(x[0], (4, 7)), zeros

  check(f, x)


def test_weights_stay_in_place_if_moving_them_needs_packing(ipu):
  """A tile has some of the rows, and would get a column of words."""
  rows, columns = 50_176, 32
  args = [util.spec(*s, dtype=np.float16) for s in ((1, rows), (rows, columns))]
  found = util.costs(ipu, jnp.matmul, *args)
  assert found["ipu exchange bytes"] < 0.2 * 2 * rows * columns


def test_a_gradient_is_computed_on_the_tiles_of_its_parameter(ipu):
  """With a batch of one, which takes about as long in one mapping as in
  another."""

  def step(w, x, dy):
    return w - 0.01 * (x[None].T @ dy[None])

  found = cost(ipu, step, (50_000, 32), (50_000,), (32,))
  whole = 50_000 * 32 * 4
  assert found["ipu exchange bytes"] < 0.2 * whole
  # Parameters, gradients and new parameters.
  assert found["ipu peak tile bytes"] < 3.5 * whole / ipu.num_tiles


@pytest.mark.usefixtures("without_code")
def test_a_result_reuses_the_memory_of_a_dead_copy(ipu):
  size = 1472 * 1024
  found = cost(ipu, lambda x: x[::-1] * 2, (size,))
  assert found["ipu peak tile bytes"] < 2.3 * 4 * size / ipu.num_tiles
  # It replaces one of the two copies.
  found = cost(ipu, lambda x, y: x[::-1] * y[::-1], (size,), (size,))
  assert found["ipu peak tile bytes"] == 4 * 4 * size / ipu.num_tiles


@pytest.mark.usefixtures("without_code")
@pytest.mark.parametrize("dtype", ["float16", "uint8"])
def test_narrow_random_numbers_need_no_wide_array(ipu, dtype):
  size = 1472 * 1024

  def draw(key):
    key = jax.random.wrap_key_data(key, impl="rbg")
    bits = jax.random.bits(key, (size,), dtype.replace("float", "uint"))
    return bits if dtype == "uint8" else lax.bitcast_convert_type(bits, dtype)

  key = util.spec(4, dtype=np.uint32)
  found = util.costs(ipu, draw, key)["ipu peak tile bytes"]
  # As generated and as concatenated, all but a few hundred words.
  assert found < 2.5 * np.dtype(dtype).itemsize * 1024 + 2048


def test_products_of_one_operand_in_all_dimension_orders(check):
  rng = np.random.default_rng(0)
  x, y = (rng.normal(size=s).astype(np.float32) for s in ((40, 56), (40, 24)))
  b = rng.normal(size=(3, 40, 56)).astype(np.float32)

  def f(x, y, b):
    mixed = jnp.einsum("bij,bkj->bik", b, b)
    back = jnp.einsum("bik,bij->bkj", mixed, b)
    return x.T @ y, x.T @ x, x @ x.T, y.T @ x, x @ (x.T @ y), mixed, back

  check(f, x, y, b, rtol=1e-4, atol=1e-3)


def test_stacked_outputs_of_a_scan_are_on_the_tiles_of_their_slices(ipu):
  """No tile receives a slice that it does not keep, and all keep the same
  amount."""
  iteration = lambda x, _: (jnp.tanh(x), jnp.tanh(x))
  stacking = cost(ipu, lambda x: lax.scan(iteration, x, length=64), (32, 256))
  alone = cost(ipu, loop_of(jnp.tanh)(64), (32, 256))
  key = "ipu exchange bytes"
  each = 32 * 256 * 4 + ipu.num_tiles * 4  # a slice, its number
  there_and_back = 2 * 64 * 32 * 256 * 4
  assert stacking[key] - alone[key] <= 64 * each + there_and_back
  key = "ipu peak tile bytes"
  assert stacking[key] < 3 * alone[key] + 2 * 64 * 32 * 256 * 4 / ipu.num_tiles


def test_small_slices_of_many_iterations_use_several_tiles(ipu):
  iteration = lambda x, _: (x * 0.5, x[:2])
  found = cost(ipu, lambda x: lax.scan(iteration, x, length=100_000), (8,))
  assert found["ipu peak tile bytes"] < 100_000 * 2 * 4 / 10


@pytest.mark.parametrize("shape", [(), (1,), (7,), (5, 33), (3, 4, 130)])
def test_gradient_of_a_scan_with_stacked_inputs_and_outputs(check, shape):
  xs = np.random.default_rng(0).normal(size=(9, *shape)).astype(np.float32)

  def loss(xs):
    iteration = lambda c, x: (jnp.tanh(c + x), (c, 2 * x))
    end, (a, b) = lax.scan(iteration, jnp.zeros(shape), xs, reverse=True)
    return (end.sum() + (a * b).sum()).sum()

  check(jax.value_and_grad(loss), xs, rtol=1e-4, atol=1e-5)


def test_a_loop_that_reads_and_updates_slices_of_its_state(check):
  cache = np.random.default_rng(0).normal(size=(6, 40, 5)).astype(np.float32)

  def iteration(i, cache):
    old = lax.dynamic_slice(cache, (i % 3, 0, i), (2, 40, 1))
    cache = lax.dynamic_update_slice(cache, old * 0.5, (i, 0, i % 4))
    return lax.dynamic_update_slice(cache, old[:1], (5 - i, 0, 0))

  check(lambda c: lax.fori_loop(0, 6, iteration, c), cache)


def periodic(x):
  around = sum(jnp.roll(x, s, a) for s in (1, -1) for a in (0, 1))
  return 0.25 * around


def test_a_stencil_exchanges_halos_of_boxes(ipu, six_programs):
  """A tile has some 53 x 53 elements, and reads two more rows and columns."""
  step = per_iteration(
    ipu, loop_of(six_programs.five_point), (2000, 2000), first=90
  )
  side = (4e6 / ipu.num_tiles) ** 0.5
  # The four neighbours are read one by one, and the result is shifted by one.
  assert step["ipu exchange bytes"] < ipu.num_tiles * 4 * 14 * side
  # Rows would be long.
  once = cost(ipu, six_programs.five_point, (2000, 2000))
  assert step["ipu exchange cycles"] < 0.6 * once["ipu exchange cycles"]


def test_a_stencil_keeps_rows_where_packing_makes_boxes_slower(
  ipu, six_programs
):
  loop = loop_of(six_programs.five_point)(104)
  found = cost(ipu, loop, (1000, 1000))
  once = cost(ipu, six_programs.five_point, (1000, 1000))
  assert found["ipu cycles"] <= 104 * once["ipu cycles"]


@pytest.mark.parametrize("name", ["five_point", "periodic"])
@pytest.mark.parametrize("shape", [(64, 48), (3, 5), (1, 40), (301, 7)])
def test_stencils_in_loops(check, six_programs, name, shape):
  step = {"five_point": six_programs.five_point, "periodic": periodic}[name]
  x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
  check(lambda x: lax.fori_loop(0, 20, lambda _, x: step(x), x), x, rtol=1e-5,
        atol=1e-6)  # fmt: skip


def test_boxes_of_a_stencil_use_all_tiles_and_have_short_borders():
  machine = target.resolve("ipu2")
  for shape in ((1000, 1000), (64, 4096), (3, 500, 700), (10**6, 3), (2, 2)):
    found = blocks(machine, shape)
    even = -(-np.prod(shape) // machine.num_tiles)
    assert found.last_tile < machine.num_tiles
    assert found.max_elements <= 1.35 * even + 1, shape
  rows, columns = (f.block for f in blocks(machine, (1000, 1000)).factors)
  assert rows + columns < 60
  assert blocks(machine, (5,)) is None and blocks(machine, (0, 5)) is None


def test_a_stencil_with_a_reduction_is_not_cut_into_boxes(ipu, six_programs):
  """Rows are summed in every iteration: boxes would have to be combined."""

  def step(x):
    inner = six_programs.five_point(x)
    return inner - jnp.tanh(inner).sum(1, keepdims=True) * 1e-3

  found = cost(ipu, loop_of(step)(3), (1000, 1000))
  rows = cost(ipu, step, (1000, 1000))
  assert found["ipu cycles"] <= 3.05 * rows["ipu cycles"]


@pytest.mark.parametrize(
  "f",
  [
    lambda x: x + 1,
    lambda x: (x @ x, x.T, x[::-1], jnp.sort(x, 0)),
    lambda x: lax.fori_loop(0, 50, lambda _, x: periodic(x), x),
    lambda x: lax.fori_loop(0, 5, lambda _, x: jnp.tanh(x @ x), x),
    lambda x: (x.sum(0), lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x)),
  ],
  ids=["add", "product", "stencil", "products", "branches"],
)
def test_arguments_and_results_have_the_default_layout(f):
  """State that one program leaves is where the next one expects it; a program
  moves whatever it computes elsewhere, and is charged for that."""
  machine = target.resolve("ipu2")
  x = np.ones((300, 300), np.float32)
  program, _ = container.read(lowering_kit.compiled(f, [x], machine))
  for number in (*program.arguments, *program.results):
    tensor = program.tensors[number]
    home = default_layout(machine, tuple(tensor.shape), 4)
    assert Layout.from_record(program.mappings[tensor.mapping]) == home


def test_loop_carried_values_stay_where_iterations_leave_them(
  ipu, six_programs, monkeypatch
):
  shapes = (20, 32, 64), (64, 1024), (256, 1024), (1024,)
  ours = cost(ipu, six_programs.lstm, *shapes)
  monkeypatch.setattr(control_flow, "_LEAST_SHARE", float("inf"))
  theirs = cost(ipu, six_programs.lstm, *shapes)
  # One synchronisation less per iteration.
  assert ours["ipu sync cycles"] < theirs["ipu sync cycles"] - 20 * 100
  assert ours["ipu cycles"] < theirs["ipu cycles"]


def test_a_recurrent_layer(check, six_programs):
  rng = np.random.default_rng(0)
  shapes = (7, 5, 33), (33, 256), (64, 256), (256,)
  arrays = [rng.normal(size=s).astype(np.float32) / 8 for s in shapes]
  check(six_programs.lstm, *arrays, rtol=1e-4, atol=1e-5)


def test_long_element_wise_programs_use_more_tiles_than_their_operands(ipu):
  """32 x 256 elements: 128 bytes on each of 256 tiles by default."""

  def long(x):
    for _ in range(4):
      x = jnp.tanh(x) * jax.nn.sigmoid(x) + jnp.sin(x)
    return x

  few, all_ = (cost(ipu, f, (32, 256)) for f in (lambda x: x + 1, long))
  assert few["ipu exchange bytes"] == 0
  alone = cost(ipu, long, (32, 256), ipu_num_tiles=256)
  assert all_["ipu cycles"] < 0.7 * alone["ipu cycles"]


def test_expensive_functions_of_few_elements_use_more_tiles(ipu):
  """64 elements are on two tiles; a cosine takes 2,300 cycles on one of six
  workers."""
  sine = cost(ipu, jnp.cos, (64,))
  assert (
    sine["ipu compute cycles"]
    < 1.1 * cost(ipu, jnp.cos, (1,))["ipu compute cycles"]
  )
  # An exchange both ways costs more than a short computation.
  quick = cost(ipu, lambda x: x * 2 + 1, (64,))
  assert quick["ipu exchange cycles"] == 0
  step = per_iteration(ipu, loop_of(lambda x: jnp.cos(x) * 2), (64,))
  assert step["ipu cycles"] < 1.1 * sine["ipu cycles"]


def test_columns_of_few_rows_are_sliced_in_place(ipu):
  """16 rows of three on two tiles: their columns need not move to one."""

  def rotated(x):
    a, b, c = x.T
    return jnp.stack([b - c, c - a, a - b], 1)

  step = per_iteration(ipu, loop_of(rotated), (16, 3))
  assert step["ipu exchange bytes"] == 0


@pytest.mark.parametrize("n", [0, 1, 2])
def test_columns_of_arrays_with_two_rows_or_fewer(check, n):
  check(lambda x: [c * 2 for c in x.T] + [x.T - 1], np.ones((n, 3), np.float32))


@pytest.mark.parametrize("axis, shape", [(-1, (50_000,)), (1, (3000, 20))])
def test_stacked_operands_stay_on_their_tiles(ipu, axis, shape):
  found = cost(ipu, lambda x, y: jnp.stack([x, y], axis) + 1, shape, shape)
  # Only the result goes to the default mapping of its shape.
  size = 2 * 4 * math.prod(shape)
  assert found["ipu exchange bytes"] <= size
