"""The notebooks run, print what they show, and show plots."""

from __future__ import annotations

import json
import re
from pathlib import Path

import plugin_test_util
import pytest

EXAMPLES = Path(__file__).parents[2] / "ipu" / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))

# In a process of its own, because the kernel's threads and its warnings are
# not those of the tests.
_EXECUTE = """
import json, sys, nbclient, nbformat
notebook = nbformat.read({path!r}, as_version=4)
nbclient.NotebookClient(notebook, kernel_name="python3", timeout=250).execute()
json.dump(notebook, sys.stdout)
"""


def printed(notebook: dict) -> list[str]:
  """What each code cell writes to stdout."""
  return [
    "".join(
      "".join(output["text"])
      for output in cell["outputs"]
      if output["output_type"] == "stream" and output["name"] == "stdout"
    )
    for cell in notebook["cells"]
    if cell["cell_type"] == "code"
  ]


def plots(notebook: dict) -> int:
  return sum(
    "image/png" in output.get("data", {})
    for cell in notebook["cells"]
    for output in cell.get("outputs", [])
  )


_NUMBER = r"\d[\d,]*(?:\.\d+)?"


def numbers(text: str) -> list[float]:
  return [float(n.replace(",", "")) for n in re.findall(_NUMBER, text)]


def test_there_are_three():
  assert len(NOTEBOOKS) == 3


@pytest.mark.ipu_only
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_outputs_are_those_of_a_run(path):
  shown = json.loads(path.read_text())
  run = json.loads(plugin_test_util.output(_EXECUTE.format(path=str(path))))
  assert plots(run) == plots(shown) >= 1
  # Versions of JAX compile, and so round, some programs slightly differently.
  for ran, before in zip(printed(run), printed(shown), strict=True):
    assert re.sub(_NUMBER, "#", ran) == re.sub(_NUMBER, "#", before)
    assert numbers(ran) == pytest.approx(numbers(before), rel=0.1, abs=0.005)
