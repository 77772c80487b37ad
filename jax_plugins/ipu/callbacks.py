"""Host callbacks and FFI targets on the IPU, for JAX.

JAX's four ways to call Python from a program (`jax.debug.print`,
`jax.debug.callback`, `jax.pure_callback`, `jax.experimental.io_callback`)
share one function that lowers to a platform's custom call, and that knows
platforms by name. This module adds the IPU.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

PLATFORM = "ipu"


def register() -> None:
  """Registers callbacks on the IPU, once; the platform must be registered."""
  from jaxlib.ipu import internals

  internals.allow_callbacks(_wrap)
  internals.register_debug_rules()
  internals.register_ffi_handlers(_register_target, _register_type)


def _wrap(emit: Callable[..., Any]) -> Callable[..., Any]:
  """Extends `emit_python_callback` to the IPU."""

  @functools.wraps(emit)
  def wrapper(ctx: Any, *args: Any, **kwargs: Any) -> Any:
    if tuple(ctx.module_context.platforms) != (PLATFORM,):
      return emit(ctx, *args, **kwargs)
    return _emit(ctx, *args, **kwargs)

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
    host_functions.PYTHON_TARGET,
    has_side_effect,
    sharding,
    {},
    ctx,
    *operands,
    process=np.uint64(host_functions.PROCESS),
    function=np.uint64(function.number),
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
  from jaxlib.ipu import internals

  def call(*args: Any) -> list[Any]:
    values = [np.asarray(v) for v in callback(*args)]
    for i, (value, dtype) in enumerate(zip(values, expected)):
      if value.dtype != dtype:
        canonical = internals.canonical(value)
        values[i] = value if canonical is None else canonical
    return values

  return call


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

  def finish() -> None:
    with contextlib.suppress(Exception):
      jax.effects_barrier()

  atexit.register(finish)


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

  ffi_targets.register(plugin.load(), name, function, api_version)


def _register_type(name: str, registration: Any) -> None:
  """The handler of `jax.ffi.register_ffi_type(..., platform="ipu")`."""
  from jaxlib.ipu import ffi_targets, plugin

  ffi_targets.register_type(plugin.load(), name, registration)
