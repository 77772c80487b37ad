"""`ipu.call`: a call of a function of the graph (passes/share_repeats.py).

A function is lowered once. It has roots of its own for its parameters, with the
mappings of the operands of its first call, or, where one call's results are the
next one's operands, with the mappings of these results: then all later calls
have their operands where the function reads them. Roots are copied there before
a call (`tile.call.ArgumentCopy`), and from the roots of its results after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from jaxlib.ipu.ir.graph import CALL, Graph, Node
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.lower.builder import Builder
from jaxlib.ipu.lower.function import Argument, Function
from jaxlib.ipu.program import schema
from jaxlib.ipu.tile.call import Call, argument_copy
from jaxlib.ipu.tile.tensor import no_tensor
from jaxlib.ipu.tile.view import View

# What is copied before a call: roots to others of the same mapping, and views
# to those of parameters.
_Passed = tuple[list[tuple[int, int]], list[tuple[View, View]]]


def _lower(builder: Builder, node: Node) -> None:
  """Lowers a call; the first one of a function lowers that, too."""
  arguments = _arguments(builder, node)
  function, (copied, moved) = _function(builder, node, arguments)
  if moved:
    builder.copy_to(moved)
  _copy(builder, copied)
  call = Call(
    function=function.number,
    body=function.body,
    inside=(function.made.start, function.made.stop),
    location=builder.location,
  )
  builder.steps.append(call)
  function.calls.append((call, node.attributes))
  results: dict[int, int] = {}
  fixed = {o.view.root for o in function.arguments if o.fixed}
  for value, view in zip(node.results, function.results, strict=True):
    info = builder.tensors[view.root]
    if info.space == schema.ARENA and view.root not in fixed:
      if view.root not in results:
        results[view.root] = builder.new_root(
          info.shape, info.dtype, info.layout
        )
      view = view._replace(root=results[view.root])
    builder.define(value, view)
  _copy(builder, [*results.items()])


def _copy(builder: Builder, pairs: Sequence[tuple[int, int]]) -> None:
  tensors = builder.tensors
  step = argument_copy(builder.target, tensors, pairs, builder.location)
  if step is not None:
    builder.steps.append(step)


def _arguments(builder: Builder, node: Node) -> list[Argument]:
  found = []
  for i, value in enumerate(node.inputs):
    view = builder.view(value)
    info = builder.tensors[view.root]
    fixed = i in node.attributes.function.fixed or info.space == schema.CONSTANT
    found.append(Argument(view.root, fixed, view, info))
  return found


def _function(
  builder: Builder, node: Node, arguments: list[Argument]
) -> tuple[Function, _Passed]:
  """The function that a call with some operands runs, and what is copied before
  it."""
  graph = node.attributes.function.graph
  known = [
    (function, passed)
    for function in builder.functions
    if function.graph is graph
    for passed in (_passed(builder, function, arguments),)
    if passed is not None
  ]
  if known:
    return min(known, key=lambda f: bool(f[1][1]))  # no moves, if possible
  function = _lowered(builder, graph, arguments)
  following = _following(builder, node, function)
  if following is not None and not _alike(following, arguments):
    # If the mappings of its results are those of its operands from then on, it
    # is lowered for these.
    other = _lowered(builder, graph, following)
    after = _following(builder, node, other)
    stays = after is not None and _alike(after, following)
    if stays and _passed(builder, other, arguments) is not None:
      other, function = function, other
    _forget(builder, other)
  function.number = len(builder.functions)
  builder.functions.append(function)
  passed = _passed(builder, function, arguments)
  assert passed is not None
  return function, passed


def _alike(some: Sequence[Argument], others: Sequence[Argument]) -> bool:
  return all(a.is_like(b) for a, b in zip(some, others, strict=True))


def _passed(
  builder: Builder, function: Function, arguments: Sequence[Argument]
) -> _Passed | None:
  """What is copied before a call; None if the function cannot be called."""
  readers = Counter(view.root for view in function.parameters)
  copied: dict[int, int] = {}
  moved = []
  for there, view, here in zip(
    function.arguments, function.parameters, arguments, strict=True
  ):
    root = here.view.root
    if there.fixed or here.fixed:
      if here.fixed != there.fixed or here.view != view:
        return None
    elif here.is_like(there) and copied.get(view.root, root) == root:
      copied[view.root] = root
    elif readers[view.root] == 1 and builder.is_identity(view):
      moved.append((here.view, view))
    else:
      return None
  return [(root, own) for own, root in copied.items()], moved


def _lowered(
  builder: Builder, graph: Graph, arguments: list[Argument]
) -> Function:
  """A function, lowered for some arguments."""
  first, planned = len(builder.tensors), len(builder.used.planned)
  builder.enter()
  own: dict[Any, int] = {}
  parameters = []
  for value, argument in zip(graph.parameters, arguments, strict=True):
    root, info = argument.view.root, argument.info
    if not argument.fixed:
      if argument.root not in own:
        own[argument.root] = builder.new_root(
          info.shape, info.dtype, info.layout
        )
      root = own[argument.root]
    parameters.append(argument.view._replace(root=root))
    builder.define(value, parameters[-1])
  results = builder.lower_graph(graph, {*own.values()}, once=True)
  body = builder.leave()
  return Function(
    number=-1,
    graph=graph,
    arguments=arguments,
    parameters=parameters,
    results=results,
    body=body,
    made=range(first, len(builder.tensors)),
    planned=slice(planned, len(builder.used.planned)),
  )


def _following(
  builder: Builder, node: Node, function: Function
) -> list[Argument] | None:
  """The operands of the next call of the same function that has results of this
  one among its operands, as far as these are concerned; None if there is none.
  """
  numbers = {id(value): i for i, value in enumerate(node.results)}
  for value in node.results:
    for reader in builder.readers(value):
      if reader.op != CALL or reader.attributes.function.graph is not (
        function.graph
      ):
        continue
      found = [*function.arguments]
      for i, operand in enumerate(reader.inputs):
        if id(operand) in numbers:
          view = function.results[numbers[id(operand)]]
          info = builder.tensors[view.root]
          root = "result", view.root
          found[i] = Argument(root, found[i].fixed, view, info)
      return found
  return None


def _forget(builder: Builder, function: Function) -> None:
  """Takes back what was noted of a function; the tensors that only its steps
  access become empty."""
  tensors, made = builder.tensors, function.made
  for number in made:
    if tensors[number].space != schema.CONSTANT:
      tensors[number] = no_tensor(tensors[number].dtype, number)
  builder.assembled.difference_update(made)
  del builder.used.planned[function.planned]
  builder.products = [
    p for p in builder.products if not any(n in made for n in p.operands)
  ]


define(Operation(CALL, _lower))
