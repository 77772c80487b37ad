"""Finds operations in an MLIR module."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import ir


def operations(module: ir.Module, name: str) -> list[Any]:
  """All operations of a name, regions included."""
  found: list[Any] = []

  def visit(operation: Any) -> ir.WalkResult:
    if operation.name == name:
      found.append(operation)
    return ir.WalkResult.ADVANCE

  module.operation.walk(visit)
  return found
