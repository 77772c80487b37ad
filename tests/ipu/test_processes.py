"""Several processes of `jax.distributed`: devices, arrays, collectives, errors.

Each process has some of the four IPUs. Results have to be, bit for bit, those
of one process that has all of them, and donated state stays where it is.
"""

from __future__ import annotations

import signal

import numpy as np
import process_kit
import pytest

pytestmark = pytest.mark.ipu_only

COLLECTIVES = """
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

devices = jax.devices()
assert jax.process_count() == count and jax.process_index() == process
assert len(devices) == 4 and [d.id for d in devices] == [0, 1, 2, 3]
local = jax.local_devices()
assert len(local) == 4 // count
assert [d for d in devices if d.process_index == process] == local
assert (count == 1) == ("process_index" not in str(devices[0]))

results = {}
def keep(name, array):
  for shard in array.addressable_shards:
    if shard.replica_id == 0:
      results[f"{name} {shard.index}"] = np.asarray(shard.data)

mesh = Mesh(np.array(devices).reshape(2, 2), ("x", "y"))
whole = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
sharding = NamedSharding(mesh, P(("x", "y")))
a = jax.make_array_from_callback((8, 4), sharding, lambda i: whole[i])
keep("callback", a)
rows = 8 // count
b = jax.make_array_from_process_local_data(
  sharding, whole[process * rows : (process + 1) * rows])
keep("local data", b)

@jax.jit
@jax.shard_map(mesh=mesh, in_specs=P(("x", "y")), out_specs=P(("x", "y")))
def together(v):
  both = ("x", "y")
  looped = lax.fori_loop(
    0, 3, lambda i, s: s + lax.psum(s, "y") * (lax.axis_index("x") + i), v)
  return {
    "psum": v + lax.psum(v, both), "psum x": v + lax.psum(v, "x"),
    "psum y": v + lax.psum(v, "y"), "pmax": v + lax.pmax(v, "x"),
    "ints": v + lax.pmin(lax.psum(v.astype(jnp.int32), "y"), "x"),
    "gather": lax.all_gather(v, "x"), "gather all": lax.all_gather(v, both),
    "scatter": lax.psum_scatter(jnp.tile(v, (2, 1)), both, tiled=True),
    "scatter y": lax.psum_scatter(v, "y", tiled=True),
    "to all": lax.all_to_all(jnp.tile(v, (2, 1)), both, 0, 1, tiled=True),
    "permute": lax.ppermute(v, both, [(0, 1), (1, 2), (2, 3), (3, 0)]),
    "partly": lax.ppermute(v, "x", [(0, 1)]),
    "index": v + lax.axis_index(both), "loop": looped,
  }

for name, value in together(a).items():
  keep(name, value)

def step(w, x):
  loss, grad = jax.value_and_grad(lambda w: jnp.mean((x @ w) ** 2))(w)
  return w - 0.1 * grad, loss

step = jax.jit(step, donate_argnums=0)
def where(w):
  return [s.data.unsafe_buffer_pointer() for s in w.addressable_shards]

ones = np.ones((4, 6), np.float32)
w = jax.device_put(ones, NamedSharding(mesh, P(None, "y")))
x = jax.device_put(whole, NamedSharding(mesh, P("x")))
memory = where(w)
for i in range(3):
  old, (w, loss) = w, step(w, x)
  assert old.is_deleted() and where(w) == memory
keep("weights", w)
keep("loss", loss)
transposed = jax.jit(lambda x: x.T, out_shardings=NamedSharding(mesh, P("x")))
keep("resharded", transposed(a))
mapped = jax.pmap(lambda v: lax.psum(v, "i"), "i")
n = len(local)
results["pmap"] = np.asarray(
  mapped(whole[process * n : (process + 1) * n]).addressable_shards[0].data)

multihost_utils.sync_global_devices("here")
every = multihost_utils.process_allgather(np.float32([process, 5]))
assert every.reshape(-1, 2).tolist() == [[i, 5] for i in range(count)], every
assert multihost_utils.broadcast_one_to_all(np.int32(process + 7)) == 7
np.savez(os.path.join(os.environ["FOLDER"], f"{count}_{process}"), **results)
"""


def test_results_are_those_of_one_process(tmp_path):
  environment = {"FOLDER": str(tmp_path)}
  # All at once: groups of processes do not disturb each other.
  with (
    process_kit.started(COLLECTIVES, 1, 4, **environment) as one,
    process_kit.started(COLLECTIVES, 2, 2, **environment) as two,
    process_kit.started(COLLECTIVES, 4, 1, **environment) as four,
  ):
    for ran in one.wait() + two.wait() + four.wait():
      assert ran.status == 0, ran.errors
  found = {}
  for count in (1, 2, 4):
    found[count] = {}
    for process in range(count):
      found[count].update(np.load(tmp_path / f"{count}_{process}.npz"))
  expected = found[1]
  assert len(expected) > 60
  for count in (2, 4):
    assert found[count].keys() == expected.keys()
    for name, value in expected.items():
      np.testing.assert_array_equal(found[count][name], value, name)


