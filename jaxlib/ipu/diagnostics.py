"""Errors that reach a JAX user.

A `CompileError` crosses the C API as a PJRT code and a message, and `jax.jit`
raises it as a `jax.errors.JaxRuntimeError`.
"""

from __future__ import annotations

import enum
from typing import Any

from jaxlib.ipu.location import location_text, resolve

ON_THE_CPU = (
  "compute this part on the CPU, between functions that are jitted for the "
  'IPU: jax.device_put(x, jax.devices("cpu")[0]) moves its arguments there, '
  "and results stay there until they are moved back (JAX_PLATFORMS, if it is "
  "set, must name both: ipu,cpu)"
)


class ErrorCode(enum.IntEnum):
  """The PJRT error codes that the compiler uses."""

  CANCELLED = 1
  INVALID_ARGUMENT = 3
  RESOURCE_EXHAUSTED = 8
  UNIMPLEMENTED = 12
  INTERNAL = 13


class CompileError(Exception):
  """A program that cannot be compiled: why, where, and what to do.

  Attributes:
    code: the PJRT error code.
    message: for the user.
  """

  def __init__(self, code: ErrorCode, message: str) -> None:
    super().__init__(message)
    self.code = code
    self.message = message


def at(location: Any) -> str:
  """A line that names a place in the user's program; "" if it has none."""
  where = location_text(resolve(location))
  return f"\n  in {where}" if where else ""


def invalid_argument(message: str, location: Any = None) -> CompileError:
  """An invalid program or option."""
  return CompileError(ErrorCode.INVALID_ARGUMENT, message + at(location))


def resource_exhausted(message: str, location: Any = None) -> CompileError:
  """A program that does not fit."""
  return CompileError(ErrorCode.RESOURCE_EXHAUSTED, message + at(location))


def unimplemented(
  what: str, location: Any = None, instead: str = ON_THE_CPU
) -> CompileError:
  """An unsupported operation or type.

  Args:
    what: its name.
    location: its place in the user's program.
    instead: what the user can do.
  """
  return CompileError(
    ErrorCode.UNIMPLEMENTED,
    f"the IPU backend does not lower {what}{at(location)}\n"
    f"  What to do: {instead}",
  )


def internal(message: str, location: Any = None) -> CompileError:
  """A bug of the compiler; the message is for a bug report."""
  return CompileError(
    ErrorCode.INTERNAL,
    f"{message} (this is a bug of the IPU compiler){at(location)}",
  )
