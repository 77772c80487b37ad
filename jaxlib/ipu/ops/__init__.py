"""StableHLO operations: one file per operation or family.

Each file registers its operations here by `define`; the files are found by
listing this folder. Everything about an operation stands in its file: how its
attributes are read, which layouts it likes, how it is lowered.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  from jaxlib.ipu.ir.graph import Node
  from jaxlib.ipu.lower.builder import Builder

Lower = Callable[["Builder", "Node"], None]
Read = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True)
class Operation:
  """What the compiler knows of a StableHLO operation.

  Attributes:
    name: `stablehlo.add` and so on.
    lower: puts the node's steps into the program.
    read: MLIR operation -> `Node.attributes`; None if there are none.
    elementwise: the register-program row, for operations that fuse.
    is_view: lowering moves nothing (the result is a view of its input).
  """

  name: str
  lower: Lower
  read: Read | None = None
  elementwise: Any = None
  is_view: bool = False


REGISTRY: dict[str, Operation] = {}


def define(operation: Operation) -> None:
  """Registers an operation. Raises ValueError if its name is taken."""
  if operation.name in REGISTRY:
    raise ValueError(f"operation {operation.name} is defined twice")
  REGISTRY[operation.name] = operation


def load() -> None:
  """Imports every file of this folder, once."""
  for module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{module.name}")
