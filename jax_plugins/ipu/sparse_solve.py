"""Sparse linear systems, by dense elimination on tiles."""

from __future__ import annotations

from typing import Any


def lower(ctx: Any, *operands: Any, **_: Any) -> Any:
  """The rule of the primitive of `jax.experimental.sparse.linalg.spsolve`; its
  tolerance and column order are for the GPU's sparse elimination."""
  from jax.interpreters import mlir

  return mlir.lower_fun(_solve, multiple_results=False)(ctx, *operands)


def _solve(data: Any, indices: Any, indptr: Any, b: Any) -> Any:
  """x of A x = b. A takes n^2 elements of SRAM: elimination would fill most
  sparse matrices, at places unknown to programs of fixed shapes.

  Args:
    data: the elements of A as [k], row after row; those of one place are added.
    indices: their columns as [k].
    indptr: where each row begins, and the last one ends, as [n + 1]; later
      elements are not part of A.
    b: [n].
  """
  from jax import numpy as jnp

  n = b.shape[0]
  if n == 0:
    return b
  rows = jnp.zeros(data.shape, indptr.dtype).at[indptr].add(1).cumsum() - 1
  # Elements after the last row's end get row numbers >= n.
  a = jnp.zeros((n, n), data.dtype).at[rows, indices].add(data, mode="drop")
  return jnp.linalg.solve(a, b)
