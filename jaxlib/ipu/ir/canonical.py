"""Makes a StableHLO module ready for import, with jaxlib's own MLIR passes.

A context with its dialects and patterns takes longer to make than a small
program to parse, so contexts are reused. They have no locks: jaxlib holds the
GIL while it parses and runs passes, and earlier modules are only read.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator

from jaxlib.ipu import internals
from jaxlib.ipu.ir import search
from jaxlib.ipu.ir.bytecode_strings import Strings
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import mhlo, sdy, stablehlo
from jaxlib.mlir.passmanager import PassManager

# Composites become calls, and calls are inlined into loop bodies too. Passes
# for rare operations run only if one of their words is in a string of the
# artifact, which names its operations and dialects. None folds:
# `passes/simplify.py` does.
_COMPOSITES = (
  "func.func(stablehlo-legalize-composite-to-call)",
  (b"composite",),
)
_CHLO = ("func.func(chlo-legalize-to-stablehlo)", (b"chlo",))
_PIPELINE = (
  _COMPOSITES,
  ("inline{default-pipeline=}", (b"composite", b"call")),
  _CHLO,
  (
    "func.func(stablehlo-canonicalize-dynamism)",  # shapes that are constant
    (
      b"dynamic_broadcast_in_dim",
      b"dynamic_conv",
      b"dynamic_gather",
      b"dynamic_iota",
      b"dynamic_pad",
      b"dynamic_reshape",
    ),
  ),
  ("cse", ()),
)

# A context never frees types, constants, locations or folding results: one that
# has read so many programs, or bytes of them, is not used again; a guess:
# making a new one is quick, and what an old one holds is little.
_MOST_PROGRAMS, _MOST_BYTES = 64, 1 << 20


@functools.cache
def _register() -> None:
  stablehlo.register_stablehlo_passes()


class Passes:
  """A context and its passes.

  Attributes:
    context: of the modules that they run on.
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
      self._passes = {
        name: PassManager.parse(f"builtin.module({name})")
        for name, _ in _PIPELINE
      }
    for passes in self._passes.values():
      passes.enable_verifier(False)  # `run` does, once
    self.programs = self.bytes = 0

  def run(self, module: ir.Module, strings: Strings) -> None:
    """Runs on the module that was read from an artifact with these strings."""
    if strings.mentions(b"sharding_constraint"):
      _drop_constraints(module)
    self._run(module, strings, _PIPELINE)

  def expand(self, module: ir.Module, strings: Strings) -> None:
    """Runs those that leave neither composites nor CHLO."""
    self._run(module, strings, (_COMPOSITES, _CHLO))

  def _run(
    self,
    module: ir.Module,
    strings: Strings,
    pipeline: Iterable[tuple[str, tuple[bytes, ...]]],
  ) -> None:
    changed = False
    for name, words in pipeline:
      if not words or strings.mentions(*words):
        self._passes[name].run(module.operation)
        changed |= bool(words)
    if changed:  # reading it has verified the module; CSE keeps it valid
      module.operation.verify()


def _drop_constraints(module: ir.Module) -> None:
  """Removes the operations that only say how values are sharded: they compute
  nothing on the one device that the module is for, and jaxlib's conversion to
  HLO, for `compiled.as_text()`, refuses them without a client of XLA's."""
  for constraint in search.operations(module, "sdy.sharding_constraint"):
    constraint.results[0].replace_all_uses_with(constraint.operands[0])
    constraint.operation.erase()


_idle: list[Passes] = []  # concurrent compilations each take their own


@contextlib.contextmanager
def passes(size: int) -> Iterator[Passes]:
  """The passes for a program of `size` bytes. They are not reused after an
  exception."""
  try:
    found = _idle.pop()
  except IndexError:
    found = Passes()
  yield found
  found.programs += 1
  found.bytes += size
  if found.programs < _MOST_PROGRAMS and found.bytes < _MOST_BYTES:
    _idle.append(found)
