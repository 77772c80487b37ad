"""Addresses in the SRAM of tiles: nothing overlaps, little is lost to gaps, and
what has no address does not fit."""

from __future__ import annotations

import dataclasses
import random
import re

import hypothesis.strategies as st
import ipu_test_util as util
import lowering_kit
import numpy as np
import pytest
from hypothesis import given

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu import pipeline
from jaxlib.ipu import target as machines
from jaxlib.ipu.lower import addresses, allocate, verify_addresses
from jaxlib.ipu.lower.addresses import assign
from jaxlib.ipu.lower.first_fit import place
from jaxlib.ipu.lower.shares import Shares
from jaxlib.ipu.lower.units import Unit
from jaxlib.ipu.lower.verify_addresses import InvalidAddresses, verify
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target

pytestmark = pytest.mark.ipu_only

END = 60


@st.composite
def intervals(draw):
  """Of one unit: closed, ascending, ending at odd times as units do."""
  times = draw(
    st.lists(st.integers(0, END // 2), min_size=1, max_size=4, unique=True)
  )
  times.sort()
  found = [(2 * t, 2 * u - 1) for t, u in zip(times, times[1:], strict=False)]
  return found[::2] or [(2 * times[0], 2 * times[0] + 1)]


def at_once(units: list[Unit], sizes: list[int]) -> int:
  """Bytes at the fullest moment."""
  there = np.zeros(END + 3, np.int64)
  for unit, size in zip(units, sizes, strict=True):
    for begin, end in unit.intervals:
      there[begin : end + 1] += size
  return int(there.max())


def require_apart(
  units: list[Unit], sizes: list[int], found: list[int]
) -> None:
  """No byte is taken twice at any time."""
  for i, a in enumerate(units):
    for j, b in enumerate(units[:i]):
      if any(x <= w and v <= y for x, y in a.intervals for v, w in b.intervals):
        apart = found[i] + sizes[i] <= found[j] or (
          found[j] + sizes[j] <= found[i]
        )
        assert apart or not sizes[i] or not sizes[j], (i, j)


@given(
  st.lists(
    st.tuples(intervals(), st.sampled_from([0, 4, 8, 16, 24, 104])),
    max_size=14,
  ),
  st.sampled_from([0, 24]),
  st.integers(0, 15),
)
def test_nothing_overlaps_in_space_and_time(drawn, base, count):
  """However many are placed by their size, the others by their birth."""
  units = [Unit([], i, 0) for i, _ in drawn]
  sizes = [size for _, size in drawn]
  lives = [i for i, _ in drawn]
  steps = [16 if size % 16 == 0 else 8 if size > 4 else 4 for size in sizes]
  for weights in (sizes, [len(i) for i in lives]):
    found = place(lives, sizes, steps, base, count, weights)
    assert found == place(lives, sizes, steps, base, count, weights)
    require_apart(units, sizes, found)
    for address, size, step in zip(found, sizes, steps, strict=True):
      assert address >= base
      assert address % step == 0 or not size
    top = max(map(sum, zip(found, sizes, strict=True)), default=base)
    assert top >= base + at_once(units, sizes)
    # Around what has its place.
    half = len(lives) // 2
    taken = [
      (found[i], found[i] + sizes[i], lives[i]) for i in range(half) if sizes[i]
    ]
    rest = slice(half, None)
    found[rest] = place(
      lives[rest], sizes[rest], steps[rest], base, count, weights[rest], taken
    )
    require_apart(units, sizes, found)


def is_wide(unit: Unit) -> bool:
  """All that loads of 128 bits may read has to be interleaved."""
  return unit.wide


def machine(code: int, data: int, tiles: int = 1) -> Target:
  """Its first `code` bytes can hold code, the next are interleaved."""
  return Target(
    version="small",
    num_tiles=tiles,
    bytes_per_tile=code + data,
    executable_bytes=code,
    clock_hz=1e9,
  )


@given(st.data())
def test_each_tile_has_room_for_its_share(data):
  tiles = data.draw(st.integers(1, 6), "tiles")
  target = machine(data.draw(st.sampled_from([80, 320, 1600])), 320, tiles)
  rows = st.lists(
    st.integers(0, 40).map(lambda n: 4 * n), min_size=tiles, max_size=tiles
  ).map(lambda row: np.array(row, np.int64))
  shares = Shares([], tiles)
  units = [
    Unit([], i, shares.of(row), wide)
    for i, row, wide in data.draw(
      st.lists(st.tuples(intervals(), rows, st.booleans()), max_size=10),
      "units",
    )
  ]
  code = data.draw(rows, "code")
  peaks = shares.peaks((u.share, u.intervals) for u in units) + code
  found = assign(target, units, is_wide, shares, code, peaks, END)
  assert sum(g.tiles.astype(int) for g in found.groups).tolist() == [1] * tiles
  assert {id(u) for u in found.units} == {id(u) for u in units}
  for group in found.groups:
    require_apart(found.units, group.sizes, group.addresses)
    for tile in np.flatnonzero(group.tiles):
      assert group.needed >= peaks[tile]
      for unit, size in zip(found.units, group.sizes, strict=True):
        assert size >= shares.row(unit.share)[tile]
    most = code[group.tiles].max()
    assert group.code == most
    pieces = zip(found.units, group.addresses, group.sizes, strict=True)
    fits = group.needed <= target.bytes_per_tile
    for unit, address, size in pieces:
      if not size:
        continue
      assert address >= most
      assert address + size <= (target.bytes_per_tile if fits else group.needed)
      if unit.wide:
        assert address % 16 == 0
        assert not fits or address >= target.executable_bytes


def test_tiles_that_hold_different_things_have_different_addresses():
  """As if there were one kind of tile, both would need the sum."""
  shares = Shares([], 4)
  halves = [np.array(row) for row in ([800, 800, 0, 0], [0, 0, 800, 800])]
  units = [Unit([], [(0, 9)], shares.of(row)) for row in halves]
  target = machine(10_000, 0, 4)
  found = assign(
    target, units, is_wide, shares, np.zeros(4, np.int64), halves[0], END
  )
  assert [g.needed for g in found.groups] == [800, 800]


@pytest.mark.parametrize("always", [False, True])
def test_weights_are_interleaved(always):
  """Below all else if there is room, otherwise from the last byte down."""

  def found(data: int, plain: int, size: int = 40):
    shares = Shares([], 1)
    end = END if always else 9
    units = [
      Unit([], [(0, end)], shares.of(np.array([n])), wide)
      for n, wide in ((plain, False), (96, True), (48, True))
    ]
    code, peaks = np.array([size]), np.array([size + plain + 144])
    plan = assign(machine(800, data), units, is_wide, shares, code, peaks, END)
    (group,) = plan.groups
    where = zip(plan.units, group.addresses, strict=True)
    return group, sorted((a, u.wide) for u, a in where)

  group, where = found(400, 208)
  assert group.needed == 48 + 208 + 144
  assert min(where)[0] == 800
  group, where = found(400, 800)
  assert where == [(48, False), (1056, True), (1104, True)]
  assert group.needed == 48 + 800 + 144 and not group.crowded
  # What is no data goes beyond the first region.
  group, where = found(600, 208, 1000)
  assert where[0][0] == 1008 and group.needed == 1008 + 208 + 144
  # All bytes would do, but too few of them are interleaved.
  group, where = found(128, 608)
  assert group.crowded and group.needed > 928
  assert min(where)[0] == 48


def test_no_more_groups_than_a_few():
  tiles = 64
  shares = Shares([], tiles)
  units = [
    Unit([], [(0, 9)], shares.of(row)) for row in 80 * np.eye(tiles, dtype=int)
  ]
  peaks = np.full(tiles, 80)
  target = machine(10_000, 0, tiles)
  found = assign(
    target, units, is_wide, shares, np.zeros(tiles, np.int64), peaks, END
  )
  assert len(found.groups) < 10
  assert sum(g.tiles.astype(int) for g in found.groups).tolist() == [1] * tiles


# --- Of programs ------------------------------------------------------------


def strings(seed: int, count: int = 14):
  """A program of pieces of several lengths, which come and go."""
  rng = random.Random(seed)
  plan = [
    [
      (rng.randint(1, 6), rng.choice((300, 500, 700, 1100, 1300)))
      for _ in range(rng.randint(1, 2))
    ]
    for _ in range(count)
  ]

  def f(x):
    values = [x[:1000], x[500:2200]]
    for pieces in plan:
      parts = [
        jnp.resize(values[-min(back, len(values))], (n,))[::-1]
        for back, n in pieces
      ]
      values.append(jnp.cumsum(jnp.concatenate(parts)))
    return values[-1], values[-3], values[-5]

  return f


def step(params, x):
  def loss(params):
    y = x
    for w in params:
      y = jnp.tanh(y @ w)
    return (y * y).mean()

  gradients = jax.grad(loss)(params)
  return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)


PLAIN = "ipu peak tile bytes"
WHOLE = "ipu peak tile bytes with gaps"


@pytest.mark.parametrize("seed", range(6))
def test_drawn_programs_lose_little_to_gaps(ipu, seed):
  x = np.ones(3000, np.float32)
  first, again = (
    util.costs(ipu, strings(seed), x, ipu_num_tiles=1) for _ in range(2)
  )
  assert first == again
  assert first[PLAIN] <= first[WHOLE] < 1.15 * first[PLAIN]


@pytest.mark.parametrize("tiles", [1, 7, 1472])
def test_figures_of_a_tile_agree(ipu, tiles):
  args = [np.ones((64, 64), np.float32)] * 6, np.ones((32, 64), np.float32)
  found = util.costs(ipu, step, *args, ipu_num_tiles=tiles)
  always = found["ipu always live tile bytes"]
  assert always + found["ipu not always live tile bytes"] == found[PLAIN]
  lent = max(64 * 64 * 4 * 6 / tiles, 1)
  assert lent < always < found[PLAIN] <= found[WHOLE] < 1.1 * found[PLAIN]


@pytest.mark.parametrize("f", [
  lambda c: c[::-1],
  lambda c: c.T,
  lambda c: jnp.roll(c, 1, 0).T,
], ids=["reverse", "transpose", "roll"])  # fmt: skip
@pytest.mark.parametrize("loop", [
  lambda f, x: lax.fori_loop(0, 5, lambda i, c: f(c), x),
  lambda f, x: lax.while_loop(lambda c: c[0, 1] < 9, lambda c: f(c) + 1, x),
  lambda f, x: lax.scan(lambda c, _: (f(c), c[0]), x, None, 3),
  lambda f, x: lax.fori_loop(0, 3, lambda i, c: (f(c[1]), c[0]), (x, x)),
], ids=["fori", "while", "scan", "swap"])  # fmt: skip
def test_what_a_loop_permutes_has_a_buffer(check, ipu, loop, f):
  """No exchange writes where it has yet to read."""
  x = util.sample(np.float32, (120, 120))
  check(lambda x: loop(f, x), x, exact=True)
  found = util.costs(ipu, lambda x: loop(f, x), x, ipu_num_tiles=1)
  # The argument, what is carried, and the buffer.
  assert 3 * 4 * x.size < found[PLAIN] <= found[WHOLE]


def test_large_programs_lose_little_to_gaps(ipu):
  """Those of which only the largest tensors are placed by size."""
  args = [np.ones((256, 256), np.float32)] * 40, np.ones((256, 256), np.float32)
  found = util.costs(ipu, step, *args)
  assert found[PLAIN] <= found[WHOLE] < 1.15 * found[PLAIN]


def test_what_fits_but_for_gaps_is_refused(ipu, monkeypatch, tmp_path):
  """All tensors would fit, could they be moved about while others stay."""
  x = np.ones(3000, np.float32)
  f = strings(3)
  found = util.costs(ipu, f, x, ipu_num_tiles=1)
  limit = int(found[PLAIN]) + 8
  tight = tight_machine(tmp_path, bytes_per_tile=limit)
  with monkeypatch.context() as patch:
    patch.setattr(pipeline, "active", lambda: tight)
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
      util.costs(ipu, f, x)
  message = str(caught.value)
  assert message.startswith("RESOURCE_EXHAUSTED: out of memory"), message
  (needed,) = re.findall(r"tile 0 needs ([\d,]+) bytes", message)
  needed = int(needed.replace(",", ""))
  assert limit < needed <= found[WHOLE]
  assert f"{needed - limit:,} more than the {limit:,}" in message
  (plain,) = re.findall(
    r"Only the gaps between tensors make it too large: without them no tile "
    r"needs more than ([\d,]+) bytes",
    message,
  )
  plain = int(plain.replace(",", ""))
  assert plain <= limit
  (saved,) = re.findall(
    r"ipu_available_memory_proportion .*: up to ([\d,]+) bytes", message
  )
  assert saved == f"{needed - plain:,}"
  # With room for the gaps it is compiled.
  target = dataclasses.replace(tight.target, bytes_per_tile=needed)
  fits = lowering_kit.phases(f, [x], target).memory
  assert fits.bytes_with_gaps == needed


def tight_machine(tmp_path, **properties):
  """Flags for a machine of one tile with these properties."""
  file = tmp_path / f"{len(list(tmp_path.iterdir()))}.toml"
  file.write_text("".join(f"{k} = {v}\n" for k, v in properties.items()))
  return dataclasses.replace(
    pipeline.active(),
    version=str(file),
    num_tiles=1,
    allow_out_of_memory=False,
  )


def unlike(x):
  """Different operations, whose vertices each have code of their own."""
  return jnp.sort(jnp.cumsum(x)) + jnp.sort(x)[::-1], x @ x


TOO_MUCH = (
  r"needs ([\d,]+) bytes for the code of program jit_unlike \(exchanges .*\), "
  r"([\d,]+) more than the ([\d,]+) of"
)


def check_too_much(message: str, room: int) -> None:
  numbers = re.findall(TOO_MUCH, message)[0]
  needed, over, of = (int(n.replace(",", "")) for n in numbers)
  assert of == room and needed == room + over
  assert "jax.lax.scan" in message


def test_code_of_vertices_beyond_the_first_region_is_refused(
  ipu, monkeypatch, tmp_path
):
  tight = tight_machine(tmp_path, executable_bytes=1000)
  monkeypatch.setattr(pipeline, "active", lambda: tight)
  with pytest.raises(jax.errors.JaxRuntimeError) as caught:
    util.costs(ipu, unlike, np.ones(64, np.float32))
  message = str(caught.value)
  assert message.startswith("RESOURCE_EXHAUSTED: out of memory"), message
  check_too_much(message, 1000)


def test_unrolled_code_beyond_the_first_region_is_warned_of(caplog):
  """An IPU's program would be outlined."""
  machine = machines.resolve("ipu2", 1)
  x = np.ones(64, np.float32)
  whole = lowering_kit.phases(unlike, [x], machine).memory
  vertices = int(whole.code_parts.vertices[0])
  tight = dataclasses.replace(machine, executable_bytes=vertices)
  with caplog.at_level("WARNING", logger="jaxlib.ipu"):
    found = lowering_kit.phases(unlike, [x], tight).memory
  check_too_much(caplog.text.replace("jit__lambda", "jit_unlike"), vertices)
  assert found.code_bytes == whole.code_bytes
  assert found.peak_tile_bytes < whole.peak_tile_bytes


def weights_of(state):
  """The units that have to be interleaved, and their addresses."""
  plan = state.memory.addresses
  weights = state.builder.interleaved()
  return [
    (unit, address)
    for unit, address in zip(plan.units, plan.fullest.addresses, strict=True)
    if not weights.isdisjoint(unit.tensors)
  ]


def test_what_the_matrix_unit_loads_is_interleaved():
  """Only it, and only where loads are of 128 bits."""

  def f(x, w, v):
    return jnp.tanh(x @ w).sum(0) * v

  args = [
    jax.ShapeDtypeStruct(s, np.float32) for s in ((256, 64), (64, 64), (64,))
  ]
  state = lowering_kit.phases(f, args, 1)
  ((unit, address),) = weights_of(state)
  assert unit.tensors == [state.arguments[1]]
  assert address >= 208 * 1024
  old = lowering_kit.machines.resolve("ipu1", 1)
  assert not weights_of(lowering_kit.phases(f, args, old))


def test_where_too_little_is_interleaved_loads_are_of_64_bits():
  """The program is slower and fits."""

  def f(x, w):
    return x @ w

  args = [jax.ShapeDtypeStruct(s, np.float32) for s in ((512, 64), (64, 64))]
  wide = lowering_kit.phases(f, args, 1)
  machine = lowering_kit.machines.resolve("ipu2", 1)
  few = dataclasses.replace(
    machine, executable_bytes=machine.bytes_per_tile - 8192
  )
  narrow = lowering_kit.phases(f, args, few)
  assert weights_of(wide) and not weights_of(narrow)
  before, after = (
    next(v.value for v in s.program.cost_analysis if v.name == "ipu cycles")
    for s in (wide, narrow)
  )
  assert before < after


def test_reports_list_addresses(ipu, tmp_path):
  def f(x):
    return jnp.sort(x) * 2

  x = jax.device_put(np.ones(3000, np.float32), ipu)
  options = {"ipu_num_tiles": 2, "ipu_dump_to": str(tmp_path)}
  compiled = jax.jit(f, compiler_options=options).lower(x).compile()
  (dump,) = tmp_path.glob("*allocate.txt")
  text = dump.read_text()
  whole = int(compiled.cost_analysis()[WHOLE])
  assert f"With the gaps between tensors it is {whole:,} bytes." in text
  lines = re.findall(r"(0x[0-9a-f]+) ([\d,]+) bytes at [-\d ]+: (.*)", text)
  ends = [int(a, 16) + int(n.replace(",", "")) for a, n, _ in lines]
  assert max(ends) == whole
  assert re.search(r"0x00000 [\d,]+ bytes always: code", text)
  assert any(what.startswith("argument x f32[3000]") for *_, what in lines)
  assert any(what.startswith("buffers of a Sort") for *_, what in lines)


# --- What is one place ------------------------------------------------------


def places(f, *shapes, donate=()):
  """The tensors of each unit, as (space, address) of their storage."""
  arguments = [jax.ShapeDtypeStruct(s, np.float32) for s in shapes]
  lowered = jax.jit(f, donate_argnums=donate, keep_unused=True).trace(
    *arguments
  )
  code = lowering_kit.lowered_code(lowered.lower(lowering_platforms=("ipu",)))
  target = lowering_kit.machines.resolve("ipu2", 16)
  options = pipeline.Options(target=target, verify=True)
  state = pipeline.compile_module(code, options)
  return state, [u.tensors for u in state.memory.addresses.units]


def test_donated_state_stays_where_it_is():
  def f(w, x):
    return w - 0.1 * jnp.outer(x, x), x.sum()

  for donate in ((), (0,)):
    state, found = places(f, (64, 64), (64,), donate=donate)
    (unit,) = [u for u in found if state.arguments[0] in u]
    assert (state.results[0] in unit) == bool(donate)


def test_what_a_loop_carries_stays_where_it_is():
  def f(x):
    return lax.fori_loop(0, 9, lambda _, x: jnp.sort(x) - x, x)

  state, found = places(f, (640,), donate=(0,))
  assert any({state.arguments[0], state.results[0]} <= {*u} for u in found)


def test_element_wise_results_replace_operands():
  def f(x):
    return jnp.sort(jnp.sin(jnp.sort(x)))

  state, found = places(f, (640,))
  assert any(len(u) > 1 for u in found), found


# --- The verifier -----------------------------------------------------------


@pytest.fixture(scope="module")
def compiled():
  x = jax.ShapeDtypeStruct((640, 3), np.float32)
  return lowering_kit.phases(lambda x: (jnp.sort(x, 0) @ x.T).sum(0), [x], 5)


def changed(state, change):
  """The state's memory plan with other addresses."""
  memory = state.memory
  plan = memory.addresses
  groups = [
    dataclasses.replace(g, addresses=list(g.addresses)) for g in plan.groups
  ]
  plan = dataclasses.replace(plan, groups=groups, units=list(plan.units))
  change(plan)
  return dataclasses.replace(memory, addresses=plan)


def test_addresses_that_are_right_pass(compiled):
  verify(compiled.builder, changed(compiled, lambda plan: None))


def test_one_address_for_two_is_found(compiled):
  def collide(plan):
    (group,) = plan.groups
    there = [i for i, u in enumerate(plan.units) if u.tensors]
    first, second = (
      (i, j)
      for i in there
      for j in there
      if i < j
      and group.sizes[i] and group.sizes[j]
      and allocate.overlap(plan.units[i].intervals, plan.units[j].intervals)
    ).__next__()  # fmt: skip
    group.addresses[second] = group.addresses[first]

  with pytest.raises(InvalidAddresses, match="overlaps"):
    verify(compiled.builder, changed(compiled, collide))


def test_code_is_not_overwritten(compiled):
  def lower(plan):
    plain = [i for i, u in enumerate(plan.units) if not u.wide]
    plan.groups[0].addresses[plain[0]] = 0

  with pytest.raises(InvalidAddresses, match="overlaps"):
    verify(compiled.builder, changed(compiled, lower))


@pytest.mark.parametrize(
  "by,words", [(2, "aligned"), (1 << 20, "beyond"), (None, "no address")]
)
def test_other_mistakes_are_found(compiled, by, words):
  def mistake(plan):
    (group,) = plan.groups
    if by is None:
      plan.units.pop()
      group.addresses.pop()
    else:
      i = int(np.argmax(group.sizes))
      group.addresses[i] += by

  with pytest.raises(InvalidAddresses, match=words):
    verify(compiled.builder, changed(compiled, mistake))


def test_results_replace_operands_only_in_the_same_place():
  """What is read index by index until a result is written."""
  operand = (0, 4, 0, 80, "operand")
  verify_addresses._apart([operand, (5, 9, 0, 80, "result")], 0)
  verify_addresses._apart([(0, 5, 0, 80, "x"), (6, 9, 8, 88, "y")], 0)
  with pytest.raises(InvalidAddresses, match="overlaps operand"):
    verify_addresses._apart([operand, (5, 9, 8, 88, "result")], 0)


def test_copies_over_their_sources_are_found(compiled):
  """Of what a copy reads nothing is overwritten, but by itself."""
  builder = compiled.builder
  tensors = builder.tensors
  a, b = next(
    (m.source, m.destination)
    for step in builder.steps
    if isinstance(step, schema.Copy)
    for m in step.moves
    if tensors[m.source].layout.joined != tensors[m.destination].layout.joined
  )

  def pieces(address):
    found = [(0, 4, 0, 80, f"tensor {a}"), (5, 9, address, 160, f"tensor {b}")]
    return {p[4]: p for p in found}

  verify_addresses._copied(builder, pieces(80), 0)
  for address in (0, 40):
    with pytest.raises(InvalidAddresses, match="is copied over"):
      verify_addresses._copied(builder, pieces(address), 0)


def test_tiles_without_addresses_are_found(compiled):
  def drop(plan):
    plan.groups[0] = dataclasses.replace(
      plan.groups[0], tiles=plan.groups[0].tiles & (np.arange(5) != 3)
    )

  with pytest.raises(InvalidAddresses, match="tile 3 is in 0 groups"):
    verify(compiled.builder, changed(compiled, drop))


def test_the_verifier_runs_when_programs_are_verified(ipu, monkeypatch):
  """JAX_IPU_VERIFY, or the option of a compilation."""

  def broken(lives, sizes, steps, base, *_):
    return [base] * len(lives)

  monkeypatch.setattr(addresses, "place", broken)
  x = jax.device_put(np.ones(100, np.float32), ipu)
  f = jax.jit(
    lambda x: jnp.sort(x) + x[::-1], compiler_options={"ipu_verify": True}
  )
  with pytest.raises(jax.errors.JaxRuntimeError, match="InvalidAddresses"):
    f.lower(x).compile()
