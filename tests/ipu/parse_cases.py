"""Small programs on constants and arguments, of all types, at edge values.

Folded or not, they compute what the specification says. test_parse.py runs a
sample of them; this runs those of some sweeps, or all in a few minutes:

python tests/ipu/parse_cases.py
python tests/ipu/parse_cases.py converts indices
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence

import parse_floats
import parse_indices
import parse_integers
from parse_kit import INTEGERS, Case, check, check_folds

import jax

SWEEPS: dict[str, Callable[[], Iterator[Case]]] = {
  **{
    sweep.__name__: functools.partial(sweep, INTEGERS)
    for sweep in (
      parse_integers.converts,
      parse_integers.binary_integers,
      parse_integers.unary_integers,
      parse_integers.clamps,
      parse_integers.selects,
      parse_indices.indices,
      parse_indices.loops,
    )
  },
  "floats": parse_floats.floats,
  "float_clamps": parse_floats.float_clamps,
  "float_converts": parse_floats.float_converts,
  "functions": parse_floats.functions,
}
# These have no exact values.
FOLDS = ("functions",)


def run(device: jax.Device, sweep: str, every: int = 1) -> list[str]:
  """Runs one of so many programs of a sweep; describes what is wrong."""
  cases = itertools.islice(SWEEPS[sweep](), 0, None, every)
  return (check_folds if sweep in FOLDS else check)(device, cases)


def main(argv: Sequence[str]) -> int:
  """Runs the sweeps that are named, or all; returns 1 if a program failed."""
  failed = False
  for name in argv or SWEEPS:
    wrong = run(jax.devices("ipu")[0], name)
    print(f"{name}: {len(wrong)} wrong", *wrong[:20], sep="\n  ", flush=True)
    failed |= bool(wrong)
  return int(failed)


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
