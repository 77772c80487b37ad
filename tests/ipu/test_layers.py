"""Layers of the compiler import only downwards."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "jaxlib" / "ipu"

# The lowest first. A file belongs to the longest matching prefix.
LAYERS = [
  ["internals"],
  ["dtypes"],
  ["program"],
  ["location"],
  ["diagnostics"],
  ["target"],
  ["flags", "options"],
  ["host_functions"],
  ["ffi_targets"],
  ["plan.layout"],
  ["codelets"],
  ["plan"],
  ["ir"],
  ["tile"],
  ["lower"],
  ["ops"],
  ["passes"],
  [
    "program.interp",
    "program.tile_memory",
    "program.verify",
    "lower.count_moves",
    "lower.moved_runs",
    "lower.verify_exchanges",
  ],
  [
    "report.choices",
    "report.collect",
    "report.columns",
    "report.comparison",
    "report.data",
    "report.document",
    "report.folder",
    "report.insights",
    "report.memory",
    "report.notebook",
    "report.page",
    "report.steps",
    "report.terminal",
    "report.text",
    "report.write",
  ],
  ["inspection"],
  ["pipeline"],
  ["plugin"],
  ["report"],
  ["__main__"],
]
FILES = sorted(p.relative_to(ROOT) for p in ROOT.rglob("*.py"))


def module_name(path: Path) -> str:
  return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def layer(module: str) -> int:
  best = (-1, -1)
  for level, names in enumerate(LAYERS):
    for name in names:
      exact = module == name or module.startswith(name + ".")
      longer = "." in name and module.startswith(name)
      if exact or longer:
        best = max(best, (len(name), level))
  assert best[0] >= 0, f"{module} belongs to no layer"
  return best[1]


def imported(tree: ast.AST) -> set[str]:
  """The compiler modules that a file imports, at top level or within
  functions."""
  prefix = "jaxlib.ipu"
  names = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.ImportFrom) and node.module:
      if node.module == prefix:
        names.update(a.name for a in node.names)
      elif node.module.startswith(prefix + "."):
        module = node.module.removeprefix(prefix + ".")
        inner = ROOT.joinpath(*module.split("."))
        for a in node.names:
          is_module = (inner / f"{a.name}.py").exists()
          names.add(f"{module}.{a.name}" if is_module else module)
  return names


@pytest.mark.parametrize("path", FILES, ids=str)
def test_imports_go_downwards(path):
  module = module_name(path)
  if module == "__init__" or path.name == "generate_header.py":
    return  # the package itself; a build script
  tree = ast.parse((ROOT / path).read_text())
  own = layer(module)
  upwards = [m for m in imported(tree) if layer(m) > own]
  assert not upwards, f"{module} imports {upwards} from above it"


@pytest.mark.parametrize("path", FILES, ids=str)
def test_the_compiler_does_not_import_jax(path):
  tree = ast.parse((ROOT / path).read_text())
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      assert all(a.name.split(".")[0] != "jax" for a in node.names)
    if isinstance(node, ast.ImportFrom) and node.level == 0:
      assert (node.module or "").split(".")[0] != "jax"
