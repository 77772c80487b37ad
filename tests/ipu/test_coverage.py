"""ipu/docs/coverage.md matches the output of build/coverage.py."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

import jax

pytestmark = pytest.mark.ipu_only

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "ipu" / "docs" / "coverage.md"


@pytest.fixture
def coverage(monkeypatch: pytest.MonkeyPatch):
  monkeypatch.syspath_prepend(str(ROOT / "build"))
  return importlib.import_module("coverage")


def rows(text: str) -> dict[str, str]:
  """The rows of the tables, keyed by their first cell."""
  lines = [line for line in text.splitlines() if line.startswith("| `")]
  return {line.split("`")[1]: line for line in lines}


def test_every_operation_has_a_row(coverage):
  from jaxlib.ipu.ir.registry import REGISTRY

  page = rows(PAGE.read_text())
  for name in coverage.operations():
    definition = REGISTRY[f"stablehlo.{name}"]
    assert f"| {coverage.implemented_by(definition)} |" in page[name], (
      f"{name} is implemented differently now: run `python build/coverage.py`"
    )


@pytest.mark.skipif(
  f"JAX {jax.__version__}." not in PAGE.read_text(),
  reason="the page was written with another version of JAX",
)
@pytest.mark.parametrize(
  "name", ["add", "atan2", "custom_call", "if", "reverse", "scatter", "while"]
)
def test_rows_match_what_is_compiled(coverage, name):
  expected = rows(PAGE.read_text())[name]
  assert coverage.operation_row(name) == expected, "run build/coverage.py"


def test_rows_of_functions(coverage, monkeypatch):
  from tools import function_samples

  monkeypatch.setattr(function_samples, "MODULES", ("jax.numpy.fft",))
  head, row = function_samples.section(coverage.compile_for_ipu)
  assert head.endswith("|---|") and row.startswith("| `jax.numpy.fft` | ")
  assert "`fft`" not in row  # it compiles for every type


def test_the_page_has_the_pass_rates(coverage):
  assert PAGE.read_text().endswith("\n".join(coverage.pass_rates()) + "\n")


def test_pass_rates_are_shown_when_there_are_some(
  coverage, monkeypatch, tmp_path
):
  monkeypatch.setattr(coverage, "PASS_RATES", tmp_path)
  assert coverage.pass_rates() == []
  for version, counted in ("1.10", {"a.py": 2000}), ("1.9", {"b.py": 1999}):
    files = {f: {"passed": 1999, "of": of} for f, of in counted.items()}
    record = tmp_path / f"jax_tests_{version}.json"
    record.write_text(json.dumps({"cases": len(version), "files": files}))
  lines = coverage.pass_rates()
  assert "`--cases=3` for JAX 1.9, `--cases=4` for JAX 1.10" in "\n".join(lines)
  assert [line for line in lines if line.startswith("|")] == [
    "| file | passed, 1.9 | of | passed, 1.10 | of |",
    "|---|---|---|---|---|",
    "| `a.py` |  |  | 1,999 | 2,000 |",
    "| `b.py` | 1,999 | 1,999 |  |  |",
    "| all | 1,999 | 1,999 | 1,999 | 2,000 |",
  ]
