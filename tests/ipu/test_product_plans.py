"""Plans of matrix products against exhaustive search, and combining partial
results."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from program_kit import word

from jaxlib.ipu import target as machines
from jaxlib.ipu.codelets import CODELETS, _dot_cycles
from jaxlib.ipu.codelets._cycles import Cycles
from jaxlib.ipu.codelets.dot import CODELET as DOT
from jaxlib.ipu.codelets.dot import DotHints
from jaxlib.ipu.codelets.map import CODELET as MAP
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.kernel.isa import RegisterType
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.plan import combine, cost, cuts, matmul, partials, reduction
from jaxlib.ipu.program import schema

IPU2 = machines.resolve("ipu2")
F32, F16, BF16, I32 = DType.F32, DType.F16, DType.BF16, DType.I32


def products_cost(target, extents, parts, dtype):
  """The cost of one split, computed separately."""
  blocks = [-(-e // p) for e, p in zip(extents, parts, strict=True)]
  b, m, n, k = blocks
  lhs, rhs = 4 * b * k * m, 4 * b * k * n
  if parts[2] > 1 and parts[2] % 2 == 0:
    lhs /= 2  # pairs of tiles receive the same rows
  if parts[2] == parts[3] == 1 and parts[1] % 2 == 0:
    rhs /= 2
  total = cost.exchange_cycles(target, lhs + rhs, 0)
  vertices = CODELETS[schema.Dot].cycles(
    target,
    schema.Dot(dtype, 0),
    [dtype, dtype],
    [dtype],
    blocks,
    DotHints(vector=min(extents[1:3]) == 1),
  )
  total += vertices.total
  total += target.sync_cycles
  if parts[3] > 1:
    outputs, gk = np.array([b * m * n]), np.array([parts[3]])
    adding = partials.adding_cycles(target, dtype)
    total += combine.combination_cycles(target, outputs, gk, 4, adding)[0]
  return float(total)


@pytest.mark.parametrize(
  ("tiles", "extents"),
  [
    (24, (1, 13, 7, 40)),
    (24, (3, 5, 5, 9)),
    (24, (1, 1, 1, 300)),
    (24, (2, 64, 1, 64)),
    # Blocks that fill the matrix unit, as many as there are tiles.
    (92, (1, 80, 96, 256)),
    (92, (1, 64, 100, 320)),
    (92, (1, 256, 256, 100)),
  ],
)
def test_plans_are_near_the_optimum_of_all_splits(tiles, extents):
  target = machines.resolve("ipu2", tiles)
  plan = matmul.plan(target, *extents, F32, F32, F32)
  ways = (
    {-(-e // -(-e // p)) for p in range(1, min(e, tiles) + 1)} for e in extents
  )
  used = [p for p in itertools.product(*ways) if math.prod(p) <= tiles]
  best = min(products_cost(target, extents, p, F32) for p in used)
  assert np.prod(plan.parts) <= tiles
  assert plan.cycles == products_cost(target, extents, plan.parts, F32)
  assert plan.cycles <= 1.02 * best


@pytest.mark.parametrize("extents", [(1, 512, 512, 512), (64, 32, 32, 16)])
@pytest.mark.parametrize("dtype", [F32, F16, DType.BF16, I32, DType.F64])
def test_plans_of_every_type_fit_and_use_the_machine(extents, dtype):
  plan = matmul.plan(IPU2, *extents, dtype, dtype, dtype)
  assert plan.fits and np.prod(plan.parts) > IPU2.num_tiles / 4
  assert plan.tile_bytes <= 0.6 * IPU2.bytes_per_tile


SUMS = reduction.ReductionCosts(
  item_bytes=4, each=Cycles(0.5), partial_bytes=4, combine=Cycles(0.5)
)


def combining(
  target: machines.Target,
  plan: reduction.ReductionSplit,
  work: reduction.ReductionCosts = SUMS,
) -> schema.Cost:
  """The partial results of a reduction by such a plan."""
  shape = (
    plan.kept_block * plan.kept_parts,
    plan.reduced_block * plan.reduced_parts,
  )
  split = reduction.partition(shape, 1, plan)
  found = combine.epilogue(
    target,
    split,
    shape,
    1,
    reduction.result_layout(target, split, plan, shape, 1, 4),
    work.partial_bytes,
    reduction.combining_cycles(target, work),
    combine.REDUCTIONS,
  )
  assert found is not None
  return found.cost


def test_workers_share_the_combination_of_partial_results():
  plan = reduction.ReductionSplit(1440, 512, 5, 2)
  three, six = (
    dataclasses.replace(
      machines.resolve("ipu2", 10), num_workers=n, launch_cycles=0
    )
    for n in (3, 6)
  )
  # 720 results per tile: 60 vectors for each of six workers, 120 for three.
  assert combining(six, plan).compute_cycles == 11 + 6 * (16 + 60 * (11 + 1))
  assert combining(three, plan).compute_cycles == 11 + 3 * (16 + 120 * (11 + 1))


def test_many_partials_are_combined_in_stages():
  few, many = (
    combining(IPU2, reduction.ReductionSplit(1, 512, 1, parts))
    for parts in (4, 1472)
  )
  assert few.sync_cycles == IPU2.sync_cycles
  assert many.sync_cycles == 2 * IPU2.sync_cycles
  # 38 groups of 39 tiles, then 38 results.
  assert many.exchange_cycles == 38 + 38 + 2 * IPU2.route_cycles
  assert many.exchange_bytes == 1472 * 4
  assert cost.cycles(many) < 4 * cost.cycles(few)


@given(st.integers(1, 2000), st.integers(2, 1471), st.sampled_from([0.5, 4.0]))
def test_cycles_to_combine_are_monotonic(block, parts, each):
  cycles = reduction.combining_cycles(IPU2, SUMS._replace(combine=Cycles(each)))

  def combined(block: int) -> float:
    return combine.combination(IPU2, block, parts, 4, cycles)

  assert combined(2 * block) >= combined(block)


@pytest.mark.parametrize("dtype", [F32, F16, I32])
def test_large_products_take_serial_steps(dtype):
  plan = matmul.plan(IPU2, 1, 6144, 6144, 6144, dtype, dtype, dtype)
  assert plan.fits and plan.steps.terms > 1 == plan.steps.results
  assert plan.tile_bytes <= 0.6 * IPU2.bytes_per_tile
  whole = matmul.plan(IPU2, 1, 512, 512, 512, dtype, dtype, dtype)
  assert whole.steps == matmul.ONE
  # The same rate as products that fit at once, or a better one.
  assert plan.cycles / 6144**3 < whole.cycles / 512**3


def test_results_are_cut_if_their_sums_do_not_fit():
  plan = matmul.plan(IPU2, 1, 8192, 8192, 8192, F16, F16, F16)
  assert plan.fits and plan.steps.results > 1 < plan.steps.terms
  # Without much more exchange.
  whole = matmul.plan(IPU2, 1, 512, 512, 512, F16, F16, F16)
  assert plan.cycles / 8192**3 < whole.cycles / 512**3


@pytest.mark.parametrize("dtype", [DType.I32, DType.I64, DType.F64], ids=str)
def test_adding_partials_of_integers_and_f64_takes_longer(dtype):
  f32, other = (
    partials.adding_cycles(IPU2, d)(600, 8).total for d in (F32, dtype)
  )
  assert other > 2 * f32


def test_plans_that_do_not_fit_are_marked():
  tiny = machines.resolve("ipu2", 1)
  plan = matmul.plan(tiny, 1, 4096, 4096, 4096, F32, F32, F32)
  assert not plan.fits


def test_empty_products_need_no_plan():
  assert matmul.plan(IPU2, 1, 0, 4, 4, F32, F32, F32).parts == (1, 1, 1, 1)


@pytest.mark.parametrize("version", machines.TARGETS)
def test_peak_rates(version):
  """A large block keeps the matrix unit busy most of the time."""
  target = machines.resolve(version)
  block = _dot_cycles.Block(1, 1200, 512, 512)
  f32 = _dot_cycles.amp_cycles(target, F32, F32, block)
  f16 = _dot_cycles.amp_cycles(target, F16, F32, block)
  macs = 1200 * 512 * 512
  assert 0.7 < macs / (f32 * target.fp32_macs) <= 1
  assert 0.7 < macs / (f16 * target.fp16_macs) <= 1


# Stores what it loads.
CAST = schema.Map(word(Opcode.LOAD, RegisterType.F32), [0])
CASTS = st.tuples(
  st.sampled_from([F16, BF16]),
  st.integers(1, 3), st.integers(1, 200), st.integers(1, 200),
  st.integers(1, 200), st.booleans(),
)  # fmt: skip
# Rows or columns of which the whole product, so each block, has only one.
SINGLE = st.sampled_from([None, 2, 3])


@given(st.lists(CASTS, min_size=1, max_size=5), SINGLE)
def test_only_complete_sums_are_cast(cases, single):
  """Costing many candidates at once matches costing each; partials and f16 sums
  are not cast."""
  if single is not None:
    cases = [(*c[:single], 1, *c[single + 1 :]) for c in cases]
  vector = single is not None
  dtype = cases[0][0]
  fields = schema.Dot(F32, 0, 1, 1, 1)
  how = IPU2, fields, [dtype] * 2

  def taken(block, whole):
    hints = DotHints(vector=vector, stored=dtype, whole=whole)
    return DOT.cycles(*how, [dtype], block, hints)

  blocks = np.array([c[1:5] for c in cases], float).T
  whole = np.array([c[5] for c in cases])
  found = taken(tuple(blocks), whole).total
  for i, case in enumerate(cases):
    block = case[1:5]
    alone = taken(block, case[5]).total
    assert found[i] == alone
    kept = taken(block, False).total
    cast = MAP.cycles(IPU2, CAST, [F32], [dtype], (math.prod(block[:3]),))
    assert alone <= kept + cast.total * case[5]
    hints = DotHints(vector=vector, stored=dtype, whole=case[5])
    casts = DOT.casts(*how, block, hints)
    assert case[5] or not casts
    assert not casts or alone > kept
    same = {"f16_sums": True} if dtype is F16 else {"stored": F32}
    hints = dataclasses.replace(hints, whole=True, **same)
    assert not DOT.casts(*how, block, hints)


@pytest.mark.parametrize("tiles", [1000, 1216, 1472])
def test_dimensions_are_cut_into_divisors_of_the_number_of_tiles(tiles):
  found = cuts.candidates(tiles, 1, 100 * tiles, 1, 1, (1, 1, 1))
  divisors = {n for n in range(1, tiles + 1) if tiles % n == 0}
  assert divisors <= set(found[1].tolist())
