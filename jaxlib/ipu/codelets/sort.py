"""Sort: sorts rows of keys, and the values that go with them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlib.ipu.codelets import _checks
from jaxlib.ipu.codelets._checks import Checker
from jaxlib.ipu.codelets._codelet import (
  Array,
  Cell,
  Codelet,
  Extents,
  volume,
)
from jaxlib.ipu.codelets._cycles import (
  Cycles,
  all_derived,
  ceil_div,
  derived,
  most,
)
from jaxlib.ipu.codelets._hints import Hints
from jaxlib.ipu.codelets._inner_loops import LOAD
from jaxlib.ipu.codelets._profile import profile
from jaxlib.ipu.dtypes import FLOATS, NUMPY, SIGNED, SIZE, DType
from jaxlib.ipu.kernel.evaluate import evaluate
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target

# Types whose keys have an order of their own; others need a comparison.
KEY_DTYPES = frozenset(DType[n] for n in (
  "BOOL I8 I16 I32 I64 U8 U16 U32 U64 F16 BF16 F32 F64".split()
))  # fmt: skip
_DTYPE = {NUMPY[d]: d for d in KEY_DTYPES}

# CompareAndSwapAtDistance (popopsCycleEstimators.cpp) [S]: a step's start on
# the supervisor and on a worker; a pair of keys alone, of floats or other
# types; a pair with a secondary key. Keys of 64 bits take it for each word
# [D].
_SUPERVISOR, _START = 19, 23
_ALONE = {True: 13, False: 12}
_SECONDARY = {True: 25, False: 27}
# Two loads and two stores for each further value of a pair [D].
_CARRY = 4
# Bytes of an element's number, and types in which a result may have it.
NUMBER_BYTES = 4
NUMBER_DTYPES = (DType.I32, DType.U32, DType.I64, DType.U64)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SortHints(Hints):
  """How rows are distributed.

  Attributes:
    parts: the number of tiles that share a row.
  """

  parts: int = 1


_NO_HINTS = SortHints()


class SortCodelet(Codelet):
  """Cycles: PopLibs' bitonic sort, steps of compare-and-swap of pairs.

  The number of an element is a secondary key, which makes the sort stable,
  unless there are only keys. A further key costs as much as a secondary one
  [D].

  If few elements of many are kept, the tiles that share a row sort their own
  and merge them in pairs.

  A further result, beyond the operands', gets the elements' numbers: their
  original places in their rows.
  """

  record = schema.Sort
  hints = SortHints
  executor = "sorting"

  def cycles(
    self,
    target: Target,
    fields: schema.Sort,
    operand_dtypes: Sequence[DType],
    result_dtypes: Sequence[DType],
    cell: Extents,
    hints: SortHints = _NO_HINTS,
  ) -> Cycles:
    rows, length = volume(cell[:-1]), cell[-1]
    each = self._pair(fields, operand_dtypes, len(result_dtypes))

    def steps(count: Any, pairs: Any) -> Cycles:
      worker = _START + each * ceil_div(rows * pairs, target.num_workers)
      launch = derived(float(target.launch_cycles)) + _SUPERVISOR
      return (launch + worker * target.num_workers) * count

    parts = hints.parts
    own, rounds = levels(length), levels(parts)
    pairs = ceil_div(length, 2)
    if parts == 1 or not merges(fields, length, parts):
      all_ = own + rounds
      return steps(most(all_ * (all_ + 1) / 2, 1), pairs)
    merged = rounds * levels(2 * fields.keep)
    return steps(own * (own + 1) / 2, pairs) + steps(merged, fields.keep)

  def _pair(
    self, fields: schema.Sort, dtypes: Sequence[DType], num_results: int
  ) -> Cycles:
    """A worker's cycles on a pair."""
    if not fields.keys:
      twice = [d for d in dtypes for _ in range(2)]
      less = profile(fields.compare, (fields.compare_output,), tuple(twice), ())
      moved = sum(LOAD[d] for d in twice) + _CARRY * len(dtypes)
      return all_derived(less.arithmetic + moved)
    keys = [dtypes[k.operand] for k in fields.keys]
    if not is_numbered(fields, num_results):
      return _by_words(_ALONE[keys[0] in FLOATS], keys[0])
    first, *others = (_by_words(_SECONDARY[d in FLOATS], d) for d in keys)
    carried = set(range(len(dtypes))) - {k.operand for k in fields.keys}
    more = sum(c.total for c in others)
    more += sum(_CARRY * _words(dtypes[j]) for j in carried)
    return first + derived(more)

  def vertex(
    self, fields: schema.Sort, cell: Cell, operands: Sequence[Array]
  ) -> list[Array]:
    """Sorts a part of each row.

    The last operand is not the program's: the numbers of the elements in their
    row, which distinguish equal elements.
    """
    cell.require_box("a sort")
    return self.sorted(
      fields, [np.broadcast_to(o, cell.extents) for o in operands]
    )

  def sorted(self, fields: schema.Sort, arrays: Sequence[Array]) -> list[Array]:
    """Sorts along the last axis; the last array has the numbers."""
    by_number = np.argsort(arrays[-1], -1, kind="stable")
    arrays = [np.take_along_axis(a, by_number, -1) for a in arrays]
    order = _order(fields, arrays[:-1])
    return [np.take_along_axis(a, order, -1) for a in arrays]

  def check(
    self, fields: schema.Sort, step: schema.Execute, v: Checker
  ) -> None:
    count, length = len(step.operands), step.shape[-1] if step.shape else 0
    numbered = len(step.results) == count + 1
    v.require(
      bool(step.shape)
      and count > 0
      and (len(step.results) == count or (numbered and bool(fields.keys))),
      f"a sort of {count} operands along the last of {step.shape} with "
      f"{len(step.results)} results",
    )
    v.require(0 <= fields.keep <= length, f"keeps {fields.keep} of {length}")
    for key in fields.keys:
      v.require(
        key.operand < count
        and v.tensor(step.operands[key.operand].tensor).dtype in KEY_DTYPES,
        f"operand {key.operand} is no key",
      )
    if not fields.keys:
      _checks.register_program(
        v, fields.compare, [fields.compare_output], 2 * count, 0
      )
    dtypes: list[tuple[int, ...]] = [
      (v.tensor(o.tensor).dtype,) for o in step.operands
    ]
    if numbered:
      dtypes.append(NUMBER_DTYPES)
    for allowed, result in zip(dtypes, step.results, strict=True):
      t = v.tensor(result.tensor)
      v.require(
        t.dtype in allowed
        and len(t.shape) == len(step.shape)
        and t.shape[-1] == fields.keep
        and result.dims[-1] == -1,
        f"a result of shape {t.shape}, accessed by {result.dims}, for "
        f"{fields.keep} of {step.shape}",
      )

  def example(self) -> tuple[schema.Sort, int]:
    return schema.Sort([schema.SortKey(0, 0, 0, 0)], Code(), 0, 100, 0), 2


