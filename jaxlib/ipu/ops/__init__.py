"""StableHLO operations: one file per operation or family.

A file registers its operations with `ir.registry.define`; files are found by
listing this folder. Files whose names start with an underscore are shared
helpers.
"""

from __future__ import annotations

import importlib
import pkgutil


def load() -> None:
  """Imports every file of this folder, once."""
  for module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{module.name}")
