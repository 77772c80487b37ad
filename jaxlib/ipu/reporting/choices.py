"""What the planner considered for each product, with prices."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from jaxlib.ipu.dtypes import NAME
from jaxlib.ipu.plan import alternatives, matmul
from jaxlib.ipu.plan.alternatives import Planned
from jaxlib.ipu.target import Target

_BEST = 5


def products(
  target: Target, planned: Sequence[Planned]
) -> list[dict[str, Any]]:
  """An entry for each product of the user's code that differs from others.

  Returns:
    Dicts with `kind`, `location`, `space` (b x m x n x k and element types),
    `considered` (number of candidates), `budget` (bytes of a tile), `count` of
    equal products, and `alternatives`: at most five, that which was taken
    first, each with `what`, `cycles` (estimated), `bytes` of a tile (0 if not
    counted) and `fits`.
  """
  out: dict[Planned, dict[str, Any]] = {}
  for product in planned:
    known = out.get(product)
    if known is not None:
      known["count"] += 1
      continue
    count, best = _considered(product.arguments)
    if count:
      out[product] = _entry(target, product, count, best)
  return list(out.values())


def _entry(
  target: Target,
  product: Planned,
  count: int,
  best: list[dict[str, Any]],
) -> dict[str, Any]:
  _, b, m, n, k, left, right, result, *_ = product.arguments
  taken = {
    "what": "operands where they are",
    "cycles": product.cycles,
    "bytes": 0,
    "fits": True,
  }
  if product.parts:
    what = _what(product.parts[:3], product.parts[3:])
    same = [one for one in best if one["what"] == what]
    taken = same[0] if same else {**taken, "what": what}
  others = [one for one in best if one["what"] != taken["what"]]
  types = " ".join(dict.fromkeys(NAME[t] for t in (left, right, result)))
  return {
    "kind": "product",
    "location": product.location,
    "space": f"{b} x {m} x {n} x {k} {types}",
    "considered": count,
    "budget": int(target.bytes_for_products),
    "count": 1,
    "alternatives": [taken, *others][:_BEST],
  }


@functools.lru_cache(maxsize=1024)
def _considered(arguments: tuple[Any, ...]) -> tuple[int, list[dict[str, Any]]]:
  """The number of candidates that `matmul.plan` prices, and the best."""
  with alternatives.watch() as found:
    matmul.plan.__wrapped__(*arguments)
  best: list[tuple[bool, float, dict[str, Any]]] = []
  for group in found:
    for parts, cycles, size, fits in group.best:
      entry = {
        "what": _what(group.steps, parts),
        "cycles": cycles,
        "bytes": int(size),
        "fits": fits,
      }
      best.append((not fits, cycles, entry))
  best.sort(key=lambda x: x[:2])
  # Several cuts of one dimension may have the same number of parts.
  distinct = {entry["what"]: entry for *_, entry in reversed(best)}
  ranked = sorted(distinct.values(), key=lambda x: (not x["fits"], x["cycles"]))
  count = sum(group.total for group in found)
  return count, ranked[: _BEST + 1]


def _what(steps: Sequence[int], parts: Sequence[int]) -> str:
  """`1 x 8 x 23 x 8 parts`, `in 2 x 1 x 3 steps`."""
  text = f"{' x '.join(map(str, parts))} parts"
  if any(count > 1 for count in steps):
    text += f", {' x '.join(map(str, steps))} steps"
  return text
