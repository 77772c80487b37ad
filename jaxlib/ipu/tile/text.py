"""The text of a tile program, which can be read again.

The first line has the program's fields, a tensor is a line, a step a call of
its kind with the fields that differ from their defaults; the steps of regions
are indented:

  ProgramFields(arguments=[0], results=[1])
  t0 = TensorInfo(dtype=DType.F32, shape=(8,), layout=Layout(...), ...)
  Repeat(location=0, count=10, body=Region([
    Copy(location=0, moves=[Move(...)]),
  ]))

Everything is an expression of Python's syntax, so its parser reads it; only
the constructors that are named here are called. Comments, as those with which
`explained_text` says what each step costs, are not read.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import importlib
import pkgutil
from collections.abc import (
  Callable,
  Generator,
  Iterable,
  Iterator,
  Mapping,
  Sequence,
)
from typing import Any

import numpy as np

from jaxlib.ipu import tile
from jaxlib.ipu.codelets._hints import Hints
from jaxlib.ipu.codelets.reduce import Order
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.kernel import isa
from jaxlib.ipu.kernel.instruction import Code, Instruction
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.layout import Factor, Layout, Replica
from jaxlib.ipu.plan.cost import Epilogue, Sourced
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target
from jaxlib.ipu.tile.program import TileProgram
from jaxlib.ipu.tile.step import Region, Step
from jaxlib.ipu.tile.tensor import TensorInfo


@dataclasses.dataclass(slots=True)
class ProgramFields:
  """The fields of a `TileProgram` beside its tensors and steps, and those of
  its outermost region."""

  arguments: list[int] = dataclasses.field(default_factory=list)
  results: list[int] = dataclasses.field(default_factory=list)
  aliases: list[tuple[int, int]] = dataclasses.field(default_factory=list)
  assembled: list[int] = dataclasses.field(default_factory=list)
  freed: list[int] = dataclasses.field(default_factory=list)
  kept: list[int] = dataclasses.field(default_factory=list)


# The lines of comment after a step.
Notes = Callable[[Step], Iterable[str]]


def _silent(step: Step) -> Iterable[str]:
  return ()


def program_text(program: TileProgram, notes: Notes = _silent) -> str:
  """A program, one tensor or step to a line."""
  ends = ProgramFields(
    program.arguments,
    program.results,
    program.aliases,
    sorted(program.assembled),
    sorted(program.steps.freed),
    sorted(program.steps.kept),
  )
  lines = [_text(ends)]
  lines += [f"t{n} = {_text(info)}" for n, info in enumerate(program.tensors)]
  for step in program.steps:
    lines += _lines(step, notes)
    lines += [f"  # {note}" for note in notes(step)]
  return "\n".join(lines) + "\n"


def explained_text(
  program: TileProgram,
  title: str,
  partitions: int,
  locations: Sequence[str],
  figures: Mapping[str, float],
) -> str:
  """The text of a program, with comments.

  Args:
    program: with addresses.
    title: what it is.
    partitions: how many devices run it together.
    locations: in words, by number.
    figures: of `cost_analysis()`.
  """
  t = program.target

  def notes(step: Step) -> Iterator[str]:
    if where := locations[step.location]:
      yield where
    price = step.price(t)
    if any(dataclasses.astuple(price)):
      yield (
        f"{price.compute_cycles:.0f} compute + {price.exchange_cycles:.0f} "
        f"exchange + {price.sync_cycles:.0f} sync cycles, "
        f"{price.exchange_bytes:.0f} bytes"
      )
    yield from step.code_text()

  lines = [
    f"# {title} for {t.version}, {t.num_tiles} tiles of {t.bytes_per_tile} "
    f"bytes, {t.clock_hz / 1e9:g} GHz; arena {program.arena_bytes} bytes"
  ]
  if partitions > 1:
    lines[0] += f"; partitions {partitions}"
  ends = [f"# {name}: {value:g}" for name, value in figures.items()]
  return "\n".join(
    [*lines, program_text(program, notes) + "# Costs", *ends, ""]
  )


def parse(text: str, target: Target) -> TileProgram:
  """The program of a text, for a machine.

  Raises:
    SyntaxError: names the line, and what is wrong with it.
  """
  tensors: list[TensorInfo] = []
  steps: list[Step] = []
  names = _constructors()
  first, *rest = ast.parse(text).body or [ast.Pass()]
  if not isinstance(first, ast.Expr):
    raise _error(first, "the program's ProgramFields")
  ends: ProgramFields = _made(first.value, names, ProgramFields)
  for statement in rest:
    match statement:
      case ast.Assign(targets=[ast.Name(id=name)], value=value) if (
        name == f"t{len(tensors)}"
      ):
        tensors.append(_made(value, names, TensorInfo))
      case ast.Expr(value=value):
        steps.append(_made(value, names, Step))
      case _:
        raise _error(statement, f"a step, or `t{len(tensors)} = TensorInfo()`")
  return TileProgram(
    target,
    tensors,
    Region(steps, ends.freed, ends.kept),
    ends.arguments,
    ends.results,
    ends.aliases,
    set(ends.assembled),
  )


# --- Printing ---------------------------------------------------------------


def _lines(step: Step, notes: Notes) -> Iterator[str]:
  """The lines of a step; each one of its regions begins at a line's end."""
  line = f"{type(step).__name__}("
  comma = ""
  for name, value in _fields(step):
    line += f"{comma}{name}="
    comma = ", "
    if isinstance(value, Region):
      line = yield from _region(line, value, notes)
    elif isinstance(value, list) and isinstance((*value, 0)[0], Region):
      line += "["
      for i, region in enumerate(value):
        line = yield from _region(line + ", " * bool(i), region, notes)
      line += "]"
    else:
      line += _text(value)
  yield f"{line})"


