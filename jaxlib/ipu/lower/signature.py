"""Binds a program's arguments and results to roots, while it is lowered."""

from __future__ import annotations

from jaxlib.ipu.ir.graph import Module
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.lower.view import View
from jaxlib.ipu.plan import cost
from jaxlib.ipu.program import schema


def bind_arguments(builder: Builder, module: Module) -> list[int]:
  """A root for each argument. What is not donated comes over the host link
  at every call; donated state is on the device already."""
  donated = module.donated
  roots = []
  for i, value in enumerate(module.graph.parameters):
    root = builder.new_root(value.shape, value.dtype)
    info = builder.tensors[root]
    info.space, info.address = schema.ARGUMENT, i
    builder.define(value, builder.root_view(root))
    if i not in donated and info.bytes:
      builder.steps.append(
        schema.HostCopy(
          root, 1, cost.host_copy(builder.target, info.bytes), builder.location
        )
      )
    roots.append(root)
  return roots


def bind_results(
  builder: Builder, module: Module, views: list[View]
) -> list[int]:
  """Makes each result a root of the result space, by a copy if it must be."""
  roots: list[int] = []
  copies = []
  for j, view in enumerate(views):
    info = builder.tensors[view.root]
    if (
      info.space == schema.ARENA
      and builder.is_identity(view)
      and info.shape == view.shape
    ):
      root = view.root
    else:
      layout = info.layout if builder.is_identity(view) else None
      root = builder.new_root(view.shape, view.dtype, layout)
      copies.append((view, builder.root_view(root)))
    result = builder.tensors[root]
    result.space, result.address = schema.RESULT, j
    roots.append(root)
  builder.copy_to(copies)
  aliased = {j for _, j in module.aliases}
  for j, root in enumerate(roots):
    info = builder.tensors[root]
    if j not in aliased and info.bytes:
      builder.steps.append(
        schema.HostCopy(
          root, 0, cost.host_copy(builder.target, info.bytes), builder.location
        )
      )
  return roots
