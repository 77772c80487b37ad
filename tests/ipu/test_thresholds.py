"""Constants that choose between two ways, or bound something, say on what they
rest: on a measurement, on a source, on a guess, or that they are a limit."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

_WORDS = (
  "Worth Few Fewest Least Many Most Small Smallest Large Largest Short "
  "Shortest Long Longest Enough"
).split()
_PYTHON = re.compile(
  rf"(?:_|^)(?:{'|'.join(w.upper() for w in _WORDS)})(?:_|$)"
)
_CPP = re.compile(
  r"\bconstexpr\s[\w:]+\s(?P<own>k\w+) = "
  r"|\bIPU_THRESHOLD\([\w:]+, (?P<moved>k\w+),"
)
_CPP_WORD = re.compile(rf"(?:{'|'.join(_WORDS)})(?=[A-Z0-9]|$)")
_RESTS_ON = re.compile(
  r"\bmeasured\b|\ba guess\b|\bguesses\b|\ba limit\b|\[[GDS]\]", re.IGNORECASE
)


def _python(text: str) -> Iterator[tuple[str, int]]:
  """The names and lines of numbers that have such a name."""
  tree = ast.parse(text)
  for node in ast.walk(tree):
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
      continue
    numbers = [n for n in ast.walk(node.value) if isinstance(n, ast.Constant)]
    if (
      not numbers
      or not all(isinstance(n.value, int | float) for n in numbers)
      or any(isinstance(n, ast.Call | ast.Dict) for n in ast.walk(node.value))
    ):
      continue
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for name in (n for t in targets for n in ast.walk(t)):
      if isinstance(name, ast.Name) and name.id.isupper():
        if _PYTHON.search(name.id):
          yield name.id, node.lineno


def _cpp(text: str) -> Iterator[tuple[str, int]]:
  for number, line in enumerate(text.splitlines(), 1):
    for found in _CPP.finditer(line.partition("//")[0]):
      name = found["own"] or found["moved"]
      if _CPP_WORD.search(name[1:]):
        yield name, number


def _comment(lines: list[str], number: int, mark: str) -> str:
  """What is said of the constant in a line: after it, and above it and the
  constants that it is grouped with."""
  said = [lines[number - 1].partition(mark)[2]]
  above = number - 2
  while above >= 0 and re.match(
    r"\s*(_?[A-Z_]+\b.* = |.*\bk\w+ = |.*IPU_THRESHOLD\(|template <)",
    lines[above],
  ):
    above -= 1
  while above >= 0 and lines[above].strip().startswith(mark):
    said.insert(0, lines[above].strip().removeprefix(mark))
    above -= 1
  return " ".join(" ".join(said).split())


def bare(text: str, python: bool) -> list[str]:
  """The constants of a file that do not say on what they rest."""
  lines = text.splitlines()
  find, mark = (_python, "#") if python else (_cpp, "//")
  return [
    name
    for name, number in find(text)
    if not _RESTS_ON.search(_comment(lines, number, mark))
  ]


def _files() -> list[Path]:
  root = Path(__file__).parents[2]
  return [
    path
    for folder in ("jax", "jaxlib", "jax_plugins")
    for path in sorted((root / folder).rglob("*"))
    if path.suffix in (".py", ".h", ".cc")
    and not path.stem.endswith("_test")
    and path.name not in ("testing.h", "validate_for_tests.h")
  ]


def test_thresholds_say_on_what_they_rest():
  files = _files()
  assert len(files) > 300
  found = {
    f"{path}: {name}"
    for path in files
    for name in bare(path.read_text(), path.suffix == ".py")
  }
  assert not found


@pytest.mark.parametrize(
  ("text", "python", "expected"),
  [
    ("_FEW = 3\n", True, ["_FEW"]),
    ("# Rows are short.\n_SHORT_ROW = 16\n", True, ["_SHORT_ROW"]),
    ("# Short rows; a guess.\n_SHORT_ROW = 16\n", True, []),
    ("_MOST = 3  # measured: crosses at 3\n", True, []),
    ("# Both: a guess.\n_MOST_A = 3\n_LEAST_B: float = 0.5\n", True, []),
    ("_ALMOST = 3\n", True, []),
    ("constexpr int kFew = 3;\n", False, ["kFew"]),
    ("// A limit.\nconstexpr int kFewest = 3;\n", False, []),
    ("// Rows, a\n// guess.\nconstexpr int kFewRows = 3;\n", False, []),
    ("constexpr int kFew = 3;  // a limit of the format\n", False, []),
    ("IPU_THRESHOLD(int64_t, kLongRow, 4096);\n", False, ["kLongRow"]),
    ("constexpr int kAlmost = 3;\n", False, []),
  ],
)
def test_bare_constants_are_found(text, python, expected):
  assert bare(text, python) == expected


def test_cases_name_thresholds(from_repository):
  from_repository("benchmarks.thresholds")
  compiler = from_repository("benchmarks.thresholds.compiler")
  library = from_repository("benchmarks.thresholds.library")
  for case in compiler.CASES:
    assert compiler.value(case.name) > 0
  moved = {
    f"{path.stem}.{name}"
    for path in _files()
    for name in re.findall(
      r"^\s*(?:static )?IPU_THRESHOLD\([\w:]+, (k\w+),", path.read_text(), re.M
    )
  }
  assert {case.name for case in library.CASES} <= moved


@pytest.mark.parametrize(
  ("ratios", "size"),
  [
    ([0.5, 0.5, 2, 3], 4),  # halfway between 2 and 8, by their logarithms
    ([0.5, 2, 0.5, 2], 16),
    ([0.5, 2, 2, 0.9], None),
    ([0.5, 0.6, 0.7, 0.8], None),
    ([1.5, 1.6, 1.7, 1.8], None),
    ([1, 1, 1, 1], None),
  ],
)
def test_crossing(from_repository, ratios, size):
  thresholds = from_repository("benchmarks.thresholds")
  case = thresholds.Case(
    name="passes.fuse.SMALL",
    what="elements",
    sizes=(1, 2, 8, 32),
    program=lambda n: (lambda x: x, [n]),
    small=lambda n: n,
    large=lambda n: n,
    compare=lambda case, n: (1, 1),
  )
  found = thresholds.Crossing(case=case, value=1, ratios=ratios)
  assert found.size == (None if size is None else pytest.approx(size))