def _region(
  line: str, region: Region, notes: Notes
) -> Generator[str, None, str]:
  """The lines of a region, which begins at the end of one; returns the last
  one."""
  yield f"{line}Region(["
  for step in region:
    *most, last = _lines(step, notes)
    yield from (f"  {text}" for text in most)
    yield f"  {last},"
    yield from (f"    # {note}" for note in notes(step))
  facts = "".join(
    f", {name}={sorted(roots)}"
    for name, roots in (("freed", region.freed), ("kept", region.kept))
    if roots
  )
  return f"]{facts})"


# Locations of MLIR, which only reports read and which have no text to read
# again; and what follows from the other fields.
_LEFT_OUT = frozenset({"origins", "common"})


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
  """The fields of a record that differ from their defaults."""
  for field in dataclasses.fields(value):
    if field.name in _LEFT_OUT:
      continue
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
    defaults = value._field_defaults
    pairs = (
      (name, found)
      for name, found in value._asdict().items()
      if name not in defaults or found is not defaults[name]
    )
  elif isinstance(value, Code):
    return f"Code({_text(tuple(value))})"
  elif isinstance(value, list):
    return f"[{', '.join(map(_text, value))}]"
  elif isinstance(value, tuple):
    return f"({', '.join(map(_text, value))}{',' * (len(value) == 1)})"
  else:
    return repr(value)
  inner = ", ".join(f"{name}={_text(v)}" for name, v in pairs)
  return f"{type(value).__name__}({inner})"


# --- Parsing ----------------------------------------------------------------


@functools.cache
def _load_steps() -> None:
  """Imports the modules that define steps."""
  for module in pkgutil.iter_modules(tile.__path__):
    importlib.import_module(f"{tile.__name__}.{module.name}")


def _constructors() -> dict[str, Any]:
  _load_steps()
  records = {
    name: found
    for name, found in (*vars(schema).items(), *vars(isa).items())
    if dataclasses.is_dataclass(found) or isinstance(found, enum.EnumType)
  }
  own = (
    ProgramFields,
    Region,
    TensorInfo,
    Layout,
    Factor,
    Replica,
    Sourced,
    Epilogue,
    DType,
    Code,
    Instruction,
    Opcode,
    Hints,
    Order,
  )
  named = {k.__name__: k for k in (*own, *_kinds(Hints), *_kinds(Step))}
  return {**records, **named, "array": np.array}


def _kinds(kind: type) -> Iterator[type]:
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
