"""Definitions of factorisations by tiles that share the rows of a matrix.

Computations that all tiles repeat are here once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jaxlib.ipu.codelets import _factor_complex
from jaxlib.ipu.codelets._codelet import Array
from jaxlib.ipu.codelets._factors import DEFINITIONS, pack, reflector, small
from jaxlib.ipu.codelets._team import Team
from jaxlib.ipu.program.schema import FactorKind


def _cholesky(team: Team) -> list[Array]:
  n = team.shape[1]
  for j in range(n):
    own = [rows[:, j] for _, rows in team.after(j - 1)]
    x = np.concatenate(team.superstep(own))
    if not x[0] > 0:
      for start, rows in team.after(-1):
        places = np.arange(start, start + len(rows))[:, None]
        rows[:] = np.where(places >= np.arange(n), np.nan, 0)
      return []
    x[0] = np.sqrt(x[0])
    x[1:] /= x[0]
    tile, place = team.owner(j)
    team.rows[tile][place, j] = x[0]
    team.rows[tile][place, j + 1 :] = 0
    for start, rows in team.after(j):
      own_x = x[start - j : start - j + len(rows)]
      rows[:, j] = own_x
      rows[:, j + 1 :] -= np.outer(own_x, x[1:])
  return []


def _lu(team: Team) -> list[Array]:
  m, n = team.shape
  k = min(m, n)
  pivots, order = np.zeros(k, np.int32), np.arange(m, dtype=np.int32)
  for j in range(k):
    messages = []
    mine, place = team.owner(j)
    for tile, (start, rows) in enumerate(team.after(j - 1)):
      message = np.zeros(0)
      if len(rows):
        size = np.abs(rows[:, j])
        best = 0 if np.isnan(size).any() else int(np.argmax(size))
        message = np.array([start + best, np.isnan(size).any(), *rows[best]])
      if tile == mine:
        message = np.append(message, team.rows[tile][place])
      messages.append(message)
    found = team.superstep(messages)
    old = found[mine][-n:].astype(team.rows[0].dtype)
    candidates = [c[: n + 2] for c in found if len(c)]
    sizes = [abs(c[2 + j]) for c in candidates]
    chosen = candidates[int(np.argmax(sizes))]
    bad = any(c[1] for c in candidates)
    pivot = j if bad else int(chosen[0])
    row = old if bad else chosen[2:].astype(old.dtype)
    pivots[j] = pivot
    order[[j, pivot]] = order[[pivot, j]]
    there, at = team.owner(pivot)
    team.rows[there][at] = old
    team.rows[mine][place] = row
    for _, rows in team.after(j):
      if row[j] != 0:
        rows[:, j] /= row[j]
      rows[:, j + 1 :] -= np.outer(rows[:, j], row[j + 1 :])
  return [pivots, order]


def _turn(team: Team, j: int) -> tuple[Array, Array, Array]:
  """A superstep that makes column j zero below row j: tau, the reflector's
  first element after it, and row j right of the column. The rows below store
  the reflector in the column."""
  messages = []
  mine, place = team.owner(j)
  for tile, (_, rows) in enumerate(team.after(j)):
    x = rows[:, j]
    # Small numbers are scaled, so that their squares do not underflow.
    head = team.rows[tile][place, j : j + 1] if tile == mine else x[:0]
    unit = small(np.append(head, x))
    sums = (x / unit) @ rows[:, j:]
    message = np.array([unit, *sums], x.dtype)
    if tile == mine:
      message = np.append(message, team.rows[tile][place, j:])
    messages.append(message)
  found = team.superstep(messages)
  row = found[mine][-(team.shape[1] - j) :]
  units = [f[0] for f in found]
  unit = max(units)
  sums = sum(f[1 : 1 + len(row)] * (f[0] / unit) for f in found)
  square, alpha = sums[0] / unit, row[0] / unit
  if square == 0:
    tau, beta, shift = square, row[0], None
    right = row[1:]
  else:
    norm = np.sqrt(alpha * alpha + square)
    beta = -norm if alpha >= 0 else norm
    shift = (alpha - beta) * unit
    tau = (beta - alpha) / beta
    beta = beta * unit
    along = row[1:] + sums[1:] / (alpha - beta / unit)
    right = row[1:] - tau * along
  team.rows[mine][place, j:] = np.append(beta, right)
  for _, rows in team.after(j):
    if shift is None:
      rows[:, j] = 0
    else:
      rows[:, j] /= shift
      rows[:, j + 1 :] -= tau * np.outer(rows[:, j], along)
  return tau, beta, right


def _qr(team: Team) -> list[Array]:
  k = min(team.shape)
  return [np.array([_turn(team, j)[0] for j in range(k)], team.rows[0].dtype)]


def _bidiagonal(team: Team) -> list[Array]:
  n = team.shape[1]
  for j in range(n):
    _, beta, row = _turn(team, j)
    for _, rows in team.after(j):
      rows[:, j] = 0
    if j + 1 < n:
      v, tau, beta = reflector(row)
      tile, place = team.owner(j)
      team.rows[tile][place, j + 1 :] = 0
      team.rows[tile][place, j + 1] = beta
      for _, rows in team.after(j):
        rest = rows[:, j + 1 :]
        rest -= np.outer(_times(tau, rest @ v), v)
  return []


def _column(team: Team, j: int) -> tuple[Array, Array]:
  """A superstep after which all tiles know the reflector of column j below row
  j + 1; its rows store it. Returns v and tau."""
  own = [rows[:, j] for _, rows in team.after(j)]
  x = np.concatenate(team.superstep(own))
  v, tau, beta = reflector(x)
  pack(x, v, beta)
  for start, rows in team.after(j):
    rows[:, j] = x[start - j - 1 : start - j - 1 + len(rows)]
  return v, tau


def _times(tau: Array, x: Array) -> Array:
  """tau x; zero for a tau of 0, whatever x is."""
  return tau * x if tau != 0 else np.zeros_like(x)


def _hessenberg(team: Team) -> list[Array]:
  n = team.shape[1]
  taus = np.zeros(n - 1, team.rows[0].dtype)
  for j in range(n - 1):
    v, taus[j] = _column(team, j)
    for rows in team.rows:
      right = rows[:, j + 1 :]
      right -= np.outer(_times(taus[j], right @ v), v)
    sums = team.superstep([
      v[start - j - 1 : start - j - 1 + len(rows)] @ rows[:, j + 1 :]
      for start, rows in team.after(j)
    ])  # fmt: skip
    across = np.sum(sums, 0)
    for start, rows in team.after(j):
      own = v[start - j - 1 : start - j - 1 + len(rows)]
      rows[:, j + 1 :] -= np.outer(own, _times(taus[j], across))
  return [taus]


def _tridiagonal(team: Team) -> list[Array]:
  n = team.shape[1]
  taus = np.zeros(n - 1, team.rows[0].dtype)
  for j in range(n - 1):
    v, tau = _column(team, j)
    own = [rows[:, j + 1 :] @ v for _, rows in team.after(j)]
    w = np.concatenate(team.superstep(own))
    w = _times(tau, w - tau / 2 * (v @ w) * v)
    taus[j] = tau
    for start, rows in team.after(j):
      mine = slice(start - j - 1, start - j - 1 + len(rows))
      rows[:, j + 1 :] -= np.outer(v[mine], w) + np.outer(w[mine], v)
  for start, rows in zip(team.starts, team.rows, strict=True):
    rows[:] = np.tril(rows, start)
  return [taus]


# Return the results that are not matrices; the rows stay with the team.
TEAMS: dict[FactorKind, Callable[[Team], list[Array]]] = {
  FactorKind.CHOLESKY: _cholesky,
  FactorKind.LU: _lu,
  FactorKind.QR: _qr,
  FactorKind.HESSENBERG: _hessenberg,
  FactorKind.TRIDIAGONAL: _tridiagonal,
  FactorKind.BIDIAGONAL: _bidiagonal,
  FactorKind.COMPLEX_TRIDIAGONAL: _factor_complex.tridiagonal,
  FactorKind.COMPLEX_BIDIAGONAL: _factor_complex.bidiagonal,
}


def alone(kind: FactorKind, matrix: Array) -> list[Array]:
  """A vertex' results for one matrix, which it may overwrite."""
  if kind in DEFINITIONS:
    return DEFINITIONS[kind](matrix)
  team = Team([matrix])
  others = TEAMS[kind](team)
  return [*team.rows, *others]
