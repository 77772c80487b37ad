"""Codelets: the programs of vertices.

One file per codelet, found by listing this folder; each has one `CODELET`. Its
fast kernel is the C++ file next to it; `runtime/model/kernels` has code shared
by kernels. Files whose names start with an underscore are shared helpers.
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
