"""Features that need internals of JAX, each with the shapes that it knows."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import logging
import os
from collections.abc import Callable
from typing import Any, TypeVar

logger = logging.getLogger("jaxlib.ipu")

PLATFORM = "ipu"

R = TypeVar("R")


class InternalsError(RuntimeError):
  """An internal of JAX that the backend requires has changed."""


@dataclasses.dataclass(frozen=True)
class Shape:
  """An implementation of a feature for the JAX versions [since, until).

  Attributes:
    names: the internals, `package.module.attribute`.
    use: the function; gets the internals as its first arguments.
    since: the first version of jaxlib with this shape, such as (0, 12).
    until: the first version with another one; None: none is known.
  """

  names: tuple[str, ...]
  use: Callable[..., Any]
  since: tuple[int, ...]
  until: tuple[int, ...] | None


@dataclasses.dataclass(frozen=True)
class Feature:
  """A feature that needs internals of JAX.

  Attributes:
    name: the function's.
    lost: what users lose if it is disabled; None: it is required.
    shapes: one for each range of versions.
  """

  name: str
  lost: str | None
  shapes: list[Shape]

  def shape(self) -> Shape | None:
    """The shape for the installed jaxlib."""
    installed = jaxlib_version()
    for shape in self.shapes:
      if shape.since <= installed and not (
        shape.until and installed >= shape.until
      ):
        return shape
    return None


FEATURES: dict[str, Feature] = {}
# Features disabled in this process, and why.
given_up: dict[str, str] = {}


def version_tuple(version: str) -> tuple[int, ...]:
  """`1.12.0.1+ipu` as (1, 12, 0, 1); stops at the first part that is no
  number."""
  numbers = []
  for part in version.partition("+")[0].split("."):
    if not part.isdecimal():
      break
    numbers.append(int(part))
  return tuple(numbers)


@functools.cache
def jaxlib_version() -> tuple[int, ...]:
  """The version of the installed jaxlib."""
  import jaxlib.version

  return version_tuple(jaxlib.version.__version__)


def resolve(name: str) -> Any:
  """The object that `package.module.attribute` names.

  Raises:
    ImportError: no module of that name can be imported.
    AttributeError: the module has no such attribute.
  """
  parts = name.split(".")
  for i in range(len(parts) - 1, 0, -1):
    try:
      found = importlib.import_module(".".join(parts[:i]))
    except ModuleNotFoundError as error:
      if i > 1 and error.name and name.startswith(error.name):
        continue
      raise
    for part in parts[i:]:
      found = getattr(found, part)
    return found
  raise ImportError(f"no module in {name}")


def uses(
  *names: str,
  lost: str | None,
  since: tuple[int, ...] = (),
  until: tuple[int, ...] | None = None,
  users: bool = False,
) -> Callable[[Callable[..., R]], Callable[..., R | None]]:
  """Declares a function that uses internals of JAX.

  Args:
    *names: the internals; the function gets them as its first arguments.
    lost: what users lose if the internals have changed. None: the function is
      required, and calling it then raises InternalsError.
    since, until: the versions of jaxlib with this shape; `()` is the oldest
      supported one.
    users: the function works on what users pass, or calls their functions. An
      error is then taken for a change of the internals only if they are missing
      or cannot be called this way; what they raise is the user's.

  Returns:
    A decorator. The decorated function takes the remaining arguments, and
    returns None if the feature is disabled.
  """

  def decorate(use: Callable[..., R]) -> Callable[..., R | None]:
    name = use.__name__
    feature = FEATURES.setdefault(name, Feature(name, lost, []))
    feature.shapes.append(Shape(names, use, since, until))

    @functools.wraps(use)
    def wrapper(*args: Any, **kwargs: Any) -> R | None:
      shape = feature.shape()
      found = None
      try:
        if shape is None:
          raise AttributeError("no shape of it is known for this version")
        found = [resolve(name) for name in shape.names]
        return shape.use(*found, *args, **kwargs)
      except (ImportError, AttributeError, TypeError, LookupError) as error:
        if users and found is not None and not _raised_here(error):
          raise
        _give_up(feature, shape or feature.shapes[-1], error)
        return None

    return wrapper

  return decorate


def _raised_here(error: Exception) -> bool:
  """Whether an error was raised in this package, not in a function that it
  called."""
  trace = error.__traceback__
  assert trace is not None
  while trace.tb_next is not None:
    trace = trace.tb_next
  raised_in = trace.tb_frame.f_code.co_filename
  return os.path.dirname(raised_in) == os.path.dirname(__file__)


def _give_up(feature: Feature, shape: Shape, error: Exception) -> None:
  version = ".".join(map(str, jaxlib_version()))
  what = (
    f"jaxlib {version} has changed {' or '.join(shape.names)}"
    f" ({type(error).__name__}: {error})"
  )
  if feature.lost is None:
    raise InternalsError(
      f"{what}, without which the IPU backend cannot work: install a jax and"
      " jaxlib that it was tested with, or a newer IPU backend"
    ) from error
  if feature.name not in given_up:
    given_up[feature.name] = what
    logger.warning("%s; the IPU backend continues: %s", what, feature.lost)
