"""Generates the statements of a program, and tracks its values."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import jax

from . import values as types
from .choices import Choices
from .program import NAMES, Program
from .values import Value

# What the generator of an operation returns: an expression, whether each result
# is exact and how large its elements may be, and functions it needs.
Facts = tuple[bool, float]
Operation = Callable[["Block"], "Drawn"]

_DIMS = (3, 2, 1, 4, 5, 7, 8, 0, 16, 17, 33)
_TILES = (1472, 1, 2, 3, 7, 16, 64, 500)


class Reject(Exception):
  """An operation does not apply to the generated operands."""


class Drawn:
  """An operation's result: see `Facts`."""

  def __init__(
    self, text: str, *facts: Facts, functions: Sequence[list[str]] = ()
  ) -> None:
    self.text, self.facts, self.functions = text, facts, functions


class Root:
  """State that the blocks of one program share."""

  def __init__(self, choices: Choices, x64: bool) -> None:
    self.choices = choices
    self.x64 = x64
    self.arguments: list[Value] = []
    self.sources: list[str] = []
    self.count = 0
    self.left = 9  # statements, including nested ones
    self.used: list[str] = []  # names of operations

  def name(self, letter: str) -> str:
    self.count += 1
    return f"{letter}{self.count}"


class Block:
  """The body of a function: statements, and the values they may use.

  These include values of the enclosing functions.
  """

  def __init__(self, root: Root, seen: list[Value], depth: int) -> None:
    self.root, self.depth = root, depth
    self.values = list(seen)
    self.own: list[Value] = []
    self.lines: list[str] = []

  # --- Choices ---------------------------------------------------------------

  def one(self, options: Sequence[Any]) -> Any:
    return options[self.root.choices.below(len(options))]

  def integer(self, low: int, high: int) -> int:
    """An integer from low to high. Values nearer to 0 count as simpler."""
    values = sorted(range(low, max(low, high) + 1), key=abs)
    return self.one(values)

  def flip(self) -> bool:
    return bool(self.root.choices.below(2))

  def rarely(self) -> bool:
    return self.integer(0, 4) == 4

  def permuted(self, values: Sequence[Any]) -> tuple[Any, ...]:
    left = list(values)
    return tuple(left.pop(self.integer(0, len(left) - 1)) for _ in values)

  def order(self, n: int) -> tuple[int, ...]:
    return self.permuted(range(n))

  def axis(self, v: Value) -> int:
    require(v.rank)
    return self.integer(0, v.rank - 1)

  def axes(self, v: Value, least: int = 0) -> tuple[int, ...]:
    chosen = tuple(d for d in range(v.rank) if self.flip())
    require(len(chosen) >= least)
    return chosen

  def shape(
    self, low: int = 0, high: int = 3, empty: bool = True
  ) -> tuple[int, ...]:
    out: list[int] = []
    for _ in range(self.integer(low, high)):
      dims = [d for d in _DIMS if d or empty]
      dims = [d for d in dims if d * int(np.prod(out)) <= types.MOST]
      out.append(self.one(dims or [1]))
    return tuple(out)

  # --- Types -----------------------------------------------------------------

  def floats(self) -> tuple[np.dtype, ...]:
    return types.FLOATS + (types.WIDE_FLOATS if self.root.x64 else ())

  def ints(self) -> tuple[np.dtype, ...]:
    return types.INTS + (types.WIDE_INTS if self.root.x64 else ())

  def complexes(self) -> tuple[np.dtype, ...]:
    return types.COMPLEX + (types.WIDE_COMPLEX if self.root.x64 else ())

  def reals(self) -> tuple[np.dtype, ...]:
    return self.floats() + self.ints()

  def numbers(self) -> tuple[np.dtype, ...]:
    return self.reals() + self.complexes()

  def computing(self) -> tuple[np.dtype, ...]:
    return (*self.numbers(), types.BOOL)

  def all(self) -> tuple[np.dtype, ...]:
    return self.computing() + types.NARROW

  # --- Values ----------------------------------------------------------------

  def argument(
    self, dtype: np.dtype, shape: tuple[int, ...], exact: bool
  ) -> Value:
    """A new argument of the whole program."""
    root = self.root
    seed = len(root.arguments)
    exact = exact or not (types.is_float(dtype) or types.is_complex(dtype))
    rng = f"np.random.default_rng({seed})"
    if dtype == types.BOOL:
      source = f"{rng}.integers(0, 2, {shape}).astype(bool)"
    else:
      low = 0 if types.is_unsigned(dtype) else -3
      high = 3
      if dtype.name == "int2":
        low, high = -2, 1
      how = f"integers({low}, {high + 1}, {shape})"
      if not exact:
        how = f"uniform({low}, {high}, {shape})"
      source = f"{rng}.{how}"
      if types.is_complex(dtype):
        source = f"({source} + 1j * {rng}.{how})"
      source = f"np.asarray({source}).astype({types.text(dtype)})"
    v = Value(
      f"x{seed}", shape, dtype, exact, 1.0 if dtype == types.BOOL else 3.0
    )
    root.arguments.append(v)
    root.sources.append(source)
    return v

  def value(
    self,
    dtypes: Sequence[np.dtype],
    *,
    rank: tuple[int, int] = (0, 4),
    exact: bool | None = None,
    empty: bool = True,
  ) -> Value:
    """An existing value that meets the requirements, or a new argument.

    Args:
      dtypes: the allowed types.
      rank: the smallest and largest allowed rank.
      exact: whether it must be, or must not be, exact.
      empty: whether it may have no elements.
    """
    fit = [
      v
      for v in reversed(self.values + self.root.arguments)
      if v.dtype in dtypes
      and rank[0] <= v.rank <= rank[1]
      and (exact is None or v.exact == exact)
      and (empty or v.size)
    ]
    if fit and not self.rarely():
      return fit[min(self.integer(0, len(fit) - 1) for _ in range(2))]
    shape = self.shape(rank[0], min(rank[1], 3), empty)
    while len(shape) < rank[0]:
      shape = (1, *shape)
    is_exact = exact if exact is not None else self.flip()
    return self.argument(self.one(dtypes), shape, is_exact)

  def array(
    self, dtype: np.dtype, shape: tuple[int, ...], exact: bool | None = None
  ) -> Value:
    """A value of this type and shape: an argument, or a resized value."""
    for v in reversed(self.values):
      if v.dtype == dtype and v.shape == shape and exact in (None, v.exact):
        return v
    coarse = dtype == types.BOOL or types.is_int(dtype)
    fit = [
      v
      for v in reversed(self.values)
      if v.size and exact in (None, v.exact) and (v.exact or not coarse)
      and v.dtype not in types.NARROW
    ]  # fmt: skip
    if not fit or dtype in types.NARROW or self.flip():
      return self.argument(dtype, shape, True if exact is None else exact)
    return self.resize(self.one(fit), shape).cast(dtype)

  def resize(self, v: Value, shape: tuple[int, ...]) -> Value:
    if v.shape == shape:
      return v
    require(v.size)
    text = f"jnp.resize({v.text}, {shape})"
    return Value(text, shape, v.dtype, v.exact, v.bound)

  # --- Statements ------------------------------------------------------------

  def nested(self, parameters: Sequence[Value]) -> Block:
    require(self.depth < 2 and self.root.left > 0)
    return Block(self.root, [*self.values, *parameters], self.depth + 1)

  def statement(self, operation: Operation) -> bool:
    """Generates an operation; returns whether a statement was added."""
    try:
      drawn = operation(self)
      results, unpack = self._results(drawn)
    except Reject:
      return False
    self.root.left -= 1
    self.root.used.append(operation.__name__)
    for lines in drawn.functions:
      self.lines += lines
    text = drawn.text
    tame = [v.tame() for v in results]
    names = ", ".join(v.text for v in results)
    self.lines.append(f"{names}{',' * (unpack and len(results) == 1)} = {text}")
    self.lines += [
      f"{v.text} = {t.text}" for v, t in zip(results, tame) if v != t
    ]
    for v, t in zip(results, tame):
      kept = Value(v.text, v.shape, v.dtype, t.exact, t.bound)
      self.values.append(kept)
      self.own.append(kept)
    return True

  def statements(self, operations: Sequence[Sequence[Operation]]) -> None:
    """Generates some statements."""
    more, failed = True, 0
    while more and self.root.left > 0 and failed < 9:
      if not self.statement(self.one(self.one(operations))):
        failed += 1
        continue
      more = bool(self.integer(0, 4 if self.depth == 0 else 2))

  def _results(self, drawn: Drawn) -> tuple[list[Value], bool]:
    """The results, and whether they are returned as a tuple."""
    lines = [line for lines in drawn.functions for line in lines]
    code = "\n".join(["", *lines, f"return {drawn.text}"])
    known = {v.text: v for v in self.values + self.root.arguments}
    used = sorted(set(re.findall(r"\b[vxp]\d+\b", code)) & set(known))
    code = f"def f({', '.join(used)}):" + code.replace("\n", "\n  ")
    names = dict(NAMES)
    exec(code, names)
    specs = [jax.ShapeDtypeStruct(known[u].shape, known[u].dtype) for u in used]
    try:
      out = jax.eval_shape(names["f"], *specs)
    except (
      TypeError, ValueError, NotImplementedError, OverflowError
    ) as error:  # fmt: skip
      # No rule for differentiation, batching or a type; or an 8-bit index into
      # more elements. test_drawn_operations.py checks that each operation is
      # generated nevertheless.
      raise Reject from error
    unpack = isinstance(out, tuple | list)
    leaves = list(out) if unpack else [out]
    assert len(leaves) == len(drawn.facts), (code, out)
    results = []
    for leaf, (exact, bound) in zip(leaves, drawn.facts):
      dtype = np.dtype(leaf.dtype)
      require(leaf.size <= types.MOST and leaf.ndim <= 6)
      require(dtype in self.all())
      bound = 1.0 if dtype == types.BOOL else min(bound, types.reach(dtype))
      if types.is_int(dtype) and not exact:
        raise AssertionError(f"integers that are not exact: {code}")
      exact = exact and bound <= types.whole(dtype)
      name = self.root.name("v")
      results.append(Value(name, leaf.shape, dtype, exact, bound))
    return results, unpack

  def function(
    self, name: str, parameters: Sequence[str], results: Sequence[Value]
  ) -> list[str]:
    """This block's lines as a function with a name."""
    result = ", ".join(v.text for v in results)
    if len(results) != 1:
      result = f"({result},)" if results else "()"
    body = [*self.lines, f"return {result}"]
    head = f"def {name}({', '.join(parameters)}):"
    return [head, *("  " + line for line in body)]


def require(condition: Any) -> None:
  """Rejects the choices unless a condition holds."""
  if not condition:
    raise Reject


def program(
  choices: Choices, operations: Sequence[Sequence[Operation]], x64: bool
) -> tuple[Program, list[str]]:
  """Generates a program from families of operations, and says which it uses.

  Raises:
    Reject: the choices produce no program.
  """
  with jax.enable_x64(x64):
    root = Root(choices, x64)
    block = Block(root, [], 0)
    block.statements(operations)
    kept = [v for v in block.own if not block.one([1, 0, 0])]
    kept = kept or block.own[-1:]
  require(kept)
  names = [f"x{i}" for i in range(len(root.arguments))]
  lines = block.function("f", names, kept)
  if len(kept) == 1:
    lines[-1] = f"  return ({kept[0].text},)"
  donated = ()
  if block.rarely():
    donated = tuple(i for i in range(len(names)) if block.flip())
  return Program(
    "\n".join(lines) + "\n",
    tuple(root.sources),
    tuple(v.exact for v in kept),
    block.one(_TILES),
    donated,
    x64,
  ), root.used  # fmt: skip