def levels(count: Any) -> Any:
  """How often `count` things (or an array) are paired until one is left."""
  rounds = np.ceil(np.log2(np.maximum(count, 1)))
  return rounds if rounds.ndim else float(rounds)


def is_numbered(fields: schema.Sort, num_results: int) -> bool:
  """Whether elements carry their number: if there are only keys, equal ones are
  indistinguishable."""
  return not fields.keys or num_results > 1


def merges(fields: schema.Sort, length: int, parts: int) -> bool:
  """Whether tiles with `length` elements of a row each, on `parts` tiles, merge
  the few that are kept; otherwise the whole row is sorted."""
  return not fields.whole and 2 * fields.keep <= length * parts


def _by_words(cycles: float, dtype: DType) -> Cycles:
  """Cycles of a pair, given those for 32 bits; more words take a multiple
  [D]."""
  words = _words(dtype)
  return Cycles(cycles) if words == 1 else derived(cycles * words)


def _words(dtype: DType) -> int:
  return max(SIZE[dtype] // 4, 1)


def _order(fields: schema.Sort, arrays: list[Array]) -> Array:
  """For each place of the sorted rows the original place of its element."""
  if fields.keys:
    # NumPy expects the most significant key last.
    return np.lexsort([_key(k, arrays[k.operand]) for k in fields.keys[::-1]])
  pairs = []
  for a in arrays:
    pairs += [a[..., :, None], a[..., None, :]]
  (less,) = evaluate(fields.compare, [fields.compare_output], pairs)
  n = arrays[0].shape[-1]
  less = np.broadcast_to(less, (*arrays[0].shape, n)).astype(np.bool_)
  return np.apply_along_axis(
    _merge_sort, -1, less.reshape(*less.shape[:-2], -1)
  )


def _merge_sort(less: Array) -> Array:
  """A stable order of n elements; `less[n * i + j]`: i comes before j."""
  n = math.isqrt(len(less))

  def sort(begin: int, end: int) -> list[int]:
    if end - begin < 2:
      return list(range(begin, end))
    middle = (begin + end) // 2
    left, right = sort(begin, middle), sort(middle, end)
    merged = []
    i = j = 0
    while i < len(left) and j < len(right):
      if less[n * right[j] + left[i]]:
        merged.append(right[j])
        j += 1
      else:
        merged.append(left[i])
        i += 1
    return merged + left[i:] + right[j:]

  return np.array(sort(0, n), np.int64)


def _key(key: schema.SortKey, values: Array) -> Array:
  """Unsigned integers with the order of the key's values."""
  dtype = _DTYPE[values.dtype]
  bits = 8 * SIZE[dtype]
  raw = np.ascontiguousarray(values).view(f"u{SIZE[dtype]}")
  raw = raw.astype(np.uint64)
  sign = np.uint64(1 << (bits - 1))
  ones = np.uint64((1 << bits) - 1)
  if dtype in FLOATS:
    if key.zeros_equal:
      raw = np.where(values == 0, np.uint64(0), raw)
    if key.nans_equal:
      raw = np.where(np.isnan(values), ones ^ sign, raw)
    raw = np.where(raw & sign, raw ^ ones, raw ^ sign)
  elif dtype in SIGNED:
    raw = raw ^ sign
  return raw ^ ones if key.descending else raw


CODELET = SortCodelet()
