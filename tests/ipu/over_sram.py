"""Tests with programs that do not fit an IPU.

They are listed in data/over_sram.json by what takes the room, with the bytes
that the fullest tile needs (`ipu peak tile bytes with gaps`), and run
regardless, as users may choose to. What is not listed is refused. A listed test
fails if it needs more than the list says, or if everything fits: then it is to
be taken off the list.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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
    from jaxlib.ipu.sram import overflow

    check = overflow.check

    def record(*args: Any) -> None:
      *program, memory, _, written = args
      self.most = max(self.most, memory.bytes_with_gaps)
      check(*program, memory, True, written)

    with pytest.MonkeyPatch.context() as patch:
      patch.setattr(overflow, "check", record)
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
