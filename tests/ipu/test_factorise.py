"""Matrix factors on one or a few tiles: the engine against the interpreter,
LAPACK against both, and when these codelets are used."""

from __future__ import annotations

import engine_kit
import hypothesis
import ipu_test_util as util
import lowering_kit
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from program_kit import Kit, everywhere
from program_strategies import TILES

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu.check import interp
from jaxlib.ipu.codelets import _factor_cycles
from jaxlib.ipu.codelets._factor_cycles import (
  COMPLEX_KINDS,
  INVERSES,
  ON_ONE_TILE,
)
from jaxlib.ipu.codelets._factor_teams import TEAMS, alone
from jaxlib.ipu.codelets._team import Team
from jaxlib.ipu.codelets.factorise import results
from jaxlib.ipu.dtypes import NUMPY, DType
from jaxlib.ipu.layout import Factor, Layout, grid, project
from jaxlib.ipu.plan import factoring
from jaxlib.ipu.program import container, schema
from jaxlib.ipu.program.schema import FactorKind
from jaxlib.ipu.target import resolve

pytestmark = pytest.mark.ipu_only

F64 = DType.F64
SQUARE = (
  FactorKind.CHOLESKY, FactorKind.INVERSE, FactorKind.UNIT_INVERSE,
  FactorKind.HESSENBERG, FactorKind.TRIDIAGONAL,
)  # fmt: skip


# Transformations of the rest may depend on the last digits of values near zero:
# their elements can only be compared in double precision.
REDUCED = (
  FactorKind.HESSENBERG, FactorKind.TRIDIAGONAL, FactorKind.BIDIAGONAL,
  *COMPLEX_KINDS,
)  # fmt: skip
HERMITIAN = (FactorKind.TRIDIAGONAL, FactorKind.COMPLEX_TRIDIAGONAL)


def shape_of(kind: FactorKind, m: int, n: int) -> tuple[int, int]:
  """The shape of matrices of this kind, of about m rows and n columns."""
  if kind in SQUARE:
    return m, m
  least, most = min(m, n), max(m, n)
  if kind is FactorKind.COMPLEX_TRIDIAGONAL:
    return most, 2 * least
  if kind is FactorKind.COMPLEX_BIDIAGONAL:
    return most - (most - least) % 2, 2 * least
  if kind in (FactorKind.BIDIAGONAL, FactorKind.ORTHONORMAL):
    return most, least
  return m, n


def hermitian(a):
  """Matrices that kinds of Hermitian ones read as such."""
  if a.shape[-1] == a.shape[-2]:
    return a + a.mT
  a, n = a.copy(), a.shape[-1] // 2
  re, im = a[..., :n, :n], a[..., :n, n:]
  a[..., :n, :] = np.concatenate([re + re.mT, im - im.mT], -1)
  return a


def sample(kind: FactorKind, dtype: DType, shape: tuple[int, ...]):
  """Matrices whose factors are insensitive to their last digits."""
  a = util.sample(NUMPY[dtype], shape, low=-1, high=1)
  if kind in SQUARE and kind not in REDUCED:
    a = a / shape[-1] + np.eye(shape[-1]) * 2
  return a.astype(NUMPY[dtype])


