"""Definitions of the real forms of complex matrices, by tiles that share their
rows; one tile is a team, too.

A matrix of n complex columns has the real parts in its first n columns and the
imaginary parts in the others; so have the words of a message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from jaxlib.ipu.codelets._codelet import Array
from jaxlib.ipu.codelets._factors import small
from jaxlib.ipu.codelets._team import Team


def tridiagonal(team: Team) -> list[Array]:
  m, n = team.shape[0], team.shape[1] // 2
  for j in range(n - 1):
    v, tau, beta = _column(team, j, j + 1, n)
    _row(team, j + 1)[j] = beta
    sums = [_numbers(rows, j + 1) @ v for _, rows in _within(team, j + 1, n)]
    both = np.concatenate(_exchanged(team, sums))
    w = _times(tau, both)
    w = w - _times(abs(tau) ** 2 / 2, (v.conj() @ both).real * v)
    for start, rows in _within(team, j + 1, n):
      own = slice(start - j - 1, start - j - 1 + len(rows))
      change = np.outer(w[own], v.conj()) + np.outer(v[own], w.conj())
      _subtract(rows, j + 1, change)
    for _, rows in _within(team, n, m):
      _turn(rows, v, tau)
  for start, rows in _within(team, 0, n):
    rows[:, n:] = 0
    rows[:, :n] = np.tril(rows[:, :n], start)
  return []


def bidiagonal(team: Team) -> list[Array]:
  m, n = team.shape[0], team.shape[1] // 2
  second = n + (m - n) // 2
  for j in range(n):
    v, tau, beta = _column(team, j, j, n)
    messages, right = [], n - j - 1
    for start, rows in _within(team, j, n):
      own = _numbers(rows, j + 1)
      sums = v[start - j : start - j + len(rows)].conj() @ own
      # The row's owner also sends the row.
      sent = [*([sums] if len(own) else []), *own[: start == j]]
      messages.append(np.concatenate([v[:0], *sent]))
    found = _exchanged(team, messages)
    across = np.sum([f[:right] for f in found if len(f) >= right], 0)
    across = _times(tau.conj(), across)
    old = found[team.owner(j)[0]][right:]
    for start, rows in _within(team, j, n):
      own = v[start - j : start - j + len(rows)]
      _subtract(rows, j + 1, np.outer(own, across))
    for _, rows in _within(team, second, m):
      _turn(rows, v, tau)
    row = _row(team, j)
    row[j:n] = row[n + j :] = 0
    row[j] = beta
    if right:
      v, tau, row[j + 1] = reflector((old - across).conj())
      for _, rows in _within(team, j + 1, second):
        _turn(rows, v, tau)
  return []


def reflector(x: Array) -> tuple[Array, Array, Array]:
  """v, tau and the first element, which is real, after the adjoint of
  I - tau v v^H, for a complex vector."""
  unit = small(np.append(x.real, x.imag))
  v = _joined(x.real / unit, x.imag / unit)
  alpha, square = v[0], (abs(v[1:]) ** 2).sum(dtype=unit.dtype)
  v[0] = 1
  if square + alpha.imag**2 == 0:
    v[1:] = 0
    return v, v.dtype.type(0), x[0].real
  norm = np.sqrt(abs(alpha) ** 2 + square)
  beta = -norm if alpha.real >= 0 else norm
  v[1:] /= alpha - beta
  return v, (beta - alpha) / beta, beta * unit


def _column(
  team: Team, j: int, first: int, n: int
) -> tuple[Array, Array, Array]:
  """A superstep after which all tiles know the reflector of column j in rows
  [first, n), where the column becomes zero."""
  own = []
  for _, rows in _within(team, first, n):
    own.append(_numbers(rows, j)[:, 0])
    rows[:, j] = rows[:, rows.shape[1] // 2 + j] = 0
  return reflector(np.concatenate(_exchanged(team, own)))


def _exchanged(team: Team, numbers: Sequence[Array]) -> list[Array]:
  """Sends each tile's complex numbers to all others."""
  found = team.superstep([np.append(x.real, x.imag) for x in numbers])
  halves = [np.split(f, 2) for f in found]
  return [_joined(*h) for h in halves]


def _within(team: Team, first: int, end: int) -> Iterator[tuple[int, Array]]:
  """For each tile its rows of [first, end), and the number of the first."""
  for start, rows in zip(team.starts, team.rows, strict=True):
    low = min(max(first - start, 0), len(rows))
    high = min(max(end - start, low), len(rows))
    yield start + low, rows[low:high]


def _row(team: Team, number: int) -> Array:
  tile, place = team.owner(number)
  return team.rows[tile][place]


def _numbers(rows: Array, first: int) -> Array:
  """The complex numbers of rows, from a column on."""
  n = rows.shape[1] // 2
  return _joined(rows[:, first:n], rows[:, n + first :])


def _joined(re: Array, im: Array) -> Array:
  """The complex numbers of these parts, whether they are finite or not."""
  found = np.empty(re.shape, np.result_type(re, np.complex64))
  found.real, found.imag = re, im
  return found


def _subtract(rows: Array, first: int, change: Array) -> None:
  n = rows.shape[1] // 2
  rows[:, first:n] -= change.real
  rows[:, n + first :] -= change.imag


def _turn(rows: Array, v: Array, tau: Array) -> None:
  """Multiplies the last columns of rows by I - tau v v^H from the right."""
  first = rows.shape[1] // 2 - len(v)
  turned = _times(tau, _numbers(rows, first) @ v)
  _subtract(rows, first, np.outer(turned, v.conj()))


def _times(tau: Array, x: Array) -> Array:
  """tau x; zero for a tau of 0, whatever x is."""
  return tau * x if tau != 0 else np.zeros_like(x)
