"""The text of a tile program, which can be read again.

A tensor is a line `t3 = TensorInfo(...)`, a step a call of its kind with the
fields that differ from their defaults; nested lists of steps are indented:

  t0 = TensorInfo(dtype=DType.F32, shape=(8,), layout=Layout(...), ...)
  Repeat(location=0, count=10, body=[
    Copy(location=0, moves=[Move(...)]),
  ])

Everything is an expression of Python's syntax, so its parser reads it; only
the constructors that are named here are called.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.plan.cost import Epilogue, Sourced
from jaxlib.ipu.plan.layout import Factor, Layout, Replica
from jaxlib.ipu.program import isa, schema
from jaxlib.ipu.tile.step import Step
from jaxlib.ipu.tile.tensor import TensorInfo


def program_text(tensors: Iterable[TensorInfo], steps: Sequence[Step]) -> str:
  """The tensors and steps, one to a line."""
  lines = [f"t{n} = {_text(info)}" for n, info in enumerate(tensors)]
  for step in steps:
    lines += _lines(step)
  return "\n".join(lines) + "\n"


def parse(text: str) -> tuple[list[TensorInfo], list[Step]]:
  """The tensors and steps of a text.

  Raises:
    SyntaxError: names the line, and what is wrong with it.
  """
  tensors: list[TensorInfo] = []
  steps: list[Step] = []
  names = _constructors()
  for statement in ast.parse(text).body:
    match statement:
      case ast.Assign(targets=[ast.Name(id=name)], value=value) if (
        name == f"t{len(tensors)}"
      ):
        tensors.append(_made(value, names, TensorInfo))
      case ast.Expr(value=value):
        steps.append(_made(value, names, Step))
      case _:
        raise _error(statement, f"a step, or `t{len(tensors)} = TensorInfo()`")
  return tensors, steps


# --- Printing ---------------------------------------------------------------


def _lines(step: Step) -> Iterator[str]:
  """The lines of a step; each one of its regions begins at a line's end."""
  regions = {id(region) for region in step.regions}
  line = f"{type(step).__name__}("
  comma = ""
  for name, value in _fields(step):
    line += f"{comma}{name}="
    comma = ", "
    many = isinstance(value, list) and any(id(v) in regions for v in value)
    line += "[" * many
    for region in value if many else [value]:
      if id(region) not in regions:
        line += _text(region)
        continue
      yield f"{line}["
      for inner in region:
        *most, last = _lines(inner)
        yield from (f"  {text}" for text in most)
        yield f"  {last},"
      line = "]" + ", " * many
    line += "]" * many
  yield f"{line})"


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
  """The fields of a record that differ from their defaults."""
  for field in dataclasses.fields(value):
    found = getattr(value, field.name)
    default = field.default
    if field.default_factory is not dataclasses.MISSING:
      default = field.default_factory()
    if type(found) is not type(default) or found != default:
      yield field.name, found


def _text(value: Any) -> str:
  if isinstance(value, enum.Enum):
    return f"{type(value).__name__}.{value.name}"
  if isinstance(value, np.ndarray):
    return f"array({value.tolist()})"
  if dataclasses.is_dataclass(value):
    pairs = _fields(value)
  elif hasattr(value, "_asdict"):
    pairs = value._asdict().items()
  elif isinstance(value, list):
    return f"[{', '.join(map(_text, value))}]"
  elif isinstance(value, tuple):
    return f"({', '.join(map(_text, value))}{',' * (len(value) == 1)})"
  else:
    return repr(value)
  inner = ", ".join(f"{name}={_text(v)}" for name, v in pairs)
  return f"{type(value).__name__}({inner})"


# --- Parsing ----------------------------------------------------------------


def _constructors() -> dict[str, Any]:
  records = {
    name: found
    for name, found in (*vars(schema).items(), *vars(isa).items())
    if dataclasses.is_dataclass(found) or isinstance(found, enum.EnumType)
  }
  own = (TensorInfo, Layout, Factor, Replica, Sourced, Epilogue, DType)
  named = {kind.__name__: kind for kind in (*own, *_kinds(Step))}
  return {**records, **named, "array": np.array}


def _kinds(kind: type[Step]) -> Iterator[type[Step]]:
  for inner in kind.__subclasses__():
    yield inner
    yield from _kinds(inner)


def _made(node: ast.expr, names: dict[str, Any], kind: type) -> Any:
  found = _value(node, names)
  if not isinstance(found, kind):
    raise _error(node, f"a {kind.__name__}")
  return found


def _value(node: ast.expr, names: dict[str, Any]) -> Any:
  match node:
    case ast.Constant(value=value):
      return value
    case ast.UnaryOp(op=ast.USub(), operand=operand):
      return -_value(operand, names)
    case ast.List(elts=elements):
      return [_value(e, names) for e in elements]
    case ast.Tuple(elts=elements):
      return tuple(_value(e, names) for e in elements)
    case ast.Name(id="inf" | "nan" as name):
      return float(name)
    case ast.Attribute(value=ast.Name(id=name), attr=member) if name in names:
      return names[name][member]
    case ast.Call(func=ast.Name(id=name)) if name in names:
      arguments = [_value(a, names) for a in node.args]
      pairs = {str(k.arg): _value(k.value, names) for k in node.keywords}
      try:
        return names[name](*arguments, **pairs)
      except TypeError as e:
        raise _error(node, f"fields of a {name} ({e})") from e
  raise _error(node, "a literal or a constructor")


def _error(node: ast.AST, expected: str) -> SyntaxError:
  line = getattr(node, "lineno", 0)
  return SyntaxError(f"line {line}: expected {expected}: {ast.unparse(node)}")
