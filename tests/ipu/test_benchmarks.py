"""The command line of the benchmarks."""

from __future__ import annotations

import types
from pathlib import Path

import pytest


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
  monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
  from benchmarks import run

  return run


@pytest.mark.parametrize(
  ("arguments", "answer"),
  [
    (["--repeat", "0"], "at least one sample"),
    (["--filter", "["], "no regular expression"),
    (["--json", "/no/such/folder/results.json"], "no folder"),
  ],
)
def test_what_is_wrong_is_said_first(run, capsys, arguments, answer):
  with pytest.raises(SystemExit) as caught:
    run.parse(arguments)
  assert caught.value.code == 2
  assert answer in capsys.readouterr().err


def test_a_filter_chooses(run, capsys):
  assert run.main(["--list", "--filter", "^loops/"]) == 0
  names = capsys.readouterr().out.splitlines()
  assert names
  assert all(name.startswith("loops/") for name in names)
  with pytest.raises(SystemExit, match="see --list"):
    run.main(["--list", "--filter", "no such workload"])
