"""Runs serialised programs on the engine alone, without PJRT, and compares the
results with the interpreter's.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import jaxlib.ipu
from jaxlib.ipu.check import interp
from jaxlib.ipu.dtypes import NUMPY, DType
from jaxlib.ipu.program import container

_ERROR_BYTES = 1024


class EngineError(Exception):
  """The engine refused a program; `code` is PJRT's."""

  def __init__(self, code: int, message: str) -> None:
    super().__init__(message)
    self.code = code


class EngineResult(NamedTuple):
  outputs: list[np.ndarray]
  cycles: float
  exchange_bytes: float


@functools.cache
def _entry() -> Any:
  path = Path(jaxlib.ipu.__file__).parent / "libjaxipu.so"
  function = ctypes.CDLL(str(path)).ipu_run_program
  function.restype = ctypes.c_int
  return function


def run(data: bytes, arguments: Sequence[np.ndarray]) -> EngineResult:
  """Runs a serialised program once.

  Raises:
    EngineError: the program is refused.
  """
  outputs = _unwritten(data)
  inputs = [np.ascontiguousarray(a).reshape(np.shape(a)) for a in arguments]
  return EngineResult(outputs, *call(data, inputs, outputs))


def run_together(
  data: bytes, arguments: Sequence[Sequence[np.ndarray]], threads: bool
) -> list[list[np.ndarray]]:
  """Runs a serialised program on several devices; returns the results of each.

  Args:
    data: the program.
    arguments: of each device.
    threads: whether each device has a thread.

  Raises:
    EngineError: the program is refused, or fails.
  """
  outputs = [_unwritten(data) for _ in arguments]
  inputs = [
    np.ascontiguousarray(a).reshape(np.shape(a))
    for own in arguments
    for a in own
  ]
  call(data, inputs, sum(outputs, []), len(arguments), threads)
  return outputs


def _unwritten(data: bytes) -> list[np.ndarray]:
  """Arrays for a program's results; what is not written is visible."""
  program, _ = container.read(data)
  outputs = []
  for number in program.results:
    t = program.tensors[number]
    raw = np.full(
      int(np.prod(t.shape)) * NUMPY[DType(t.dtype)].itemsize, 0xA5, np.uint8
    )
    outputs.append(raw.view(NUMPY[DType(t.dtype)]).reshape(t.shape))
  return outputs


def call(
  data: bytes,
  inputs: Sequence[np.ndarray],
  outputs: Sequence[np.ndarray],
  num_devices: int = 1,
  threads: bool = False,
) -> tuple[float, float]:
  """Passes bytes, valid or not, to the engine; fills `outputs`. Those of
  several devices follow each other.

  Returns:
    The cycles and exchanged bytes of the run.

  Raises:
    EngineError: the program is refused.
  """
  counters = (ctypes.c_double * 2)()
  error = ctypes.create_string_buffer(_ERROR_BYTES)
  code = _entry()(
    data, ctypes.c_size_t(len(data)), ctypes.c_size_t(num_devices),
    int(threads), _pointers(inputs), _pointers(outputs), counters, error,
    ctypes.c_size_t(_ERROR_BYTES),
  )  # fmt: skip
  if code:
    raise EngineError(code, error.value.decode())
  return counters[0], counters[1]


def _pointers(arrays: Sequence[np.ndarray]) -> Any:
  return (ctypes.c_void_p * max(len(arrays), 1))(
    *(a.ctypes.data for a in arrays)
  )


def same(
  actual: np.ndarray,
  expected: np.ndarray,
  ulps: int = 0,
  atol: float = 0.0,
  zero_signs: bool = True,
) -> None:
  """Bits are equal except for NaN; floats may differ by `ulps` units and
  `atol`.

  Zeros have the same sign, unless `zero_signs` is false.
  """
  assert actual.shape == expected.shape and actual.dtype == expected.dtype
  dtype = expected.dtype
  if dtype.kind not in "fV":
    np.testing.assert_array_equal(actual, expected)
    return
  import ml_dtypes

  a, e = actual.astype(np.float64), expected.astype(np.float64)
  rtol = ulps * float(ml_dtypes.finfo(dtype).eps)
  np.testing.assert_allclose(a, e, rtol=rtol, atol=atol, equal_nan=True)
  if zero_signs:
    zeros = (a == 0) & (e == 0)
    np.testing.assert_array_equal(np.signbit(a[zeros]), np.signbit(e[zeros]))


def check(
  data: bytes,
  arguments: Sequence[np.ndarray],
  *,
  ulps: int = 0,
  atol: float = 0.0,
  zero_signs: bool = True,
  **options: Any,
) -> list[np.ndarray]:
  """The engine's results and counters match the interpreter's."""
  expected = interp.run(data, arguments, **options)
  actual = run(data, arguments)
  for a, e in zip(actual.outputs, expected.outputs, strict=True):
    same(a, e, ulps, atol, zero_signs)
  planned = sum(x.planned for x in expected.exchanges)
  assert actual.exchange_bytes == planned
  return expected.outputs
