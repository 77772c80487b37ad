"""Thresholds of the library, compared in processor time on one core."""

from __future__ import annotations

import ctypes
import functools
import math
import time
from typing import Any

import numpy as np

import jax
import jax.numpy as jnp
from benchmarks import clock
from benchmarks.thresholds import Case

_SAMPLES = 15
_SAMPLE_SECONDS = 4e-3


def _function() -> Any:
  from jaxlib.ipu.library import LIBRARY

  function = ctypes.CDLL(str(LIBRARY)).ipu_move_threshold
  function.argtypes = [ctypes.c_char_p, ctypes.c_int64]
  function.restype = ctypes.c_int64
  return function


def varies() -> bool:
  """Whether the library's thresholds are variables."""
  try:
    _function()
  except AttributeError:
    return False
  return True


def move(name: str, value: float) -> int:
  """Moves a threshold and returns its previous value."""
  before = _function()(name.encode(), int(value))
  if before < 0:
    raise KeyError(f"the library has no threshold {name}")
  return before


def value(name: str) -> int:
  before = move(name, 0)
  move(name, before)
  return before


def use_one_core() -> None:
  """Also lets arrays be of 64 bits."""
  clock.use_cores(1)
  jax.config.update("jax_enable_x64", True)


def compare(case: Case, size: int) -> tuple[float, float]:
  """The least processor seconds of a run in both ways, interleaved."""
  device = jax.devices("ipu")[0]
  function, arguments = case.program(size)
  arguments = jax.device_put(arguments, device)
  own = value(case.name)
  ways = []
  try:
    for at in (case.small(size), case.large(size)):
      move(case.name, at)
      jax.clear_caches()
      run = jax.jit(function).lower(*arguments).compile()
      jax.block_until_ready(run(*arguments))
      ways.append((at, run))
    best = [float("inf")] * 2
    count = 1
    for sample in range(_SAMPLES + 1):
      for way, (at, run) in enumerate(ways):
        move(case.name, at)
        begin = time.process_time()
        for _ in range(count):
          jax.block_until_ready(run(*arguments))
        seconds = (time.process_time() - begin) / count
        if sample:
          best[way] = min(best[way], seconds)
        elif not way:
          count = max(1, round(_SAMPLE_SECONDS / max(seconds, 1e-6)))
  finally:
    move(case.name, own)
  return best[0], best[1]


_case = functools.partial(Case, compare=compare)


def _random(*shape: int, dtype: Any = np.float32) -> Any:
  return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def _rows(n: int, elements: int = 1 << 16) -> Any:
  return _random(max(elements // n, 1), n)


def _general(x: Any) -> Any:
  """A product of complex numbers along the last dimension, which is no
  operation that the library reduces by itself."""

  def both(a, b):
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]

  one, zero = np.float32(1), np.float32(0)
  return jax.lax.reduce((x, x * 0.5), (one, zero), both, (1,))


def _scaled_rows(x: Any, y: Any) -> Any:
  return (x * y + x) * y


def _power(first: int, last: int, step: int = 1) -> tuple[int, ...]:
  return tuple(1 << i for i in range(first, last + 1, step))


CASES = (
  _case(
    "sort.kMostTogether", "elements in each of 64 rows that are sorted",
    _power(4, 13), lambda n: (lambda x: jnp.sort(x), [_random(64, n)]),
  ),
  _case(
    "sort.kFew", "elements in each of 8 rows that are sorted", _power(4, 13),
    lambda n: (lambda x: jnp.sort(x), [_random(8, n)]),
  ),
  _case(
    "radix_sort.kManyEntries", "elements that are sorted", _power(10, 19),
    lambda n: (lambda x: jnp.sort(x), [_rows(n, n)]),
  ),
  _case(
    "radix_sort.kFewSorted", "elements selected from 65,536", _power(0, 9),
    lambda k: (lambda x: jax.lax.top_k(x, k), [_rows(1 << 16)]),
  ),
  _case(
    "reduce_plan.kFewColumns", "columns, of 16 rows that are summed",
    _power(0, 6),
    lambda c: (
      lambda x: x.sum(1), [_random(max(4096 // c, 1), 16, c)]
    ),
  ),
  _case(
    "reduce_plan.kFewReduced", "rows of 4 columns that are summed",
    _power(1, 11),
    lambda r: (
      lambda x: x.sum(1), [_random(max((1 << 16) // r // 4, 1), r, 4)]
    ),
  ),
  _case(
    "reduce_plan.kLongWindows", "columns, of 32 rows that are summed",
    _power(5, 15),
    lambda c: (
      lambda x: x.sum(1), [_random(max((1 << 17) // c, 1), 32, c)]
    ),
  ),
  _case(
    "reduce_plan.kFewPlaces", "rows of 2^19 columns that are summed",
    _power(1, 6), lambda r: (lambda x: x.sum(0), [_random(r, 1 << 19)]),
  ),
  _case(
    "general_reduce.kFewest", "totals, each of 4,096 elements", _power(1, 8),
    lambda m: (_general, [_random(m, 4096)]),
    small=lambda _: 1 << 11, large=lambda _: 1,
  ),
  _case(
    "plan_sources.kLongestPattern", "elements of a row that is added",
    _power(2, 13),
    lambda n: (lambda x, y: x * 2 + y, [_rows(n, 1 << 17), _random(n)]),
  ),
  _case(
    "plan_sources.kLongRow", "elements of a row of a slice", _power(6, 14),
    lambda n: (
      lambda x: jnp.tanh(x[:, :-4]) * 2, [_rows(n + 4, 1 << 16)]
    ),
  ),
  _case(
    "register_plan.kShortestRow", "elements of a row with a factor",
    _power(4, 12),
    lambda n: (_scaled_rows, [_rows(n, 1 << 17), _rows(n, 1 << 17)[:, :1]]),
    large=lambda _: 2,
  ),
  _case(
    "register_plan.kShortestWideRow", "64-bit elements of a row with a factor",
    _power(4, 12),
    lambda n: (
      _scaled_rows,
      [
        _rows(n, 1 << 17).astype(np.float64),
        _rows(n, 1 << 17)[:, :1].astype(np.float64),
      ],
    ),
    large=lambda _: 2,
  ),
  _case(
    "transpose.kStreamBytes", "bytes of a matrix that is transposed",
    _power(16, 26, 2),
    lambda n: (lambda x: x.T, [_random(*2 * (math.isqrt(n // 4),))]),
  ),
)  # fmt: skip
