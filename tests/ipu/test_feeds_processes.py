"""Feeds of whole processes: older programs, Ctrl-C, flags, the end."""

from __future__ import annotations

import plugin_test_util
import pytest

pytestmark = pytest.mark.ipu_only

# A training loop in the style of earlier IPU programs.
LOOP = """
import jax.ipu.compat
import threading
from functools import partial
import jax, numpy as np
import jax.numpy as jnp
from jax import lax

def loss(w, x, y):
  return jnp.mean((x @ w - y) ** 2)

@partial(jax.jit, backend={platform!r}, donate_argnums=(1, 2))
def train(n, w, momentum):
  def body(_, carry):
    token, w, momentum = carry
    (x, y), token = lax.infeed(token, shape=(
      jax.ShapedArray((8, 4), jnp.float32), jax.ShapedArray((8,), jnp.float32)))
    value, grad = jax.value_and_grad(loss)(w, x, y)
    momentum = 0.9 * momentum + grad
    token = lax.outfeed(token, value)
    return token, w - 0.05 * momentum, momentum
  token = lax.create_token(n)
  return lax.fori_loop(0, n, body, (token, w, momentum))[1:]

rng = np.random.default_rng(0)
data = [(rng.normal(size=(8, 4)).astype(np.float32),) for _ in range(40)]
data = [(x, x @ np.arange(4, dtype=np.float32)) for x, in data]
device = jax.devices({platform!r})[0]
def supply():
  for item in data:
    device.transfer_to_infeed(item)
thread = threading.Thread(target=supply)
thread.start()
zeros = lambda: jax.device_put(np.zeros(4, np.float32), device)
out = []
runs = threading.Thread(target=lambda: out.append(train(40, zeros(), zeros())))
runs.start()
losses = [float(device.transfer_from_outfeed(
  jax.ShapedArray((), jnp.float32))) for _ in data]
runs.join()
thread.join()

w, m = np.zeros(4, np.float32), np.zeros(4, np.float32)
for (x, y), value in zip(data, losses):
  expected, grad = jax.value_and_grad(loss)(w, x, y)
  assert abs(float(expected) - value) < 1e-5, (expected, value)
  m = 0.9 * m + grad
  w = w - 0.05 * m
assert np.allclose(out[0][0], w, atol=1e-6), (out[0][0], w)
print("trained")
"""


@pytest.mark.parametrize("platform", ["ipu", "cpu"])
def test_an_older_training_loop(platform):
  result = plugin_test_util.run(LOOP.format(platform=platform))
  assert result.stdout == "trained\n"


WAITING = f"""{plugin_test_util.WAITING}
import jax, numpy as np
import jax.numpy as jnp
from jax.ipu import _infeed as lax_
(ipu,) = jax.devices("ipu")
x = jax.device_put(np.ones(3, np.float32), ipu)
three = jax.ShapeDtypeStruct((3,), np.float32)
f = jax.jit(lambda x: x + lax_.infeed(lax_.create_token(), shape=three)[0])
g = jax.jit(lambda x: lax_.outfeed(lax_.create_token(), x))
"""


def test_a_feed_that_never_comes_and_one_that_nobody_empties():
  code = f"""{WAITING}
for run in (
  lambda: f(x).block_until_ready(),
  lambda: [g(x) for _ in range(4)][-1].block_until_ready(),
  lambda: [lax_.transfer_to_infeed(ipu, x) for _ in range(4)],
):
  try:
    run()
  except Exception as error:
    print(type(error).__name__, error)
"""
  result = plugin_test_util.run(
    code, JAX_IPU_FEED_TIMEOUT="0.3", JAX_IPU_FEED_DEPTH="2"
  )
  program, full, transfer = result.stdout.strip().splitlines()
  assert "an item of the infeed of IpuDevice(id=0" in program
  assert "JAX_IPU_FEED_TIMEOUT" in program and "<string>:" in program
  assert "0.3" in program
  assert "room in the outfeed" in full and "<string>:" in full
  assert transfer.startswith("FeedError") and "room in the infeed" in transfer


def test_an_invalid_timeout():
  result = plugin_test_util.run(WAITING, check=False, JAX_IPU_FEED_TIMEOUT="-1")
  assert "invalid JAX_IPU_FEED_TIMEOUT='-1'" in result.stderr


def test_ctrl_c_ends_a_program_that_waits():
  out = plugin_test_util.interrupted(f"""{WAITING}
y = f(x)
say_soon()
wait_for(y)
lax_.transfer_to_infeed(ipu, x)
print(f(x))
""")
  assert "interrupted" in out
  assert "[2. 2. 2.]" in out


def test_ctrl_c_ends_a_transfer():
  out = plugin_test_util.interrupted(f"""{WAITING}
say_soon()
try:
  lax_.transfer_from_outfeed(ipu, x)
except KeyboardInterrupt:
  print("interrupted")
""")
  assert out.strip() == "interrupted"


# On the CPU a feed is a callback, and jaxlib may crash when Python ends in one.
@pytest.mark.parametrize("platform", ["ipu"])
def test_python_ends_while_a_program_waits(platform):
  code = f"""{WAITING}
x = jax.device_put(x, jax.devices({platform!r})[0])
threading.Thread(target=lambda: f(x), daemon=True).start()
time.sleep(0.5)
print("end")
"""
  result = plugin_test_util.run(code)
  assert result.stdout == "end\n"
