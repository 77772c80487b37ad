"""`jax.experimental.buffer_callback` on the IPU: Python functions that write
their results in place, in the host's memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from jax_plugins.ipu import callbacks


class Buffer:
  """An array passed to the function: memory that is valid during the call.

  The equivalent of other platforms' `jax.experimental.buffer_callback.Buffer`.
  """

  def __init__(self, array: np.ndarray, writeable: bool) -> None:
    self._array = array
    self._array.flags.writeable = writeable

  @property
  def shape(self) -> tuple[int, ...]:
    return self._array.shape

  @property
  def ndim(self) -> int:
    return self._array.ndim

  @property
  def dtype(self) -> np.dtype[Any]:
    return self._array.dtype

  @property
  def writeable(self) -> bool:
    return self._array.flags.writeable

  def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
    return np.array(self._array, dtype, copy=copy)

  def __dlpack__(self, **options: Any) -> Any:
    return self._array.__dlpack__(**options)

  def __dlpack_device__(self) -> Any:
    return self._array.__dlpack_device__()


class ExecutionContext:
  """The function's context: its stage; there are no streams."""

  @property
  def stage(self) -> Any:
    from jax.experimental import buffer_callback

    return buffer_callback.ExecutionStage.EXECUTE

  @property
  def stream(self) -> NoReturn:
    import jax

    raise jax.errors.JaxRuntimeError(
      "UNIMPLEMENTED: XLA FFI GPU context is not available: the host calls the "
      "function, an IPU has no streams"
    )


def lower(
  ctx: Any,
  *operands: Any,
  callback: Callable[..., object],
  in_tree: Any,
  out_tree: Any,
  has_side_effect: bool,
  input_output_aliases: Sequence[tuple[int, int]],
  **_: Any,
) -> Any:
  """The lowering rule of the primitive `buffer_callback`."""
  import jax
  from jaxlib.ipu import host_functions, internals

  def fill(*arrays: np.ndarray) -> None:
    count = in_tree.num_leaves
    out = [Buffer(a, writeable=True) for a in arrays[count:]]
    given = [Buffer(a[...], writeable=False) for a in arrays[:count]]
    args, kwargs = jax.tree.unflatten(in_tree, given)
    result = callback(
      ExecutionContext(), jax.tree.unflatten(out_tree, out), *args, **kwargs
    )
    if result is not None:
      raise ValueError("buffer_callback callback must not return any values.")

  function = host_functions.InPlaceFunction(
    fill,
    callbacks.array_types(ctx.avals_in),
    callbacks.array_types(ctx.avals_out),
    input_output_aliases,
  )
  ctx.module_context.add_host_callback(function)
  callbacks.finish_at_exit()
  operation = internals.emit_call(
    host_functions.PYTHON_TARGET,
    has_side_effect,
    None,
    dict(input_output_aliases),
    ctx,
    *operands,
    process=np.uint64(host_functions.PROCESS),
    function=np.uint64(function.number),
  )
  assert operation is not None  # a required feature, which raises instead
  return list(operation.results)
