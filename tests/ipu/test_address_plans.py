"""SRAM addresses of whole programs: gaps are small, and programs whose tensors
cannot all be placed do not fit.
"""

from __future__ import annotations

import dataclasses
import random
import re

import ipu_test_util as util
import lowering_kit
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu import compiler, options, pipeline
from jaxlib.ipu import target as machines
from jaxlib.ipu.tile_passes import assembled

pytestmark = pytest.mark.ipu_only


def strings(seed: int, count: int = 14):
  """A program with tensors of several sizes and lifetimes."""
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
def test_gaps_of_random_programs_are_small(ipu, seed):
  x = np.ones(3000, np.float32)
  first, again = (
    util.costs(ipu, strings(seed), x, ipu_num_tiles=1) for _ in range(2)
  )
  assert first == again
  assert first[PLAIN] <= first[WHOLE] < 1.15 * first[PLAIN]


@pytest.mark.parametrize("tiles", [1, 7, 1472])
def test_reported_tile_bytes_are_consistent(ipu, tiles):
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
def test_permuted_loop_state_has_a_buffer(check, ipu, loop, f):
  """No exchange overwrites data that it has yet to read."""
  x = util.sample(np.float32, (120, 120))
  check(lambda x: loop(f, x), x, exact=True)
  found = util.costs(ipu, lambda x: loop(f, x), x, ipu_num_tiles=1)
  # The argument, the loop-carried value, and the buffer.
  assert 3 * 4 * x.size < found[PLAIN] <= found[WHOLE]


def test_gaps_of_large_programs_are_small(ipu):
  """Large programs, in which only the largest tensors are placed by size."""
  args = [np.ones((256, 256), np.float32)] * 40, np.ones((256, 256), np.float32)
  found = util.costs(ipu, step, *args)
  assert found[PLAIN] <= found[WHOLE] < 1.15 * found[PLAIN]


def test_programs_that_fit_only_without_gaps_are_refused(
  ipu, monkeypatch, tmp_path
):
  """All tensors would fit if live ones could be moved."""
  # On a small machine the copies would be divided, which is another plan.
  monkeypatch.setattr(assembled.Division, "divide", lambda *_: [])
  x = np.ones(3000, np.float32)
  f = strings(3)
  found = util.costs(ipu, f, x, ipu_num_tiles=1)
  limit = int(found[PLAIN]) + 8
  tight = tight_machine(tmp_path, bytes_per_tile=limit)
  with monkeypatch.context() as patch:
    patch.setattr(compiler, "active", lambda: tight)
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
  assert int(plain.replace(",", "")) <= limit
  # With room for the gaps it compiles.
  target = dataclasses.replace(tight.target, bytes_per_tile=needed)
  fits = lowering_kit.phases(f, [x], target).memory
  assert fits.bytes_with_gaps == needed


def tight_machine(tmp_path, **properties):
  """Flags for a machine of one tile with these properties."""
  file = tmp_path / f"{len(list(tmp_path.iterdir()))}.toml"
  file.write_text("".join(f"{k} = {v}\n" for k, v in properties.items()))
  return dataclasses.replace(
    options.active(),
    version=str(file),
    num_tiles=1,
    allow_out_of_memory=False,
  )


def unlike(x):
  """Different operations, whose vertices all have their own code."""
  return jnp.sort(jnp.cumsum(x)) + jnp.sort(x)[::-1], x @ x


TOO_MUCH = (
  r"tile 0 needs ([\d,]+) bytes for its code \(exchanges .*\) in program "
  r"jit_\S+, ([\d,]+) more than the ([\d,]+) of"
)


def check_too_much(message: str, room: int) -> int:
  """Returns the bytes of code."""
  numbers = re.findall(TOO_MUCH, message)[0]
  needed, over, of = (int(n.replace(",", "")) for n in numbers)
  assert of == room and needed == room + over
  return needed


@pytest.mark.parametrize("part", ["no codelet", "all codelets"])
def test_code_beyond_the_first_region_is_refused(
  ipu, monkeypatch, tmp_path, part
):
  """However much room there is for data."""
  x = np.ones(64, np.float32)
  room = 1000
  if part == "all codelets":
    whole = lowering_kit.phases(unlike, [x], 1).memory
    room = int(whole.code.vertices[0])
  tight = tight_machine(tmp_path, executable_bytes=room)
  monkeypatch.setattr(compiler, "active", lambda: tight)
  with pytest.raises(jax.errors.JaxRuntimeError) as caught:
    util.costs(ipu, unlike, x)
  message = str(caught.value)
  assert message.startswith("RESOURCE_EXHAUSTED: out of memory"), message
  check_too_much(message, room)
  for words in ("jax.lax.scan", "allowOutOfMemory", "ipu_allow_out_of_memory"):
    assert words in message
  # The lines with most of it.
  assert re.search(rf"dot_general at {re.escape(__file__)}:\d+ \(", message)


