"""The table of StableHLO operations that the compiler supports.

Each file of `ops/` registers its own with `define`, with everything about the
operation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from jaxlib.ipu.kernel.writer import Writer

if TYPE_CHECKING:
  from jaxlib.ipu.ir.emitter import Emitter
  from jaxlib.ipu.ir.graph import Node, Value

# (builder, node): adds the node's steps to the program.
Lower = Callable[[Any, "Node"], None]
# (emitter, node): writes simpler operations; returns the values that replace
# the node's results, or None if this node stays as it is.
Decompose = Callable[["Emitter", "Node"], "Sequence[Value] | None"]
# MLIR operation -> `Node.attributes`.
Read = Callable[[Any], Any]
# node -> what its operands and results have to be, if they are not.
Check = Callable[["Node"], "str | None"]
# (target, node, operand number, view of a whole root) -> the mapping that the
# node would like the root to have, or None.
Prefers = Callable[[Any, "Node", int, Any], Any]
# The same with such a mapping -> the cycles that the node takes with it.
CyclesWith = Callable[[Any, "Node", int, Any, Any], float]
# (builder, node) -> what else the node's steps depend on; None: not known.
Context = Callable[[Any, "Node"], Any]
# (program, values of the inputs, node) -> value of the result
Emit = Callable[[Writer, list[int], "Node"], int]


@dataclasses.dataclass(frozen=True)
class ElementwiseRow:
  """How an element-wise operation is emitted as instructions.

  Attributes:
    emit: writes them.
    applies: whether a node is element-wise; None: always.
  """

  emit: Emit
  applies: Callable[[Node], bool] | None = None


@dataclasses.dataclass(frozen=True)
class Operation:
  """A StableHLO operation and its rules.

  Attributes:
    name: `stablehlo.add` and so on; of custom calls
      `stablehlo.custom_call @TARGET`.
    lower: adds the node's steps to the program; None if `decompose` replaces
      every node.
    read: reads its attributes; None if there are none.
    check: checks a node's types as far as StableHLO's verifier does not; None:
      it checks them all.
    elementwise: the register-program row of an operation that fuses.
    decompose: replaces the node by simpler ones (passes/decompose.py).
    is_view: lowering moves nothing (the result is a view of its input).
    prefers: the tile mapping that a node would like an operand's root to have
      (lower/consumer_layouts.py); None if it is one with replicas.
    cycles_with: the cycles of a node whose operand's root has a mapping;
      operations have it that have `prefers`.
    context: what the node's steps depend on, besides its attributes and the
      operands' types, mappings and copies; hashable. If all of that is as it
      was for an earlier node, the steps are copied (lower/reuse.py). None:
      they never are.
    has_effect: whether a node has side effects: such nodes are never dead and
      stay in order. None: no node has.
  """

  name: str
  lower: Lower | None = None
  read: Read | None = None
  check: Check | None = None
  elementwise: ElementwiseRow | None = None
  decompose: Decompose | None = None
  is_view: bool = False
  prefers: Prefers | None = None
  cycles_with: CyclesWith | None = None
  context: Context | None = None
  has_effect: Callable[[Node], bool] | None = None


# The beginning of the names of custom calls.
CUSTOM_CALL = "stablehlo.custom_call @"
REGISTRY: dict[str, Operation] = {}


def define(operation: Operation) -> None:
  """Registers an operation.

  Raises:
    ValueError: its name is taken, or it has no rule.
  """
  if operation.name in REGISTRY:
    raise ValueError(f"operation {operation.name} is defined twice")
  if operation.lower is None and operation.decompose is None:
    raise ValueError(f"operation {operation.name} has no rule")
  REGISTRY[operation.name] = operation


def has_effect(node: Node) -> bool:
  """Whether the node, or one in its regions, has an effect."""
  definition = REGISTRY.get(node.op)
  if definition is not None and definition.has_effect is not None:
    return definition.has_effect(node)
  for region in node.regions:
    for inner in region.nodes:
      if has_effect(inner):
        return True
  return False


def is_elementwise(node: Node) -> bool:
  """Whether each element depends only on its inputs' elements at its index."""
  definition = REGISTRY.get(node.op)
  if definition is None or definition.elementwise is None:
    return False
  applies = definition.elementwise.applies
  return applies is None or applies(node)
