"""The compiler's modules import only from lower layers, and never in a circle.

Imports within functions, and those for type checkers alone, count as well.
"""

from __future__ import annotations

import ast
import graphlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "jaxlib" / "ipu"

# Folders and single files of jaxlib/ipu, the lowest first.
LAYERS = """
internals dtypes library kernel program location diagnostics layout topology
target flags options host_functions feeds ffi_targets transport processes moves
codelets plan ir partition tile tile_passes lower sram emit ops passes check
reporting compilation inspection fitting pipeline progress compiler artifacts
replay clients plugin trace_file report __main__
""".split()
FILES = sorted(p.relative_to(ROOT) for p in ROOT.rglob("*.py"))


def module_name(path: Path) -> str:
  return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def imported(tree: ast.AST, modules: set[str]) -> set[str]:
  """Those of `modules` that a file imports."""
  prefix = "jaxlib.ipu"
  names = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      names.update(a.name for a in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
      for a in node.names:
        inner = f"{node.module}.{a.name}"
        is_module = inner.removeprefix(f"{prefix}.") in modules
        names.add(inner if is_module else node.module)
  return {
    name.removeprefix(f"{prefix}.")
    for name in names
    if name.startswith(f"{prefix}.")
  }


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
  """What each module imports."""
  modules = {module_name(p) for p in FILES}
  return {
    module_name(path): imported(ast.parse((ROOT / path).read_text()), modules)
    for path in FILES
    if module_name(path) != "__init__"  # the package itself
  }


def layer(module: str) -> int:
  name = module.split(".")[0]
  assert name in LAYERS, f"{module} belongs to no layer"
  return LAYERS.index(name)


def test_imports_go_downwards(imports):
  upwards = [
    f"{module} imports {other}"
    for module, others in imports.items()
    for other in others
    if layer(other) > layer(module)
  ]
  assert not upwards


def test_imports_have_no_circles(imports):
  try:
    graphlib.TopologicalSorter(imports).prepare()
  except graphlib.CycleError as e:
    pytest.fail(f"a circle of imports: {' <- '.join(e.args[1])}")


def test_all_layers_exist(imports):
  assert {module.split(".")[0] for module in imports} == set(LAYERS)


@pytest.mark.parametrize(
  "text",
  [
    "from jaxlib.ipu.ops import dot",
    "from jaxlib.ipu import ops",
    "import jaxlib.ipu.ops.dot",
    "def f():\n  from jaxlib.ipu.ops.dot import x",
    "if TYPE_CHECKING:\n  from jaxlib.ipu.ops.dot import X",
  ],
)
def test_all_forms_of_imports_are_found(text):
  found = imported(ast.parse(text), {"ops", "ops.dot"})
  assert found in ({"ops"}, {"ops.dot"})


@pytest.mark.parametrize("path", FILES, ids=str)
def test_the_compiler_does_not_import_jax(path):
  tree = ast.parse((ROOT / path).read_text())
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      assert all(a.name.split(".")[0] != "jax" for a in node.names)
    if isinstance(node, ast.ImportFrom) and node.level == 0:
      assert (node.module or "").split(".")[0] != "jax"
