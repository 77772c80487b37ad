"""Runs on several devices: all or none of them, and none waits for ever."""

from __future__ import annotations

import functools
import threading

import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import io_callback
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P


def on_each(mesh, f, **options):
  """f in a shard_map over all axes of a mesh."""
  spec = P(mesh.axis_names)
  mapped = jax.shard_map(
    f, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
  )
  return jax.jit(mapped, **options)


def numbers(mesh, each=4):
  count = mesh.size * each
  sharding = NamedSharding(mesh, P(mesh.axis_names))
  return jax.device_put(np.arange(count, dtype=np.float32), sharding)


def test_loops_of_different_lengths_are_an_error_at_once(mesh):
  ipus = mesh("ipu", {"i": 8})

  def f(x):
    trips = jnp.where(lax.axis_index("i") == 5, 2, 3)
    return lax.fori_loop(0, trips, lambda _, y: lax.psum(y, "i"), x)

  with pytest.raises(jax.errors.JaxRuntimeError) as error:
    jax.block_until_ready(on_each(ipus, f)(numbers(ipus)))
  message = str(error.value)
  assert "device 0 waits in psum (all_reduce) over {0,1,2,3,4,5,6,7}" in message
  assert "ipu." not in message
  assert "device 5 has ended" in message
  assert "test_sharded_gangs.py" in message
  total = on_each(ipus, lambda x: lax.psum(x, "i"))(numbers(ipus))
  np.testing.assert_array_equal(
    total[:4], np.arange(32).reshape(8, 4).sum(axis=0)
  )


def test_devices_wait_for_those_that_have_more_to_do(mesh):
  ipus = mesh("ipu", {"i": 8})
  sharding = NamedSharding(ipus, P("i"))

  def work(trips, x):
    return lax.fori_loop(0, trips, lambda _, y: jnp.sin(y), x)

  def f(x, trips):
    fours = [[0, 1, 2, 3], [4, 5, 6, 7]]
    x = lax.psum(work(trips[0, 0], x), "i", axis_index_groups=fours)
    return lax.psum(work(trips[0, 1], x), "i")

  step = on_each(ipus, f)

  def runs(first, second):
    trips = np.stack([first, second], axis=1).astype(np.int32)
    step(numbers(ipus), jax.device_put(trips, sharding)).block_until_ready()
    found = [device.ipu_last_run() for device in jax.devices("ipu")]
    return (
      np.array([run.cycles for run in found]),
      np.array([run.waiting_cycles for run in found]),
    )

  i = np.arange(8)
  cycles, waited = runs(10 * i, 0 * i)
  trip = (cycles[7] - cycles[0]) / 70
  assert trip > 0
  np.testing.assert_allclose(cycles, cycles[0] + 10 * i * trip)
  np.testing.assert_allclose(waited, (70 - 10 * i) * trip, atol=trip / 100)
  # Devices 0 and 4 are the last: after 30 and 70 trips of others and 70 and 30
  # of their own.
  cycles, waited = runs(10 * i, 70 - 10 * i)
  np.testing.assert_allclose(cycles, cycles[0])
  np.testing.assert_allclose(waited, 30 * trip)


def test_an_exception_on_one_device_ends_all(mesh):
  ipus = mesh("ipu", {"i": 8})

  def host(number):
    if number == 3:
      raise ValueError("no good")
    return np.float32(0)

  def f(x):
    extra = io_callback(
      host, jax.ShapeDtypeStruct((), jnp.float32), lax.axis_index("i")
    )
    return lax.psum(x + extra, "i")

  y = on_each(ipus, f)(numbers(ipus))
  for shard in y.addressable_shards:
    with pytest.raises(jax.errors.JaxRuntimeError, match="no good"):
      np.asarray(shard.data)
  with pytest.raises(jax.errors.JaxRuntimeError, match="no good"):
    jax.effects_barrier()


def test_functions_of_several_devices_may_wait_for_each_other(mesh):
  ipus = mesh("ipu", {"i": 4})
  barrier = threading.Barrier(4)

  def host(x):
    barrier.wait(timeout=60)
    return x + 1

  def f(x):
    return lax.psum(io_callback(host, jax.typeof(x), x), "i")

  y = on_each(ipus, f)(numbers(ipus))
  np.testing.assert_array_equal(y[:4], np.arange(16).reshape(4, 4).sum(0) + 4)


def test_a_function_may_use_the_devices_that_wait_for_it(mesh):
  ipus = mesh("ipu", {"i": 4})
  inner = on_each(ipus, lambda x: lax.psum(x, "i"))
  x = numbers(ipus)
  jax.block_until_ready(inner(x))

  def host(v):
    own = jax.device_put(v, ipus.devices[1]) * 2
    return np.asarray(own) + np.asarray(inner(x))[:4]

  def f(v):
    return io_callback(host, jax.typeof(v), v)

  total = np.arange(16).reshape(4, 4).sum(axis=0)
  y = on_each(ipus, f)(x)
  np.testing.assert_array_equal(y, np.arange(16) * 2 + np.tile(total, 4))


def test_threads_run_gangs_on_devices_that_they_share(mesh):
  errors = []

  def work(order, each):
    try:
      ipus = mesh("ipu", {"i": len(order)}, order)
      step = on_each(
        ipus,
        lambda x: lax.fori_loop(
          0, 20, lambda _, y: lax.pmax(y, "i") + lax.axis_index("i"), x
        ),
      )
      first = np.asarray(step(numbers(ipus, each)))
      for _ in range(20):
        y = step(numbers(ipus, each))
        z = step(y)
        np.testing.assert_array_equal(y, first)
        jax.block_until_ready(z)
    except Exception as error:
      errors.append(error)

  orders = [range(8), range(7, -1, -1), [0, 1], [1, 0, 5], [2, 3, 4, 5]]
  threads = [
    threading.Thread(target=functools.partial(work, list(order), each))
    for order, each in zip(orders, (4, 4, 30_000, 4, 9_000))
  ]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert not errors
