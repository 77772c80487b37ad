"""What reports take: processor time of making the data and the page, and of a
browser until the page is painted; the page's size and what is drawn.

python -m benchmarks --reports --check

The figures in `ipu/docs/reports.md` are from it. Each time is the least of
several, in a process that has reported another program before; the browser's is
that of all its processes.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import jax
from benchmarks import models, six_programs
from benchmarks.report import align
from benchmarks.six_programs import Program
from jaxlib.ipu import pipeline, target
from jaxlib.ipu.reporting import collect
from jaxlib.ipu.reporting.document import Report
from jaxlib.mlir.dialects import stablehlo

ROOT = Path(__file__).parents[1]

# Processor seconds for the data of so many steps, between and beyond which the
# limit is on a line; seconds that the page takes more; marks drawn.
DATA_LIMITS = (372, 0.15), (5_025, 1.5)
PAGE_LIMIT = 0.1
MARKS_LIMIT = 10_000
# Times that each program is compiled for its report, and its page is opened.
_MADE, _OPENED = 2, 3
# A browser has started when it takes no more than this in a pause, seconds.
_PAUSE, _STARTED = 0.5, 0.02

Row = dict[str, Any]


def _training(step: Any, state: Any, batch: Any, about: str) -> Program:
  return Program(
    function=step,
    arguments=lambda: (state(), *batch()),
    donated=True,
    about=about,
  )


PROGRAMS = {
  "LSTM scan": six_programs.PROGRAMS["LSTM scan"],
  "CNN training step": six_programs.PROGRAMS["CNN training step"],
  "CNN, batch of 4,096": _training(
    models.cnn_step,
    models.cnn_state,
    lambda: models.images(4096),
    "does not fit",
  ),
  "transformer step": _training(
    models.transformer_step,
    models.transformer_state,
    lambda: (models.tokens(),),
    "two layers",
  ),
  "transformer step, 35 layers": _training(
    models.transformer_step,
    lambda: models.transformer_state(35),
    lambda: (models.tokens(),),
    "5,000 steps",
  ),
}


def measure() -> list[Row]:
  """Makes and opens the reports of all programs."""
  machine = target.resolve()
  rows = []
  # What is imported and read for the first report.
  _page(_report(machine, PROGRAMS["CNN training step"])[0])
  for name, program in PROGRAMS.items():
    reports = [_report(machine, program) for _ in range(_MADE)]
    report = reports[0][0]
    pages = [_page(report) for _ in range(_MADE)]
    text = pages[0][0]
    rows.append(
      {
        "program": name,
        "steps": len(report.steps["times"]),
        "fits": report.fits,
        "data_seconds": min(seconds for _, seconds in reports),
        "page_seconds": min(seconds for _, seconds in pages),
        "data_bytes": len(report.compressed()),
        "page_bytes": len(text.encode()),
        **_opened(text),
      }
    )
  return rows


def _report(machine: target.Target, program: Program) -> tuple[Report, float]:
  """The report of a program, and the processor time that collecting it took."""
  specs = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(np.shape(x), x.dtype),
    tuple(program.arguments()),
  )
  # A new function object: serialising changes the module that JAX keeps.
  donated = 0 if program.donated else ()
  jitted = jax.jit(lambda *a: program.function(*a), donate_argnums=donated)
  lowered = jitted.trace(*specs).lower(lowering_platforms=("ipu",))
  code = stablehlo.serialize_portable_artifact(
    lowered.compiler_ir("stablehlo"), stablehlo.get_current_version()
  )
  options = pipeline.Options(target=machine, allow_out_of_memory=True)
  state = pipeline.compile_module(code, options)
  gc.disable()  # as while a program is compiled
  begin = time.process_time()
  found = collect.collect(state, machine, {})
  seconds = time.process_time() - begin
  gc.enable()
  return found, seconds


def _page(report: Report) -> tuple[str, float]:
  """The page of a report, and the processor time that making it took."""
  begin = time.process_time()
  text = report.to_html()
  return text, time.process_time() - begin


def _opened(text: str) -> Row:
  """What a browser takes for a page."""
  sys.path.insert(0, str(ROOT / "tests" / "ipu"))
  import browser_kit

  with tempfile.TemporaryDirectory() as made:
    path = Path(made) / "report.html"
    path.write_text(text, "utf-8")
    seconds = []
    for _ in range(_OPENED):
      with browser_kit.Browser() as browser:
        begin = _idle(browser)
        browser.open(path)
        seconds.append(browser.processor_seconds() - begin)
        found = {
          "marks": browser.evaluate("window.reportMarks"),
          "requests": len(browser.requests) - 1,  # the page itself
          "errors": len(browser.errors),
        }
  return {"browser_seconds": min(seconds), **found}


def _idle(browser: Any) -> float:
  """Waits until a browser has started; its processor time so far."""
  last, now = 0.0, browser.processor_seconds()
  while now - last > _STARTED:
    time.sleep(_PAUSE)
    last, now = now, browser.processor_seconds()
  return now


def over_limit(rows: Sequence[Row]) -> list[str]:
  """Describes what exceeds its limit."""
  faults = []
  for row in rows:
    limits = {
      "data_seconds": _data_limit(row["steps"]),
      "page_seconds": PAGE_LIMIT,
      "marks": MARKS_LIMIT,
      "requests": 0,
      "errors": 0,
    }
    faults += [
      f"{row['program']}: {name} {row[name]:.3g}, limit {limit:.3g}"
      for name, limit in limits.items()
      if row[name] > limit
    ]
  return faults


def _data_limit(steps: int) -> float:
  (few, less), (many, more) = DATA_LIMITS
  return max(less, less + (more - less) * (steps - few) / (many - few))


def table(rows: Sequence[Row]) -> str:
  shown = [
    ("program", "steps", "data", "page", "browser", "data", "page", "marks")
  ]
  for row in rows:
    seconds = [row[f"{k}_seconds"] for k in ("data", "page", "browser")]
    shown.append(
      (
        row["program"] + ("" if row["fits"] else " (does not fit)"),
        f"{row['steps']:,}",
        *(f"{s:.2f} s" for s in seconds),
        f"{row['data_bytes'] / 1e6:.2f} MB",
        f"{row['page_bytes'] / 1e6:.2f} MB",
        f"{row['marks']:,}",
      )
    )
  return align(shown, left=1)
