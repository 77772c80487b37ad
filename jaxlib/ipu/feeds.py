"""Feeds: bounded queues of items between Python and programs.

An item is a list of arrays. The queues are the library's
(runtime/engine/feed.h): programs on the IPU use them without Python. Functions
here wait in short slices, so that Ctrl-C ends them.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlib.ipu.dtypes import NUMPY, DType

Array = np.ndarray[Any, Any]
ArrayType = tuple[np.dtype[Any], tuple[int, ...]]

_NUMBERS = {dtype: number for number, dtype in NUMPY.items()}
_INVALID_ARGUMENT = 3
_SLICE = 0.05  # seconds


class FeedError(RuntimeError):
  """A feed has ended, does not exist any more, or took too long."""


class _Type(ctypes.Structure):
  """The arrays of an item (runtime/pjrt/feed_functions.h)."""

  _fields_ = [
    ("count", ctypes.c_size_t),
    ("dtypes", ctypes.c_void_p),
    ("ranks", ctypes.c_void_p),
    ("dims", ctypes.c_void_p),
    ("bytes", ctypes.c_void_p),
  ]


_library: Any = None
_timeout = 0.0


def connect(library: ctypes.CDLL) -> None:
  """Declares the library's functions. When Python exits, programs that wait
  for a feed fail."""
  global _library
  number, type_ = ctypes.c_uint32, ctypes.POINTER(_Type)
  arrays = ctypes.POINTER(ctypes.c_void_p)
  for name, result, *arguments in (
    ("ipu_set_feed_limits", None, ctypes.c_size_t, ctypes.c_double),
    ("ipu_make_feed", number, ctypes.c_char_p),
    ("ipu_remove_feed", None, number),
    ("ipu_close_feeds", None),
    ("ipu_device_feed", number, ctypes.c_int, ctypes.c_int),
    ("ipu_end_feed", None, number, ctypes.c_char_p),
    ("ipu_push_feed", ctypes.c_int, number, type_, arrays, ctypes.c_double),
    (
      "ipu_pop_feed", ctypes.c_int, number, type_, arrays, ctypes.c_double,
      ctypes.POINTER(ctypes.c_uint8),
    ),
    ("ipu_feed_error", ctypes.c_char_p),
    ("ipu_feed_error_code", ctypes.c_int),
  ):  # fmt: skip
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments
  _library = library
  atexit.register(library.ipu_close_feeds)


def set_limits(depth: int, timeout: float) -> None:
  """Sets how many items feeds hold that are made from now on, and after how
  many seconds waiting is an error; 0: never."""
  global _timeout
  _timeout = timeout
  _library.ipu_set_feed_limits(depth, timeout)


def close() -> None:
  """Makes all that wait for a feed fail."""
  if _library is not None:
    _library.ipu_close_feeds()


class Feed:
  """A queue.

  Attributes:
    number: its name in programs.
  """

  def __init__(self, number: int, name: str) -> None:
    self.number = number
    self._name = name

  @classmethod
  def make(cls, name: str) -> Feed:
    """A new one; `name` is for messages."""
    return cls(_library.ipu_make_feed(name.encode()), name)

  def remove(self) -> None:
    """Programs do not find it any more, and those that wait for it fail."""
    _library.ipu_remove_feed(self.number)

  def push(
    self,
    arrays: Sequence[Array],
    goes_on: Callable[[], bool] = lambda: True,
  ) -> bool:
    """Adds an item, when there is room; `goes_on` is asked while there is none.

    Returns:
      Whether it was added.

    Raises:
      ValueError: programs that have been compiled expect other items.
      FeedError: the feed has ended, or there was no room for too long.
    """
    arrays = [np.asarray(a, order="C") for a in arrays]
    type_ = _type([(a.dtype, a.shape) for a in arrays])
    addresses = _addresses(arrays)
    checked = False

    def once(seconds: float) -> int:
      nonlocal checked
      answer = _library.ipu_push_feed(self.number, type_, addresses, seconds)
      if answer < 0 and _is_invalid() and not checked:
        checked = True
        gc.collect()  # programs that nobody has any more expect nothing
        return 0
      return answer

    return self._wait(once, goes_on, "room in")

  def pop(self, types: Sequence[ArrayType]) -> list[Array]:
    """Takes an item, when there is one.

    Raises:
      ValueError: the next item has other types; it stays.
      FeedError: the feed has ended, or there was no item for too long.
    """
    arrays = [np.empty(shape, dtype) for dtype, shape in types]
    type_, addresses = _type(types), _addresses(arrays)

    def once(seconds: float) -> int:
      return _library.ipu_pop_feed(self.number, type_, addresses, seconds, None)

    self._wait(once, lambda: True, "an item of")
    return arrays

  def serve(
    self, types: Sequence[ArrayType], may_end: bool = False
  ) -> tuple[list[Array], bool]:
    """Takes an item as a program does. With `may_end`, the second result is
    false after the last one.

    Raises:
      FeedError: see `ipu_pop_feed`.
    """
    arrays = [np.empty(shape, dtype) for dtype, shape in types]
    valid = ctypes.c_uint8(1)
    told = ctypes.byref(valid) if may_end else None
    answer = _library.ipu_pop_feed(
      self.number, _type(types), _addresses(arrays), -1.0, told
    )
    if answer < 0:
      raise _error()
    return arrays, bool(valid.value)

  def accept(self, arrays: Sequence[Array]) -> None:
    """Adds an item as a program does.

    Raises:
      FeedError: see `ipu_push_feed`.
    """
    arrays = [np.asarray(a, order="C") for a in arrays]
    type_ = _type([(a.dtype, a.shape) for a in arrays])
    if _library.ipu_push_feed(self.number, type_, _addresses(arrays), -1.0) < 0:
      raise _error()

  def end(self, error: str | None = None) -> None:
    """Says that there are no more items; programs that ask for one fail, with
    `error` if there is one."""
    text = None if error is None else error.encode(errors="replace")
    _library.ipu_end_feed(self.number, text)

  def _wait(
    self,
    once: Callable[[float], int],
    goes_on: Callable[[], bool],
    what: str,
  ) -> bool:
    begin = time.monotonic()
    while not (answer := once(_SLICE)):
      if not goes_on():
        return False
      waited = time.monotonic() - begin
      if _timeout and waited >= _timeout:
        raise FeedError(
          f"waited for {what} {self._name} for {waited:.1f} s, longer than "
          "JAX_IPU_FEED_TIMEOUT allows"
        )
    if answer < 0:
      raise _error()
    return True


def of_device(device: int, text: str, out: bool) -> Feed:
  """The infeed or the outfeed of an IPU."""
  kind = "outfeed" if out else "infeed"
  number = _library.ipu_device_feed(device, out)
  return Feed(number, f"the {kind} of {text}")


def _is_invalid() -> bool:
  return bool(_library.ipu_feed_error_code() == _INVALID_ARGUMENT)


def _error() -> Exception:
  message = _library.ipu_feed_error().decode(errors="replace")
  return ValueError(message) if _is_invalid() else FeedError(message)


def dtype_number(dtype: np.dtype[Any]) -> DType:
  """The number of an element type.

  Raises:
    TypeError: JAX has no arrays of it.
  """
  number = _NUMBERS.get(dtype)
  if number is None:
    raise TypeError(f"an item of a feed has an array of {dtype}")
  return number


def _type(types: Sequence[ArrayType]) -> Any:
  """The arrays' types for the library."""
  shapes = [shape for _, shape in types]
  sizes = [math.prod(shape) * dtype.itemsize for dtype, shape in types]
  dims = [n for shape in shapes for n in shape]
  columns = (
    (ctypes.c_uint8 * len(types))(*(dtype_number(d) for d, _ in types)),
    (ctypes.c_size_t * len(types))(*map(len, shapes)),
    (ctypes.c_int64 * len(dims))(*dims),
    (ctypes.c_size_t * len(types))(*sizes),
  )
  type_ = _Type(len(types), *(ctypes.addressof(c) for c in columns))
  type_.columns = columns  # keep them alive
  return type_


def _addresses(arrays: Sequence[Array]) -> Any:
  return (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
