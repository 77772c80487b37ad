"""Steps of tile programs: a kind of step is one class, and their text can be
read again."""

from __future__ import annotations

import ast
import dataclasses
import typing
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from lowering_kit import phases
from program_kit import double
from tile_kit import TileKit

import jax.numpy as jnp
from jax import lax
from jaxlib.ipu import fitting
from jaxlib.ipu import target as machines
from jaxlib.ipu.check import verify_exchanges
from jaxlib.ipu.check import verify_tile_program as verify
from jaxlib.ipu.diagnostics import CompileError
from jaxlib.ipu.emit.host_time import host_seconds
from jaxlib.ipu.plan import cost
from jaxlib.ipu.program import schema
from jaxlib.ipu.sram import memory
from jaxlib.ipu.tile import text, totals
from jaxlib.ipu.tile.control_flow import Repeat
from jaxlib.ipu.tile.step import Region, Step
from jaxlib.ipu.tile.walk import accesses, walk
from jaxlib.ipu.tile_passes import assembled, coalesce, equal_steps

ROOT = Path(__file__).parents[2] / "jaxlib" / "ipu"


# --- Kinds ------------------------------------------------------------------


def subclasses(kind: type) -> Iterator[type]:
  for inner in kind.__subclasses__():
    yield inner
    yield from subclasses(inner)


# The modules that ask of which kind a step is: the table of the wire format,
# its interpreter and its verifier. The printer and the parser of tile programs
# know no kind.
APART = {
  "check/interp.py",
  "check/verify.py",
  "check/verify_tables.py",
  "program/schema.py",
}
KINDS = {
  kind.__name__
  for kind in (*subclasses(Step), *typing.get_args(schema.Step))
  if kind.__module__.startswith("jaxlib.")
}


def asks_for_kinds(tree: ast.AST) -> list[int]:
  """The lines on which a kind of step, or its name as a string, is used for
  anything but to make one, as a base class, for its method or as a type."""
  fine = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.Call):
      fine.add(node.func)
      match node:  # of a base class
        case ast.Call(
          func=ast.Attribute(value=ast.Name() as base),
          args=[ast.Name(id="self"), *_],
        ):
          fine.add(base)
    if isinstance(node, ast.ClassDef):
      fine.update(node.bases)
    if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
      fine.update(ast.walk(node.annotation))
    if isinstance(node, ast.FunctionDef) and node.returns:
      fine.update(ast.walk(node.returns))
  return [
    node.lineno
    for node in ast.walk(tree)
    if node not in fine
    and (
      (isinstance(node, ast.Name) and node.id in KINDS)
      or (
        isinstance(node, ast.Attribute)
        and node.attr in KINDS
        and ast.unparse(node.value) != "ast"
      )
      or (isinstance(node, ast.Constant) and node.value in KINDS)
      or (isinstance(node, ast.alias) and node.asname and node.name in KINDS)
    )
  ]


def test_only_the_format_takes_steps_apart_by_kind():
  found = {
    str(path.relative_to(ROOT)): asks_for_kinds(ast.parse(path.read_text()))
    for path in sorted(ROOT.rglob("*.py"))
  }
  assert len(found) > 100 and len(KINDS) >= 12
  asking = {name: lines for name, lines in found.items() if lines}
  assert asking.keys() == APART, asking


@pytest.mark.parametrize(
  ("code", "asks"),
  [
    ("isinstance(s, Copy)", True),
    ("isinstance(s, execute.Execute | Copy)", True),
    ("issubclass(type(s), host.HostCopy)", True),
    ("type(s) is schema.Execute", True),
    ("match s:\n  case schema.While(): pass", True),
    ("match s:\n  case Switch(selector=n): pass", True),
    ("table = {Repeat: 1}", True),
    ("@functools.singledispatch\ndef f(s): ...\nf.register(Copy)", True),
    ("type(s).__name__ == 'Copy'", True),
    ("table = {'Execute': 'compute'}", True),
    ("kind = getattr(schema, 'Copy')", True),
    ("from jaxlib.ipu.tile.copy import Copy as C\nisinstance(s, C)", True),
    ("s = Repeat(count=1)", False),
    ("class Copy(Step): ...", False),
    ("def f(s: schema.Execute) -> Copy: ...", False),
  ],
)
def test_questions_for_a_kind_are_found(code, asks):
  assert bool(asks_for_kinds(ast.parse(code))) == asks


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class Wait(Step):
  """A new kind of step, which says nothing of itself."""

  cycles: int


