"""Properties of every codelet; no other code distinguishes between codelets."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import typing
from pathlib import Path

import numpy as np
import pytest

import jaxlib.ipu
from jaxlib.ipu import target as machines
from jaxlib.ipu.codelets import CODELETS
from jaxlib.ipu.codelets._codelet import Cell
from jaxlib.ipu.codelets._hints import Hints
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.layout import grid
from jaxlib.ipu.plan import cost
from jaxlib.ipu.program import schema

F32 = DType.F32
RECORDS = typing.get_args(schema.Fields)
NAMES = {record.__name__ for record in RECORDS}
ROOT = Path(jaxlib.ipu.__file__).parent.resolve()
# Wheels contain no C++.
SOURCE = Path(__file__).parents[2] / "jaxlib" / "ipu"
FILES = sorted(p.relative_to(ROOT) for p in ROOT.rglob("*.py"))


def test_every_record_has_a_codelet():
  assert set(CODELETS) == set(RECORDS)


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.__name__)
def test_every_codelet_is_whole(record):
  codelet = CODELETS[record]
  fields, rank = codelet.example()
  assert type(fields) is record and rank > 0
  executor = importlib.import_module(
    f"jaxlib.ipu.check.interp_{codelet.executor}"
  )
  assert callable(executor.execute)
  path = Path("codelets") / f"{type(codelet).__module__.split('.')[-1]}.cc"
  assert (SOURCE / path).exists(), f"no kernel in {path}"


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.__name__)
def test_cycles_take_the_hints_of_their_codelet(record):
  codelet = CODELETS[record]
  given = typing.get_type_hints(type(codelet).cycles)["hints"]
  assert given is codelet.hints
  hints = codelet.hints()
  with pytest.raises(dataclasses.FrozenInstanceError):
    hints.scalars = (0,)
  with pytest.raises(TypeError, match="part"):
    codelet.hints(part=2)


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.__name__)
def test_hints_of_another_codelet_are_an_error(record):
  fields, rank = CODELETS[record].example()
  shape = (4,) * rank
  one = grid(shape, (1,) * rank)
  target = machines.resolve("ipu2")

  def price(hints: Hints) -> None:
    cost.compute_set(target, fields, shape, one, [F32, F32], [F32], hints)

  own = CODELETS[record].hints
  price(own())
  for other in {c.hints for c in CODELETS.values()} - {own}:
    with pytest.raises(TypeError, match=f"{record.__name__} takes"):
      price(other())


# Of codelets with independent dimensions: those along which each operand of the
# example varies.
VARIES = {
  schema.Map: [(0, 1), (1,)],
  schema.Reduce: [(0, 1)],
  schema.Dot: [(0, 1, 3), (0, 2, 3)],
  schema.Scan: [(0, 1), (0,)],
}


def number_of_independent_dimensions(record) -> int:
  fields, rank = CODELETS[record].example()
  return fields.num_independent(rank)


def test_all_codelets_with_independent_dimensions_are_known():
  found = {r for r in RECORDS if number_of_independent_dimensions(r)}
  assert found == set(VARIES)


def cut_results(record, d: int) -> tuple[list, list]:
  """Results of an example: of three of the indices along dimension d, computed
  on their own, and of all indices."""
  codelet = CODELETS[record]
  fields, rank = codelet.example()
  shape = (4, 5, 6, 7)[:rank]
  rng = np.random.default_rng(d)
  operands = [
    rng.integers(-9, 9, [n if i in dims else 1 for i, n in enumerate(shape)])
    for dims in VARIES[record]
  ]
  operands = [o.astype(np.float32) for o in operands]
  some = slice(1, 4)

  def part(array):
    index = [slice(None)] * array.ndim
    if d < array.ndim and array.shape[d] > 1:
      index[d] = some
    return array[tuple(index)]

  cell = Cell.whole(shape)
  coordinates = [part(c) if i == d else c
                 for i, c in enumerate(cell.coordinates)]  # fmt: skip
  alone = codelet.vertex(
    fields, Cell(shape, tuple(coordinates)), [part(o) for o in operands]
  )
  return alone, [part(r) for r in codelet.vertex(fields, cell, operands)]


@pytest.mark.parametrize(
  "record, d",
  [
    (r, d)
    for r in VARIES
    for d in range(number_of_independent_dimensions(r))
  ],
  ids=str,
)  # fmt: skip
def test_independent_dimensions_can_be_cut(record, d):
  for alone, cut in zip(*cut_results(record, d), strict=True):
    np.testing.assert_array_equal(alone, cut)


@pytest.mark.parametrize("record", [schema.Reduce, schema.Dot, schema.Scan])
def test_the_next_dimension_cannot_be_cut(record):
  d = number_of_independent_dimensions(record)
  ((alone,), (cut,)) = cut_results(record, d)
  assert not np.array_equal(alone, cut)


def asked(tree: ast.AST) -> set[str]:
  """The codelet records that a file mentions."""
  found = set()
  for node in ast.walk(tree):
    where: list[ast.AST] = []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
      where = node.args[1:] if node.func.id == "isinstance" else []
    elif isinstance(node, ast.MatchClass):
      where = [node.cls]
    elif isinstance(node, ast.Compare):
      where = [c for c in node.comparators if isinstance(c, ast.Attribute)]
    for n in (n for w in where for n in ast.walk(w)):
      name = getattr(n, "attr", getattr(n, "id", None))
      if name in NAMES:
        found.add(name)
  return found


@pytest.mark.parametrize("path", FILES, ids=str)
def test_there_is_no_switch_over_codelets(path):
  found = asked(ast.parse((ROOT / path).read_text()))
  assert not found, f"{path} asks for {found}: let the codelets answer"


def test_a_switch_over_codelets_is_found():
  for code in (
    "isinstance(f, schema.Map | schema.Dot)",
    "type(f) is schema.Map",
    "match f:\n  case schema.Map():\n    pass",
  ):
    assert "Map" in asked(ast.parse(code)), code
