"""A random program for every operation, and the tool that generates many.

`--drawn-seed=N` generates others; drawn_programs.py runs any number of them.
"""

from __future__ import annotations

import random

import drawn_programs
import pytest
from drawn import block, compare, operations
from drawn.choices import Choices, shrink
from drawn.compare import Outcome
from drawn.program import Program
from drawn.worker import Worker

pytestmark = pytest.mark.ipu_only

OPERATIONS = {
  op.__name__: op for family in operations.FAMILIES for op in family
}


@pytest.fixture(scope="module")
def patient():
  """Uses a separate process, because XLA:CPU crashes at times."""
  worker = Worker(seconds=300)
  yield worker
  worker.stop()


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_program_of_every_operation(request, patient, name):
  seed = request.config.getoption("--drawn-seed")
  drawn = None
  for attempt in range(30):
    choices = Choices(rng=random.Random(f"{seed}:{name}:{attempt}"))
    try:
      drawn, used = block.program(
        choices, [[OPERATIONS[name]]], attempt % 2 > 0
      )
    except block.Reject:
      continue
    break
  assert drawn is not None, f"30 attempts have drawn no {name}"
  assert name in used
  verdict = patient.run(drawn)
  assert not verdict.outcome.bad, f"{verdict.message}\n{drawn.script()}"


def test_drawing_is_reproducible():
  choices = Choices(rng=random.Random(3))
  first, _ = block.program(choices, operations.FAMILIES, False)
  again, _ = block.program(Choices(choices.made), operations.FAMILIES, False)
  assert first == again


def test_a_search_can_be_resumed(capsys):
  shown = []
  for arguments in (
    ["--seed", "3", "--count", "4"],
    ["--seed", "3", "--first", "2", "--count", "2"],
    ["--only", "3:3"],
  ):
    assert drawn_programs.main([*arguments, "--show"]) == 0
    shown.append(capsys.readouterr().out)
  whole, rest, last = shown
  assert whole.endswith(rest) and rest.endswith(last)
  assert len(whole) > len(rest) > len(last) > 0


def test_shrinking_finds_a_minimal_failure():
  fails = lambda made: sum(made) >= 10 and 4 in made
  assert shrink([7, 1, 9, 4, 0, 3, 8], fails, 1000) in ([6, 4], [4, 6])


# A program that differs or fails on one platform, at run time.
BROKEN = """
def f(x0):
  def broken(x):
    {what}
    return x + 1
  ask = lambda x: jax.pure_callback(broken, x, x)
  return (lax.platform_dependent(x0, {platform}=ask, default=lambda x: x + 1),)
"""


def broken(what: str, platform: str = "ipu") -> Program:
  text = BROKEN.format(what=what, platform=platform)
  return Program(text, ("np.zeros(3, np.float32)",), (False,))


@pytest.fixture(scope="module")
def worker():
  # The first program of a process takes long to load.
  worker = Worker(seconds=300)
  assert worker.run(broken("pass")).outcome is Outcome.AGREE
  worker.seconds = 3
  yield worker
  worker.stop()


@pytest.mark.parametrize(("what", "outcome"), [
  ("x = x + 1", Outcome.DIFFER),
  ("raise ValueError('no')", Outcome.ERROR),
  ("import os; os._exit(3)", Outcome.CRASH),
  ("import time; time.sleep(300)", Outcome.HANG),
])  # fmt: skip
def test_failures_are_classified(worker, what, outcome):
  assert worker.run(broken(what)).outcome is outcome
  assert worker.run(broken(what, "cpu")).outcome in (
    Outcome.REFERENCE, Outcome.DIFFER,
  )  # fmt: skip


def test_small_differences_count_where_results_are_exact():
  text = "def f(x0):\n  more, same = lambda x: x + 1e-5, lambda x: x\n"
  text += "  return (lax.platform_dependent(x0, ipu=more, default=same),)\n"
  for exact, outcome in ((True, Outcome.DIFFER), (False, Outcome.AGREE)):
    drawn = Program(text, ("np.zeros(3, np.float32)",), (exact,))
    assert compare.check(drawn).outcome is outcome


def test_xla_cpu_may_contradict_itself():
  """The IPU is right if XLA:CPU agrees with it one operation at a time."""
  text = "def f(x0):\n"
  text += "  wrong = lambda x: x + isinstance(x0, jax.core.Tracer)\n"
  text += "  return (lax.platform_dependent(x0, cpu=wrong, default=abs),)\n"
  verdict = compare.check(Program(text, ("np.zeros(3, np.float32)",), (False,)))
  assert verdict.outcome is Outcome.REFERENCE
  assert "agrees without jit" in verdict.message
