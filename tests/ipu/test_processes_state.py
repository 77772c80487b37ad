"""State of two processes: resharding, feeds, and checkpoints by Orbax."""

from __future__ import annotations

import process_kit
import pytest

pytestmark = pytest.mark.ipu_only

PROGRAM = """
import jax.ipu
import orbax.checkpoint as ocp
from jax import lax
from jax.ipu import _infeed as lax_
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

folder = os.environ["FOLDER"]
mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))
other_order = Mesh(mesh.devices[::-1, ::-1], ("x", "y"))
whole = np.arange(32, dtype=np.float32).reshape(8, 4)

def on(spec, mesh=mesh):
  return NamedSharding(mesh, spec)

def is_whole(array, sharding):
  return array.sharding == sharding and all(
    (np.asarray(s.data) == whole[s.index]).all()
    for s in array.addressable_shards)

def put(spec):
  return jax.make_array_from_callback((8, 4), on(spec), lambda i: whole[i])

rows = put(P("x"))
targets = [on(P(None, "x")), on(P("y", "x")), on(P()), on(P("x"), other_order)]
print("put", [is_whole(jax.device_put(rows, to), to) for to in targets])

batches = (whole * i for i in range(5))
split = on(P("x", "y"), other_order)
feed = jax.ipu.feed(
  batches, like=jax.ShapeDtypeStruct((8, 4), np.float32, sharding=split))
total = jax.jit(
  lambda feed, x: lax.fori_loop(0, 5, lambda i, x: x + feed.next(), x),
  out_shardings=split)(feed, jax.device_put(whole * 0, split))
print("feed", is_whole(jax.jit(lambda x: x / 10)(total), split))

(theirs,) = {d.process_index for d in jax.devices()} - {process}
device = next(d for d in jax.devices() if d.process_index == theirs)
try:
  lax_.transfer_to_infeed(device, whole)
except ValueError as error:
  print("infeed", f"is fed by process {theirs}" in str(error))

state = {"w": put(P("x", "y")), "m": put(P()), "step": 3}
like = {
  "w": jax.ShapeDtypeStruct((8, 4), np.float32, sharding=on(P("y", "x"))),
  "m": jax.ShapeDtypeStruct((8, 4), np.float32, sharding=on(P(None, "y"))),
  "step": 0,
}
with ocp.StandardCheckpointer() as checkpointer:
  checkpointer.save(folder + "/state", state)
  checkpointer.wait_until_finished()
  back = checkpointer.restore(folder + "/state", like)
restored = [is_whole(back[k], like[k].sharding) for k in ("w", "m")]
print("orbax", restored, back["step"])
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
  """What each process found, by its first word."""
  folder = tmp_path_factory.mktemp("state")
  with process_kit.started(PROGRAM, 2, 2, FOLDER=str(folder)) as two:
    ran = two.wait()
  for one in ran:
    assert one.status == 0, one.errors
  return [
    dict(line.split(" ", 1) for line in one.output.splitlines()) for one in ran
  ]


def test_device_put_of_a_global_array_to_another_sharding(said):
  assert [s["put"] for s in said] == [str([True] * 4)] * 2


def test_each_process_feeds_its_devices(said):
  assert [s["feed"] for s in said] == ["True"] * 2


def test_the_infeed_of_another_process_is_refused(said):
  assert [s["infeed"] for s in said] == ["True"] * 2


def test_orbax_restores_to_other_shardings(said):
  assert [s["orbax"] for s in said] == ["[True, True] 3"] * 2
