"""Reports: what a program costs, where, and what each tile holds.

```
from jaxlib.ipu import report

r = report.of(jax.jit(step).lower(state, batch))  # or of the compiled program
print(r)                   # a summary
r.runs                     # what the last runs took, if it has run
r.lines[0]                 # the most expensive line
r.tiles["memory"]          # bytes [category, tile]
r.save("step.html")        # the page
report.compare(report.load("before.json.gz"), r)
```

`data.py` documents the format.
"""

from __future__ import annotations

import os
from typing import Any

from jaxlib.ipu.reporting.columns import FormatError
from jaxlib.ipu.reporting.data import Line
from jaxlib.ipu.reporting.document import Comparison, Report, load

__all__ = [
  "Comparison",
  "FormatError",
  "Line",
  "Report",
  "compare",
  "load",
  "of",
]


def of(program: Any, trace: str | os.PathLike | None = None) -> Report:
  """The report of `jax.jit(f).lower(...)`, or of what its `compile()` returns,
  with its last runs, or with those in a trace of `jax.profiler` (see
  `recompile.of`)."""
  from jaxlib.ipu.report import recompile

  return recompile.of(program, trace)


def compare(before: Report, after: Report) -> Comparison:
  """What differs between two reports."""
  return Comparison(before, after)
