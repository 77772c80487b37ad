"""Host callbacks and FFI targets on the IPU, for JAX.

JAX's four ways to call Python from a program (`jax.debug.print`,
`jax.debug.callback`, `jax.pure_callback`, `jax.experimental.io_callback`)
share one function that lowers to a platform's custom call, and that knows
platforms by name. This module adds the IPU.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import dataclasses
import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

PLATFORM = "ipu"

logger = logging.getLogger("jaxlib.ipu")


def register() -> None:
  """Registers callbacks on the IPU, once; the platform must be registered."""
  from jaxlib.ipu import internals

  internals.allow_callbacks(_wrap)
  internals.register_debug_rules(_as_debugging)
  with _reporting():
    internals.register_ffi_handlers(_register_target, _register_type)


def _wrap(emit: Callable[..., Any]) -> Callable[..., Any]:
  """Extends `emit_python_callback` to the IPU."""

  @functools.wraps(emit)
  def wrapper(ctx: Any, *args: Any, **kwargs: Any) -> Any:
    if tuple(ctx.module_context.platforms) != (PLATFORM,):
      return emit(ctx, *args, **kwargs)
    return _emit(ctx, *args, **kwargs)

  return wrapper


# Whether the rule of a debugging primitive is running on this thread.
_debugging: contextvars.ContextVar[bool] = contextvars.ContextVar(
  "debugging", default=False
)


def _as_debugging(rule: Callable[..., Any]) -> Callable[..., Any]:
  """Marks the callbacks that a rule emits: what they print comes before what
  the caller prints after its call, as in JAX on CPU."""

  @functools.wraps(rule)
  def wrapper(*args: Any, **kwargs: Any) -> Any:
    token = _debugging.set(True)
    try:
      return rule(*args, **kwargs)
    finally:
      _debugging.reset(token)

  return wrapper


def _emit(
  ctx: Any,
  callback: Callable[..., Sequence[Any]],
  token: Any | None,
  operands: Sequence[Any],
  operand_avals: Sequence[Any],
  result_avals: Sequence[Any],
  *,
  has_side_effect: bool,
  returns_token: bool = True,
  partitioned: bool = False,
  sharding: Any = None,
) -> tuple[Sequence[Any], Any, Any]:
  """Emits a custom call of a Python function.

  Arguments and return values (results, token, function) are those of JAX's own
  `emit_python_callback`.
  """
  from jaxlib.ipu import host_functions, internals

  del returns_token  # follows from `token`
  if partitioned and result_avals:
    raise ValueError("a partitioned callback cannot return values")
  result_types = array_types(result_avals)
  function = host_functions.PythonFunction(
    _canonical(callback, [dtype for dtype, _ in result_types]),
    array_types(operand_avals),
    result_types,
  )
  # JAX keeps it alive as long as the executable, and runs of it, exist. Older
  # versions also keep such programs out of the compilation cache; in any case
  # the process number in the call keeps other processes from using them.
  ctx.module_context.add_host_callback(function)
  finish_at_exit()
  if token is not None:
    operands = [token, *operands]
    aval = internals.abstract_token()
    if aval is None:
      raise NotImplementedError(
        "ordered callbacks on the IPU with this version of JAX"
      )
    ctx = dataclasses.replace(
      ctx, avals_in=[aval, *ctx.avals_in], avals_out=[aval, *ctx.avals_out]
    )
    if result_avals:
      sharding = _with_token(sharding)
  operation = internals.emit_call(
    host_functions.PYTHON_TARGET_OF_PARTS
    if partitioned
    else host_functions.PYTHON_TARGET,
    has_side_effect,
    sharding,
    {},
    ctx,
    *operands,
    process=np.uint64(host_functions.PROCESS),
    function=np.uint64(function.number),
    caller_waits=np.uint64(_debugging.get()),
  )
  assert operation is not None  # a required feature, which raises instead
  results = list(operation.results)
  if token is not None:
    token = results.pop(0)
  return results, token, function


def _with_token(sharding: Any) -> Any:
  """The shardings of a token and, after it, of some results."""
  first, *rest = getattr(sharding, "shardings", (None,))
  if first is None:
    return sharding  # GSPMD's covers all results
  token = dataclasses.replace(first, dim_shardings=())
  return dataclasses.replace(sharding, shardings=(token, first, *rest))


def _canonical(
  callback: Callable[..., Any], expected: Sequence[np.dtype[Any]]
) -> Callable[..., list[Any]]:
  """Converts results to NumPy arrays of the types that JAX gives such
  values."""

  def call(*args: Any) -> list[Any]:
    values = [np.asarray(v) for v in callback(*args)]
    for i, (value, dtype) in enumerate(zip(values, expected)):
      if value.dtype != dtype:
        values[i] = _canonical_array(value)
    return values

  return call


def _canonical_array(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
  import jax

  kinds = (np.number, np.bool_)  # jax.dtypes knows more types than NumPy
  if not any(jax.dtypes.issubdtype(value.dtype, kind) for kind in kinds):
    raise TypeError(
      f"Dtype {value.dtype} is not a valid JAX array type. Only arrays of "
      "numeric types are supported by JAX."
    )
  return value.astype(jax.dtypes.canonicalize_dtype(value.dtype))


def array_types(
  avals: Sequence[Any],
) -> list[tuple[np.dtype[Any], tuple[int, ...]]]:
  import jax
  from jaxlib.ipu import internals

  types = []
  for aval in (internals.physical_aval(a) or a for a in avals):
    bool_ = aval.dtype == jax.dtypes.float0
    types.append((np.dtype(bool if bool_ else aval.dtype), tuple(aval.shape)))
  return types


@functools.cache
def finish_at_exit() -> None:
  """Waits for programs with effects before Python exits.

  Registered after the library's exit handler, so called before it. Errors are
  left to JAX's own waiting, which comes after both.
  """
  import jax
  from jaxlib.ipu import feeds

  def finish() -> None:
    feeds.close()  # nobody fills them any more
    with contextlib.suppress(Exception):
      jax.effects_barrier()

  atexit.register(finish)


# Whether JAX is passing on what users registered before there was a client.
_passing_on = False


@contextlib.contextmanager
def _reporting() -> Iterator[None]:
  """Meanwhile, a registration that is refused does not prevent others."""
  global _passing_on
  _passing_on = True
  try:
    yield
  finally:
    _passing_on = False


def _refuse(what: str, error: Exception) -> None:
  """Raises the error of a registration, or logs it if its caller is gone."""
  if not _passing_on:
    raise error
  logger.warning("%s for the IPU is refused: %s", what, error)


def _register_target(
  name: str,
  function: Any,
  platform: str,
  /,
  api_version: int = 0,
  traits: Any = None,
) -> None:
  """The handler of `jax.ffi.register_ffi_target(..., platform="ipu")`."""
  del platform, traits
  from jaxlib.ipu import ffi_targets, plugin

  try:
    ffi_targets.register(plugin.load(), name, function, api_version)
  except Exception as error:
    _refuse(f"FFI target {name!r}", error)


def _register_type(name: str, registration: Any) -> None:
  """The handler of `jax.ffi.register_ffi_type(..., platform="ipu")`."""
  from jaxlib.ipu import ffi_targets, plugin

  try:
    ffi_targets.register_type(plugin.load(), name, registration)
  except Exception as error:
    _refuse(f"FFI type {name!r}", error)
