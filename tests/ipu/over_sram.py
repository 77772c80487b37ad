"""Tests with programs that do not fit an IPU.

They are listed in data/over_sram.json by the category of what takes the room,
with the bytes that the fullest tile needs, and run regardless, as users may
choose to. What is not listed is refused. A listed test fails if it needs more
than the list says, or if everything fits: then it is to be taken off the list.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# By category and test, bytes of the fullest tile: the executable code, or
# everything on it, whichever has no room.
LISTED: dict[str, dict[str, int]] = json.loads(
  (Path(__file__).parent / "data" / "over_sram.json").read_text()
)
NEEDS = {
  test: need for tests in LISTED.values() for test, need in tests.items()
}


class Needs:
  """What the programs of a test need that do not fit.

  Attributes:
    most: bytes of the fullest tile; 0 if all of them fit.
  """

  def __init__(self) -> None:
    self.most = 0

  @contextlib.contextmanager
  def recorded(self) -> Iterator[None]:
    """Programs that do not fit are compiled, and what they need is recorded."""
    from jaxlib.ipu import compiler, options
    from jaxlib.ipu.sram import memory, overflow

    check = overflow.check

    def record(builder: Any, program: Any, module: Any, plan: Any, *_: Any):
      over = memory.excess(builder.target, plan)
      code = int(plan.code.executable.max())
      need = code if over.code > over.sram else plan.bytes_with_gaps
      self.most = max(self.most, need)
      check(builder, program, module, plan, allow=True)

    def allowing() -> options.Settings:
      return dataclasses.replace(options.active(), allow_out_of_memory=True)

    with pytest.MonkeyPatch.context() as patch:
      patch.setattr(overflow, "check", record)
      patch.setattr(compiler, "active", allowing)
      yield


def check(test: str, listed: int, needs: Needs) -> None:
  """Fails if a test does not need about what the list says."""
  if not needs.most:
    pytest.fail(f"everything fits now: take {test} off data/over_sram.json")
  if needs.most > listed:
    pytest.fail(
      f"{test} needs {needs.most:,} bytes of a tile, more than the {listed:,} "
      "of data/over_sram.json"
    )
