"""Codelets: pieces of work that tiles do.

One file per codelet, found by listing this folder; each has one `CODELET`.
The kernel that computes it fast is the C++ beside it; what kernels share is in
`runtime/model/kernels`. Files whose names start with an underscore are what
codelets share.
"""

from __future__ import annotations

import importlib
import pkgutil

from jaxlib.ipu.codelets._codelet import Cell, Codelet

__all__ = ["CODELETS", "Cell", "Codelet"]


def _find() -> dict[type, Codelet]:
  found: dict[type, Codelet] = {}
  for info in pkgutil.iter_modules(__path__):
    if info.name.startswith("_"):
      continue
    module = importlib.import_module(f"{__name__}.{info.name}")
    codelet: Codelet = module.CODELET
    if codelet.record in found:
      raise ImportError(
        f"two codelets for {codelet.record.__name__}: "
        f"{type(found[codelet.record]).__module__} and {module.__name__}"
      )
    found[codelet.record] = codelet
  return found


CODELETS: dict[type, Codelet] = _find()