def program(kind, count, m, n, dtype, parts, view=None):
  """One step that factors matrices, each on `parts` tiles."""
  kit = Kit(TILES, bytes_per_tile=1 << 20)
  shape, teams = (count, m, n), min(count, TILES // parts)
  root, offset, strides = view or (shape, 0, (m * n, n, 1))
  layout = grid(shape, (teams, parts, 1))
  a = kit.placed(kit.argument(root, dtype), layout, shape, offset, strides)
  kit.copy(kit.move(a))
  each = -(-count // teams)
  used = -(-m // -(-m // parts))
  first = Factor(count, each, used if count > each else 0)
  written = []
  for i, (extents, type_) in enumerate(results(kind, m, n, dtype)):
    beside = Layout((first, Factor(extents[0], max(extents[0], 1), 0)))
    r = kit.result((count, *extents), type_, beside if i else layout)
    written.append((r, (0, -1) if i else (0, 1)))
  kit.execute(
    schema.Factorise(kind, m, n), (count, m), [(a, (0, 1))], written,
    grid((count, m), (teams, parts)),
  )  # fmt: skip
  return kit.bytes()


@given(st.data())
@hypothesis.settings(max_examples=60)
def test_factors(data):
  kind = data.draw(st.sampled_from(list(FactorKind)))
  dtype = data.draw(st.sampled_from([DType.F32, F64]))
  dtype = F64 if kind in REDUCED else dtype
  count, m = data.draw(st.integers(1, 5)), data.draw(st.integers(2, 40))
  m, n = shape_of(kind, m, data.draw(st.integers(1, 40)))
  parts = data.draw(st.integers(1, min(m, TILES)))
  parts = 1 if kind in ON_ONE_TILE else parts
  parts = -(-m // -(-m // parts))
  # Dimensions in any order, with gaps.
  shape = (count, m, n)
  order = data.draw(st.permutations(range(3)))
  root = tuple(shape[d] + data.draw(st.integers(0, 2)) for d in order)
  dense = (root[1] * root[2], root[2], 1)
  strides = [dense[order.index(d)] for d in range(3)]
  bytes_ = program(kind, count, m, n, dtype, parts, (root, 0, strides))
  argument = np.zeros(root, NUMPY[dtype])
  view = argument[tuple(slice(shape[d]) for d in order)]
  matrices = sample(kind, dtype, shape)
  if kind in HERMITIAN:
    matrices = hermitian(matrices)
  view[:] = matrices.transpose(order)
  eps = float(np.finfo(NUMPY[dtype]).eps)
  atol = 1e-6 if kind in REDUCED else 64 * m * eps
  engine_kit.check(bytes_, [argument], ulps=64, atol=atol, zero_signs=False)


@pytest.mark.parametrize("kind", REDUCED, ids=lambda k: k.name)
@pytest.mark.parametrize("n", [2, 3, 18, 67])
def test_reduced_forms_have_the_same_values(kind, n):
  shape = shape_of(kind, n, n)
  a = sample(kind, DType.F32, (1, *shape))
  if kind in HERMITIAN:
    a = hermitian(a)
  found = engine_kit.run(program(kind, 1, *shape, DType.F32, 1), [a]).outputs
  found = found[0][0].astype(np.float64)
  if kind in COMPLEX_KINDS:
    assert not found[:, n:].any()
    a, found = a[..., :n] + 1j * a[..., n:], found[:, :n]
  if kind in HERMITIAN:
    assert not np.triu(found, 1).any()
    beside = np.diag(np.diag(found, -1), -1)
    found = np.diag(np.diag(found)) + beside + beside.T
  if kind is FactorKind.HESSENBERG:
    found = np.triu(found, -1)
  diagonal = (FactorKind.BIDIAGONAL, FactorKind.COMPLEX_BIDIAGONAL)
  if kind in diagonal:
    assert not np.tril(found, -1).any() and not np.triu(found, 2).any()
  wide = np.complex128 if kind in COMPLEX_KINDS else np.float64
  expected = np.linalg.svd(a[0].astype(wide), compute_uv=False)
  actual = np.linalg.svd(found, compute_uv=False)
  np.testing.assert_allclose(actual, expected, atol=1e-6 * n)
  if kind not in diagonal:
    np.testing.assert_allclose(np.trace(found), np.trace(a[0]), atol=1e-6 * n)


@pytest.mark.parametrize("dtype", [DType.F32, F64], ids=lambda d: d.name)
@pytest.mark.parametrize("n", [1, 2, 9, 33])
def test_complex_reflectors_are_applied_to_further_rows(dtype, n):
  """To identities: the product of the factors is the matrix again."""
  a = util.sample(NUMPY[dtype], (n, 2 * n), low=-1, high=1)
  unit = np.eye(n, 2 * n, dtype=a.dtype)
  eps = float(np.finfo(a.dtype).eps)

  def factored(kind, *rows):
    rows = np.concatenate(rows)[None]
    data = program(kind, 1, *rows.shape[1:], dtype, min(3, rows.shape[1]))
    found = engine_kit.run(data, [rows]).outputs[0][0]
    assert not found[:n, n:].any()
    found = found[:, :n] + 1j * found[:, n:]
    return found[:n].real, *np.split(found[n:], len(found) // n - 1)

  t, q = factored(FactorKind.COMPLEX_TRIDIAGONAL, hermitian(a), unit)
  t = t + np.tril(t, -1).T
  back = q @ t @ q.conj().T
  expected = hermitian(a)[:, :n] + 1j * hermitian(a)[:, n:]
  np.testing.assert_allclose(back, expected, atol=32 * n * eps)
  b, p, q = factored(FactorKind.COMPLEX_BIDIAGONAL, a, unit, unit)
  back, expected = q @ b @ p.conj().T, a[:, :n] + 1j * a[:, n:]
  np.testing.assert_allclose(back, expected, atol=32 * n * eps)
  for x in (p, q):
    np.testing.assert_allclose(x @ x.conj().T, np.eye(n), atol=32 * n * eps)


@pytest.mark.parametrize("dtype", [DType.F32, F64], ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(1, 1), (9, 9), (40, 7)])
def test_orthonormal_columns(dtype, shape):
  m, n = shape
  a = sample(FactorKind.ORTHONORMAL, dtype, (2, m, n))
  a[1, :, n // 2] = 0
  (q,) = engine_kit.run(
    program(FactorKind.ORTHONORMAL, 2, m, n, dtype, 1), [a]
  ).outputs
  atol = 32 * m * float(np.finfo(a.dtype).eps)
  np.testing.assert_allclose(q.mT @ q, np.stack([np.eye(n)] * 2), atol=atol)
  r = q.mT @ a
  np.testing.assert_allclose(q @ r, a, atol=atol)
  np.testing.assert_allclose(r, np.triu(r), atol=atol)
  assert (np.diagonal(r, axis1=1, axis2=2) >= -atol).all()


@pytest.mark.parametrize("dtype", [DType.F32, F64], ids=lambda d: d.name)
@pytest.mark.parametrize("factor", [1e-3, 1e-15])
def test_reflectors_of_tiny_columns(dtype, factor):
  """Their squares are out of the type's range."""
  tiny = np.sqrt(np.finfo(NUMPY[dtype]).tiny) * factor
  a = np.array([[[3, 0], [4, 1], [0, 7]]]) * tiny
  data = program(FactorKind.QR, 1, 3, 2, dtype, 1)
  packed, tau = engine_kit.check(
    data, [a.astype(NUMPY[dtype])], ulps=4, zero_signs=False
  )
  np.testing.assert_allclose(packed[0, 0, 0] / tiny, -5, rtol=1e-5)
  np.testing.assert_allclose(tau[0, 0], 8 / 5, rtol=1e-5)


SPECIAL = {
  "a zero": [(3, 3, 0)],
  "NaN": [(3, 3, np.nan)],
  "infinite": [(3, 3, np.inf)],
  "negative": [(3, 3, -1)],
  "NaN beside": [(4, 2, np.nan), (2, 4, np.nan)],
  "infinite beside": [(4, 2, np.inf), (2, 4, 1)],
  "singular triangle": [(1, 1, 0), (2, 0, 3), (4, 3, 2)],
}
# The same elements are not finite.
ELEMENTS = {FactorKind.CHOLESKY, FactorKind.LU, *INVERSES}


@pytest.mark.parametrize("name", SPECIAL)
@pytest.mark.parametrize("kind, parts", [
  (kind, parts)
  for kind in FactorKind
  for parts in (0, 1, 3)
  if parts < 2 or kind not in ON_ONE_TILE
], ids=str)  # fmt: skip
def test_special_matrices(kind, parts, name):
  """On the engine (0 parts), and on the interpreter's tiles."""
  n = 5
  a = np.eye(*shape_of(kind, n, n), dtype=np.float32)
  for row, column, value in SPECIAL[name]:
    a[row, column] = value
  run = interp.run if parts else engine_kit.run
  data = program(kind, 1, *a.shape, DType.F32, max(parts, 1))
  found = run(data, [a[None]])
  with np.errstate(all="ignore"):
    expected = alone(kind, a.copy())
  for x, y in zip(found.outputs, expected, strict=True):
    if np.isfinite(y).all():
      np.testing.assert_allclose(x[0], y, atol=2e-6)
    elif kind in ELEMENTS:
      np.testing.assert_array_equal(np.isfinite(x[0]), np.isfinite(y))
    else:  # products with reflectors: the same columns are not finite
      np.testing.assert_array_equal(
        np.isfinite(x[0]).all(0), np.isfinite(y).all(0)
      )


@pytest.mark.parametrize("kind", [
  FactorKind.CHOLESKY, FactorKind.LU, *INVERSES,
], ids=lambda k: k.name)  # fmt: skip
@pytest.mark.parametrize("parts", [0, 1])
def test_matrices_of_ones(kind, parts):
  a = np.ones((5, 5), np.float32)
  run = interp.run if parts else engine_kit.run
  found = run(program(kind, 1, 5, 5, DType.F32, 1), [a[None]])
  with np.errstate(all="ignore"):
    expected = alone(kind, a.copy())
  for x, y in zip(found.outputs, expected, strict=True):
    np.testing.assert_array_equal(x[0], y)


def test_exchanged_bytes_are_counted():
  data = program(FactorKind.QR, 2, 7, 4, DType.F32, 2)
  read, constants = container.read(data)
  a = np.ones((2, 7, 4), np.float32)
  # Of two tiles each receives the sums, and one the row that the other has.
  words = sum(2 * (1 + n) + n for n in (4, 3, 2, 1))
  moved = interp.run(data, [a]).exchanges[-1].actual
  assert moved == 2 * 4 * words
  for name in ("exchange_bytes", "exchange_cycles"):
    read, constants = container.read(data)
    setattr(read.steps[-1].cost, name, 4.0)
    with pytest.raises(interp.Trap, match="exchange|step's cost"):
      interp.run(container.write(read, bytes(constants)), [a])


def test_first_of_equal_pivots():
  a = np.zeros((1, 40, 3), np.float32)
  a[0, 20, 0], a[0, 33, 0], a[0, 5, 1] = -2, 2, 1
  data = program(FactorKind.LU, 1, 40, 3, DType.F32, 1)
  _, pivots, order = engine_kit.check(data, [a])
  assert pivots.tolist() == [[20, 5, 2]]
  assert order[0, :6].tolist() == [20, 5, 2, 3, 4, 1]


@pytest.mark.parametrize(
  "change",
  [
    {"kind": 200}, {"rows": 0}, {"columns": 7}, {"rows": 1 << 40},
    {"kind": FactorKind.LU}, {"kind": FactorKind.CHOLESKY},
  ],
  ids=str,
)  # fmt: skip
def test_the_engine_refuses_invalid_fields(change):
  data = program(FactorKind.QR, 2, 6, 4, DType.F32, 1)
  read, constants = container.read(data)
  for name, value in change.items():
    setattr(read.steps[-1].fields, name, value)
  with pytest.raises(engine_kit.EngineError, match=r"Factorise|space"):
    engine_kit.run(
      container.write(read, bytes(constants)), [np.zeros((2, 6, 4), np.float32)]
    )


def test_an_inverse_on_several_tiles_traps():
  data = program(FactorKind.INVERSE, 1, 6, 6, DType.F32, 2)
  with pytest.raises(interp.Trap, match="no tiles share INVERSE"):
    interp.run(data, [np.eye(6, dtype=np.float32)[None]])


@pytest.mark.parametrize("kind", INVERSES, ids=lambda k: k.name)
@pytest.mark.parametrize("count, n, parts", [(1, 13, 3), (2, 8, 2)])
def test_tiles_with_all_of_a_matrix_share_the_rows_of_its_inverse(
  kind, count, n, parts
):
  kit = Kit(TILES, bytes_per_tile=1 << 20)
  shape, split = (count, n, n), (count, parts)
  all_of_it = (count, n, n, n)
  layout = project(grid(all_of_it, (*split, 1, 1)), all_of_it, (0, 2, 3))
  a = kit.placed(kit.argument(shape, DType.F32), layout)
  kit.copy(kit.move(a))
  r = kit.result(shape, DType.F32, grid(shape, (*split, 1)))
  kit.execute(
    schema.Factorise(kind, n, n), (count, n), [(a, (0, -1))], [(r, (0, 1))],
    grid((count, n), split),
  )  # fmt: skip
  matrices = sample(kind, DType.F32, shape)
  (found,) = engine_kit.check(kit.bytes(), [matrices], ulps=64, atol=1e-5)
  lower = np.tril(matrices)
  if kind is FactorKind.UNIT_INVERSE:
    lower = np.tril(lower, -1) + np.eye(n)
  np.testing.assert_allclose(found, np.linalg.inv(lower), atol=1e-5)


def test_rows_that_are_not_adjacent_on_a_tile_trap():
  kit = Kit(TILES, bytes_per_tile=1 << 20)
  a = kit.placed(kit.argument((1, 6, 4), DType.F32), everywhere(24, TILES))
  kit.copy(kit.move(a))
  first = Layout((Factor(1, 1, 0),))
  written = [(kit.result((1, 6, 4), DType.F32, first), (0, 1))]
  written += [(kit.result((1, n), DType.I32, first), (0, -1)) for n in (4, 6)]
  every_second = Layout((Factor(3, 3, 0), Factor(2, 1, 1)))
  kit.execute(
    schema.Factorise(FactorKind.LU, 6, 4), (1, 6), [(a, (0, 1))], written,
    every_second,
  )  # fmt: skip
  with pytest.raises(interp.Trap, match="distributed in order"):
    interp.run(kit.bytes(), [np.ones((1, 6, 4), np.float32)])


# --- Costs --------------------------------------------------------------------


def steps(f, *shapes, tiles=1472):
  """Fields of the compute sets, and the total cycles."""
  arguments = [np.zeros(s, np.float32) for s in shapes]
  program = lowering_kit.phases(f, arguments, tiles).program
  fields = [s.fields for s in program.steps if hasattr(s, "fields")]
  cost = {v.name: v.value for v in program.cost_analysis}
  return fields, cost["ipu cycles"]


@pytest.mark.parametrize("f, shape, tiles", [
  (jnp.linalg.cholesky, (40, 40), 1472),
  (jnp.linalg.cholesky, (20_000, 8, 8), 1472),
  (jnp.linalg.cholesky, (2000, 12, 12), 64),
  (lax.linalg.lu, (40, 40), 1472),
  (lax.linalg.lu, (300, 32), 1),
  (jnp.linalg.qr, (40, 40), 1472),
  (jnp.linalg.qr, (1000, 32), 1),
  (lax.linalg.hessenberg, (40, 40), 1472),
], ids=lambda x: getattr(x, "__name__", str(x)))  # fmt: skip
def test_factors_are_cheaper_than_loops(monkeypatch, f, shape, tiles):
  fields, cycles = steps(f, shape, tiles=tiles)
  assert any(isinstance(x, schema.Factorise) for x in fields)
  monkeypatch.setattr(factoring, "plan", lambda *_: None)
  fields, loop = steps(f, shape, tiles=tiles)
  assert not any(isinstance(x, schema.Factorise) for x in fields)
  assert cycles < 0.6 * loop


def test_eigenvalues_without_vectors_are_bisected():
  for f in (jnp.linalg.eigvalsh, lambda a: jnp.linalg.svd(a)[1]):
    fields, _ = steps(f, (9, 9))
    found = {type(x) for x in fields}
    assert schema.Bisect in found and schema.InverseIteration not in found


def test_matrices_that_do_not_fit_have_no_plan():
  small = resolve("ipu2", 2)
  assert factoring.plan(small, FactorKind.QR, 1, 30000, 30, DType.F32) is None
  assert factoring.plan(small, FactorKind.QR, 1, 300, 30, DType.F32) is not None


def test_f64_factorisations_are_loops():
  """For doubles, a single tile takes longer than a loop over many."""
  with jax.enable_x64(True):
    a = np.zeros((40, 40))
    found = lowering_kit.phases(lax.linalg.hessenberg, [a], 1472).program
  assert not any(
    isinstance(getattr(s, "fields", None), schema.Factorise)
    for s in found.steps
  )


@pytest.mark.parametrize("kind", FactorKind, ids=lambda k: k.name)
@pytest.mark.parametrize("dtype", [DType.F32, F64], ids=lambda d: d.name)
def test_cycles_grow_with_work(kind, dtype):
  target = resolve("ipu2", 1472)
  took = [
    factoring.plan(target, kind, count, *shape_of(kind, n, n), dtype).cycles
    for count, n in ((1, 4), (1, 9), (1, 24), (1, 60), (1, 100), (2000, 80))
  ]
  assert took == sorted(took)


@pytest.mark.parametrize("kind", TEAMS, ids=lambda k: k.name)
def test_columns_may_repeat_the_exchange_of_an_earlier_one(kind):
  """No tile sends more for a later column, unless it owns the column's row."""
  n, parts = 20, 4

  class Recorded(Team):
    def superstep(self, messages):
      sent.append([m.size for m in messages])
      return super().superstep(messages)

  sent: list[list[int]] = []
  shape = shape_of(kind, n, n)
  team = Recorded(np.split(sample(kind, F64, shape), parts))
  TEAMS[kind](team)
  took = _factor_cycles.factoring(resolve("ipu2", 8), kind, *shape, F64, parts)
  columns, supersteps = took.received.shape
  words = np.reshape(sent, (columns, supersteps, parts))
  own = n // parts if kind in factoring._WITH_ROW else columns
  for begin in range(0, columns, own):
    loop = words[begin : begin + own]
    assert (loop <= loop[0]).all()
  others = words.sum(2) - words.min(2)
  assert (others <= took.received).all()


@pytest.mark.parametrize("kind", TEAMS, ids=lambda k: k.name)
def test_loops_of_exchanges_have_less_code(kind):
  target = resolve("ipu2", 1472)
  n = 512 if kind in REDUCED else 64
  m, columns = shape_of(kind, n if kind in SQUARE else 512, n)
  parts = factoring.plan(target, kind, 1, m, columns, DType.F32).parts
  took = _factor_cycles.factoring(target, kind, m, columns, DType.F32, parts)
  unrolled = factoring._looped(target, DType.F32, took, len(took.received), 1)
  assert not unrolled.loops and len(unrolled.starts) == len(took.received)
  rest = took.cycles + took.received.size * target.sync_cycles
  words = []
  for repeats, most in ((False, 1.02), (True, 1.1)):
    found = factoring._schedule(
      target, kind, m, DType.F32, parts, took, repeats
    )
    assert rest + found.cycles <= most * (rest + unrolled.cycles)
    assert (found.received >= took.received).all()
    args = target, kind, m, columns, DType.F32, parts, 1
    words.append(factoring.epilogue(*args, repeats=repeats).words)
  assert len(found.starts) <= len(unrolled.starts) / 3
  assert words[1] <= words[0]
  if kind in factoring._WITH_ROW:  # loops end where another tile has the row
    starts = range(0, n, -(-m // parts))
    assert {*starts} <= {*found.starts.tolist()}


@pytest.mark.parametrize("tiles", [1, 4, 64])
def test_rows_on_several_tiles(cpu, tiles):
  rng = np.random.default_rng(1)
  a = rng.normal(size=(40, 40)).astype(np.float32)
  # Each of 40 reflectors rounds in proportion to the norm, which a + a.T has
  # twice.
  atol = 40 * float(np.finfo(np.float32).eps) * 2 * np.linalg.norm(a, 2)
  f = lambda a: jnp.abs(jnp.linalg.qr(a)[1])
  lowering_kit.check(cpu, f, [a], tiles, atol=atol)
  symmetric = lambda a: jnp.linalg.eigvalsh(a + a.T)
  lowering_kit.check(cpu, symmetric, [a], tiles, atol=atol)
  values = lambda a: jnp.linalg.svd(a, compute_uv=False)
  lowering_kit.check(cpu, values, [a], tiles, atol=atol)


def test_rows_on_another_tile_trap():
  data = program(FactorKind.QR, 2, 7, 4, DType.F32, 2)
  read, constants = container.read(data)
  moves = read.steps[0].moves
  read.steps[-1].operands[0].tensor = moves[0].source
  with pytest.raises(interp.Trap, match="absent"):
    interp.run(
      container.write(read, bytes(constants)), [np.zeros((2, 7, 4), np.float32)]
    )