def test_a_new_kind_of_step_needs_no_other_change():
  kit = TileKit(tiles=2)
  a, b = kit.tensor((8,)), kit.tensor((8,))
  kit.tensors[a].space = schema.ARGUMENT
  price = cost.Sourced(7.0, 0.0, 0.0, 0.0, 0.0)
  wait = Wait(location=0, cycles=7, own=price)
  written = text.program_text(
    kit.program(
      [
        kit.execute(double(), (8,), [a], [b]),
        Repeat(location=0, count=3, body=Region([wait])),
      ],
      results=[b],
    )
  )
  assert "  Wait(location=0, own=Sourced(compute_cycles=7.0" in written
  program = text.parse(written, kit.target)
  assert text.program_text(program) == written
  steps, tensors = program.steps, program.tensors
  assert [type(s).__name__ for s in walk(steps)] == [
    "Execute",
    "Repeat",
    "Wait",
  ]
  assert totals.totals(kit.target, steps, tensors).cycles == 21
  assert host_seconds(kit.target, steps, tensors) > 0
  lists = (
    fitting._LOWERED,
    fitting._STORED,
    fitting._PACKED,
    fitting._PLACED,
  )
  passes = [run for passes in lists for run in passes.values()]
  assert len(passes) >= 7
  for run in passes:
    run(program)
    for check in (verify, assembled, coalesce, verify_exchanges):
      check.verify(program)
  assert steps[1].time > steps[0].time
  assert memory.tile_code(program).total.max() > 0
  with pytest.raises(CompileError, match="a Wait cannot be emitted"):
    steps[1].record(kit.target, lambda layout: 0)  # an engine has to know it


# --- Equality ---------------------------------------------------------------


# What makes steps different: they cannot share a function's code. A new field
# is put here, or in `equal_steps._BESIDE`.
COMPARED = """
moves word_price
fields shape partition operands results epilogue
tensor to_device source destination index target attributes aliases
count body condition predicate selector branches function inside
kind reduction groups sources feed valid rare
""".split()


def test_each_field_is_compared_or_is_not():
  fields = {
    field.name
    for kind in (Step, *subclasses(Step))
    if kind.__module__.startswith("jaxlib.")
    for field in dataclasses.fields(kind)
  }
  assert not equal_steps._BESIDE & {*COMPARED}
  assert fields == equal_steps._BESIDE | {*COMPARED}


# --- Text -------------------------------------------------------------------


def control_flow(x):
  def inner(i, v):
    return lax.cond(v[0, 0] > i, lambda: v @ v.T @ v, lambda: jnp.sin(v))

  x = lax.fori_loop(0, 5, inner, x)
  return lax.while_loop(lambda v: v[0, 0] < 5, lambda v: v + 1, x)


PROGRAMS = {
  "control flow": control_flow,
  "sort": lambda x: jnp.sort(x)[:, ::-1],
  "indices": lambda x: x.at[jnp.argmax(x, 1)].add(1.0),
  "reduction": lambda x: jnp.cumsum(x, 1) / x.sum(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_text_of_a_program_can_be_read_again(name):
  state = phases(PROGRAMS[name], [np.ones((6, 4), np.float32)], 8)
  assert state.tiles is not None
  written = text.program_text(state.tiles)
  program = text.parse(written, state.tiles.target)
  assert text.program_text(program) == written
  assert [*accesses(program.steps)] == [*accesses(state.tiles.steps)]
  before, after = (
    totals.totals(p.target, p.steps, p.tensors) for p in (state.tiles, program)
  )
  assert before == after


@pytest.mark.parametrize(
  ("wrong", "message"),
  [
    ("", "expected the program's ProgramFields"),
    ("t0 = 1", "line 1: expected the program's ProgramFields"),
    (
      "ProgramFields()\nt1 = ProgramFields()",
      r"line 2: expected a step, or `t0 = TensorInfo",
    ),
    (
      "ProgramFields()\nNo(location=0)",
      "line 2: expected a literal or a constructor",
    ),
    (
      "ProgramFields()\nCopy(location=0, to=1)",
      "expected fields of a Copy .*'to'",
    ),
    (
      "ProgramFields()\nMove(1, 0, [], 0, 0, [], [])",
      "line 2: expected a Step",
    ),
    ("__import__('os')", "line 1: expected a literal or a constructor"),
    ("Copy(", "was never closed"),
  ],
)
def test_text_that_is_wrong(wrong, message):
  with pytest.raises(SyntaxError, match=message):
    text.parse(wrong, machines.resolve("ipu2", 2))
