"""`jax.ipu.feed`: an iterator whose items a program takes while it runs."""

from __future__ import annotations

import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

import jax
from jax.ipu import _feed_shardings, _infeed

# How long a feed stays that nobody has a reference to, for programs that may
# still be running.
_STAYS_SECONDS = 300.0
# Characters of an iterator's name in an error: a guess of what helps.
_MOST_SHOWN = 200


class Feed:
  """The items of an iterator, for programs (see `jax.ipu.feed`).

  It is a tree with one leaf: pass it to jitted functions as an argument, so
  that one compiled program serves all feeds of such items. The leaf is the
  number of a queue or, for sharded items, an array of the mesh's shape with
  that of each device.
  """

  def __init__(self, numbers: Any, item: _feed_shardings.Item) -> None:
    self._numbers = numbers
    self._item = item
    self._close: Callable[[], None] | None = None

  def next(self) -> Any:
    """The next item, as a tree of arrays. After the last one this is an error
    of the program, which names the iterator and the number of items."""
    arrays = self._item.take(self._numbers, may_end=False)
    return jax.tree.unflatten(self._item.tree, arrays)

  def next_or_end(self) -> tuple[Any, jax.Array]:
    """The next item, and True; after the last one zeros, and False. An
    exception that the iterator raised is an error of the program."""
    *arrays, valid = self._item.take(self._numbers, may_end=True)
    return jax.tree.unflatten(self._item.tree, arrays), valid

  def close(self) -> None:
    """Ends the thread that reads the iterator. Programs that take further items
    fail."""
    if self._close is None:
      raise ValueError("a feed is closed outside of jitted functions")
    self._close()


jax.tree_util.register_pytree_node(
  Feed,
  lambda feed: ((feed._numbers,), feed._item),
  lambda item, leaves: Feed(*leaves, item),
)


class _Source:
  """What fills a feed: the iterator, in a thread of its own."""

  def __init__(
    self, iterator: Iterator[Any], name: str, item: _feed_shardings.Item
  ) -> None:
    self.name = name
    self._parts = item.parts()
    make = _infeed.prepare().Feed.make
    self.queues = [make(f"the feed of {name}{p.of}") for p in self._parts]
    self._iterator = iterator
    self._types = [(np.dtype(s.dtype), tuple(s.shape)) for s in item.shapes]
    self._tree = item.tree
    self._closed = threading.Event()
    self.left: float | None = None  # since when nobody has a reference

  def start(self) -> None:
    threading.Thread(
      target=self._run, name=f"jax.ipu.feed of {self.name}", daemon=True
    ).start()

  def leave(self) -> None:
    self.left = time.monotonic()

  def close(self) -> None:
    self._closed.set()
    for queue in self.queues:
      queue.remove()

  @property
  def is_over(self) -> bool:
    """Whether no program can still be using it, as far as one can know."""
    left = self.left
    return left is not None and time.monotonic() - left > _STAYS_SECONDS

  def _run(self) -> None:
    count = 0
    try:
      for item in self._iterator:
        arrays = self._checked(item, count)
        begin = time.monotonic()

        def goes_on(begin: float = begin) -> bool:
          blocked = time.monotonic() - begin > _STAYS_SECONDS
          return not (self._closed.is_set() or (blocked and self.is_over))

        for queue, part in zip(self.queues, self._parts, strict=True):
          if not queue.push(part.of_arrays(arrays), goes_on):
            self.close()
            return
        count += 1
        if self._closed.is_set():
          return
      self._end()
    except Exception as error:
      if not self._closed.is_set():
        self._end(
          f"item {count} of {self.name}: {error!r}\n{traceback.format_exc()}"
        )

  def _end(self, error: str | None = None) -> None:
    for queue in self.queues:
      queue.end(error)

  def _checked(self, item: Any, count: int) -> list[np.ndarray[Any, Any]]:
    leaves, tree = jax.tree.flatten(item)
    if tree != self._tree:
      raise TypeError(f"item {count} is a {tree}, expected {self._tree}")
    arrays = [_infeed.host_array(x) for x in leaves]
    for array, (dtype, shape) in zip(arrays, self._types, strict=True):
      if (array.dtype, array.shape) != (dtype, shape):
        raise TypeError(
          f"item {count} has an array {array.dtype}{list(array.shape)}, "
          f"expected {dtype}{list(shape)}"
        )
    return arrays


_lock = threading.Lock()
_sources: list[_Source] = []


def feed(iterator: Iterable[Any], like: Any = None) -> Feed:
  """See `jax.ipu.feed`."""
  items = iter(iterator)
  name = repr(iterator)
  if len(name) > _MOST_SHOWN:
    name = f"{name[:_MOST_SHOWN]}..."
  if like is None:
    try:
      like = next(items)
    except StopIteration:
      raise ValueError(
        f"{name} has no item: pass `like`, the types of what it would have"
      ) from None
    items = _with_first(like, items)
  item = _feed_shardings.item_like(like)
  source = _Source(items, name, item)
  with _lock:
    over = [s for s in _sources if s.is_over]
    _sources[:] = [s for s in _sources if s not in over] + [source]
  for old in over:
    old.close()
  made = Feed(item.numbers([queue.number for queue in source.queues]), item)
  made._close = source.close
  weakref.finalize(made, source.leave).atexit = False
  source.start()
  return made


def _with_first(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
  yield first
  yield from rest
