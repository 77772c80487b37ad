"""Infeed, outfeed, and iterators whose items programs take."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time

import lowering_kit
import ml_dtypes
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax.ipu import _infeed as lax_
from jaxlib.ipu.check import interp
from jaxlib.ipu.program import container, schema
from jaxlib.ipu.tile import text

F32 = jax.ShapeDtypeStruct((3, 4), np.float32)
X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(params=["ipu", "cpu"])
def device(request, ipu, cpu):
  """Each of the platforms, whose feeds are empty."""
  device = ipu if request.param == "ipu" else cpu
  yield device
  with contextlib.suppress(Exception):  # that a program has raised
    jax.effects_barrier()


def give(device, *items):
  for item in items:
    lax_.transfer_to_infeed(device, item)


def take(device, shape):
  return lax_.transfer_from_outfeed(device, shape)


def on(device, *arrays):
  return jax.device_put(arrays, device)


# --- lax.infeed and lax.outfeed ---------------------------------------------


def test_items_are_trees(device):
  def f(x):
    token = lax_.create_token(x)
    shape = {"a": jax.ShapeDtypeStruct((), np.float32), "b": (F32, F32)}
    tree, token = lax_.infeed(token, shape=shape)
    (y,), _ = lax_.infeed(token, shape=[jax.core.ShapedArray((2,), np.int16)])
    return tree["a"] + tree["b"][0] * x, tree["b"][1], y

  give(device, {"a": 1.5, "b": (X, X + 1)}, (np.array([4, 5], np.int16),))
  a, b, c = jax.jit(f)(*on(device, np.float32(2)))
  np.testing.assert_array_equal(a, 1.5 + 2 * X)
  np.testing.assert_array_equal(b, X + 1)
  np.testing.assert_array_equal(c, [4, 5])


@pytest.mark.parametrize(
  "dtype",
  [bool, np.int8, np.uint32, np.float16, ml_dtypes.bfloat16, np.complex64]
  + [ml_dtypes.float8_e4m3fn, ml_dtypes.int4],
)
def test_types(device, dtype):
  x = (X % 2).astype(dtype)
  shape = jax.ShapeDtypeStruct(x.shape, x.dtype)

  def f(token):
    y, token = lax_.infeed(token, shape=shape)
    lax_.outfeed(token, (y.T, y))
    return y

  give(device, x)
  result = jax.jit(f)(*on(device, np.False_))
  np.testing.assert_array_equal(np.asarray(result), x)
  transposed, same = take(device, (x.T, x))
  assert same.dtype == x.dtype
  np.testing.assert_array_equal(transposed, x.T)
  np.testing.assert_array_equal(same, x)


def test_items_without_arrays_and_without_elements(device):
  def f(token):
    _, token = lax_.infeed(token, shape=())
    y, token = lax_.infeed(token, shape=jax.ShapeDtypeStruct((0, 3), np.int32))
    return lax_.outfeed(token, ()), y

  give(device, (), np.zeros((0, 3), np.int32))
  _, y = jax.jit(f)(*on(device, np.False_))
  assert y.shape == (0, 3)
  assert take(device, ()) == ()


def doubled(_, token):
  y, token = lax_.infeed(token, shape=F32)
  return lax_.outfeed(token, y * 2)


def serve(device, f, items, types):
  """Runs f on a thread of its own, gives it items, and takes one for each."""
  results = []
  thread = threading.Thread(target=lambda: results.append(f()))
  thread.start()
  out = []
  for item in items:
    give(device, item)
    out.append(take(device, types))
  thread.join()
  jax.block_until_ready(results)
  return out


def test_loops_carry_tokens(device):
  f = jax.jit(lambda n: jax.lax.fori_loop(0, n, doubled, lax_.create_token(n)))
  (n,) = on(device, np.int32(5))
  out = serve(device, lambda: f(n), [X + i for i in range(5)], F32)
  np.testing.assert_array_equal(out, [2 * (X + i) for i in range(5)])


def test_scan_and_cond(device):
  def step(carry, flag):
    token, total = carry
    token = jax.lax.cond(flag, lambda t: doubled(0, t), lambda t: t, token)
    y, token = lax_.infeed(token, shape=F32)
    return (token, total + y), y[0, 0]

  def f(flags):
    token = lax_.create_token(flags)
    (_, total), ys = jax.lax.scan(step, (token, jnp.zeros((3, 4))), flags)
    return total, ys

  give(device, X, X + 1, X + 2, X + 3)
  total, ys = jax.jit(f)(*on(device, np.array([False, True, False])))
  np.testing.assert_array_equal(total, X + (X + 2) + (X + 3))
  np.testing.assert_array_equal(ys, [0, 2, 3])
  np.testing.assert_array_equal(take(device, F32), 2 * (X + 1))


def test_the_fed_are_constants(device):
  def loss(w, token):
    x, token = lax_.infeed(token, shape=F32)
    token = lax_.outfeed(token, w * x)
    return jnp.sum(w**2 * x)

  give(device, X)
  w, token = on(device, np.float32(3), np.False_)
  result = jax.jit(jax.grad(loss))(w, token)
  assert result == 2 * 3 * X.sum()
  np.testing.assert_array_equal(take(device, F32), 3 * X)


def test_vmap_says_why_not(device):
  def f(x):
    y, _ = lax_.infeed(lax_.create_token(), shape=F32)
    return x + y

  for g in (f, lambda x: jax.lax.fori_loop(0, 2, lambda i, x: f(x), x)):
    with pytest.raises(NotImplementedError, match=r"jax\.vmap of infeed"):
      jax.jit(jax.vmap(g))(*on(device, np.zeros((2, 3, 4), np.float32)))


def test_outside_of_jit(device):
  with jax.default_device(device):
    give(device, X)
    y, token = lax_.infeed(lax_.create_token(), shape=F32)
    lax_.outfeed(token, y)
  np.testing.assert_array_equal(take(device, F32), X)


def test_arguments_that_mean_nothing():
  token = lax_.create_token()
  with pytest.raises(TypeError, match="must be a tree of ShapedArray"):
    lax_.infeed(token, shape=(3, 4))
  with pytest.raises(ValueError, match="should be a tuple"):
    lax_.infeed(token, shape=F32, partitions=[None])
  with pytest.raises(NotImplementedError, match="a feed of its own"):
    lax_.outfeed(token, X, partitions=(2,))
  with pytest.raises(TypeError, match="lax.create_token"):
    lax_.outfeed(jnp.zeros(3), X)


# --- Errors -----------------------------------------------------------------


def feeding(shape):
  """A new program that takes an item of a shape."""
  return jax.jit(lambda token: lax_.infeed(token, shape=shape)[0])


def test_a_wrong_item_is_an_error_at_the_transfer(ipu):
  odd = jax.ShapeDtypeStruct((5,), np.float32)
  compiled = feeding(odd).lower(*on(ipu, np.False_)).compile()
  for wrong in (X, np.zeros(5, np.int32), (np.zeros(5, np.float32),) * 2):
    with pytest.raises(ValueError, match=r"\(float32\[5\]\)"):
      give(ipu, wrong)
  give(ipu, np.ones(5, np.float32))
  np.testing.assert_array_equal(compiled(*on(ipu, np.False_)), 1)
  del compiled
  give(ipu, X)  # nobody expects anything else any more
  feeding(F32)(*on(ipu, np.False_)).block_until_ready()


def test_a_wrong_item_is_an_error_of_the_run(device):
  give(device, X, X + 1)
  f = feeding(jax.ShapeDtypeStruct((5,), np.float32))
  with pytest.raises(Exception, match=r"float32\[3,4\].*expected.*\[5\]") as e:
    f(*on(device, np.False_)).block_until_ready()
  if device.platform == "ipu":
    assert "test_feeds.py:" in str(e.value)
  # The wrong item is gone; the next one is served.
  result = feeding(F32)(*on(device, np.False_))
  np.testing.assert_array_equal(result, X + 1)


def test_a_wrong_type_of_the_outfeed(device):
  f = jax.jit(lambda x: lax_.outfeed(lax_.create_token(), x))
  f(*on(device, X)).block_until_ready()
  with pytest.raises(ValueError, match=r"\(float32\[3,4\]\), expected"):
    take(device, np.zeros(3, np.int32))
  np.testing.assert_array_equal(take(device, X), X)


def test_calls_get_items_in_order(ipu):
  f = feeding(F32)
  (token,) = on(ipu, np.False_)
  results = [f(token) for _ in range(4)]
  # Long enough for the queue to go on with other work.
  time.sleep(0.3)
  assert float(jax.jit(lambda x: x + 1)(*on(ipu, np.float32(1)))) == 2
  give(ipu, *(X + i for i in range(4)))
  np.testing.assert_array_equal(results, [X + i for i in range(4)])


# --- Figures, and the program itself ----------------------------------------


def test_costs_are_those_of_a_stream(ipu):
  (token,) = on(ipu, np.False_)
  shape = jax.ShapeDtypeStruct((1000,), np.float32)
  fed = feeding(shape).lower(token).compile().cost_analysis()
  called = jax.jit(
    lambda x: jax.experimental.io_callback(lambda x: x + 1, shape, x)
  )
  called = called.lower(*on(ipu, np.zeros(1000, np.float32))).compile()
  called = called.cost_analysis()
  assert fed["ipu host bytes"] == 4000 and fed["ipu host calls"] == 0
  assert 0 < fed["ipu host cycles"] < called["ipu host cycles"]
  assert fed["ipu cycles guessed"] == 0


def test_the_interpreter_agrees():
  def f(n):
    def body(i, carry):
      token, total = carry
      (y, z), token = lax_.infeed(token, shape=(F32, F32))
      return lax_.outfeed(token, (y, y * z)), total + y

    start = lax_.create_token(), jnp.zeros((3, 4))
    return jax.lax.fori_loop(0, 3, body, start)[1] + n

  state = lowering_kit.phases(f, [np.float32(1)], 3)
  program, _ = container.read(state.data)
  assert "Infeed(" in text.program_text(state.tiles)
  items = [(X + i, X - i) for i in range(3)]
  result = interp.run(
    state.data, [np.float32(1)], feeds={schema.NONE: iter(items)}
  )
  np.testing.assert_array_equal(result.outputs[0], sum(y for y, _ in items) + 1)
  for (y, z), (a, b) in zip(items, result.outfeed, strict=True):
    np.testing.assert_array_equal(a, y)
    np.testing.assert_array_equal(b, y * z)
  assert result.host_bytes == 4 * 3 * X.nbytes


# --- jax.ipu.feed -----------------------------------------------------------


def batches(n):
  for i in range(n):
    yield {"x": X + i, "y": np.int32(i)}


@jax.jit
def summed(start, feed):
  def step(total, _):
    batch = feed.next()
    return total + batch["x"], batch["y"]

  return jax.lax.scan(step, start, None, length=5)


def test_a_program_takes_the_items_of_an_iterator(device):
  (start,) = on(device, np.zeros((3, 4), np.float32))
  for n in (5, 7):  # a longer one is not read to its end
    total, ys = summed(start, jax.ipu.feed(batches(n)))
    np.testing.assert_array_equal(total, sum(X + i for i in range(5)))
    np.testing.assert_array_equal(ys, range(5))


def test_types_of_arrays_say_what_items_are(device):
  feed = on(device, jax.ipu.feed([X], like=jax.typeof(X)))[0]
  np.testing.assert_array_equal(jax.jit(lambda feed: feed.next())(feed), X)


def test_feeds_share_a_program(ipu):
  (start,) = on(ipu, np.zeros((3, 4), np.float32))
  jax.block_until_ready(summed(start, jax.ipu.feed(batches(5))))
  before = summed._cache_size()
  jax.block_until_ready(summed(start, jax.ipu.feed(batches(5))))
  assert summed._cache_size() == before


def test_several_feeds_and_items_in_an_iteration(device):
  def f(a, b):
    def step(_, __):
      return None, (a.next(), b.next(), a.next())

    return jax.lax.scan(step, None, None, length=3)[1]

  numbers = (np.int32(i) for i in range(6))
  others = (np.float32(i) / 2 for i in range(3))
  with jax.default_device(device):
    x, y, z = jax.jit(f)(jax.ipu.feed(numbers), jax.ipu.feed(others))
  np.testing.assert_array_equal(x, [0, 2, 4])
  np.testing.assert_array_equal(z, [1, 3, 5])
  np.testing.assert_array_equal(y, [0, 0.5, 1])


def test_the_end_is_an_error_that_names_it(device):
  (start,) = on(device, np.zeros((3, 4), np.float32))
  feed = jax.ipu.feed(batches(3))
  with pytest.raises(Exception, match="asks for item 3") as caught:
    jax.block_until_ready(summed(start, feed))
  assert "generator object batches" in str(caught.value)
  if device.platform == "ipu":
    assert "test_feeds.py:" in str(caught.value)


def test_a_loop_until_the_end(device):
  @jax.jit
  def f(feed):
    def body(carry):
      n, total, (batch, valid) = carry
      return n + 1, total + batch["x"], feed.next_or_end()

    start = 0, jnp.zeros((3, 4)), feed.next_or_end()
    return jax.lax.while_loop(lambda carry: carry[2][1], body, start)

  with jax.default_device(device):
    n, total, (batch, valid) = f(jax.ipu.feed(batches(9)))
    assert n == 9 and not valid and batch["x"].sum() == 0
    np.testing.assert_array_equal(total, sum(X + i for i in range(9)))
    none = jax.eval_shape(lambda: next(batches(1)))
    n, *_ = f(jax.ipu.feed(batches(0), like=none))
    assert n == 0


def failing():
  yield from batches(2)
  raise KeyError("no such file")


def changing():
  yield from batches(2)
  yield {"x": X.astype(np.float16), "y": np.int32(0)}


@pytest.mark.parametrize(
  "items, message",
  [
    (failing, "item 2 of .*no such file"),
    (changing, r"item 2 has an array float16\[3, 4\], expected float32"),
    (lambda: [*batches(2), X], "item 2 is a PyTreeDef"),
  ],
)
def test_exceptions_of_the_iterator(device, items, message):
  (start,) = on(device, np.zeros((3, 4), np.float32))
  with pytest.raises(Exception, match=message):
    jax.block_until_ready(summed(start, jax.ipu.feed(items())))


def test_an_iterator_is_read_only_so_far_ahead(ipu):
  read = itertools.count()
  feed = jax.ipu.feed(np.float32(next(read)) for _ in iter(int, 1))
  time.sleep(0.3)
  ahead = next(read)
  assert 60 < ahead < 70
  f = jax.jit(lambda feed: feed.next())
  with jax.default_device(ipu):
    assert f(feed) == 0
    feed.close()
    with pytest.raises(Exception, match="does not exist any more"):
      f(feed).block_until_ready()


def test_an_iterator_without_items():
  with pytest.raises(ValueError, match="pass `like`"):
    jax.ipu.feed(iter(()))


def test_no_vmap_over_a_feed(device):
  with jax.default_device(device):
    feed = jax.ipu.feed(batches(1))
    with pytest.raises(NotImplementedError, match="whole batches"):
      jax.jit(lambda f: jax.vmap(lambda x: x + f.next()["y"])(jnp.ones(2)))(
        feed
      )
