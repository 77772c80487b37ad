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
from jaxlib.ipu.plan import (
  combine,
  cost,
  cuts,
  matmul,
  partials,
  product_splits,
  reduction,
)
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


@given(
  st.sampled_from([F32, F16, BF16, I32, DType.BOOL, DType.I64, DType.F64]),
  st.integers(1, 5000),
  st.integers(2, 400),
)
def test_adding_partials_takes_as_long_without_sources(dtype, share, fan):
  with_sources, without = (
    partials.adding_cycles(IPU2, dtype, sourced)(share, fan).total
    for sourced in (True, False)
  )
  assert without == with_sources


@given(
  st.sampled_from([F32, F16, BF16, I32, DType.I8, DType.I64, DType.F64]),
  st.sampled_from([F32, I32, DType.F64]),
  st.tuples(*[st.integers(1, 64)] * 4),
)
def test_no_block_takes_less_than_the_least_cycles(dtype, sums, block):
  given = IPU2, schema.Dot(sums, 0), [dtype, dtype]
  least = DOT.least_cycles(*given, math.prod(block))
  assert least <= DOT.cycles(*given, [sums], block).total


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
  f32 = _dot_cycles.vertices(target, F32, F32, block).amp
  f16 = _dot_cycles.vertices(target, F16, F32, block).amp
  macs = 1200 * 512 * 512
  assert 0.7 < macs / (f32 * target.fp32_macs) <= 1
  assert 0.7 < macs / (f16 * target.fp16_macs) <= 1


# Stores what it loads.
CAST = schema.Map(word(Opcode.LOAD, RegisterType.F32), [0])
# Rows or columns of which the whole product, so each block, has only one.
SINGLE = st.sampled_from([None, 1, 2])


@given(
  st.sampled_from([F16, BF16]),
  st.tuples(st.integers(1, 3), *[st.integers(1, 200)] * 3),
  st.booleans(),
  SINGLE,
)
def test_only_complete_sums_are_cast(dtype, block, whole, single):
  """Partials and f16 sums are not cast."""
  vector = single is not None
  if single is not None:
    block = (*block[:single], 1, *block[single + 1 :])
  how = IPU2, schema.Dot(F32, 0, 1, 1, 1), [dtype] * 2
  hints = DotHints(vector=vector, stored=dtype, whole=whole)
  alone = DOT.cycles(*how, [dtype], block, hints).total
  partial = dataclasses.replace(hints, whole=False)
  kept = DOT.cycles(*how, [dtype], block, partial).total
  cast = MAP.cycles(IPU2, CAST, [F32], [dtype], (math.prod(block[:3]),))
  assert alone <= kept + cast.total * whole
  casts = DOT.casts(*how, block, hints)
  assert whole or not casts
  assert not casts or alone > kept
  same = {"f16_sums": True} if dtype is F16 else {"stored": F32}
  hints = dataclasses.replace(hints, whole=True, **same)
  assert not DOT.casts(*how, block, hints)


EXTENT = st.one_of(st.integers(1, 40), st.integers(1, 3000))
TYPES = st.sampled_from([F32, F16, BF16, I32, DType.I8, DType.F64, DType.BOOL])


@given(
  st.sampled_from([("ipu1", 64), ("ipu2", 1472), ("ipu21", 92), ("ipu2", 3)]),
  st.tuples(st.integers(1, 4), EXTENT, EXTENT, EXTENT),
  st.lists(TYPES, min_size=2, max_size=2),
  st.booleans(),
  st.sampled_from([(1.0, 1.0), (1.0, 0.125), (0.0, 1.0)]),
)
def test_plans_are_the_best_of_all_candidates(
  machine, space, types, f16_sums, charged_fractions
):
  """Lower bounds are no higher than prices, and exact for f32."""
  target = machines.resolve(*machine)
  operand, result = types
  arguments = (
    target, *space, operand, operand, result, f16_sums, charged_fractions
  )  # fmt: skip
  plan = matmul.plan.__wrapped__(*arguments)
  every = []
  cheapest = matmul._cheapest

  def price_all(candidates, price):
    _, count = candidates.first(1)
    splits, _ = candidates.first(count)
    every.append([(s, s.bytes <= candidates.room, *price(s)) for s in splits])
    assert sorted(s.number for s in splits) == list(range(count))
    assert len({s.parts for s in splits}) == count
    return cheapest(candidates, price)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(matmul, "_cheapest", price_all)
    assert matmul.plan.__wrapped__(*arguments) == plan
  for split, _, total, _ in every[0]:
    assert split.cycles <= total
    if operand is result is F32:
      assert split.cycles > 0.999999 * total
  if plan.steps == matmul.ONE and plan.fits:
    best = min(
      (total, s.number, s.parts) for s, fits, total, _ in every[0] if fits
    )
    assert (plan.cycles, plan.parts) == (best[0], best[2])
  if not any(fits for _, fits, *_ in every[0]) and plan.steps == matmul.ONE:
    assert plan.tile_bytes == min(int(s.bytes) for s, *_ in every[0])


