"""Compares the IPU backend with XLA:CPU, interleaved in one process.

  python -m benchmarks                       all workloads, as a table
  python -m benchmarks --filter 'matmul|loops'
  python -m benchmarks --json results.json --check
  python -m benchmarks --cores 1             pinned to a core, processor time
  python -m benchmarks --memory              peak memory, one process each
  python -m benchmarks --cold                first compilations of processes
  python -m benchmarks --growth              compile time of large programs
  python -m benchmarks --fidelity            rewrites model_fidelity.md and
                                             six_programs.md in ipu/docs
  python -m benchmarks --programs            six_programs.md, compile times
  python -m benchmarks --code                code.md: repeats that share code
  python -m benchmarks --pictures            those of reports.md (Chromium)
  python -m benchmarks --reports             costs of making reports and of
                                             opening their pages (Chromium)
  python -m benchmarks --thresholds          where two ways cost the same

`--platform cpu` compares XLA:CPU with itself, which shows the noise of the
machine.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):
  sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import clock, memory, workloads
from benchmarks.workload import Workload


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    prog="python -m benchmarks",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument(
    "--filter", metavar="REGEX", help="only workloads whose family/name matches"
  )
  parser.add_argument(
    "--repeat", type=int, default=21, help="samples per device (default 21)"
  )
  parser.add_argument(
    "--cores", type=int, metavar="N",
    help="pin the process to N cores; 1 measures processor time",
  )  # fmt: skip
  parser.add_argument(
    "--list", action="store_true", help="list the workloads and exit"
  )
  parser.add_argument(
    "--json", type=Path, metavar="FILE", help="write results there"
  )
  parser.add_argument(
    "--check", action="store_true", help="fail if a limit is exceeded"
  )
  parser.add_argument(
    "--memory", action="store_true", help="compare peak memory instead"
  )
  parser.add_argument(
    "--growth", action="store_true",
    help="compile programs of 1,000 to 50,000 operations instead (minutes)",
  )  # fmt: skip
  parser.add_argument(
    "--cold", action="store_true",
    help="time the first compilation of programs, one process each, instead",
  )  # fmt: skip
  parser.add_argument(
    "--fidelity", action="store_true",
    help="write the page that compares the model with measurements",
  )  # fmt: skip
  parser.add_argument(
    "--programs", action="store_true",
    help="write the page about modelled costs of six programs",
  )  # fmt: skip
  parser.add_argument(
    "--code", action="store_true",
    help="write the page about code of programs with repeats (minutes)",
  )  # fmt: skip
  parser.add_argument(
    "--pictures", action="store_true",
    help="write the pictures of reports in the documents, with Chromium",
  )  # fmt: skip
  parser.add_argument(
    "--reports", action="store_true",
    help="measure what reports and their pages take, with Chromium",
  )  # fmt: skip
  parser.add_argument(
    "--thresholds", action="store_true",
    help="compare both sides of constants that choose between two ways",
  )  # fmt: skip
  parser.add_argument(
    "--platform", default="ipu", help="platform to measure (default ipu)"
  )
  parser.add_argument(
    "--baseline", default="cpu", help="platform to compare with (default cpu)"
  )
  parser.add_argument(
    "--memory-child", nargs=2, metavar=("NAME", "PLATFORM"),
    help=argparse.SUPPRESS,
  )  # fmt: skip
  parser.add_argument(
    "--growth-child", nargs=3, metavar=("NAME", "SIZE", "PLATFORM"),
    help=argparse.SUPPRESS,
  )  # fmt: skip
  parser.add_argument(
    "--cold-child", nargs=3, metavar=("NAME", "PLATFORM", "BASELINE"),
    help=argparse.SUPPRESS,
  )  # fmt: skip
  parser.add_argument(
    "--fidelity-child", metavar="MACHINE", help=argparse.SUPPRESS
  )
  args = parser.parse_args(argv)
  if args.repeat < 1:
    parser.error(f"--repeat {args.repeat}: expected at least 1")
  try:
    re.compile(args.filter or "")
  except re.error as e:
    parser.error(f"--filter {args.filter}: invalid regular expression: {e}")
  # Fail now rather than after minutes of measuring.
  if args.json and not args.json.absolute().parent.is_dir():
    parser.error(f"--json {args.json}: its folder does not exist")
  return args


def select(pattern: str | None) -> list[Workload]:
  chosen = [
    w
    for w in workloads.all_workloads()
    if pattern is None or re.search(pattern, w.full_name)
  ]
  if not chosen:
    raise SystemExit(f"--filter {pattern!r} matches nothing; see --list")
  return chosen


def main(argv: Sequence[str] | None = None) -> int:
  args = parse(argv)
  if args.memory_child:
    memory.child(*args.memory_child)
    return 0
  if args.growth_child:
    name, size, platform = args.growth_child
    from benchmarks import growth

    growth.child(name, int(size), platform)
    return 0
  if args.cold_child:
    from benchmarks import cold

    cold.child(*args.cold_child)
    return 0
  if args.fidelity_child:
    from benchmarks import fidelity

    fidelity.child(args.fidelity_child)
    return 0
  if args.fidelity:
    return run_fidelity()
  if args.pictures:
    from benchmarks import pictures

    pictures.write(args.platform)
    return 0
  if args.programs:
    from benchmarks import six_programs

    six_programs.write(args.platform)
    print(six_programs.compile_times(args.platform))
    return 0
  if args.reports:
    return run_reports(args)
  if args.thresholds:
    from benchmarks import thresholds

    print(thresholds.table(thresholds.measure(args.filter)))
    return 0
  if args.code:
    from benchmarks import code

    print(code.run(args.filter, args.platform))
    return 0
  if args.cold:
    return run_cold(args)
  if args.growth:
    return run_growth(args)
  chosen = select(args.filter)
  if args.list:
    print("\n".join(w.full_name for w in chosen))
    return 0
  if args.memory:
    return run_memory(args, chosen)
  return run_times(args, chosen)


def run_memory(args: argparse.Namespace, chosen: list[Workload]) -> int:
  names = [w.full_name for w in chosen if args.filter or w.memory]
  rows = memory.compare(names, args.platform, args.baseline)
  print(memory.table(rows, (args.platform, args.baseline)))
  if args.json:
    args.json.write_text(json.dumps({"memory": rows}, indent=1))
  over = [row for row in rows if row["ratio"] > memory.LIMIT]
  return 1 if args.check and over else 0


def run_growth(args: argparse.Namespace) -> int:
  from benchmarks import growth

  pattern = re.compile(args.filter or "")
  rows = growth.measure(args.platform, lambda n: bool(pattern.search(n)))
  if not rows:
    raise SystemExit(f"--filter {args.filter!r} matches no growth/ program")
  print(growth.table(rows))
  if args.json:
    args.json.write_text(json.dumps({"growth": rows}, indent=1))
  slow = growth.over_limit(rows) if args.check else []
  if slow:
    print(
      "\ncompile time grows faster than the program:\n  " + "\n  ".join(slow)
    )
  return 1 if slow else 0


def run_cold(args: argparse.Namespace) -> int:
  from benchmarks import cold

  pattern = re.compile(args.filter or "")
  rows = cold.measure(
    args.platform, args.baseline, lambda n: bool(pattern.search(n))
  )
  if not rows:
    raise SystemExit(f"--filter {args.filter!r} matches no cold/ program")
  print(cold.table(rows, (args.platform, args.baseline)))
  if args.json:
    args.json.write_text(json.dumps({"cold": rows}, indent=1))
  return 0


def run_reports(args: argparse.Namespace) -> int:
  from benchmarks import report_costs

  rows = report_costs.measure()
  print(report_costs.table(rows))
  if args.json:
    args.json.write_text(json.dumps({"reports": rows}, indent=1))
  over = report_costs.over_limit(rows)
  if args.check and over:
    print("\nabove the limit:\n  " + "\n  ".join(over))
  return 1 if args.check and over else 0


def run_fidelity() -> int:
  from benchmarks import fidelity, six_programs
  from benchmarks.fidelity.page import page

  fidelity.PAGE.write_text(page(fidelity.measurements(), fidelity.modelled()))
  six_programs.write()  # the same costs have changed there
  return 0


def run_times(args: argparse.Namespace, chosen: list[Workload]) -> int:
  import jax
  from benchmarks import report
  from benchmarks.measure import measure

  if args.cores is not None:
    try:
      clock.use_cores(args.cores)
    except ValueError as e:
      raise SystemExit(f"--cores {args.cores}: {e}") from e
  devices = tuple(jax.devices(p)[0] for p in (args.platform, args.baseline))
  measurements, failures = [], {}
  for i, workload in enumerate(chosen):
    progress(f"[{i + 1}/{len(chosen)}] {workload.full_name}")
    # If one workload fails, the others are still measured.
    try:
      measurements.append(measure(workload, *devices, args.repeat))
    except Exception as e:
      failures[workload.full_name] = f"{type(e).__name__}: {e}"
    jax.clear_caches()
  progress("")
  if measurements:
    print(report.table(measurements, (args.platform, args.baseline)))
    print()
    print(report.means_table(report.geometric_means(measurements)))
  for name, message in failures.items():
    print(f"\n{name} FAILED: {message}")
  if args.json:
    data = report.as_json(measurements, failures, devices)
    args.json.write_text(json.dumps(data, indent=1))
  slow = report.over_limit(measurements) if args.check else []
  if slow:
    print("\nabove the limit:\n  " + "\n  ".join(slow))
  return 1 if failures or slow else 0


def progress(text: str) -> None:
  """Prints a line that the next one overwrites, if stderr is a terminal."""
  if sys.stderr.isatty():
    print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
  raise SystemExit(main())