def test_figures_count_all_code(caplog):
  """A program that may exceed its region is the same, and says by how much."""
  x = np.ones(64, np.float32)
  wide = machines.resolve("ipu2", 1)
  vertices = int(lowering_kit.phases(unlike, [x], wide).memory.code.vertices[0])
  tight = dataclasses.replace(wide, executable_bytes=vertices)
  allow = {"allow_out_of_memory": True}
  with caplog.at_level("WARNING", logger="jaxlib.ipu"):
    states = [
      lowering_kit.phases(unlike, [x], m, **allow) for m in (wide, tight)
    ]
  whole, found = (
    {entry.name: entry.value for entry in state.program.cost_analysis}
    for state in states
  )
  code, limit = "ipu executable tile bytes", "ipu executable tile limit"
  assert found[code] == whole[code] > found[limit] == vertices
  for key in (PLAIN, "ipu always live tile bytes", "ipu peak tile code bytes"):
    assert found[key] == whole[key]
  assert found[WHOLE] >= found[PLAIN]
  (record,) = caplog.records
  assert check_too_much(record.getMessage(), vertices) == found[code]


def weights_of(state):
  """The allocations that have to be interleaved, and their addresses."""
  plan = state.memory.addresses
  weights = state.builder.interleaved()
  return [
    (allocation, address)
    for allocation, address in zip(
      plan.allocations, plan.fullest.addresses, strict=True
    )
    if not weights.isdisjoint(allocation.tensors)
  ]


def test_weights_that_the_matrix_unit_loads_are_interleaved():
  """Only the weights are interleaved, and only where loads are 128 bits
  wide."""

  def f(x, w, v):
    return jnp.tanh(x @ w).sum(0) * v

  args = [
    jax.ShapeDtypeStruct(s, np.float32) for s in ((256, 64), (64, 64), (64,))
  ]
  state = lowering_kit.phases(f, args, 1)
  ((allocation, address),) = weights_of(state)
  assert allocation.tensors == [state.tiles.arguments[1]]
  assert address >= 208 * 1024
  old = lowering_kit.machines.resolve("ipu1", 1)
  assert not weights_of(lowering_kit.phases(f, args, old))


def test_loads_are_64_bits_wide_if_interleaved_memory_is_full():
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
  (dump,) = tmp_path.glob("*/5_allocate.txt")
  text = dump.read_text()
  whole = int(compiled.cost_analysis()[WHOLE])
  assert f"With the gaps between tensors it is {whole:,} bytes." in text
  lines = re.findall(r"(0x[0-9a-f]+) ([\d,]+) bytes at [-\d ]+: (.*)", text)
  ends = [int(a, 16) + int(n.replace(",", "")) for a, n, _ in lines]
  assert max(ends) == whole
  assert re.search(r"0x00000 [\d,]+ bytes always: code", text)
  assert any(what.startswith("argument x f32[3000]") for *_, what in lines)
  assert any(what.startswith("buffers of a Sort") for *_, what in lines)


# --- Units -----------------------------------------------------------------


def places(f, *shapes, donate=()):
  """The tensors of each allocation group, as (space, address) of their
  storage."""
  arguments = [jax.ShapeDtypeStruct(s, np.float32) for s in shapes]
  lowered = jax.jit(f, donate_argnums=donate, keep_unused=True).trace(
    *arguments
  )
  code = lowering_kit.lowered_code(lowered.lower(lowering_platforms=("ipu",)))
  target = lowering_kit.machines.resolve("ipu2", 16)
  options = pipeline.Options(target=target, verify=True)
  state = pipeline.compile_module(code, options)
  return state, [u.tensors for u in state.memory.addresses.allocations]


def test_donated_state_is_updated_in_place():
  def f(w, x):
    return w - 0.1 * jnp.outer(x, x), x.sum()

  for donate in ((), (0,)):
    state, found = places(f, (64, 64), (64,), donate=donate)
    (allocation,) = [u for u in found if state.tiles.arguments[0] in u]
    assert (state.tiles.results[0] in allocation) == bool(donate)


def test_loop_carried_state_is_updated_in_place():
  def f(x):
    return lax.fori_loop(0, 9, lambda _, x: jnp.sort(x) - x, x)

  state, found = places(f, (640,), donate=(0,))
  assert any(
    {state.tiles.arguments[0], state.tiles.results[0]} <= {*u} for u in found
  )


def test_element_wise_results_replace_operands():
  def f(x):
    return jnp.sort(jnp.sin(jnp.sort(x)))

  state, found = places(f, (640,))
  assert any(len(u) > 1 for u in found), found
