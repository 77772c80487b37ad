"""Binds a program's arguments and results to roots, while it is lowered.

Arrays live on the device between programs, each in the layout that
`Builder.default_layout` gives its shape and type: so a result of one program
is an argument of the next without moving. What crosses the host link does so
when it is put on the device or read from it, in no program's time.
"""

from __future__ import annotations

from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.ir.graph import Module
from jaxlib.ipu.lower.builder import Builder, TensorInfo
from jaxlib.ipu.lower.view import View
from jaxlib.ipu.plan import cost
from jaxlib.ipu.program import schema


def bind_arguments(builder: Builder, module: Module) -> list[int]:
  """A root for each argument."""
  roots = []
  for i, value in enumerate(module.graph.parameters):
    root = builder.new_root(value.shape, value.dtype)
    info = builder.tensors[root]
    info.space, info.address = schema.ARGUMENT, i
    builder.define(value, builder.root_view(root))
    roots.append(root)
  return roots


def bind_results(
  builder: Builder, module: Module, views: list[View]
) -> list[int]:
  """Makes each result a root of the result space, where arrays live, by a copy
  if it must be."""
  roots: list[int] = []
  copies = []
  for j, view in enumerate(views):
    info = builder.tensors[view.root]
    if (
      info.space == schema.ARENA
      and builder.is_identity(view)
      and info.shape == view.shape
      and _is_at_home(builder, info)
    ):
      root = view.root
    else:
      root = builder.new_root(view.shape, view.dtype)
      copies.append((view, builder.root_view(root)))
    result = builder.tensors[root]
    result.space, result.address = schema.RESULT, j
    roots.append(root)
  builder.copy_to(copies)
  return roots


def _is_at_home(builder: Builder, info: TensorInfo) -> bool:
  """Whether each tile has what it has of an array between programs."""
  home = builder.default_layout(info.shape, info.dtype)
  if info.layout == home:
    return True
  tiles = builder.target.num_tiles
  traffic = cost.moved(info.layout, home, SIZE[info.dtype], tiles)
  return traffic is cost.NOTHING
