"""What the README and the pages repeat from the code is up to date."""

from __future__ import annotations

import ast
import json
import re
import textwrap
from pathlib import Path

import plugin_test_util
import pytest

import jax
from jaxlib.ipu import compiler, flags, plugin, topology
from jaxlib.ipu.emit import cost_analysis

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "ipu" / "docs"
README = (ROOT / "README.md").read_text()
COSTS = (DOCS / "costs.md").read_text()
FLAGS = (DOCS / "flags.md").read_text()
REPORTS = (DOCS / "reports.md").read_text()


def table_in(text: str, name: str) -> str:
  """What stands between the two comments that name a table."""
  found = re.search(
    rf"<!-- {name}: .* -->\n(.*)<!-- {name} end -->", text, re.DOTALL
  )
  assert found, f"no table of {name}"
  return found[1]


def test_the_table_of_flags():
  assert table_in(FLAGS, "flags") == flags.markdown(), (
    "flags.md: paste the output of jaxlib.ipu.flags.markdown() between the "
    "two comments that name it"
  )


def test_the_table_of_costs():
  rows = ["| key of `cost_analysis()` | meaning |", "|---|---|"]
  rows += [
    f"| `{key}` | {meaning} |" for key, meaning in cost_analysis.KEYS.items()
  ]
  assert table_in(COSTS, "cost").splitlines() == rows, (
    "costs.md: the table of costs is not that of emit/cost_analysis.py"
  )


def test_the_table_of_machines():
  assert table_in(COSTS, "machines") == topology.markdown(), (
    "costs.md: paste the output of jaxlib.ipu.topology.markdown() between the "
    "two comments that name it"
  )


BLOCKS = re.findall(
  r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?",
  README + COSTS + REPORTS,
  re.DOTALL,
)


@pytest.mark.ipu_only
@pytest.mark.parametrize(
  "code, output", BLOCKS, ids=[f"block{i}" for i in range(len(BLOCKS))]
)
def test_every_block_runs_by_itself_and_prints_what_is_shown(code, output):
  assert output, "show what it prints"
  printed = plugin_test_util.output(code)
  shown = output.rstrip("\n")
  hint = f"show what it prints now\n{textwrap.indent(printed, '  ')}"
  oldest = json.loads(plugin.VERSIONS.read_text())["oldest"]
  if jax.__version__.startswith(oldest):
    assert printed == shown, hint
    return
  # Other versions of JAX emit some programs slightly differently.
  texts, numbers = zip(*(_parts(text) for text in (printed, shown)))
  assert texts[0] == texts[1], hint
  assert numbers[0] == pytest.approx(numbers[1], rel=0.1), hint


def _parts(text: str) -> tuple[str, list[float]]:
  """A text without its numbers, and the numbers."""
  number = r"\d[\d,]*(?:\.\d+)?"
  found = re.findall(number, text)
  return re.sub(number, "#", text), [float(n.replace(",", "")) for n in found]


def test_length_is_limited():
  assert len(README.splitlines()) <= 200


def test_every_compiler_option_is_named():
  named = set(re.findall(r"[`\"](ipu_\w+)[`\"]", FLAGS))
  assert named == set(compiler._COMPILER_OPTIONS)


def test_the_minimal_example():
  """The README shows the example's code without its docstring."""
  code = (ROOT / "ipu" / "examples" / "minimal.py").read_text()
  docstring = ast.get_docstring(ast.parse(code), clean=False)
  body = code.removeprefix(f'"""{docstring}"""\n\n')
  assert f"```python\n{body}```" in README


@pytest.mark.parametrize(
  "page", [ROOT / "README.md", *sorted(DOCS.glob("*.md"))], ids=lambda p: p.name
)
def test_linked_files_exist(page):
  links = re.findall(r"\]\(([^)#: ]+)(?:#[^)]*)?\)", page.read_text())
  missing = [link for link in links if not (page.parent / link).exists()]
  assert not missing


def test_the_readme_links_every_page_for_users():
  """The pages that others lead to are for those who came that far."""
  inner = {"code.md", "six_programs.md"}
  pages = {page.name for page in DOCS.glob("*.md")} - inner
  assert pages <= set(re.findall(r"\]\(ipu/docs/([^)#]+)", README))


def test_the_readme_links_every_notebook():
  for notebook in (ROOT / "ipu" / "examples").glob("*.ipynb"):
    assert f"](ipu/examples/{notebook.name})" in README
