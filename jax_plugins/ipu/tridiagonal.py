"""Tridiagonal linear systems, by elimination with partial pivoting."""

from __future__ import annotations

from typing import Any


def solve(
  dl: Any, d: Any, du: Any, b: Any, *, perturb_singular: bool = False
) -> Any:
  """X of A X = B, where A is tridiagonal.

  Of each two rows the one with the larger first element eliminates the other,
  so U of the factorisation has a second diagonal above the main one.

  Args:
    dl: A[i, i - 1] as [..., n]; the first element is unused.
    d: A[i, i] as [..., n].
    du: A[i, i + 1] as [..., n]; the last element is unused.
    b: [..., n, k].
    perturb_singular: whether pivots that are nearly 0 are made large enough to
      give a finite result; otherwise a pivot of 0 makes the result NaN.
  """
  from jax import lax
  from jax import numpy as jnp

  n = d.shape[-1]
  if n == 0 or 0 in b.shape:
    return b
  # Rows come first; the last dimension is that of the right-hand sides.
  dl, d, du = (jnp.moveaxis(v, -1, 0)[..., None] for v in (dl, d, du))
  b = jnp.moveaxis(b, -2, 0)
  du = du.at[-1].set(0)

  def eliminate(row: Any, below: Any) -> Any:
    # The rest of a row, and the next row: elements from the pivot's on.
    p, q, r = row
    dl, d, du, b = below
    swap = abs(dl) > abs(p)
    factor = jnp.where(swap, p, dl) / jnp.where(swap, dl, jnp.where(p, p, 1))
    stays = [
      jnp.where(swap, low, high)
      for low, high in ((dl, p), (d, q), (du, jnp.zeros_like(du)), (b, r))
    ]
    left = (
      jnp.where(swap, q - factor * d, d - factor * q),
      jnp.where(swap, -factor * du, du),
      jnp.where(swap, r - factor * b, b - factor * r),
    )
    return left, stays

  (p, q, end), rows = lax.scan(
    eliminate, (d[0], du[0], b[0]), (dl[1:], d[1:], du[1:], b[1:])
  )
  u0, u1, u2, r = (
    jnp.concatenate([v, last[None]])
    for v, last in zip(rows, (p, q, jnp.zeros_like(q), end), strict=True)
  )
  singular = None
  if perturb_singular:
    most = abs(jnp.stack([u0, u1, u2])).max((0, 1))[None]
    least = jnp.finfo(d.dtype).eps * jnp.where(most > 0, most, 1)
    sign = jnp.where(u0.real < 0, -1, 1)
    u0 = jnp.where(abs(u0) < least, (sign * least).astype(u0.dtype), u0)
  else:
    singular = (u0 == 0).any(0)[None]

  def substitute(after: Any, row: Any) -> Any:
    first, second = after
    u0, u1, u2, r = row
    x = (r - u1 * first - u2 * second) / u0
    return (x, first), x

  none = jnp.zeros_like(b[0])
  _, x = lax.scan(substitute, (none, none), (u0, u1, u2, r), reverse=True)
  if singular is not None:
    x = jnp.where(singular, jnp.nan, x)
  return jnp.moveaxis(x, 0, -2)
