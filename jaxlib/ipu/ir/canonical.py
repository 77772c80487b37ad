"""jaxlib's own MLIR passes, which make a StableHLO module canonical.

A context with its dialects and patterns takes longer to make than a small
program to parse. So what one compilation is done with serves the next.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

from jaxlib.ipu import internals
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import mhlo, sdy, stablehlo
from jaxlib.mlir.passmanager import PassManager

# Far more than any program needs: two patterns that undo each other end too.
_CANONICALIZE = "canonicalize{max-num-rewrites=10000000}"
# The order matters: composites become calls, calls are inlined into loop
# bodies too, and only MHLO's canonicaliser folds constants and broadcasts.
_PIPELINE = (
  "builtin.module("
  "func.func(stablehlo-legalize-composite-to-call),"
  "inline{default-pipeline=},symbol-dce,"
  "func.func(chlo-legalize-to-stablehlo),"
  f"stablehlo-legalize-to-hlo,{_CANONICALIZE},cse,{_CANONICALIZE},cse,"
  "hlo-legalize-to-stablehlo)"
)

# A context never lets go of a type, constant or location: one that has read so
# many bytes of programs is not used again.
_MOST_BYTES = 1 << 20


@functools.cache
def _register() -> None:
  stablehlo.register_stablehlo_passes()
  mhlo.register_mhlo_passes()


class Passes:
  """The passes.

  Attributes:
    context: that of the modules they run on.
    bytes: of programs read so far.
  """

  def __init__(self) -> None:
    _register()
    self.context = ir.Context()
    self.context.enable_multithreading(False)
    stablehlo.register_dialect(self.context)
    sdy.register_dialect(self.context)
    mhlo.register_mhlo_dialect(self.context)
    internals.allow_inlining(self.context)
    with self.context:
      self._passes = PassManager.parse(_PIPELINE)
    self.bytes = 0

  def run(self, module: ir.Module) -> None:
    """Makes a module canonical."""
    self._passes.run(module.operation)


_idle: list[Passes] = []  # threads that compile at once have their own


@contextlib.contextmanager
def passes(size: int) -> Iterator[Passes]:
  """The passes for a program of `size` bytes. They are not used again if what
  is done with them fails."""
  try:
    found = _idle.pop()
  except IndexError:
    found = Passes()
  yield found
  found.bytes += size
  if found.bytes < _MOST_BYTES:
    _idle.append(found)
