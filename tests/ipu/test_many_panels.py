"""Decompositions of larger matrices: loops over panels and over exchanges, and
programs that fit an IPU because of them."""

from __future__ import annotations

import ipu_test_util as util
import lowering_kit
import numpy as np
import pytest
from test_complex_linalg import sample
from test_linalg import F32, matrices

import jax.numpy as jnp
from jax import lax
from jaxlib.ipu.ops import householder
from jaxlib.ipu.program import schema

EPS = float(np.finfo(F32).eps)


@pytest.fixture
def small_panels(monkeypatch):
  """So many panels, of matrices that need few columns."""
  monkeypatch.setattr(householder, "panel_width", lambda *_: 4)
  monkeypatch.setattr(householder, "_AT_ONCE", 4)
  monkeypatch.setattr(householder._matrices, "block_size", lambda _: 4)


def has_loop(f, *arguments) -> bool:
  program = lowering_kit.phases(f, list(arguments), 16, verify=False).program
  return any(isinstance(s, schema.Repeat) for s in program.steps)


def check_qr(q, r, a, eps=EPS):
  """As accurate as Householder's QR may be."""
  *_, m, n = a.shape
  tol = 8 * max(m, n) * eps
  unit = np.broadcast_to(
    np.eye(q.shape[-1]), (*a.shape[:-2], *q.shape[-1:] * 2)
  )
  np.testing.assert_allclose(q.mT.conj() @ q, unit, atol=tol)
  np.testing.assert_allclose(q @ r, a, atol=tol * np.abs(a).max())
  assert not np.tril(r, -1).any()


SHAPES = [(61, 43), (43, 61), (90, 30), (2, 33, 30)]


@pytest.mark.ipu_only
@pytest.mark.usefixtures("small_panels")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_qr(ipu, shape):
  a = matrices(*shape)
  mode = "reduced" if shape[-1] % 2 else "complete"
  f = lambda a: jnp.linalg.qr(a, mode=mode)
  assert has_loop(f, a)
  check_qr(*util.run_on(ipu, f, a), a)


@pytest.mark.ipu_only
@pytest.mark.usefixtures("small_panels")
@pytest.mark.parametrize("shape", SHAPES[:1], ids=str)
def test_packed_reflectors_are_those_of_lapack(check, shape):
  f = lambda a: lax.linalg.qr(a, full_matrices=False)
  check(f, matrices(*shape), rtol=1e-3, atol=2e-5)


@pytest.mark.ipu_only
@pytest.mark.usefixtures("small_panels")
def test_qr_in_the_interpreter(cpu):
  lowering_kit.check(cpu, lax.linalg.qr, [matrices(27, 25)], 5, ulps=1 << 12)


@pytest.mark.ipu_only
@pytest.mark.usefixtures("small_panels")
def test_products_of_fewer_reflectors(check):
  a, tau = matrices(41, 39) / 6, matrices(30)
  check(lax.linalg.householder_product, a, tau, rtol=1e-3, atol=1e-3)


@pytest.mark.ipu_only
@pytest.mark.usefixtures("small_panels")
def test_numbers_that_are_not_finite(ipu, monkeypatch):
  """They reach no column or row that is finished."""
  a = matrices(40, 40)
  a[3, 20] = np.nan
  looped = util.run_on(ipu, lambda a: lax.linalg.qr(a), a)
  monkeypatch.setattr(householder, "_MANY", 1000)
  unrolled = util.run_on(ipu, lambda a: lax.linalg.qr(a), a)
  for found, expected in zip(looped, unrolled, strict=True):
    assert np.isfinite(expected[:, :20]).all()
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))


@pytest.mark.ipu_only
@pytest.mark.parametrize("shape", [(210, 200)], ids=str)
def test_complex_qr(ipu, shape):
  a = sample(*shape)
  check_qr(*util.run_on(ipu, lambda a: jnp.linalg.qr(a), a), a)


def test_eigh_of_256(ipu):
  a = matrices(256, 256)
  a = (a + a.T) / 2
  values, vectors = util.run_on(ipu, lambda a: tuple(jnp.linalg.eigh(a)), a)
  expected = np.linalg.eigvalsh(a.astype(np.float64))
  tol = 16 * EPS * np.abs(expected).max()
  np.testing.assert_allclose(values, expected, atol=tol)
  unit = vectors.T.astype(np.float64) @ vectors
  np.testing.assert_allclose(unit, np.eye(256), atol=16 * EPS)
  rest = a @ vectors.astype(np.float64) - vectors * values.astype(np.float64)
  assert np.linalg.norm(rest, axis=0).max() <= 2 * tol


def test_svd_of_256(ipu):
  a = matrices(256, 256)
  u, s, vt = util.run_on(ipu, lambda a: tuple(jnp.linalg.svd(a)), a)
  expected = np.linalg.svd(a.astype(np.float64), compute_uv=False)
  np.testing.assert_allclose(s, expected, atol=16 * EPS * expected[0])
  for q in (u, vt):
    unit = q.T.astype(np.float64) @ q
    np.testing.assert_allclose(unit, np.eye(256), atol=32 * EPS)
  product = (u.astype(np.float64) * s) @ vt
  np.testing.assert_allclose(product, a, atol=32 * EPS * expected[0])


FIT = {
  "eigh": lambda a: jnp.linalg.eigh(a),
  "svd": lambda a: jnp.linalg.svd(a),
  "inv": jnp.linalg.inv,
}


@pytest.mark.parametrize("name", FIT)
def test_decompositions_of_512_fit(name):
  """A GC200; what does not fit is refused."""
  a = np.zeros((512, 512), F32)
  state = lowering_kit.phases(FIT[name], [a], 1472, verify=False)
  code, machine = state.memory.code.executable, state.builder.target
  assert 0 < code.max() <= machine.executable_bytes
