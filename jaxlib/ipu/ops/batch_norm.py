"""Batch normalisation: inference, training and gradient."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.registry import Decompose, Operation, define


@dataclasses.dataclass(frozen=True)
class BatchNorm:
  """The epsilon added to the variance, and the feature dimension."""

  epsilon: float
  feature_index: int


def _read(operation: Any) -> BatchNorm:
  a = operation.attributes
  return BatchNorm(a["epsilon"].value, a["feature_index"].value)


class _Features:
  """Statistics over all dimensions of an operand but one."""

  def __init__(self, e: Emitter, operand: Value, norm: BatchNorm) -> None:
    self._e = e
    self._shape = operand.shape
    self._feature = norm.feature_index
    self._others = [
      d for d in range(len(operand.shape)) if d != norm.feature_index
    ]
    self.count = math.prod(operand.shape[d] for d in self._others)
    self._epsilon = norm.epsilon

  def total(self, value: Value) -> Value:
    return self._e.reduce(value, 0, self._others, "add")

  def mean(self, value: Value) -> Value:
    return self._e.divide(self.total(value), self.count)

  def each(self, feature: Value) -> Value:
    return self._e.broadcast_in_dim(feature, self._shape, [self._feature])

  def deviation(self, variance: Value) -> Value:
    return self._e.sqrt(self._e.add(variance, self._epsilon))


def _normalise(
  e: Emitter, f: _Features, x: Value, scale: Value, offset: Value,
  mean: Value, variance: Value,
) -> Value:  # fmt: skip
  factor = e.divide(scale, f.deviation(variance))
  centred = e.subtract(x, f.each(mean))
  return e.add(e.multiply(centred, f.each(factor)), f.each(offset))


def _inference(e: Emitter, node: Node) -> list[Value]:
  x, scale, offset, mean, variance = node.inputs
  f = _Features(e, x, node.attributes)
  return [_normalise(e, f, x, scale, offset, mean, variance)]


def _training(e: Emitter, node: Node) -> list[Value]:
  """The normalised operand, the batch's mean and its variance."""
  x, scale, offset = node.inputs
  f = _Features(e, x, node.attributes)
  mean = f.mean(x)
  centred = e.subtract(x, f.each(mean))
  variance = f.mean(e.multiply(centred, centred))
  return [
    _normalise(e, f, x, scale, offset, mean, variance), mean, variance
  ]  # fmt: skip


def _gradient(e: Emitter, node: Node) -> list[Value]:
  """The gradients by operand, scale and offset."""
  x, scale, mean, variance, ct = node.inputs
  f = _Features(e, x, node.attributes)
  deviation = f.deviation(variance)
  normal = e.divide(e.subtract(x, f.each(mean)), f.each(deviation))
  by_offset = f.total(ct)
  by_scale = f.total(e.multiply(ct, normal))
  shared = e.add(f.each(by_offset), e.multiply(normal, f.each(by_scale)))
  own = e.subtract(ct, e.divide(shared, f.count))
  by_x = e.multiply(own, f.each(e.divide(scale, deviation)))
  return [by_x, by_scale, by_offset]


_RULES: dict[str, Decompose] = {
  "inference": _inference,
  "training": _training,
  "grad": _gradient,
}
for _name, _rule in _RULES.items():
  define(
    Operation(f"stablehlo.batch_norm_{_name}", read=_read, decompose=_rule)
  )
