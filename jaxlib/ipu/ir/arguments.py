"""What the attributes of `main`'s arguments and results say: names, donated
memory, memory layouts and memory kinds."""

from __future__ import annotations

import math
import re
from typing import Any

from jaxlib.ipu.diagnostics import invalid_argument, unimplemented
from jaxlib.ipu.dtypes import NUMPY, DType, type_text
from jaxlib.ipu.ir.graph import Placement, Shape, Signature
from jaxlib.ipu.location import resolve
from jaxlib.mlir import ir


def names(main: Any) -> tuple[list[str], list[str]]:
  """Names of arguments and results, as in JAX: `params[0]['w']`."""
  block = main.regions[0].blocks[0]
  arguments = [
    resolve(a.location).name or f"argument {i}"
    for i, a in enumerate(block.arguments)
  ]
  results = []
  if "res_attrs" in main.attributes:
    for j, attributes in enumerate(main.attributes["res_attrs"]):
      results.append(
        _text(attributes, "jax.result_info", main.location) or f"result {j}"
      )
  return arguments, results


def donations(
  main: Any, signature: Signature
) -> tuple[list[tuple[int, int]], list[int]]:
  """Which arguments a run may overwrite.

  Returns:
    Pairs of an argument and the result that takes its memory, by number; and
    the arguments whose memory any result may take.

  Raises:
    CompileError: an argument is to become a result that does not exist, has
      another size, or takes another argument's memory.
  """
  parameters, results = signature
  aliases: list[tuple[int, int]] = []
  donors: list[int] = []
  if "arg_attrs" not in main.attributes:
    return aliases, donors
  for i, attributes in enumerate(main.attributes["arg_attrs"]):
    if "tf.aliasing_output" in attributes:
      alias = attributes["tf.aliasing_output"]
      j = alias.value if isinstance(alias, ir.IntegerAttr) else -1
      if (
        not 0 <= j < len(results)
        or any(j == other for _, other in aliases)
        or _bytes(results[j]) != _bytes(parameters[i])
      ):
        raise invalid_argument(
          f"argument {i} of @main, {type_text(*parameters[i])}, has "
          f"tf.aliasing_output = {alias}, which is none of the {len(results)} "
          "results of its size, or another argument's",
          main.location,
        )
      aliases.append((i, j))
    elif "jax.buffer_donor" in attributes:
      donors.append(i)
  return aliases, donors


def _bytes(type_: tuple[Shape, DType]) -> int:
  shape, dtype = type_
  return math.prod(shape) * NUMPY[dtype].itemsize


def placements(
  main: Any, signature: Signature
) -> dict[tuple[bool, int], Placement]:
  """The arguments and results that are not row-major in the device's memory, by
  whether they are results and by number.

  Raises:
    CompileError: a layout is malformed, or tiled.
  """
  found = {}
  for is_result, name in ((False, "arg_attrs"), (True, "res_attrs")):
    if name not in main.attributes:
      continue
    for i, attributes in enumerate(main.attributes[name]):
      rank = len(signature[is_result][i][0])
      mode = _text(attributes, "mhlo.layout_mode", main.location)
      if is_result and mode == "auto":
        order = _stored_order(_returned(main)[i], found)
      else:
        order = _minor_to_major(mode or "default", rank, main.location)
      kind = _text(attributes, "mhlo.memory_kind", main.location)
      on_host = kind == "pinned_host"
      if order or on_host:
        found[is_result, i] = Placement(order, on_host)
  return found


def _returned(main: Any) -> Any:
  *_, terminator = main.regions[0].blocks[0].operations
  return terminator.operands


def _stored_order(
  value: Any, placed: dict[tuple[bool, int], Placement]
) -> tuple[int, ...]:
  """The order of a result whose layout is left to us: a transpose stays in the
  order of its operand, so that nothing moves, and others are row-major."""
  permutations: list[list[int]] = []
  while isinstance(value, ir.OpResult):
    operation = value.owner
    if operation.name != "stablehlo.transpose":
      break
    dimensions: Any = ir.DenseI64ArrayAttr(operation.attributes["permutation"])
    permutations.append([*dimensions])
    (value,) = operation.operands
  order = list(range(ir.RankedTensorType(value.type).rank))[::-1]
  if isinstance(value, ir.BlockArgument):
    argument = placed.get((False, value.arg_number))
    if argument is not None and argument.minor_to_major:
      order = list(argument.minor_to_major)
  for permutation in reversed(permutations):
    order = [permutation.index(d) for d in order]
  return () if order == sorted(order, reverse=True) else tuple(order)


def _text(attributes: Any, name: str, where: Any) -> str:
  """A string among the attributes of an argument or a result; "" if there is
  none of that name."""
  if name not in attributes:
    return ""
  found = attributes[name]
  if not isinstance(found, ir.StringAttr):
    raise invalid_argument(f"{name} = {found}: expected a string", where)
  return found.value


def _minor_to_major(mode: str, rank: int, where: Any) -> tuple[int, ...]:
  """Parses a layout as written by XLA, {0,1}; `default`, and `auto` of
  arguments, are row-major."""
  if mode in ("default", "auto"):
    return ()
  layout = re.fullmatch(r"\{([\d,]*)(:E\(\d+\))?\}", mode)
  if layout is None:
    raise unimplemented(
      f"arrays of layout {mode}",
      where,
      "an IPU orders dimensions and has no tiled layouts: "
      "jax.experimental.layout.Layout(major_to_minor)",
    )
  order = tuple(int(d) for d in layout[1].split(",") if d)
  if sorted(order) != list(range(rank)):
    raise invalid_argument(
      f"layout {mode} of an array of {rank} dimensions: expected each of them "
      "once",
      where,
    )
  return () if order == tuple(range(rank))[::-1] else order
