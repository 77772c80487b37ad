"""Functions of the host that programs call: Python's, and FFI targets.

A program that calls Python names a function by two numbers, this process and
the function's place in the registry below. The registry does not keep the
function alive: JAX does, for as long as an executable that calls it exists or
runs. The engine is handed one C function that calls any of them.

FFI targets are compiled functions (`ffi_targets.py`). The engine calls them
without Python; the compiler asks here which ones there are.
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

# What the custom call of a Python function is called in StableHLO.
PYTHON_TARGET = "ipu_python_callback"

# Tells this process from another one that loads its programs.
PROCESS = int.from_bytes(os.urandom(7), "little")

Array = np.ndarray[Any, Any]
ArrayType = tuple[np.dtype[Any], tuple[int, ...]]


class PythonFunction:
  """A Python function that a program calls, with its array types.

  Attributes:
    number: names it in this process's programs.
    operands, results: (dtype, shape) of each array it takes and gives.
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
    with _lock:
      self.number = next(_numbers)
      _functions[self.number] = self

  def __call__(self, *arguments: Array) -> tuple[Array, ...]:
    """Calls the function.

    Raises:
      RuntimeError: it returned something else than the program expects.
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

  def __reduce__(self) -> str:
    raise TypeError(
      "a program that calls a Python function (jax.debug.print, "
      "jax.pure_callback, ...) cannot be serialized"
    )

  def run(self, operands: Sequence[int], results: Sequence[int]) -> None:
    """Calls the function on arrays at addresses. It gets copies, since the
    device goes on with its memory while the user may keep them."""
    arguments = [
      _at(address, dtype, shape).copy()
      for address, (dtype, shape) in zip(operands, self.operands)
    ]
    for address, value in zip(results, self(*arguments)):
      _at(address, value.dtype, value.shape)[...] = value


class InPlaceFunction(PythonFunction):
  """A Python function that fills the memory of its results.

  It is called with the operands, which it must not write to, and with the
  results. Both last as long as the call.

  Attributes:
    aliases: (operand, result) pairs of one memory.
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
    arrays = [
      _at(address, dtype, shape)
      for address, (dtype, shape) in zip(
        (*operands, *results), (*self.operands, *self.results)
      )
    ]
    self._fill(*arrays)


_lock = threading.Lock()
_numbers = itertools.count()
_functions: weakref.WeakValueDictionary[int, PythonFunction] = (
  weakref.WeakValueDictionary()
)


def find(process: int, number: int) -> PythonFunction:
  """The function that a program names.

  Raises:
    LookupError: the program was compiled by another process, or nobody keeps
      the function any more.
  """
  if process != PROCESS:
    raise LookupError(
      "the program calls a Python function of the process that compiled it, "
      "which is not this one: compile it here"
    )
  function = _functions.get(number)
  if function is None:
    raise LookupError(f"Python function {number} of this process is gone")
  return function


# (attributes, operands, types of the results, aliases) -> results
Call = Callable[
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


_targets: dict[str, Call] = {PYTHON_TARGET: _call_python}


def add_target(name: str, call: Call) -> None:
  """Lets programs call a function.

  Args:
    name: of the function.
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
  """Calls what a step of a program names, from Python.

  Args:
    step: names it.
    operands: what it is given.
    results: the types of what it gives.
  """
  run = _targets[step.target]
  return run(step.attributes, operands, results, step.aliases)


# int (process, number, operands, results, sink); 1: the results are there
_CallFunction = ctypes.CFUNCTYPE(
  ctypes.c_int,
  ctypes.c_uint64,
  ctypes.c_uint64,
  ctypes.c_void_p,
  ctypes.c_void_p,
  ctypes.c_void_p,
)


def connect(library: ctypes.CDLL) -> None:
  """Hands the library the way to Python functions, until Python ends."""
  library.ipu_host_call_failed.argtypes = [
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_size_t,
  ]
  library.ipu_host_call_failed.restype = None
  library.ipu_set_host_caller.argtypes = [_CallFunction]
  library.ipu_set_host_caller.restype = None

  def call(
    process: int, number: int, operands: int, results: int, sink: int
  ) -> int:
    _keep_thread_state()
    try:
      _call(find(process, number), operands, results)
      return 1
    except BaseException:  # nobody else would see it
      text = traceback.format_exc().encode(errors="replace")
      library.ipu_host_call_failed(sink, text, len(text))
      return 0

  caller = _CallFunction(call)
  library.ipu_set_host_caller(caller)
  # Waits for the calls under way, without the interpreter's lock.
  atexit.register(library.ipu_set_host_caller, _CallFunction(0))
  library.host_caller = caller  # type: ignore[attr-defined]  # keep it alive


_thread = threading.local()


def _keep_thread_state() -> None:
  """Lets this thread, which is not Python's, keep what Python made for it.

  Otherwise that goes with each call, and with it all that is local to the
  thread: to make it again takes longer than most functions of the host. The
  threads are those of the devices' queues, so there are few.
  """
  if not hasattr(_thread, "kept"):
    _thread.kept = True
    ctypes.pythonapi.PyGILState_Ensure()  # never released


def _call(function: PythonFunction, operands: int, results: int) -> None:
  function.run(
    _addresses(operands, len(function.operands)),
    _addresses(results, len(function.results)),
  )


def _addresses(table: int, count: int) -> Sequence[int]:
  return (ctypes.c_size_t * count).from_address(table)[:] if count else []


def _at(address: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
  """The array at an address, which lasts as long as the call."""
  size = math.prod(shape) * dtype.itemsize
  if not size:
    return np.empty(shape, dtype)
  memory: Any = (ctypes.c_byte * size).from_address(address)
  return np.ndarray(shape, dtype, memory)
