"""Compares random JAX programs with XLA:CPU.

python tests/ipu/drawn_programs.py --count 100000 --jobs 2
python tests/ipu/drawn_programs.py --seed 7 --first 5000 --count 1000
python tests/ipu/drawn_programs.py --only 7:123

Failures are shrunk and printed as scripts. Exits with 1 if anything failed.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import os
import random
import re
import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from drawn.block import Reject, program
from drawn.choices import Choices, shrink
from drawn.compare import Outcome, Verdict
from drawn.operations import FAMILIES
from drawn.program import Program
from drawn.worker import Worker, quiet, raise_gc_threshold

_SHRINKS = 2  # failures of one kind to shrink; others are only counted
_TRIES = 250  # programs to try for shrinking a failure


def draw(choices: Choices, x64: bool) -> Program | None:
  """The program that the choices produce, if they produce one."""
  try:
    return program(choices, FAMILIES, x64)[0]
  except Reject:
    return None


def drawn_at(seed: int, number: int) -> tuple[list[int], Program | None]:
  """The program with a given number, and its choices; a quarter use 64-bit
  types."""
  choices = Choices(rng=random.Random(f"{seed}:{number}"))
  return choices.made, draw(choices, number % 4 == 3)


def kind(verdict: Verdict) -> str:
  """A key that failures with the same cause share."""
  text = verdict.message.splitlines()[0] if verdict.message else ""
  text = re.sub(r"\d+|\[.*?\]|0x\w+", "#", text)
  if verdict.outcome is Outcome.DIFFER:
    text = " ".join(re.findall(r"of # (\w+) differ", text))
  return f"{verdict.outcome.value}: {text[:120]}"


class Job:
  """Every `jobs`-th program, starting from a number."""

  def __init__(self, options: argparse.Namespace, number: int) -> None:
    self._options, self._number = options, number
    self._worker = Worker(options.seconds)
    self.outcomes: collections.Counter[Outcome] = collections.Counter()
    self._kinds: collections.Counter[str] = collections.Counter()

  def run(self) -> None:
    """Generates the next program while one runs."""
    options = self._options
    end = options.first + options.count
    numbers = range(options.first + self._number, end, options.jobs)
    if options.only:
      numbers = [options.only[1]][self._number :]
    running: tuple[int, list[int], Program] | None = None
    until = time.monotonic() + 60 * options.minutes
    parent = os.getppid()
    for number in [*numbers, None]:
      following = None
      if os.getppid() != parent:
        break  # the command was killed
      if number is not None and time.monotonic() > until:
        _say(f"job {self._number}: no time for {number} and what follows")
        number = None
      if number is not None:
        choices, drawn = drawn_at(options.seed, number)
        following = (number, choices, drawn) if drawn else None
        if drawn is None:
          continue
      if running:
        self._judge(running, self._worker.wait())
      if following:
        self._worker.start(following[2])
      running = following
      if number is None:
        break
    self._worker.stop()

  def _judge(
    self, ran: tuple[int, list[int], Program], verdict: Verdict
  ) -> None:
    self.outcomes[verdict.outcome] += 1
    total = self.outcomes.total()
    if total % 100 == 0:
      _say(f"job {self._number}: {total} programs, {_counts(self.outcomes)}")
    if not verdict.outcome.bad:
      return
    number, choices, drawn = ran
    of = kind(verdict)
    self._kinds[of] += 1
    where = f"{self._options.seed}:{number}"
    if self._kinds[of] > _SHRINKS or not self._options.shrink:
      _say(f"--- {where} {of}")
      return
    small, verdict = self._smallest(choices, drawn, verdict)
    _say(f"--- {where} {verdict.outcome.value}\n# {verdict.message[:2000]}"
         .replace("\n", "\n# ") + f"\n{small.script()}")  # fmt: skip

  def _smallest(
    self, choices: list[int], drawn: Program, verdict: Verdict
  ) -> tuple[Program, Verdict]:
    """The simplest program found that fails in the same way."""
    best, of = (drawn, verdict), kind(verdict)

    def fails(candidate: list[int]) -> bool:
      nonlocal best
      smaller = draw(Choices(candidate), drawn.x64)
      if smaller is None:
        return False
      found = self._worker.run(smaller)
      if not found.outcome.bad or kind(found) != of:
        return False
      best = smaller, found
      return True

    shrink(choices, fails, _TRIES)
    return best


def _say(text: str) -> None:
  print(text, flush=True)


def _counts(outcomes: collections.Counter[Outcome]) -> str:
  return ", ".join(f"{n} {o.value}" for o, n in outcomes.most_common())


def _job(
  options: argparse.Namespace, number: int
) -> collections.Counter[Outcome]:
  raise_gc_threshold()
  job = Job(options, number)
  try:
    job.run()
  except Exception:
    # The other workers continue; report now rather than when they end.
    _say(f"job {number} has ended: {traceback.format_exc()}")
    raise
  return job.outcomes


def _parse(argv: Sequence[str]) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    prog="python tests/ipu/drawn_programs.py",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument("--count", type=int, default=1000, help="programs")
  parser.add_argument("--seed", type=int, default=0, help="others for each")
  parser.add_argument(
    "--first", type=int, default=0, help="the number of the first program"
  )
  parser.add_argument("--jobs", type=int, default=1, help="processes that draw")
  parser.add_argument(
    "--seconds", type=float, default=120, help="limit of a program"
  )
  parser.add_argument(
    "--minutes", type=float, default=1e9, help="draw no more after these"
  )
  parser.add_argument(
    "--no-shrink", dest="shrink", action="store_false",
    help="name what fails, no more",
  )  # fmt: skip
  parser.add_argument(
    "--only",
    type=lambda text: tuple(map(int, text.split(":"))),
    metavar="SEED:NUMBER",
    help="one program, as failures name it",
  )
  parser.add_argument(
    "--show", action="store_true", help="print the programs, run nothing"
  )
  return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
  """Runs the command; returns 1 if a program failed."""
  options = _parse(argv)
  if options.only:
    options.seed, options.jobs = options.only[0], 1
  quiet()
  if options.show:
    end = options.first + options.count
    numbers = range(options.first, end)
    if options.only:
      numbers = [options.only[1]]
    for number in numbers:
      drawn = drawn_at(options.seed, number)[1]
      _say(drawn.script() if drawn else f"# {number}: none")
    return 0
  started = time.monotonic()
  if options.jobs == 1:
    found = [_job(options, 0)]
  else:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
      jobs = [pool.submit(_job, options, n) for n in range(options.jobs)]
      found = [job.result() for job in jobs]
  outcomes = sum(found, collections.Counter())
  seconds = time.monotonic() - started
  _say(f"{outcomes.total()} programs in {seconds:.0f} s: {_counts(outcomes)}")
  return 1 if any(o.bad for o in outcomes) else 0


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
