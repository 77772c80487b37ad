"""What a module says of its arguments and results beside their types.

The conversion to HLO loses most of it: which arguments are donated, layouts,
memories and names. It is taken from the whole module and put back by number.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxlib.mlir import ir

_ALIAS, _DONOR = "tf.aliasing_output", "jax.buffer_donor"
_KEPT = (
  _ALIAS,
  _DONOR,
  "mhlo.layout_mode",
  "mhlo.memory_kind",
  "jax.result_info",
)

Attributes = list[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Signature:
  """The attributes of a function's arguments and results that are kept."""

  arguments: Attributes
  results: Attributes


def take(main: Any) -> Signature:
  """Takes these attributes away from a function: XLA would check them against
  the CPU, and refuse some."""
  function = ir.FunctionType(
    ir.TypeAttr(main.attributes["function_type"]).value
  )
  return Signature(
    _take(main, "arg_attrs", len(function.inputs)),
    _take(main, "res_attrs", len(function.results)),
  )


def _take(main: Any, name: str, count: int) -> Attributes:
  if name not in main.attributes:
    return [{} for _ in range(count)]
  taken, left = [], []
  for attributes in main.attributes[name]:
    items = {a.name: a.attr for a in attributes}
    taken.append({n: items.pop(n) for n in _KEPT if n in items})
    left.append(ir.DictAttr.get(items))
  main.attributes[name] = ir.ArrayAttr.get(left)
  return taken


def put_back(main: Any, kept: Signature) -> None:
  """Gives one device's function the attributes of the whole one.

  A donated argument whose part has another type than that of its result is no
  longer reused for it, only freed.
  """
  function = ir.FunctionType(
    ir.TypeAttr(main.attributes["function_type"]).value
  )
  arguments = []
  for type_, attributes in zip(function.inputs, kept.arguments, strict=True):
    alias = attributes.get(_ALIAS)
    if isinstance(alias, ir.IntegerAttr):
      result = alias.value
      if (
        not 0 <= result < len(function.results)
        or function.results[result] != type_
      ):
        attributes = {n: a for n, a in attributes.items() if n != _ALIAS}
        attributes[_DONOR] = ir.BoolAttr.get(True)
    arguments.append(ir.DictAttr.get(attributes))
  if len(kept.results) != len(function.results):
    raise ValueError(f"{len(function.results)} results")
  results = [ir.DictAttr.get(attributes) for attributes in kept.results]
  main.attributes["arg_attrs"] = ir.ArrayAttr.get(arguments)
  main.attributes["res_attrs"] = ir.ArrayAttr.get(results)
