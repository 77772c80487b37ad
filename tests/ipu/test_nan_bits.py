"""Operations that only move floats keep every bit of every NaN.

All bit patterns of the 16-bit floats, and NaNs of the wider ones, quiet and
signalling. NumPy moves the same bits as unsigned integers.
"""

from __future__ import annotations

from collections.abc import Callable

import engine_kit
import lowering_kit
import ml_dtypes
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu.check import interp

HALVES = (np.float16, ml_dtypes.bfloat16)
MANTISSA = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}


def unsigned(dtype) -> np.dtype:
  return np.dtype(f"u{np.dtype(dtype).itemsize}")


def patterns(dtype) -> np.ndarray:
  """Bits: all of a 16-bit float's, 4,096 NaNs of a wider one."""
  u = unsigned(dtype).type
  if u is np.uint16:
    return np.arange(1 << 16, dtype=u)
  mantissa, width = MANTISSA[np.dtype(dtype).name], 8 * u(0).itemsize
  rng = np.random.default_rng(0)
  payload = rng.integers(1, 1 << mantissa, 4096, dtype=u)
  payload[:64] = np.arange(1, 65)
  exponent = (1 << width - 1) - (1 << mantissa)
  return (
    payload | u(exponent) | rng.integers(0, 2, 4096, dtype=u) << u(width - 1)
  )


class Bits:
  """The operations, each as (f on floats, f on their bits)."""

  def __init__(self, dtype) -> None:
    self.dtype, self.u = np.dtype(dtype), unsigned(dtype)
    self.sign = self.u.type(1 << (8 * self.u.itemsize - 1))
    self.x = patterns(dtype)
    self.y = self.x[::-1].copy()
    rng = np.random.default_rng(1)
    self.mask = rng.integers(0, 2, self.x.size).astype(bool)
    self.order = rng.permutation(self.x.size)
    self.args = (self.mask, self.order.astype(np.int32),
                 self.x.view(dtype), self.y.view(dtype))  # fmt: skip

  def cases(self) -> dict[str, tuple[Callable, np.ndarray]]:
    """From names to f(mask, order, x, y) and the bits of its result."""
    s, u, dtype = self.sign, self.u, self.dtype
    x, y, m, order = self.x, self.y, self.mask, self.order
    nan = self.x[-3:-2].view(dtype)[0]  # negative, of a full payload but one
    last = int(x.size) - 1
    with np.errstate(invalid="ignore"):
      positive = (x.view(dtype) > 0) & m

    def flips(v, n):
      step = lambda c: (c[0] + 1, -c[1])
      return lax.while_loop(lambda c: c[0] < n, step, (0, v))[1]

    return {
      "barrier": (lambda m, o, x, y: lax.optimization_barrier(x), x),
      "to bits": (lambda m, o, x, y: lax.bitcast_convert_type(x, u), x),
      "there and back": (
        lambda m, o, x, y: lax.bitcast_convert_type(
          lax.bitcast_convert_type(x, u) ^ s, dtype), x ^ s),
      "negate": (lambda m, o, x, y: -x, x ^ s),
      "abs": (lambda m, o, x, y: abs(x), x & ~s),
      "negated abs": (lambda m, o, x, y: -abs(x), x | s),
      "copysign": (lambda m, o, x, y: jnp.copysign(x, y), x & ~s | y & s),
      "select": (lambda m, o, x, y: jnp.where(m, x, y), np.where(m, x, y)),
      "constant": (lambda m, o, x, y: jnp.where(m, x, nan),
                   np.where(m, x, x[-3])),
      "select_n": (
        lambda m, o, x, y: lax.select_n(o % 3, x, y, -x),
        np.choose(order % 3, [x, y, x ^ s])),
      # Arithmetic beside the moves, which may take a faster path.
      "chain": (
        lambda m, o, x, y: jnp.where(m & (x > 0), jnp.abs(x), -y),
        np.where(positive, x & ~s, y ^ s)),
      "one vector": (lambda m, o, x, y: -x[-16:], (x ^ s)[-16:]),
      "three": (lambda m, o, x, y: jnp.where(m[:3], -x[-3:], x[-9:-6]),
                np.where(m[:3], (x ^ s)[-3:], x[-9:-6])),
      "transpose": (lambda m, o, x, y: x.reshape(64, -1).T,
                    x.reshape(64, -1).T),
      "negated transpose": (lambda m, o, x, y: -x.reshape(64, -1).T,
                            x.reshape(64, -1).T ^ s),
      "broadcast": (lambda m, o, x, y: jnp.broadcast_to(x, (3, x.size)),
                    np.broadcast_to(x, (3, x.size))),
      "select of rows": (
        lambda m, o, x, y: jnp.where(m.reshape(-1, 64)[:, :1], x[:64], y[-1]),
        np.where(m.reshape(-1, 64)[:, :1], x[:64], y[-1])),
      "reverse": (lambda m, o, x, y: x[::-1], y),
      "stride": (lambda m, o, x, y: -x[::3], x[::3] ^ s),
      "gather": (lambda m, o, x, y: x[o], x[order]),
      "scatter": (
        lambda m, o, x, y: y.at[o[:999]].set(x[:999], unique_indices=True),
        _put(y, order[:999], x[:999])),
      "slice": (lambda m, o, x, y: lax.dynamic_slice(x, (o[0],), (2,)),
                x[min(order[0], last - 1):][:2]),
      "update": (
        lambda m, o, x, y: lax.dynamic_update_slice(x, -y[:99], (o[0] % 9,)),
        _put(x, order[0] % 9 + np.arange(99), y[:99] ^ s)),
      "pad": (lambda m, o, x, y: lax.pad(x, y[7], [(3, 2, 1)]),
              _put(np.full(2 * x.size + 4, y[7]), 3 + 2 * np.arange(x.size),
                   x)),
      "concatenate": (lambda m, o, x, y: jnp.concatenate([-x, y]),
                      np.concatenate([x ^ s, y])),
      "sort by a key": (lambda m, o, x, y: lax.sort((o, x), num_keys=1)[1],
                        x[np.argsort(order)]),
      "loop": (lambda m, o, x, y: flips(x, o[0] * 0 + 3), x ^ s),
      "scalar loop": (lambda m, o, x, y: flips(x[-7], o[0] * 0 + 3),
                      x[-7] ^ s),
      "loop of updates": (
        lambda m, o, x, y: lax.fori_loop(
          0, 300, lambda i, a: a.at[i].set(-x[last - i]), x[:300]),
        y[:300] ^ s),
      "scan": (
        lambda m, o, x, y: lax.scan(
          lambda c, v: (v, abs(c)), x[-1], x[-300:])[1],
        np.concatenate([x[-1:], x[-300:-1]]) & ~s),
      "cond": (
        lambda m, o, x, y: lax.cond(
          o[0] >= 0, lambda: -x, lambda: y), x ^ s),
    }  # fmt: skip


