"""Eigenvalues of general matrices and the Schur form, computed on the host."""

from __future__ import annotations

import ipu_test_util as util
import lowering_kit
import numpy as np
import pytest
from test_linalg import F32, matrices

import jax
import jax.numpy as jnp
import jax.scipy as jsp
from jax import lax
from jaxlib.ipu.program import container, schema

DTYPES = (np.float32, np.complex64)
SHAPES = [(1, 1), (2, 2), (7, 7), (2, 3, 5, 5), (40, 40), (0, 0), (0, 3, 3)]


def drawn(dtype, *shape):
  real, imaginary = (matrices(*shape, key=k) for k in range(2))
  return (real + 1j * imaginary).astype(dtype) if dtype != F32 else real


def parts(f):
  """The function with real and imaginary parts as separate results."""
  return lambda *a: jax.tree.map(lambda x: (x.real, x.imag), f(*a))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_eig(check, shape, dtype):
  """Left and right vectors too: LAPACK computes them on both platforms."""
  a = drawn(dtype, *shape)

  def f(a):
    return lax.linalg.eig(a), lax.linalg.eig(
      a, compute_left_eigenvectors=False, compute_right_eigenvectors=False
    )

  check(parts(f), a, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("shape", SHAPES[:-2], ids=str)
def test_schur(check, shape, dtype):
  a = drawn(dtype, *shape)
  check(parts(lax.linalg.schur), a, rtol=1e-3, atol=1e-4)
  only_form = lambda a: lax.linalg.schur(a, compute_schur_vectors=False)
  check(parts(only_form), a, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("f", (jnp.linalg.eig, lax.linalg.schur))
def test_nan_stays_in_its_matrix(ipu, f):
  a = drawn(np.float32, 3, 4, 4)
  a[1, 2, 3] = np.nan
  for x in jax.tree.leaves(util.run_on(ipu, f, a)):
    finite = np.isfinite(x.reshape(3, -1))
    assert finite.all(1).tolist() == [True, False, True]
    assert not finite[1].any()


def test_gradients(check):
  a = drawn(np.float32, 5, 5) + np.diag(np.arange(5)).astype(F32)

  def values(a):
    return jnp.abs(jnp.linalg.eigvals(a)).sum()

  def vectors(a):
    w, v = lax.linalg.eig(
      a, compute_left_eigenvectors=False, enable_eigvec_derivs=True
    )
    return jnp.abs(w * v).sum()

  check(jax.grad(values), a, rtol=1e-3, atol=1e-3)
  check(jax.grad(vectors), a, rtol=1e-3, atol=1e-3)


def test_functions_based_on_eig_and_schur(check):
  a = drawn(np.float32, 5, 5)
  check(parts(lambda p: jnp.roots(p, strip_zeros=False)), a[0], atol=1e-4)
  check(parts(jsp.linalg.sqrtm), a @ a.T, rtol=1e-3, atol=1e-3)
  check(parts(lambda a: jsp.linalg.rsf2csf(*jsp.linalg.schur(a))), a, atol=1e-4)


def test_vmap_and_loops(check):
  a = drawn(np.float32, 3, 4, 4)
  check(parts(jax.vmap(jnp.linalg.eigvals)), a, rtol=1e-3, atol=1e-4)
  check(parts(lambda a: lax.map(jnp.linalg.eigvals, a)), a, atol=1e-4)


@pytest.mark.parametrize("tiles", (1, 16))
def test_the_round_trip_is_charged(cpu, tiles):
  a = drawn(np.float32, 6, 6)

  def f(a):
    w = jnp.linalg.eigvals(a * 2)
    return jnp.sort(jnp.abs(w))

  lowering_kit.check(cpu, f, [a], tiles, ulps=64)
  program, _ = container.read(lowering_kit.compiled(f, [a], tiles))
  (call,) = [s for s in program.steps if isinstance(s, schema.HostCallback)]
  assert call.target == "lapack_sgeev_ffi"
  assert call.cost.exchange_cycles > 0
  assert call.cost.exchange_bytes >= 2 * a.nbytes


def test_double_precision():
  util.run_python("""
import jax
jax.config.update("jax_enable_x64", True)
import numpy as np
import jax.numpy as jnp
from jax import lax
ipu, = jax.devices("ipu")
a = np.random.default_rng(0).normal(size=(2, 5, 5))
for a in (a, a + 1j * a.mT):
  w, v = jnp.linalg.eig(jax.device_put(a, ipu))
  assert w.dtype == np.complex128 and w.devices() == {ipu}
  assert abs(a @ v - v * w[..., None, :]).max() < 1e-12
  t, z = lax.linalg.schur(jax.device_put(a, ipu))
  assert t.dtype == a.dtype
  assert abs(z @ t @ z.mT.conj() - a).max() < 1e-12
""")


def test_another_process_runs_a_serialised_program(tmp_path):
  """LAPACK itself is looked up when a program is lowered, which is not done
  here."""
  util.run_python(f"""
import pickle
import jax, jax.numpy as jnp
from jax.experimental import serialize_executable
ipu, = jax.devices("ipu")
a = jax.device_put(jnp.eye(3) * 2, ipu)
compiled = jax.jit(jnp.linalg.eigvals).lower(a).compile()
with open({str(tmp_path / "program")!r}, "wb") as f:
  pickle.dump(serialize_executable.serialize(compiled), f)
""")
  util.run_python(f"""
import pickle
import jax, jax.numpy as jnp
from jax.experimental import serialize_executable
ipu, = jax.devices("ipu")
with open({str(tmp_path / "program")!r}, "rb") as f:
  run = serialize_executable.deserialize_and_load(
    *pickle.load(f), backend="ipu", execution_devices=[ipu])
assert (run(jax.device_put(jnp.eye(3) * 2, ipu)) == 2).all()
""")
