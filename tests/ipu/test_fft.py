"""Fourier transforms of every kind and length, against XLA:CPU."""

from __future__ import annotations

import engine_kit
import hypothesis
import hypothesis.strategies as st
import lowering_kit
import numpy as np
import pytest
from ipu_test_util import rng_of, run_on, run_python

import jax
import jax.numpy as jnp
from jax.scipy import signal
from jaxlib.ipu.check.verify import verify
from jaxlib.ipu.check.verify_state import InvalidProgram
from jaxlib.ipu.ops import fft as fft_module
from jaxlib.ipu.program import container

# Direct products, of primes and others; powers of two; mixed factors; long
# primes.
LENGTHS = (1, 2, 3, 16, 64, 65, 127, 128, 131, 200, 509, 1000, 1024, 2 * 257)


def real(*shape: int) -> np.ndarray:
  return rng_of("fft", shape).normal(size=shape).astype(np.float32)


def sample(*shape: int) -> np.ndarray:
  return real(*shape, 2).view(np.complex64).reshape(shape)


@pytest.fixture(scope="session")
def check_norm(ipu, cpu):
  """The largest error, relative to the largest number."""

  def check(f, *args, tol=1e-6):
    got, want = (jax.tree.leaves(run_on(d, f, *args)) for d in (ipu, cpu))
    for a, b in zip(got, want, strict=True):
      assert (a.dtype, a.shape) == (b.dtype, b.shape)
      error = np.abs(a - b).max(initial=0.0)
      assert error <= tol * np.abs(b).max(initial=0.0)

  return check