LOOP = """
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(jax.devices(), "x")
sharding = NamedSharding(mesh, P("x"))
x = jax.make_array_from_callback(
  (count, 2), sharding, lambda i: np.ones((1, 2), np.float32))
total = jax.jit(jax.shard_map(
  lambda x: jax.lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()))
assert np.asarray(total(x)).tolist() == [[count] * 2]
# Whoever is stopped or killed has sent what the others waited for.
jax._src.distributed.global_state.client.wait_at_barrier("warm", 100_000)
try:
  if process == 1:
    {one}
  else:
    {others}
  print("no error")
except Exception as error:
  print(error)
sys.stdout.flush()
os._exit(0)
"""
TOTAL = "total(x).block_until_ready()"


def in_order(code):
  """The processes end in the ordinary way, which sends what is still to be
  sent. JAX lets none end before the others."""
  return code.replace("os._exit(0)", "")


def test_a_process_that_dies_is_named():
  dies = "os.kill(os.getpid(), signal.SIGKILL)"
  code = LOOP.format(one=dies, others=TOTAL)
  with process_kit.started(code, 2) as two:
    (ran,) = two.wait([0])
  assert "process 1 has ended or its connection is broken" in ran.output, ran


COORDINATOR = """
x = jax.device_put(np.ones(2, np.float32), jax.local_devices()[0])
(x + 1).block_until_ready()
jax._src.distributed.global_state.client.wait_at_barrier("warm", 100_000)
if process == 0:
  os.kill(os.getpid(), signal.SIGKILL)
import time
time.sleep(1000)
"""


def test_without_the_coordinator_all_processes_end():
  with process_kit.started(COORDINATOR, 3) as three:
    ran = three.wait()
  assert ran[0].status == -signal.SIGKILL
  for other in ran[1:]:
    assert other.status not in (0, None), other
    assert "coordinat" in other.errors.lower(), other


HANG = """
if process == 1:
  os.kill(os.getpid(), signal.SIGSTOP)
try:
  total(x).block_until_ready()
except Exception as error:
  print(" ".join(str(error).split()), flush=True)
"""


def test_a_process_that_hangs_is_named_and_may_go_on():
  code = LOOP.replace("try:", HANG + "try:", 1).format(
    one="print(np.asarray(total(x)).tolist())",
    others="print(np.asarray(total(x)).tolist())",
  )
  code = in_order(code)
  with process_kit.started(code, 2, JAX_IPU_COLLECTIVE_TIMEOUT="15") as two:
    said = two.line(0)
    two.running[1].send_signal(signal.SIGCONT)
    ran = two.wait()
  late = "process 1 (partition 1) did not answer process 0 within 15 s"
  assert late in said, ran
  assert "in psum" in said and "JAX_IPU_COLLECTIVE_TIMEOUT" in said
  for one in ran:
    assert "[[2.0, 2.0]]" in one.output, one


CALLBACK = """
def check(x):
  if process == 1:
    raise ValueError("no such batch")
  return x
total = jax.jit(jax.shard_map(
  lambda x: jax.lax.psum(jax.pure_callback(check, x, x), "x"),
  mesh=mesh, in_specs=P("x"), out_specs=P(), check_vma=False))
"""


def test_an_error_of_one_process_is_that_of_all():
  code = LOOP.replace("try:", CALLBACK + "try:").format(one=TOTAL, others=TOTAL)
  code = in_order(code)
  with process_kit.started(code, 3) as three:
    ran = three.wait()
  for i in (0, 2):
    assert "process 1 has failed" in ran[i].output, ran[i]
  for one in ran:
    assert "no such batch" in one.output, one


def test_processes_that_run_different_programs():
  other = (
    "jax.jit(jax.shard_map(lambda x: jax.lax.pmax(x, 'x'), mesh=mesh, "
    "in_specs=P('x'), out_specs=P()))(x).block_until_ready()"
  )
  code = in_order(LOOP.format(one=other, others=TOTAL))
  with process_kit.started(code, 2) as two:
    first, second = two.wait()
  said = first.output + second.output
  assert "processes do not run the same" in said, (first, second)
  assert "psum" in said and "pmax" in said


START = """
import time
if process == 1:
  time.sleep(1000)
try:
  jax.devices("ipu")
except Exception as error:
  print(error)
sys.stdout.flush()
os._exit(0)
"""


def test_a_process_that_starts_late_is_named():
  with process_kit.started(START, 2, JAX_IPU_COLLECTIVE_TIMEOUT="3") as two:
    (ran,) = two.wait([0])
  assert "process 1 of 2 did not start its IPU backend within 3 s" in ran.output


def test_processes_with_different_machines():
  code = """
  os.environ["JAX_IPU_MODEL_NUM_TILES"] = str(8 + process)
  try:
    jax.devices("ipu")
  except Exception as error:
    print(error)
  """
  with process_kit.started(code, 2) as two:
    for ran in two.wait():
      assert "processes 0 and 1" in ran.output or "1 and 0" in ran.output
      assert "num_tiles=8" in ran.output and "num_tiles=9" in ran.output


def test_one_process_of_jax_distributed():
  code = """
  jax.distributed.initialize(sys.argv[3], 1, 0)
  print(jax.process_count(), *jax.devices())
  """
  with process_kit.started(code, 1) as one:
    (ran,) = one.wait()
  assert ran.output == "1 IpuDevice(id=0, num_tiles=16, version=ipu2)\n", ran
