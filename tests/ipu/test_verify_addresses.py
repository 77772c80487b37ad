"""The address verifier finds wrong addresses."""

from __future__ import annotations

import dataclasses

import lowering_kit
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jaxlib.ipu.check import verify_addresses
from jaxlib.ipu.check.verify_addresses import InvalidAddresses, verify
from jaxlib.ipu.sram import addresses
from jaxlib.ipu.tile_passes.lifetimes import overlap

pytestmark = pytest.mark.ipu_only


@pytest.fixture(scope="module")
def compiled():
  x = jax.ShapeDtypeStruct((640, 5), np.float32)  # all tiles have a column
  return lowering_kit.phases(lambda x: (jnp.sort(x, 0) @ x.T).sum(0), [x], 5)


def changed(state, change):
  """The state's memory plan with other addresses."""
  memory = state.memory
  plan = memory.addresses
  groups = [
    dataclasses.replace(g, addresses=list(g.addresses)) for g in plan.groups
  ]
  plan = dataclasses.replace(
    plan, groups=groups, allocations=list(plan.allocations)
  )
  change(plan)
  return dataclasses.replace(memory, addresses=plan)


def test_valid_addresses_pass(compiled):
  verify(compiled.builder, changed(compiled, lambda plan: None))


def test_overlapping_tensors_are_found(compiled):
  def collide(plan):
    (group,) = plan.groups
    there = [i for i, u in enumerate(plan.allocations) if u.tensors]
    first, second = (
      (i, j)
      for i in there
      for j in there
      if i < j
      and group.sizes[i] and group.sizes[j]
      and overlap(plan.allocations[i].intervals,
      plan.allocations[j].intervals)
    ).__next__()  # fmt: skip
    group.addresses[second] = group.addresses[first]

  with pytest.raises(InvalidAddresses, match="overlaps"):
    verify(compiled.builder, changed(compiled, collide))


def test_code_is_not_overwritten(compiled):
  def lower(plan):
    plain = [i for i, u in enumerate(plan.allocations) if not u.wide]
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
      plan.allocations.pop()
      group.addresses.pop()
    else:
      i = int(np.argmax(group.sizes))
      group.addresses[i] += by

  with pytest.raises(InvalidAddresses, match=words):
    verify(compiled.builder, changed(compiled, mistake))


def test_results_replace_operands_only_at_the_same_address():
  """An operand that is read element by element until a result is written."""
  operand = (0, 4, 0, 80, "operand")
  verify_addresses._apart([operand, (5, 9, 0, 80, "result")], 0)
  verify_addresses._apart([(0, 5, 0, 80, "x"), (6, 9, 8, 88, "y")], 0)
  with pytest.raises(InvalidAddresses, match="overlaps operand"):
    verify_addresses._apart([operand, (5, 9, 8, 88, "result")], 0)


def test_copies_over_their_sources_are_found(compiled):
  """The sources of a copy are not overwritten, except by the copy of
  themselves."""
  builder = compiled.builder
  tensors = builder.tensors
  a, b = next(
    (m.source, m.destination)
    for step in builder.steps
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


def test_the_verifier_runs_with_ipu_verify(ipu, monkeypatch):
  """JAX_IPU_VERIFY, or the compiler option."""

  def broken(lives, sizes, steps, base, *_):
    return [base] * len(sizes)

  monkeypatch.setattr(addresses.Lives, "place", broken)
  x = jax.device_put(np.ones(100, np.float32), ipu)
  f = jax.jit(
    lambda x: jnp.sort(x) + x[::-1], compiler_options={"ipu_verify": True}
  )
  with pytest.raises(jax.errors.JaxRuntimeError, match="InvalidAddresses"):
    f.lower(x).compile()
