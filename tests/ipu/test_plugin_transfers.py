"""Array transfers to, from and between IPUs."""

from __future__ import annotations

import ipu_test_util as util
import ml_dtypes
import numpy as np
import plugin_test_util
import pytest

import jax
from jax.experimental.layout import Format, Layout
from jax.sharding import SingleDeviceSharding

pytestmark = pytest.mark.ipu_only

DTYPES = util.ALL + tuple(
  np.dtype(t) for t in (np.complex64, ml_dtypes.float8_e4m3fn, ml_dtypes.int4)
)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (5,), (0, 3), (2, 3, 4)], ids=str)
def test_there_and_back(ipu, dtype, shape):
  x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
  y = jax.device_put(x, ipu)
  assert (y.dtype, y.shape) == (x.dtype, x.shape)
  np.testing.assert_array_equal(np.asarray(y), x)


_BASE = np.arange(4 * 5 * 6, dtype=np.float32).reshape(4, 5, 6)
LAYOUTS = {
  "transposed": _BASE.T,
  "permuted": _BASE.transpose(1, 2, 0),
  "column-major": np.asfortranarray(_BASE),
  "sliced": _BASE[1:3, ::2, 1:-1],
  "reversed": _BASE[::-1, :, ::-1],
  "broadcast": np.broadcast_to(_BASE[:1, :, :1], (4, 5, 6)),
  "unaligned": np.frombuffer(b"\0" + _BASE.tobytes(), np.uint8)[1:],
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_host_arrays_in_any_layout(ipu, name):
  x = LAYOUTS[name]
  np.testing.assert_array_equal(np.asarray(jax.device_put(x, ipu)), x)


@pytest.mark.parametrize("order", [(1, 2, 0), (1, 0, 2), (0, 1, 2)])
def test_arrays_of_the_cpu_in_any_layout(ipu, cpu, order):
  x = jax.device_put(_BASE, Format(Layout(order), SingleDeviceSharding(cpu)))
  assert x.format.layout.major_to_minor == order
  y = jax.jit(lambda x: x + 1)(jax.device_put(x, ipu))
  np.testing.assert_array_equal(np.asarray(y), _BASE + 1)


def test_a_large_transposed_array(ipu):
  x = np.arange(1_000_000, dtype=np.float32).reshape(1000, 1000).T
  np.testing.assert_array_equal(np.asarray(jax.device_put(x, ipu)), x)


@pytest.mark.parametrize("count", [3, 1000, 1_000_000])
def test_the_host_array_may_change_afterwards(ipu, count):
  x = np.ones(count, np.float32)
  y = jax.device_put(x, ipu)
  x[:] = 7
  assert np.asarray(y).max() == 1


def test_looking_at_an_array_copies_nothing(ipu):
  x = jax.device_put(np.arange(1000, dtype=np.float32), ipu)
  view = np.asarray(x)
  assert view.ctypes.data == x.unsafe_buffer_pointer()
  assert not view.flags.owndata
  assert not view.flags.writeable


def test_a_view_outlives_its_array(ipu):
  x = jax.device_put(np.arange(1000, dtype=np.float32), ipu)
  view = np.asarray(x)
  before = ipu.memory_stats()["bytes_in_use"]
  x.delete()
  # On hardware NumPy would see a copy.
  assert ipu.memory_stats()["bytes_in_use"] == before - x.nbytes
  # New allocations must not reuse the memory of the view.
  others = [jax.device_put(np.full(1000, i, np.float32), ipu) for i in range(8)]
  np.testing.assert_array_equal(view, np.arange(1000))
  del others


def test_a_deleted_array_says_so(ipu):
  x = jax.device_put(np.ones(3, np.float32), ipu)
  x.delete()
  assert x.is_deleted()
  with pytest.raises(RuntimeError, match="deleted"):
    np.asarray(x)


def test_to_and_from_the_cpu(ipu, cpu):
  x = jax.device_put(np.arange(12.0, dtype=np.float32).reshape(3, 4), cpu)
  y = jax.device_put(x, ipu)
  z = jax.device_put(y + 1, cpu)
  assert (y.devices(), z.devices()) == ({ipu}, {cpu})
  np.testing.assert_array_equal(z, np.asarray(x) + 1)


def test_between_ipus():
  plugin_test_util.run(
    """
    import jax, numpy as np
    a, b = jax.devices("ipu")
    for n in (4, 1_000_000):
      x = jax.device_put(np.arange(n, dtype=np.float32), a)
      y = jax.device_put(x + 1, b)
      assert y.devices() == {b}
      assert (y * 2).devices() == {b}
      assert y.unsafe_buffer_pointer() != x.unsafe_buffer_pointer()
      np.testing.assert_array_equal(np.asarray(y), np.arange(n) + 1)
      assert b.memory_stats()["bytes_in_use"] >= 4 * n
    """,
    JAX_IPU_DEVICE_COUNT="2",
  )


def test_arguments_on_different_ipus_are_refused():
  plugin_test_util.run(
    """
    import jax, numpy as np
    a, b = (jax.device_put(np.ones(3, np.float32), d)
            for d in jax.devices("ipu"))
    try:
      a + b
    except ValueError as e:
      assert "incompatible devices" in str(e), e
    else:
      raise AssertionError("no error")
    """,
    JAX_IPU_DEVICE_COUNT="2",
  )