def _put(into: np.ndarray, at: np.ndarray, values: np.ndarray) -> np.ndarray:
  out = into.copy()
  out[at] = values
  return out


def differing(
  actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]
) -> list[str]:
  found = []
  for name, bits in expected.items():
    got = np.asarray(actual[name]).view(bits.dtype)
    wrong = np.flatnonzero(got.reshape(-1) != bits.reshape(-1))
    if wrong.size:
      i = wrong[0]
      found.append(
        f"{name}: {wrong.size}, {got.flat[i]:#x} for {bits.flat[i]:#x}"
      )
  return found


@pytest.mark.parametrize("dtype", [*HALVES, np.float32, np.float64])
def test_moves_keep_all_bits(ipu, dtype):
  bits = Bits(dtype)
  with jax.enable_x64(dtype is np.float64), jax.default_device(ipu):
    cases = bits.cases()
    together = lambda *a: {n: f(*a) for n, (f, _) in cases.items()}
    actual = jax.jit(together)(*bits.args)
    expected = {n: e for n, (_, e) in cases.items()}
    assert not differing(actual, expected)
    # One operation a program: other kernels, and no common fusion.
    for name in ("to bits", "negate", "select", "chain", "scalar loop"):
      found = {name: jax.jit(cases[name][0])(*bits.args)}
      assert not differing(found, {name: expected[name]})


@pytest.mark.ipu_only
@pytest.mark.parametrize("dtype", HALVES)
def test_the_interpreter_and_the_engine_agree(dtype):
  def f(m, x, y):
    bits = lax.bitcast_convert_type(-x, np.uint16)
    return jnp.where(m, abs(x), y), bits, lax.bitcast_convert_type(bits, dtype)

  x = np.concatenate([patterns(dtype)[0x7F80:0x8010], patterns(dtype)[-200:]])
  mask = np.arange(x.size) % 3 == 0
  args = (mask, x.view(dtype), x[::-1].copy().view(dtype))
  data = lowering_kit.compiled(f, args, 4)
  expected = (np.where(mask, x & 0x7FFF, x[::-1]), x ^ 0x8000, x ^ 0x8000)
  for run in (interp.run, engine_kit.run):
    for actual, bits in zip(run(data, args).outputs, expected, strict=True):
      np.testing.assert_array_equal(actual.view(np.uint16), bits)


def test_planes_of_complex_numbers(ipu):
  x = patterns(np.float32)
  z = np.empty(x.size, np.complex64)
  z.view(np.uint32)[::2], z.view(np.uint32)[1::2] = x, x[::-1]

  def f(z):
    return z.real, jnp.conj(z).imag, lax.complex(z.imag, z.real)

  with jax.default_device(ipu):
    real, imag, swapped = (np.asarray(v) for v in jax.jit(f)(z))
  np.testing.assert_array_equal(real.view(np.uint32), x)
  np.testing.assert_array_equal(imag.view(np.uint32), x[::-1] ^ 0x80000000)
  np.testing.assert_array_equal(swapped.view(np.uint32)[::2], x[::-1])


NARROW = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3,
          ml_dtypes.float8_e3m4, ml_dtypes.float8_e4m3b11fnuz,
          ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz]  # fmt: skip


@pytest.mark.parametrize("dtype", NARROW)
def test_moves_of_narrow_floats(ipu, dtype):
  x = np.arange(256, dtype=np.uint8)
  mask = x % 3 == 0

  def f(m, x):
    return (
      lax.bitcast_convert_type(x, np.uint8),
      jnp.where(m, x, x[::-1]),
      x.reshape(16, 16).T,
    )

  with jax.default_device(ipu):
    found = jax.jit(f)(mask, x.view(dtype))
  expected = (x, np.where(mask, x, x[::-1]), x.reshape(16, 16).T)
  for actual, bits in zip(found, expected, strict=True):
    np.testing.assert_array_equal(np.asarray(actual).view(np.uint8), bits)
