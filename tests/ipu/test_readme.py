"""What the README repeats of the code is what the code says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from jaxlib.ipu import flags, pipeline

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_table_of_flags():
  table = re.search(
    r"<!-- flags: .* -->\n(.*)<!-- flags end -->", README, re.DOTALL
  )
  assert table and table[1] == flags.markdown(), (
    "README.md: paste the output of jaxlib.ipu.flags.markdown() between the "
    "two comments that name it"
  )


def test_every_compiler_option_is_named():
  named = set(re.findall(r"[`\"](ipu_\w+)[`\"]", README))
  assert named == set(pipeline._COMPILER_OPTIONS)


def test_the_minimal_example():
  """The README shows the example's code without its docstring."""
  code = (ROOT / "ipu" / "examples" / "minimal.py").read_text()
  docstring = ast.get_docstring(ast.parse(code), clean=False)
  body = code.removeprefix(f'"""{docstring}"""\n\n')
  assert f"```python\n{body}```" in README


def test_links_lead_somewhere():
  links = re.findall(r"\]\(([^)#:]+)\)", README)
  missing = [link for link in links if not (ROOT / link).exists()]
  assert links and not missing
