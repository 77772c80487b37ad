"""What a module says of its arguments and results beside their types.

The conversion to HLO loses most of it: which arguments are donated, layouts,
memories and names. It is taken from the whole module and put back by number.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from jaxlib.ipu.partition.sizes import bytes_of
from jaxlib.mlir import ir

_ALIAS, _DONOR = "tf.aliasing_output", "jax.buffer_donor"
_KEPT = (
  _ALIAS,
  _DONOR,
  "mhlo.layout_mode",
  "mhlo.memory_kind",
  "jax.result_info",
)

_I32 = functools.partial(ir.IntegerType.get_signless, 32)

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

  An argument is reused for a result of its part's type: the one that JAX names,
  or any that is left, as JAX names none whose sharding it does not know. One
  for which only a result of its size is left is freed. One without either stays
  alive, as on other platforms.
  """
  function = ir.FunctionType(
    ir.TypeAttr(main.attributes["function_type"]).value
  )
  inputs, results = list(function.inputs), list(function.results)
  arguments = [dict(attributes) for attributes in kept.arguments]
  free = dict(enumerate(results))
  donors, left = [], []
  for i, attributes in enumerate(arguments):
    alias = attributes.pop(_ALIAS, None)
    result = alias.value if isinstance(alias, ir.IntegerAttr) else -1
    if alias is not None and free.get(result) == inputs[i]:
      attributes[_ALIAS] = alias
      del free[result]
    elif alias is not None or _DONOR in attributes:
      donors.append(i)
  for i in donors:
    same = (j for j, type_ in free.items() if type_ == inputs[i])
    result = next(same, -1)
    arguments[i].pop(_DONOR, None)
    if result >= 0:
      arguments[i][_ALIAS] = ir.IntegerAttr.get(_I32(), result)
    else:
      left.append(i)
    free.pop(result, None)
  for i in left:
    size = bytes_of(inputs[i])
    same = (j for j, type_ in free.items() if bytes_of(type_) == size)
    if (result := next(same, -1)) >= 0:
      del free[result]
      arguments[i][_DONOR] = ir.BoolAttr.get(True)
  for name, dicts in (("arg_attrs", arguments), ("res_attrs", kept.results)):
    main.attributes[name] = ir.ArrayAttr.get(
      [ir.DictAttr.get(d) for d in dicts]
    )
