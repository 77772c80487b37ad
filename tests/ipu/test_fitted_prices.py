"""Prices of the compiler's own output that were fitted to compiled programs, as
they are needed before there is a program: recomputed, within 25 %."""

from __future__ import annotations

import types

import lowering_kit
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu.dtypes import NUMPY, DType
from jaxlib.ipu.ops import _spectral, factorise
from jaxlib.ipu.pipeline import Phase
from jaxlib.ipu.plan import factoring
from jaxlib.ipu.program.schema import FactorKind
from jaxlib.ipu.tile.totals import totals

TILES = 1472
MOST = 1.25


def close(price: float, cycles: float) -> bool:
  return 1 / MOST < price / cycles < MOST


def lowered(f, shape, dtype=np.float32):
  """The tile program, and what prices ask an emitter for."""
  zeros = np.zeros(shape, dtype)
  until = {"stop_after": Phase.LOWER, "verify": False}
  state = lowering_kit.phases(f, [zeros], TILES, **until)
  return state.tiles, types.SimpleNamespace(machine=state.tiles.target)


def cycles(tiles, steps) -> float:
  return totals(tiles.target, steps, tiles.tensors).cycles


def loops(tiles):
  """The bodies of the outermost loops."""
  return [s.regions[-1] for s in tiles.steps if s.regions and not s.exclusive]


# --- Factorisations -----------------------------------------------------------

FACTORED = {
  FactorKind.CHOLESKY: jnp.linalg.cholesky,
  FactorKind.LU: lambda a: lax.linalg.lu(a)[0],
  FactorKind.QR: lambda a: lax.linalg.qr(a)[1],
  FactorKind.HESSENBERG: lambda a: lax.linalg.hessenberg(a)[0],
  FactorKind.TRIDIAGONAL: lambda a: lax.linalg.tridiagonal(a)[0],
}
# And how many iterations there are for each column.
COMPLEX = {
  FactorKind.COMPLEX_TRIDIAGONAL: (jnp.linalg.eigvalsh, 1),
  FactorKind.COMPLEX_BIDIAGONAL: (
    lambda a: jnp.linalg.svd(a, compute_uv=False),
    2,
  ),
}


@pytest.fixture
def nothing_fits(monkeypatch):
  monkeypatch.setattr(factoring, "plan", lambda *_: None)


@pytest.mark.usefixtures("nothing_fits")
@pytest.mark.parametrize("shape", [(1, 100, 100), (2000, 24, 24)], ids=str)
@pytest.mark.parametrize("kind", FACTORED, ids=lambda k: k.name)
def test_loops_over_columns(monkeypatch, kind, shape):
  monkeypatch.setattr(factorise, "_WIDTHS", shape[-1:])  # one panel
  tiles, e = lowered(FACTORED[kind], shape)
  (body,) = loops(tiles)
  price = factorise._loop_cycles(e, kind, shape, DType.F32) / shape[-1]
  took = cycles(tiles, body)
  assert close(price, took), (price, took)


@pytest.mark.usefixtures("nothing_fits")
@pytest.mark.parametrize("shape", [(1, 100, 100), (2000, 24, 24)], ids=str)
@pytest.mark.parametrize("kind", COMPLEX, ids=lambda k: k.name)
def test_loops_over_complex_columns(kind, shape):
  f, iterations = COMPLEX[kind]
  tiles, e = lowered(f, shape, np.complex64)
  (body,) = loops(tiles)
  *batch, n, _ = shape
  price = factorise._loop_cycles(e, kind, (*batch, n, 2 * n), DType.F32) / n
  took = iterations * cycles(tiles, body)
  assert close(price, took), (price, took)


def test_products_of_eight_reflectors():
  f = lambda a: lax.linalg.householder_product(a, a[0])
  tiles, _ = lowered(f, (8, 8))
  took = cycles(tiles, tiles.steps)
  assert close(factorise._PRODUCT, took), took


@pytest.mark.usefixtures("nothing_fits")
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("shape", [(1, 100, 100), (2000, 24, 24)], ids=str)
def test_triangular_inverses(shape, unit):
  """With the product that applies them."""

  def solve(a):
    options = {"left_side": True, "lower": True, "unit_diagonal": unit}
    return lax.linalg.triangular_solve(a, a, **options)

  tiles, e = lowered(solve, shape)
  kind = FactorKind.UNIT_INVERSE if unit else FactorKind.INVERSE
  price = factorise._loop_cycles(e, kind, shape, DType.F32)
  took = cycles(tiles, tiles.steps)
  assert close(price, took), (price, took)


# --- Eigenvectors -------------------------------------------------------------

SPECTRA = [
  (DType.F32, (1, 24, 24)),
  (DType.F32, (2000, 8, 8)),
  (DType.C64, (1, 24, 24)),
  (DType.F64, (1, 24, 24)),
  (DType.C128, (2000, 8, 8)),
]


@pytest.mark.parametrize(("dtype", "shape"), SPECTRA, ids=str)
def test_eigenvectors_by_the_tridiagonal_form(monkeypatch, dtype, shape):
  monkeypatch.setattr(_spectral, "suits", lambda *_: True)
  with jax.enable_x64(True):
    tiles, e = lowered(jnp.linalg.eigh, shape, NUMPY[dtype])
  price = _spectral._cycles(e, shape, dtype)
  took = cycles(tiles, tiles.steps)
  assert close(price, took), (price, took)


@pytest.mark.parametrize(("dtype", "shape"), SPECTRA, ids=str)
def test_rounds_of_rotations(monkeypatch, dtype, shape):
  monkeypatch.setattr(_spectral, "suits", lambda *_: False)
  with jax.enable_x64(True):
    tiles, e = lowered(jnp.linalg.eigh, shape, NUMPY[dtype])
  (sweep,) = loops(tiles)
  took = cycles(tiles, sweep) / (shape[-1] - 1)  # a tournament's rounds
  price = _spectral._round_cycles(e, shape, dtype)
  assert close(price, took), (price, took)
