"""JAX's functions, called with whatever arguments they accept.

There is no hand-kept list of functions: all functions of each public module are
tried with a few argument lists, and the first list that JAX can trace is used.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import jax

MODULES = (
  "jax.numpy",
  "jax.numpy.linalg",
  "jax.numpy.fft",
  "jax.lax",
  "jax.lax.linalg",
  "jax.nn",
  "jax.random",
  "jax.scipy.special",
  "jax.scipy.linalg",
  "jax.scipy.signal",
  "jax.scipy.ndimage",
)
DTYPES = (np.float32, np.int32, np.bool_, np.complex64)
# These would change NumPy's settings or write files.
_LEFT_OUT = ("save", "savez", "set_printoptions", "printoptions")


def functions(module: str) -> dict[str, Callable[..., Any]]:
  """The public functions of a module, by name."""
  found = importlib.import_module(module)
  return {
    name: value
    for name in sorted(dir(found))
    if not name.startswith("_")
    and name not in _LEFT_OUT
    and callable(value := getattr(found, name))
    and not isinstance(value, type)
  }


def _argument_lists(dtype: Any) -> list[tuple[Any, ...]]:
  matrix, vector = np.ones((4, 4), dtype), np.ones(4, dtype)
  lists: list[tuple[Any, ...]] = [
    (matrix,), (matrix, matrix), (matrix, matrix, matrix), (vector,),
    (vector, vector), (vector, vector, vector), (matrix, 0), (matrix, (0,)),
    (matrix, 1, 0), (matrix, (0, 1)), (matrix, np.array([0, 1])),
    (matrix, np.array([0, 1]), 0), (matrix, vector), ([matrix, matrix],),
    ([matrix, matrix], 0), (matrix, (1, 0), (3, 3)), (matrix, (2, 8)),
    (np.float32, (4,)), ((4,), dtype), (4,), (4, 4),
  ]  # fmt: skip
  return lists


def _random_lists(dtype: Any) -> list[tuple[Any, ...]]:
  key = jax.random.key(0)
  half = np.full(4, 0.5, dtype)
  lists: list[tuple[Any, ...]] = [
    (key,), (key, (4,)), (key, half), (key, half, half), (key, 4), (0,),
    (key, half, (4,)), (key, 0.0, 1.0, (4,)), (key, (4,), 0, 9),
    (key, half, np.eye(4, dtype=dtype)), (key, 0.0, (4,)),
    (key, half, 0.5, (4,)), (key, 1.0, np.ones(()), (4,)),
  ]  # fmt: skip
  return lists


def traceable(
  module: str, function: Callable[..., Any], dtype: Any
) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
  """A function of arrays, and arrays to call it with.

  Arguments other than arrays are bound. None if JAX cannot trace the function
  with any of the argument lists.
  """
  lists = _random_lists if module == "jax.random" else _argument_lists
  for arguments in lists(dtype):
    leaves, tree = jax.tree.flatten(arguments, is_leaf=_is_fixed)
    places = [i for i, leaf in enumerate(leaves) if not _is_fixed(leaf)]

    def call(*arrays: Any) -> Any:
      filled = list(leaves)
      for i, array in zip(places, arrays):
        filled[i] = array
      return function(*jax.tree.unflatten(tree, filled))

    arrays = tuple(leaves[i] for i in places)
    try:
      with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        results = jax.tree.leaves(jax.eval_shape(call, *arrays))
    except Exception:
      continue
    if results and all(hasattr(r, "dtype") for r in results):
      return call, arrays
  return None


def _is_fixed(leaf: Any) -> bool:
  if isinstance(leaf, tuple | list):
    return all(isinstance(v, int) for v in leaf)
  return not isinstance(leaf, np.ndarray | jax.Array)


_HEAD = """
## JAX functions

Each public function is called with small float32, int32, bool and complex64
arrays, where JAX itself accepts the type. *not called*: functions that accept
none of the tried argument lists, mostly because they take functions.

| module | functions | compiled | of | refused | not called |
|---|---|---|---|---|---|"""


def section(compile_for_ipu: Callable[..., Any]) -> list[str]:
  """The lines of this section of the page.

  Args:
    compile_for_ipu: see build/coverage.py.
  """
  lines = [_HEAD]
  for module in MODULES:
    called, compiled, programs = 0, 0, 0
    refused: list[str] = []
    left: list[str] = []
    for name, function in functions(module).items():
      calls = [c for d in DTYPES if (c := traceable(module, function, d))]
      outcomes = [compile_for_ipu(call, *arrays) for call, arrays in calls]
      outcomes = [o for o in outcomes if o.known]
      if not outcomes:
        left.append(name)
        continue
      called += 1
      programs += len(outcomes)
      done = sum(o.program is not None for o in outcomes)
      compiled += done
      if done < len(outcomes):
        refused.append(name)
    cells = [f"`{module}`", str(called), str(compiled), str(programs)]
    cells += [", ".join(f"`{n}`" for n in names) for names in (refused, left)]
    lines.append(f"| {' | '.join(cells)} |")
  return lines
