"""Properties of every codelet; no other code distinguishes between codelets."""

from __future__ import annotations

import ast
import importlib
import typing
from pathlib import Path

import pytest

import jaxlib.ipu
from jaxlib.ipu.codelets import CODELETS
from jaxlib.ipu.program import schema

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
    f"jaxlib.ipu.program.interp_{codelet.executor}"
  )
  assert callable(executor.execute)
  path = Path("codelets") / f"{type(codelet).__module__.split('.')[-1]}.cc"
  assert (SOURCE / path).exists(), f"no kernel in {path}"


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
