"""Host functions that programs call: Python functions and FFI targets.

A program that calls Python names a function by two numbers, this process and
the function's number in the registry below. The registry does not keep the
function alive: JAX does, as long as an executable that calls it exists or runs.
The engine gets one C function that calls any of them.

FFI targets are compiled functions (`ffi_targets.py`). The engine calls them
without Python; the compiler looks up their names here.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import math
import os
import threading
import traceback
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlib.ipu.program import schema

# The target of custom calls of Python functions in StableHLO.
PYTHON_TARGET = "ipu_python_callback"
# The same of functions that get each device's part, not the whole arrays.
PYTHON_TARGET_OF_PARTS = "ipu_partitioned_python_callback"

# Distinguishes this process from others that load its programs.
PROCESS = int.from_bytes(os.urandom(7), "little")

Array = np.ndarray[Any, Any]
ArrayType = tuple[np.dtype[Any], tuple[int, ...]]


# Copies of so many bytes begin at a multiple of _ALIGNMENT, as what JAX
# allocates does: the CPU's `device_put`, to which JAX passes a callback's
# arguments, takes those as they are and copies all others. Measured: to align a
# copy takes 1.4 us; `device_put` of 64 KB takes 1 us less then, of 256 KB 3 to
# 14 less, of 4 MB 20 to 330.
_WORTH_ALIGNING = 1 << 17
_ALIGNMENT = 64


class _ArrayAt:
  """Makes arrays of one type at addresses, valid only during a call.

  Attributes:
    size: bytes of such an array.
  """

  def __init__(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    self._dtype = dtype
    self._shape = shape
    self.size = math.prod(shape) * dtype.itemsize
    self._memory: Any = ctypes.c_byte * self.size

  def __call__(self, address: int) -> Array:
    if not self.size:
      return np.empty(self._shape, self._dtype)
    memory = self._memory.from_address(address)
    return np.ndarray(self._shape, self._dtype, memory)

  def copy(self, address: int) -> Array:
    """A copy of the array, which stays valid."""
    array = self(address)
    if self.size < _WORTH_ALIGNING:
      return array.copy()
    memory = np.empty(self.size + _ALIGNMENT, np.uint8)
    offset = -memory.ctypes.data % _ALIGNMENT
    copy: Array = np.ndarray(self._shape, self._dtype, memory, offset)
    copy[...] = array
    return copy


class PythonFunction:
  """A Python function that a program calls, with its array types.

  Attributes:
    number: its name in this process's programs.
    operands, results: (dtype, shape) of its arguments and results.
  """

  def __init__(
    self,
    function: Callable[..., Sequence[Any]],
    operands: Sequence[ArrayType],
    results: Sequence[ArrayType],
  ) -> None:
    self._function = function
    self.operands = tuple(operands)
    self.results = tuple(results)
    self._operands_at = [_ArrayAt(*t) for t in self.operands]
    self._results_at = [_ArrayAt(*t) for t in self.results]
    self._operand_table: Any = ctypes.c_size_t * len(self.operands)
    self._result_table: Any = ctypes.c_size_t * len(self.results)
    self._sizes = (
      len(self.operands),
      len(self.results),
      *(at.size for at in (*self._operands_at, *self._results_at)),
    )
    self._of_parts: dict[tuple[tuple[int, ...], ...], PythonFunction] = {}
    with _lock:
      self.number = next(_numbers)
      _functions[self.number] = self

  def of_parts(self, shapes: Sequence[tuple[int, ...]]) -> PythonFunction:
    """The same function of one device's parts of its arguments, which lives as
    long as this one.

    Args:
      shapes: those of the parts.
    """
    key = tuple(shapes)
    if key == tuple(shape for _, shape in self.operands):
      return self
    types = [
      (dtype, shape)
      for (dtype, _), shape in zip(self.operands, key, strict=True)
    ]
    with _parts_lock:
      if key not in self._of_parts:
        made = PythonFunction(self._function, types, self.results)
        self._of_parts[key] = made
      return self._of_parts[key]

  def __call__(self, *arguments: Array) -> tuple[Array, ...]:
    """Calls the function.

    Raises:
      RuntimeError: its results do not have the expected types.
    """
    values = [np.asarray(v) for v in self._function(*arguments)]
    if len(values) != len(self.results):
      raise RuntimeError(
        f"Mismatched number of outputs from callback. Expected: "
        f"{len(self.results)}, Actual: {len(values)}"
      )
    for i, (value, (dtype, shape)) in enumerate(zip(values, self.results)):
      for what, expected, actual in (
        ("shape", shape, value.shape),
        ("dtype", dtype, value.dtype),
      ):
        if actual != expected:
          raise RuntimeError(
            f"Incorrect output {what} for return value #{i}: Expected: "
            f"{expected}, Actual: {actual}"
          )
    return tuple(values)

  def check(self, sizes: int) -> None:
    """Compares the arrays of a call with those that the function takes: the
    program may have been changed since it was compiled.

    Args:
      sizes: the address of the numbers of operands and results, followed by
        the bytes of each.

    Raises:
      ValueError: they differ.
    """
    count = sum(_addresses(sizes, 2))
    found = tuple(_addresses(sizes, 2 + count))
    if found != self._sizes:
      raise ValueError(
        f"a program calls Python function {self.number} with arrays of "
        f"{list(found[2:])} bytes, which takes and returns {self._sizes[0]} "
        f"and {self._sizes[1]} of {list(self._sizes[2:])} bytes"
      )

  def __reduce__(self) -> str:
    raise TypeError(
      "a program that calls a Python function (jax.debug.print, "
      "jax.pure_callback, ...) cannot be serialized"
    )

  def run_at(self, operands: int | None, results: int | None) -> None:
    """Calls the function on arrays.

    Args:
      operands, results: the address of a table of the arrays' addresses, or
        None if it is empty.
    """
    self.run(
      self._operand_table.from_address(operands)[:] if operands else (),
      self._result_table.from_address(results)[:] if results else (),
    )

  def run(self, operands: Sequence[int], results: Sequence[int]) -> None:
    """Calls the function on arrays at addresses. It gets copies: the user may
    keep its arguments, while the device reuses their memory."""
    arguments = [
      at.copy(address) for at, address in zip(self._operands_at, operands)
    ]
    values = self(*arguments)
    for at, address, value in zip(self._results_at, results, values):
      at(address)[...] = value


class InPlaceFunction(PythonFunction):
  """A Python function that writes its results in place.

  It is called with the operands, which it must not modify, and with the
  results. Both are valid only during the call.

  Attributes:
    aliases: (operand, result) pairs that share memory.
  """

  def __init__(
    self,
    function: Callable[..., object],
    operands: Sequence[ArrayType],
    results: Sequence[ArrayType],
    aliases: Sequence[tuple[int, int]],
  ) -> None:
    super().__init__(lambda: (), operands, results)
    self._fill = function
    self.aliases = tuple(aliases)

  def __call__(self, *arguments: Array) -> tuple[Array, ...]:
    inputs = list(arguments)
    results = [np.zeros(shape, dtype) for dtype, shape in self.results]
    for i, j in self.aliases:
      results[j][...] = inputs[i]
      inputs[i] = results[j]
    self._fill(*inputs, *results)
    return tuple(results)

  def run(self, operands: Sequence[int], results: Sequence[int]) -> None:
    self._fill(
      *(at(address) for at, address in zip(self._operands_at, operands)),
      *(at(address) for at, address in zip(self._results_at, results)),
    )


_lock = threading.Lock()
_parts_lock = threading.Lock()
_numbers = itertools.count()
_functions: weakref.WeakValueDictionary[int, PythonFunction] = (
  weakref.WeakValueDictionary()
)


def find(process: int, number: int) -> PythonFunction:
  """The function that a program names.

  Raises:
    LookupError: the program was compiled by another process, or the function
      is no longer alive.
  """
  if process != PROCESS:
    raise LookupError(
      "the program calls a Python function of the process that compiled it, "
      "which is not this one: compile it here"
    )
  function = _functions.get(number)
  if function is None:
    raise LookupError(f"Python function {number} no longer exists")
  return function


# (attributes, operands, types of the results, aliases) -> results
Function = Callable[
  [
    Sequence[schema.Attribute],
    Sequence[Array],
    Sequence[ArrayType],
    Sequence[int],
  ],
  Sequence[Array],
]


def _call_python(
  attributes: Sequence[schema.Attribute],
  operands: Sequence[Array],
  results: Sequence[ArrayType],
  aliases: Sequence[int],
) -> Sequence[Array]:
  told = {a.name: int.from_bytes(a.data, "little") for a in attributes}
  return find(told["process"], told["function"])(*operands)


_targets: dict[str, Function] = {PYTHON_TARGET: _call_python}


def add_target(name: str, call: Function) -> None:
  """Registers a function that programs can call.

  Args:
    name: of the target.
    call: calls it from Python.
  """
  _targets[name] = call


def has_target(name: str) -> bool:
  """Whether a program can call a function of this name."""
  return name in _targets


def call(
  step: schema.HostCallback,
  operands: Sequence[Array],
  results: Sequence[ArrayType],
) -> Sequence[Array]:
  """Calls the target of a program's step from Python.

  Args:
    step: the step.
    operands: its operands.
    results: the types of its results.
  """
  run = _targets[step.target]
  return run(step.attributes, operands, results, step.aliases)


# int (process, number, sizes, operands, results, sink); returns 1 on success
_CallFunction = ctypes.CFUNCTYPE(
  ctypes.c_int,
  ctypes.c_uint64,
  ctypes.c_uint64,
  ctypes.c_void_p,
  ctypes.c_void_p,
  ctypes.c_void_p,
  ctypes.c_void_p,
)


def connect(library: ctypes.CDLL) -> None:
  """Gives the library access to Python functions, until Python exits."""
  library.ipu_host_call_failed.argtypes = [
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_size_t,
  ]
  library.ipu_host_call_failed.restype = None
  library.ipu_set_host_caller.argtypes = [_CallFunction]
  library.ipu_set_host_caller.restype = None

  def call(
    process: int,
    number: int,
    sizes: int,
    operands: int | None,
    results: int | None,
    sink: int,
  ) -> int:
    keep_thread_state()
    try:
      function = find(process, number)
      function.check(sizes)
      function.run_at(operands, results)
      return 1
    except BaseException:  # reported here or never
      text = traceback.format_exc().encode(errors="replace")
      library.ipu_host_call_failed(sink, text, len(text))
      return 0

  caller = _CallFunction(call)
  library.ipu_set_host_caller(caller)
  # Waits for running calls, without holding the GIL.
  atexit.register(library.ipu_set_host_caller, _CallFunction(0))
  library.host_caller = caller  # type: ignore[attr-defined]  # keep it alive


_thread = threading.local()


def keep_thread_state() -> None:
  """Keeps the Python thread state of this thread, which Python did not create.

  Otherwise it is freed after each call, together with all thread-local data: to
  make it again takes longer than most host functions. Such threads are those of
  the devices' queues, so there are few; those of Python keep theirs anyway.
  """
  if not hasattr(_thread, "kept"):
    _thread.kept = True
    ctypes.pythonapi.PyGILState_Ensure()  # never released


def _addresses(table: int, count: int) -> Sequence[int]:
  return (ctypes.c_size_t * count).from_address(table)[:] if count else []
