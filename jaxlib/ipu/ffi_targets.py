"""FFI targets: compiled functions that users register with `jax.ffi`.

The library stores their addresses and calls them. Like a Python function, a
target runs on the host, between two streams.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxlib.ipu import host_functions
from jaxlib.ipu.dtypes import COMPLEX, NUMPY, stored
from jaxlib.ipu.host_functions import Array, ArrayType
from jaxlib.ipu.program import container, schema

# The handlers' stages, in the order of the library's table.
STAGES = ("instantiate", "prepare", "initialize", "execute")

# The API version of the typed FFI in `jax.ffi.register_ffi_target`.
_TYPED = 1
_ERROR_BYTES = 1024
_Prepare = ctypes.CFUNCTYPE(None)
_kept: dict[str, Any] = {}  # keeps alive what the library points to
_NUMBERS = {numpy: dtype for dtype, numpy in NUMPY.items()}


def register(
  library: ctypes.CDLL,
  name: str,
  function: Any,
  api_version: int,
  prepare: Callable[[], object] | None = None,
) -> None:
  """Registers a target with the compiler and the library.

  Args:
    library: libjaxipu.so.
    name: of the target. An existing one of this name is replaced.
    function: a PyCapsule with the address of an FFI handler, or a dictionary
      with one for each of `STAGES` that exists.
    api_version: 1, the typed FFI.
    prepare: called before the handlers are. (A program that calls them may
      have been compiled and serialised by another process.)

  Raises:
    TypeError: a handler is not a PyCapsule.
    ValueError: the version or the handlers are not supported.
  """
  if api_version != _TYPED:
    raise ValueError(
      f"FFI target {name!r} of API version {api_version}: the IPU backend "
      f"calls functions of the typed FFI, api_version={_TYPED}"
    )
  stages = function if isinstance(function, Mapping) else {"execute": function}
  unknown = [s for s in stages if s not in STAGES]
  if unknown or "execute" not in stages:
    raise ValueError(
      f"FFI target {name!r} has handlers for {list(stages)}: expected "
      f"'execute', and any of {', '.join(STAGES[:-1])}"
    )
  handlers = (ctypes.c_void_p * len(STAGES))(
    *(
      _address(stages[s], f"FFI target {name!r}, {s!r}")
      if s in stages
      else None
      for s in STAGES
    )
  )
  called = _Prepare(prepare) if prepare else _Prepare(0)
  _run(library.ipu_register_ffi_target, name.encode(), handlers, called)
  _kept[name] = called

  def call(
    attributes: Sequence[schema.Attribute],
    operands: Sequence[Array],
    results: Sequence[ArrayType],
    aliases: Sequence[int],
  ) -> Sequence[Array]:
    code = _program(name, attributes, operands, results, aliases)
    inputs = [np.ascontiguousarray(a).reshape(a.shape) for a in operands]
    outputs = [np.empty(shape, dtype) for dtype, shape in results]
    _run(
      library.ipu_run_program,
      code,
      ctypes.c_size_t(len(code)),
      ctypes.c_size_t(1),
      0,
      _pointers(inputs),
      _pointers(outputs),
      None,
    )
    return outputs

  host_functions.add_target(name, call)


def register_type(
  library: ctypes.CDLL, name: str, registration: Mapping[str, Any]
) -> None:
  """Registers a type of handlers' states with the library.

  Args:
    library: libjaxipu.so.
    name: of the type.
    registration: PyCapsules with the addresses of the type's XLA_FFI_TypeId,
      `type_id`, and optionally its XLA_FFI_TypeInfo, `type_info`.

  Raises:
    TypeError, KeyError: the registration has another form.
    ValueError: the type is already registered with another destructor.
  """
  what = f"FFI type {name!r}"
  info = registration.get("type_info")
  _run(
    library.ipu_register_ffi_type,
    ctypes.c_void_p(_address(registration["type_id"], f"{what}, 'type_id'")),
    ctypes.c_void_p(
      _address(info, f"{what}, 'type_info'") if info is not None else None
    ),
  )


def _run(function: Any, *args: Any) -> None:
  """Calls a function of the library whose last arguments return an error."""
  error = ctypes.create_string_buffer(_ERROR_BYTES)
  function.restype = ctypes.c_int
  if function(*args, error, ctypes.c_size_t(_ERROR_BYTES)):
    raise ValueError(error.value.decode(errors="replace"))


def _address(capsule: Any, what: str) -> int:
  if type(capsule).__name__ != "PyCapsule":
    raise TypeError(
      f"{what} is {capsule!r}: expected a PyCapsule with an address, as from "
      "jax.ffi.pycapsule"
    )
  name = ctypes.pythonapi.PyCapsule_GetName
  name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
  pointer = ctypes.pythonapi.PyCapsule_GetPointer
  pointer.restype = ctypes.c_void_p
  pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
  return pointer(capsule, name(capsule))


def _pointers(arrays: Sequence[Array]) -> Any:
  return (ctypes.c_void_p * max(len(arrays), 1))(
    *(a.ctypes.data for a in arrays)
  )


def _program(
  name: str,
  attributes: Sequence[schema.Attribute],
  operands: Sequence[Array],
  results: Sequence[ArrayType],
  aliases: Sequence[int],
) -> bytes:
  """A program that only calls a target."""
  types = [(a.dtype, a.shape) for a in operands] + list(results)
  mappings = []
  tensors = []
  for i, (dtype, shape) in enumerate(types):
    number = _NUMBERS[dtype]
    if number in COMPLEX:
      shape = (*shape, 2)
    size = math.prod(shape)
    mappings.append(schema.Mapping(0, [size], [max(size, 1)], [0], [], []))
    space, address = schema.ARGUMENT, i
    if i >= len(operands):
      space, address = schema.RESULT, i - len(operands)
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    tensors.append(
      schema.Tensor(
        stored(number), list(shape), i, i, 0, strides, space, address
      )
    )
  arrays = [
    schema.HostArray(i, list(range(len(shape))), _NUMBERS[dtype])
    for i, (dtype, shape) in enumerate(types)
  ]
  arguments = list(range(len(operands)))
  step = schema.HostCallback(
    name,
    list(attributes),
    arrays[: len(operands)],
    arrays[len(operands) :],
    list(aliases),
    schema.Cost(0, 0, 0, 0, 0),
    0,
  )
  program = schema.Program(
    name=name,
    target=schema.Target("host", 1, 1, 1.0),
    mappings=mappings,
    tensors=tensors,
    arguments=arguments,
    results=list(range(len(operands), len(types))),
    host_types=[],
    layouts=[],
    aliases=[],
    donors=[],
    arena_bytes=0,
    steps=[step],
    locations=[schema.Location("", "", "", 0)],
    cost_analysis=[],
    memory=schema.Memory(0, 0, 0, 0, 0, 0, 0),
    estimated_seconds=0.0,
    module=b"",
    omissions=[],
  )
  return container.write(program, b"")
