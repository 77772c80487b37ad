#!/usr/bin/env python3
"""Shows whether a change of the compiler changes the programs that it makes.

python build/same_programs.py record FOLDER
python build/same_programs.py compare BEFORE AFTER
python build/same_programs.py compare BEFORE AFTER --without Cost Map.code

`record` compiles a fixed corpus with the sources around this file and writes a
digest of each field of each program to FOLDER; it needs a Python that imports
them. `compare` says how many programs are equal in two such folders, and in
which fields the others differ. It ends with 1 if any differ.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tools.command import ROOT, BuildError

# Tests that compile many programs of all kinds; some 5 minutes of CPU time.
_TESTS = (
  "test_assembled",
  "test_complex",
  "test_consumer_layouts",
  "test_control_flow",
  "test_data_movement",
  "test_rounds",
  "test_scan",
  "test_sort",
)
_DRAWN = 100  # random programs
_TESTS_FOLDER = ROOT / "tests" / "ipu"

# The digests of each program's fields, by the program's key.
Programs = dict[str, dict[str, str]]


def _six_programs() -> None:
  import jax
  from benchmarks import six_programs

  for name in six_programs.PROGRAMS:
    six_programs.figures(name, jax.devices("ipu")[0])


def _drawn_programs() -> None:
  import jax

  drawn_programs = importlib.import_module("drawn_programs")
  compare = importlib.import_module("drawn.compare")
  for number in range(_DRAWN):
    drawn = drawn_programs.drawn_at(0, number)[1]
    if drawn is None:
      continue
    options = {"ipu_num_tiles": drawn.tiles, "ipu_allow_out_of_memory": True}
    with jax.enable_x64(drawn.x64):
      try:
        jitted = jax.jit(drawn.function(), donate_argnums=drawn.donated)
        compare.run(jitted.trace(*drawn.values()), "ipu", options)
      except Exception as e:
        print(f"drawn program {number}: {type(e).__name__}", file=sys.stderr)


_PARTS = {"six_programs": _six_programs, "drawn_programs": _drawn_programs}


def _record_part(name: str, path: pathlib.Path) -> None:
  """Compiles one of `_PARTS` in this process."""
  from tools import compiled_programs

  sys.path[:0] = [str(ROOT), str(_TESTS_FOLDER)]
  with compiled_programs.Recorder() as recorder:
    _PARTS[name]()
  compiled_programs.write(recorder, path)


def _run(name: str, folder: pathlib.Path) -> None:
  """Compiles a part of the corpus in a process of its own."""
  path = folder / f"{name}.json"
  words = [sys.executable]
  if name in _PARTS:
    words += [__file__, "record", str(folder), "--part", name]
  else:
    words += ["-m", "pytest", "-q", "-p", "tools.compiled_programs"]
    words += ["-p", "no:cacheprovider", str(_TESTS_FOLDER / f"{name}.py")]
  environment = {
    **os.environ,
    "JAX_IPU_USE_MODEL": "true",
    "JAX_IPU_VERIFY": "false",
    "JAX_IPU_DIGESTS": str(path),
    "PYTHONPATH": str(ROOT / "build"),
  }
  started = time.monotonic()
  done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True)
  if not path.exists():
    output = (done.stdout + done.stderr).decode()
    raise BuildError(f"{name}: nothing recorded.\n{output[-4000:]}")
  seconds = time.monotonic() - started
  print(f"{name}: {len(_read(path))} programs, {seconds:.0f} s", flush=True)


def record(folder: pathlib.Path, jobs: int) -> None:
  """Compiles the corpus, several parts at a time."""
  folder.mkdir(parents=True, exist_ok=True)
  for path in folder.glob("*.json"):
    path.unlink()
  with ThreadPoolExecutor(jobs) as pool:
    for _ in pool.map(lambda name: _run(name, folder), [*_PARTS, *_TESTS]):
      pass


def _read(path: pathlib.Path) -> Programs:
  programs: Programs = json.loads(path.read_text(encoding="utf-8"))
  return programs


def _corpus(folder: pathlib.Path) -> Programs:
  """All programs of a folder; their keys begin with the names of the files."""
  corpus = {
    f"{path.stem}:{key}": fields
    for path in sorted(folder.glob("*.json"))
    for key, fields in _read(path).items()
  }
  if not corpus:
    raise BuildError(f"{folder}: no programs; `record` them first")
  return corpus


def compare(before: Programs, after: Programs, without: Sequence[str]) -> bool:
  """Prints how two recordings of the corpus differ, and returns whether they
  do.

  Args:
    before: a recording.
    after: another one.
    without: records, and fields of records, that are left out.
  """

  def compared(fields: dict[str, str]) -> dict[str, str]:
    return {
      name: digest
      for name, digest in fields.items()
      if not {name, name.partition(".")[0]} & set(without)
    }

  common = sorted(before.keys() & after.keys())
  differing: dict[str, list[str]] = collections.defaultdict(list)
  unequal = set()
  for key in common:
    old, new = compared(before[key]), compared(after[key])
    for field in old.keys() | new.keys():
      if old.get(field) != new.get(field):
        differing[field].append(key)
        unequal.add(key)
  print(f"{len(common) - len(unequal)} of {len(common)} programs are equal")
  for field, keys in sorted(differing.items(), key=lambda i: (-len(i[1]), i)):
    some = ", ".join(keys[:3]) + ", ..." * (len(keys) > 3)
    print(f"{field} differs in {len(keys)}: {some}")
  for name, one, other in (
    ("first", before, after),
    ("second", after, before),
  ):
    if missing := sorted(one.keys() - other.keys()):
      some = ", ".join(missing[:3]) + ", ..." * (len(missing) > 3)
      print(f"{len(missing)} only in the {name}: {some}")
  return bool(unequal) or before.keys() != after.keys()


def _parse(argv: Sequence[str]) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  commands = parser.add_subparsers(dest="command", required=True)
  recording = commands.add_parser("record", help="compile the corpus")
  recording.add_argument("folder", type=pathlib.Path)
  recording.add_argument(
    "--jobs", type=int, default=os.cpu_count(), help="processes"
  )
  recording.add_argument("--part", choices=_PARTS, help=argparse.SUPPRESS)
  comparing = commands.add_parser("compare", help="compare two recordings")
  comparing.add_argument("before", type=pathlib.Path)
  comparing.add_argument("after", type=pathlib.Path)
  comparing.add_argument(
    "--without",
    nargs="+",
    default=[],
    metavar="FIELD",
    help="records, or RECORD.FIELD, that are not compared",
  )
  return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
  """Runs the command; returns 1 if programs differ."""
  options = _parse(argv)
  if options.command == "compare":
    before, after = _corpus(options.before), _corpus(options.after)
    return int(compare(before, after, options.without))
  folder = options.folder.resolve()
  if options.part:
    _record_part(options.part, folder / f"{options.part}.json")
  else:
    record(folder, options.jobs)
  return 0


if __name__ == "__main__":
  try:
    sys.exit(main(sys.argv[1:]))
  except BuildError as error:
    sys.exit(f"same_programs.py: error: {error}")