@pytest.mark.parametrize("n", LENGTHS)
def test_lengths(check_norm, n):
  def f(x, r, h):
    return [
      jnp.fft.fft(x), jnp.fft.ifft(x), jnp.fft.rfft(r), jnp.fft.irfft(h, n=n),
      jnp.fft.fft(r), jnp.fft.ifft(r),
    ]  # fmt: skip

  check_norm(f, sample(2, n), real(3, n), sample(2, n // 2 + 1))


@pytest.mark.parametrize("n", (1 << 14, 9973, 3 * 5 * 7 * 11 * 13))
def test_long_transforms(check_norm, n):
  check_norm(lambda x, r: [jnp.fft.fft(x), jnp.fft.rfft(r)], sample(n), real(n))


@pytest.mark.parametrize("n", (128, 200, 1000, 1 << 14))
def test_transforms_of_transforms(check_norm, n):
  """Results that take the memory of what steps before them have read."""

  def f(x, r):
    spectra = jnp.fft.rfft(r) * jnp.fft.rfft(r[::-1])
    again = jax.lax.fori_loop(
      0, 3, lambda i, y: jnp.fft.fft(y * 2) / n**0.5 + i, x
    )
    return [
      jnp.fft.irfft(spectra, n=n), jnp.fft.ifft(jnp.fft.fft(x) * 2), again,
      jnp.fft.fft(jnp.fft.fft(x.T, axis=0).T), jnp.abs(jnp.fft.fft(r)),
    ]  # fmt: skip

  for rows in (1, 7, 20):
    check_norm(f, sample(rows, n), real(rows, n), tol=2e-6)


def test_several_dimensions(check_norm):
  def f(x, r):
    return [
      jnp.fft.fftn(x), jnp.fft.ifftn(x), jnp.fft.fft2(x), jnp.fft.rfftn(r),
      jnp.fft.irfftn(x), jnp.fft.irfft2(x, s=(70, 9)), jnp.fft.fft(x, axis=0),
      jnp.fft.hfft(x), jnp.fft.ihfft(r),
    ]  # fmt: skip

  check_norm(f, sample(3, 70, 6), real(3, 70, 6))


@pytest.mark.parametrize("shape", ((0, 4), (2, 0, 4)))
def test_empty_transforms(check_norm, shape):
  check_norm(lambda x: (jnp.fft.fft(x), jnp.fft.rfft(x.real)), sample(*shape))


@hypothesis.given(
  n=st.integers(1, 600), rows=st.integers(0, 3), inverse=st.booleans()
)
def test_drawn_lengths(check_norm, n, rows, inverse):
  f = jnp.fft.ifft if inverse else jnp.fft.fft
  check_norm(f, sample(rows, n))


def transforms(f, *arguments, tiles=1472):
  """The program of a function, its constants, and the products with matrices
  that are marked as those of transforms."""
  data = lowering_kit.compiled(f, arguments, tiles)
  program, constants = container.read(data)
  fields = [(step, getattr(step, "fields", None)) for step in program.steps]
  named = [step for step, f in fields if getattr(f, "fourier", [])]
  return program, bytes(constants), named


# Of some kinds: the lengths of the transforms as which they are computed.
@pytest.mark.parametrize(
  "f, x, lengths",
  [
    (jnp.fft.fft, sample(20, 40), [40]),
    (jnp.fft.ifft, sample(20, 40), [40]),
    (jnp.fft.rfft, real(20, 40), [40]),
    (jnp.fft.irfft, sample(20, 21), [40]),
    (jnp.fft.fft, real(20, 40), [40]),
    (jnp.fft.fft, sample(20, 1000), [25, 40]),
    (jnp.fft.fft2, sample(20, 127), [127, 20]),
  ],
)
def test_programs_name_the_matrices_of_transforms(cpu, f, x, lengths):
  with jax.default_device(cpu):
    _, _, found = transforms(f, x)
  assert sorted(s.fields.fourier[0].length for s in found) == sorted(lengths)


def test_other_matrices_are_not_named(cpu):
  matrix = np.exp(-2j * np.pi * np.outer(np.arange(16), np.arange(16)) / 16)
  with jax.default_device(cpu):
    _, _, found = transforms(lambda x: x @ matrix.real, real(40, 16))
  assert not found


@pytest.mark.parametrize(
  "change",
  [
    {"length": 41},
    {"sign": 1},
    {"scale": 1.001},
    {"out_planes": 1, "length": 80, "kept": 80},
  ],
)
def test_a_wrong_name_is_an_error(cpu, change):
  with jax.default_device(cpu):
    program, constants, (step,) = transforms(jnp.fft.fft, sample(20, 40))
  verify(program, constants)
  for name, value in change.items():
    setattr(step.fields.fourier[0], name, value)
  with pytest.raises(InvalidProgram, match="differs by"):
    verify(program, constants)


@pytest.mark.ipu_only
def test_the_engine_reads_no_matrix_that_it_knows(cpu):
  """Whatever the matrix is, the engine transforms; without its name, it
  multiplies."""
  x = sample(20, 40)
  with jax.default_device(cpu):
    program, constants, (step,) = transforms(jnp.fft.fft, x)
  zeros = bytes(len(constants))
  pairs = x.view(np.float32).reshape(20, 40, 2)

  def engine() -> np.ndarray:
    data = container.write(program, zeros)
    (y,) = engine_kit.run(data, [pairs]).outputs
    return y.view(np.complex64)[..., 0]

  want = np.fft.fft(x)
  assert np.abs(engine() - want).max() < 1e-5 * np.abs(want).max()
  step.fields.fourier.clear()
  assert not engine().any()


def test_gradients(check_norm):
  def f(x, r):
    power = lambda z: (jnp.abs(jnp.fft.fft(z)) ** 2).sum()
    there = lambda r: (jnp.fft.irfft(jnp.fft.rfft(r) * 2) ** 2).sum()
    return jax.grad(power)(x), jax.grad(there)(r)

  check_norm(f, sample(3, 30), real(3, 30))


def test_functions_based_on_fft(check_norm):
  def f(x, y):
    return [
      signal.fftconvolve(x, y),
      signal.stft(x, nperseg=32)[2],
      jnp.fft.fftshift(jnp.fft.fft2(jnp.outer(x[:9], y))),
      jax.vmap(jnp.fft.rfft)(x.reshape(4, -1)),
    ]

  check_norm(f, real(256), real(21))


@pytest.mark.parametrize("tiles", lowering_kit.TILES)
def test_tile_by_tile(cpu, tiles):
  f = lambda x: (jnp.fft.fft(x), jnp.fft.irfft(x))
  lowering_kit.check(cpu, f, [sample(2, 68) / 20], tiles, ulps=256)


def test_error_is_of_the_order_of_rounding(ipu):
  x = sample(4096)
  want = np.fft.fft(x.astype(np.complex128))
  error = np.abs(run_on(ipu, jnp.fft.fft, x) - want)
  assert np.sqrt((error**2).mean() / (np.abs(want) ** 2).mean()) < 3e-7


def test_programs_of_long_transforms_stay_small(cpu):
  """Constants are a fraction of the size of the data."""
  n = 1 << 18
  with jax.default_device(cpu):
    data = lowering_kit.compiled(
      jnp.fft.fft, [jax.ShapeDtypeStruct((n,), np.complex64)], 1472
    )
  assert len(data) < 8 * n / 2


@pytest.mark.parametrize("n", (1, 5, 8, 12, 360, 1024))
def test_roots_of_unity(n):
  roots = fft_module._roots(n)
  want = np.exp(2j * np.pi * np.arange(n) / n)
  np.testing.assert_allclose(roots, want, rtol=0, atol=3e-15)
  if n % 4 == 0:
    np.testing.assert_array_equal(roots[:: n // 4], [1, 1j, -1, -1j])


def test_double_precision():
  run_python("""
import jax
jax.config.update("jax_enable_x64", True)
import numpy as np
import jax.numpy as jnp
for n in (48, 131, 1024):
  x = np.random.default_rng(n).normal(size=(2, n, 2))
  x = x.view(np.complex128)[..., 0]
  got = jax.jit(jnp.fft.fft)(jax.device_put(x, jax.devices("ipu")[0]))
  want = np.fft.fft(x)
  assert np.abs(np.asarray(got) - want).max() < 1e-13 * np.abs(want).max()
""")
