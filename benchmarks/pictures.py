"""Pictures of reports for `ipu/docs/reports.md`, made with Chromium.

python -m benchmarks --pictures        writes ipu/docs/pictures
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import jax
from benchmarks import models
from jaxlib.ipu import report

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "ipu" / "docs" / "pictures"
_PAINTED = 1.0  # seconds in which charts have painted after scrolling


@dataclasses.dataclass(frozen=True)
class Picture:
  """A picture of a part of a page.

  Attributes:
    name: of the file.
    program: which report.
    section: at the top of the window.
    width, height: of the window, pixels.
    dark: whether in dark colours.
    script: JavaScript to run before.
  """

  name: str
  program: str
  section: str
  width: int = 1280
  height: int = 860
  dark: bool = False
  script: str = ""


PICTURES = (
  Picture("summary", "transformer", "summary"),
  Picture(
    "timeline",
    "transformer",
    "timeline",
    height=640,
    script="selectStep(report.steps.tiles.indexOf(1))",
  ),
  Picture("code", "transformer", "source", height=680),
  Picture("cnn", "cnn", "summary", 1920, 1000, dark=True),
  Picture(
    "memory",
    "too large",
    "memory",
    height=1000,
    script="selectTile(report.memory.peak_tile)",
  ),
  Picture("narrow", "too large", "summary", 390, 844),
)


def programs(device: jax.Device) -> dict[str, report.Report]:
  """The programs that are shown: a transformer's training step, a CNN's, and
  the latter with a batch that does not fit."""
  sharding = jax.sharding.SingleDeviceSharding(device)

  def of(step: Any, *args: Any) -> report.Report:
    specs = jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(
        np.shape(x), np.asarray(x).dtype, sharding=sharding
      ),
      args,
    )
    return report.of(jax.jit(step, donate_argnums=0).lower(*specs))

  return {
    "transformer": of(
      models.transformer_step, models.transformer_state(), models.tokens()
    ),
    "cnn": of(models.cnn_step, models.cnn_state(), *models.images(32)),
    "too large": of(models.cnn_step, models.cnn_state(), *models.images(4096)),
  }


def write(platform: str = "ipu") -> None:
  """Writes all pictures."""
  sys.path.insert(0, str(ROOT / "tests" / "ipu"))
  import browser_kit

  FOLDER.mkdir(exist_ok=True)
  found = programs(jax.devices(platform)[0])
  with tempfile.TemporaryDirectory() as made:
    for picture in PICTURES:
      page = Path(made) / "report.html"
      found[picture.program].save(page)
      size = picture.width, picture.height
      with browser_kit.Browser(*size, picture.dark) as browser:
        browser.open(page)
        if picture.script:
          browser.evaluate(f"void {picture.script}")
        browser.evaluate(
          f"document.getElementById({picture.section!r}).scrollIntoView()"
        )
        time.sleep(_PAINTED)
        browser.screenshot(FOLDER / f"{picture.name}.png")
