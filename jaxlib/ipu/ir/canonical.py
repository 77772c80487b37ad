"""jaxlib's own MLIR passes, which make a StableHLO module canonical.

A context with its dialects and patterns takes longer to make than a small
program to parse. So what one compilation is done with serves the next. Contexts
have no locks: jaxlib keeps the interpreter's while it parses and runs passes,
and modules that were made before are only read.
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
# bodies too, and only MHLO's canonicaliser folds constants and broadcasts. What
# few modules need runs if one of its words is in the artifact, which names the
# operations and dialects that it has.
_PIPELINE = (
  ("func.func(stablehlo-legalize-composite-to-call)", (b"composite",)),
  ("inline{default-pipeline=}", (b"composite", b"call")),
  ("func.func(chlo-legalize-to-stablehlo)", (b"chlo",)),
  (
    f"stablehlo-legalize-to-hlo,cse,{_CANONICALIZE},cse,"
    "hlo-legalize-to-stablehlo",
    (b"",),
  ),
)

# A context never lets go of a type, constant or location, nor of what passes
# fold: one that has read so many programs, or bytes of them, is not used again.
_MOST_PROGRAMS, _MOST_BYTES = 64, 1 << 20


@functools.cache
def _register() -> None:
  stablehlo.register_stablehlo_passes()
  mhlo.register_mhlo_passes()


class Passes:
  """The passes.

  Attributes:
    context: that of the modules they run on.
    programs, bytes: read so far.
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
      self._passes = [
        (PassManager.parse(f"builtin.module({passes})"), words)
        for passes, words in _PIPELINE
      ]
    for passes, _ in self._passes:
      passes.enable_verifier(False)  # `run` does, once
    self.programs = self.bytes = 0

  def run(self, module: ir.Module, code: bytes) -> None:
    """Makes the module that was read from an artifact canonical."""
    for passes, words in self._passes:
      if any(word in code for word in words):
        passes.run(module.operation)
    module.operation.verify()


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
  found.programs += 1
  found.bytes += size
  if found.programs < _MOST_PROGRAMS and found.bytes < _MOST_BYTES:
    _idle.append(found)
