"""Ctrl-C while devices run a program together."""

from __future__ import annotations

import plugin_test_util
import pytest

pytestmark = pytest.mark.ipu_only

GANG = f"""{plugin_test_util.WAITING}
import jax, numpy as np
import jax.numpy as jnp
from jax import lax
from jax.experimental import io_callback
from jax.sharding import Mesh, PartitionSpec as P

mesh = Mesh(np.array(jax.devices("ipu")), ("i",))

def on_each(f):
  return jax.jit(
    jax.shard_map(
      f, mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=False
    )
  )

x = np.ones(4, np.float32)
psum = on_each(lambda x: lax.psum(x, "i"))
print_sum = lambda: print(psum(x))
"""

# Would take years, or many seconds in machine code.
FOREVER = """
trips = 10**18 if jax.config.jax_enable_x64 else 2**31 - 1
f = on_each(
  lambda x: lax.fori_loop(
    0, trips, lambda _, y: BODY, x
  )
)
compiled = f.lower(x).compile()
y = compiled(x)
say_soon()
wait_for(y)
print_sum()
wait_for(y)
"""


@pytest.mark.parametrize(
  "body",
  [
    "jnp.sort(y @ jnp.ones((1, 1), y.dtype)) * lax.pmax(y, 'i')",
    "jnp.sort(jnp.arange(100, dtype=y.dtype) * y)[-1:]",
    "y * 0.5 + 1",
  ],
  ids=["collectives", "no collectives", "in machine code"],
)
def test_a_long_run_ends(body):
  out = plugin_test_util.interrupted(
    GANG + FOREVER.replace("BODY", body), JAX_IPU_DEVICE_COUNT="4"
  )
  assert "interrupted\n[4. 4. 4. 4.]\n" in out
  assert "CANCELLED: Ctrl-C while devices ran a program together" in out


def test_a_while_loop_in_machine_code_ends():
  """It counts as one iteration, so it runs on the calling thread."""
  out = plugin_test_util.interrupted(
    GANG
    + """
compiled = on_each(
  lambda x: lax.while_loop(lambda y: y[0] >= 0, lambda y: y * 0.5 + 1, x)
).lower(x).compile()
say_soon()
try:
  wait_for(compiled(x))
except KeyboardInterrupt:
  print("interrupted")
print_sum()
""",
    JAX_IPU_DEVICE_COUNT="4",
  )
  assert "interrupted\n[4. 4. 4. 4.]\n" in out


def test_devices_that_wait_for_another_end():
  """One device's host function returns only after the signal."""
  out = plugin_test_util.interrupted(
    GANG
    + """
over = threading.Event()

def host(number):
  if number == 2:
    over.wait()
  return np.float32(0)

def f(x):
  extra = io_callback(
    host, jax.ShapeDtypeStruct((), x.dtype), lax.axis_index("i")
  )
  return lax.psum(x + extra, "i")

compiled = on_each(f).lower(x).compile()
y = compiled(x)
say_soon()
threading.Timer(2, over.set).start()
wait_for(y)
print_sum()
wait_for(y)
""",
    JAX_IPU_DEVICE_COUNT="4",
  )
  assert "interrupted\n[4. 4. 4. 4.]\n" in out
  assert "CANCELLED: Ctrl-C while devices ran a program together" in out