def candidates(target, space, grains=(1, 1, 1)):
  """All splits of a product that are considered."""
  fields, hints = schema.Dot(F32, 0), DotHints(stored=F32, whole=True)
  found = product_splits.Candidates(
    target, space, grains, fields, [F32, F32], hints, (4, 4, 4, 0), (4, 4), 0.0,
    math.inf,
  )  # fmt: skip
  splits, count = found.first(1 << 14)
  assert count == len(splits)
  return {split.parts for split in splits}


def tried(tiles, extent, sizes, grain):
  """The numbers of parts of a dimension."""
  numbers = {n for n in range(1, tiles + 1) if tiles % n == 0}
  numbers |= {2**i for i in range(20)} | {3, 6, 12}
  most = min(extent, tiles)
  blocks = {math.ceil(extent / n) for n in {*numbers, most} if n <= most}
  blocks |= {size for size in sizes if size < extent}
  return {math.ceil(extent / (math.ceil(b / grain) * grain)) for b in blocks}


@pytest.mark.parametrize("tiles, space, grains", [
  (1472, (1, 512, 768, 512), (1, 1, 1)),
  (1472, (1, 512, 768, 512), (1, 4, 2)),
  (92, (3, 40, 1, 300), (1, 1, 1)),
  (60, (2, 5, 33, 7), (2, 2, 2)),
  (1, (2, 3, 4, 5), (1, 1, 1)),
], ids=str)  # fmt: skip
def test_candidates(tiles, space, grains):
  target = machines.resolve("ipu2", tiles)
  outputs, inputs = (16, 32, 48, 64, 96, 128), (8, 16, 24, 32, 40, 48, 64, 80)
  sizes = (), outputs, outputs, (*inputs, 96, 128)
  every = [
    p
    for p in itertools.product(
      *map(tried, [tiles] * 4, space, sizes, (1, *grains))
    )
    if math.prod(p) <= tiles
  ]
  expected = {
    p
    for p in every
    if len(every) <= 256 or p[3] == 1 or math.prod(p) > 0.7 * tiles
  }
  for d in (1, 2, 3):
    for p in every:
      if p[d] == 1:
        most = min(tiles // math.prod(p), space[d])
        block = math.ceil(math.ceil(space[d] / most) / grains[d - 1])
        full = math.ceil(space[d] / (block * grains[d - 1]))
        full = (*p[:d], full, *p[d + 1 :])
        if math.prod(full) > 0.7 * tiles:
          expected.add(full)
  assert candidates(target, space, grains) == expected


@pytest.mark.parametrize("tiles", [1, 60, 1472])
@given(st.integers(1, 2000), st.lists(st.integers(1, 300), max_size=3))
def test_dimensions_are_cut_into_the_smallest_blocks(tiles, parts, extents):
  found = cuts.distribute(parts, tuple(extents), tiles)
  assert math.prod(found) <= parts
  if len(extents) < 2:
    return

  def block(split):
    return math.prod(map(lambda e, p: math.ceil(e / p), extents, split))

  firsts = [n for n in tried(tiles, extents[0], (), 1) if n <= parts]
  best = min(
    (
      (n, *cuts.distribute(parts // n, tuple(extents[1:]), tiles))
      for n in firsts
    ),
    key=lambda split: (block(split), -split[0]),
  )
  assert block(found) <= block(best)


@pytest.mark.parametrize("tiles", [1000, 1216, 1472])
def test_dimensions_are_cut_into_divisors_of_the_number_of_tiles(tiles):
  found = candidates(machines.resolve("ipu2", tiles), (1, 100 * tiles, 1, 1))
  divisors = {n for n in range(1, tiles + 1) if tiles % n == 0}
  assert divisors <= {parts[1] for parts in found}
