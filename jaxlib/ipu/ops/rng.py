"""rng_bit_generator and rng: counter-based, by Threefry or Philox.

The bits are those of XLA:CPU. Both functions are Salmon et al.'s, "Parallel
random numbers: as easy as 1, 2, 3" (SC 2011); the counter of each element, and
the order of its bits, follow XLA's expander.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import zlib
from typing import Any

import numpy as np

from jaxlib.ipu.diagnostics import unimplemented
from jaxlib.ipu.dtypes import FLOATS, NAME, SIZE, DType
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Shape, Value
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.location import resolve
from jaxlib.mlir.dialects import stablehlo

U32, U64 = DType.U32, DType.U64


# --- The functions ---------------------------------------------------------


def _threefry(
  e: Emitter, counter: tuple[Value, Value], key: tuple[Value, Value]
) -> tuple[Value, Value]:
  """Threefry-2x32 in 20 rounds."""
  parity = e.xor(e.xor(key[0], key[1]), np.uint32(0x1BD11BDA))
  keys = (*key, parity)
  x0, x1 = e.add(counter[0], keys[0]), e.add(counter[1], keys[1])
  for group in range(5):
    for distance in (17, 29, 16, 24) if group % 2 else (13, 15, 26, 6):
      x0 = e.add(x0, x1)
      left = e.shift_left(x1, distance)
      right = e.shift_right_logical(x1, 32 - distance)
      x1 = e.xor(x0, e.or_(left, right))
    x0 = e.add(x0, keys[(group + 1) % 3])
    x1 = e.add(x1, e.add(keys[(group + 2) % 3], group + 1))
  return x0, x1


def _philox(
  e: Emitter, counter: list[Value], key: tuple[Value, Value]
) -> list[Value]:
  """Philox-4x32 in 10 rounds."""
  x, (k0, k1) = counter, key
  for turn in range(10):
    if turn:
      k0 = e.add(k0, np.uint32(0x9E3779B9))
      k1 = e.add(k1, np.uint32(0xBB67AE85))
    low0, high0 = _halves(
      e, e.multiply(e.convert(x[0], U64), np.uint64(0xD2511F53))
    )
    low1, high1 = _halves(
      e, e.multiply(e.convert(x[2], U64), np.uint64(0xCD9E8D57))
    )
    x = [
      e.xor(e.xor(high1, x[1]), k0),
      low1,
      e.xor(e.xor(high0, x[3]), k1),
      low0,
    ]
  return x


def _halves(e: Emitter, wide: Value) -> tuple[Value, Value]:
  """The low and the high 32 bits of 64."""
  high = e.shift_right_logical(wide, 32)
  return e.convert(wide, U32), e.convert(high, U32)


def _join(e: Emitter, low: Value, high: Value) -> Value:
  """64 bits from the low and the high 32."""
  return e.or_(e.convert(low, U64), e.shift_left(e.convert(high, U64), 32))


def _word(e: Emitter, state: Value, index: int) -> Value:
  return e.reshape(e.slice(state, [index], [index + 1]), ())


# --- rng_bit_generator -----------------------------------------------------


def _generate(e: Emitter, node: Node) -> list[Value]:
  (state,) = node.inputs
  _, bits = node.results
  if bits.dtype is DType.BOOL:
    raise unimplemented(
      f"rng_bit_generator of {NAME[bits.dtype]}", node.location
    )
  if node.attributes == "THREE_FRY":
    counter, numbers = _threefry_bits(e, state, bits.shape, bits.dtype)
  else:  # DEFAULT as on the CPU
    counter, numbers = _philox_bits(e, state, bits.shape, bits.dtype)
  words = [e.slice(state, [0], [1]), *(e.reshape(c, (1,)) for c in counter)]
  return [e.concatenate(words, 0), numbers]


def _low(e: Emitter, bits: Value, dtype: DType) -> Value:
  """As many bits as the element type has, the low ones if it is narrower. They
  are taken before concatenation, so that the others take no SRAM."""
  unsigned = {1: DType.U8, 2: DType.U16, 4: U32, 8: U64}[SIZE[dtype]]
  return e.convert(bits, unsigned)


def _threefry_bits(
  e: Emitter, state: Value, shape: Shape, dtype: DType
) -> tuple[list[Value], Value]:
  """The state's new counter, and bits.

  A counter gives 64 bits: one element, or two narrower ones next to each other
  along the first even dimension, else the largest.
  """
  key = _halves(e, _word(e, state, 0))
  start = _word(e, state, 1)
  wide = SIZE[dtype] == 8
  split = 0
  half = list(shape or (1,))
  if not wide:
    even = [d for d, n in enumerate(half) if n % 2 == 0]
    split = even[0] if even else half.index(max(half))
    half[split] = -(-half[split] // 2)
  count = math.prod(half)
  index = e.add(e.iota(U64, (count,), 0), start)
  low, high = _threefry(e, _halves(e, index), key)
  counter = [e.add(start, count)]
  if wide:
    joined = e.bitcast_convert(_join(e, low, high), dtype)
    return counter, e.reshape(joined, shape)
  apart = [*half[: split + 1], 1, *half[split + 1 :]]
  pair = [e.reshape(_low(e, v, dtype), apart) for v in (low, high)]
  half[split] *= 2
  numbers = e.reshape(e.concatenate(pair, split + 1), half)
  numbers = e.slice(numbers, [0] * len(half), shape or (1,))
  return counter, e.reshape(e.bitcast_convert(numbers, dtype), shape)


def _philox_bits(
  e: Emitter, state: Value, shape: Shape, dtype: DType
) -> tuple[list[Value], Value]:
  """The state's new counter, and bits: 128 for each counter, in order."""
  key = _halves(e, _word(e, state, 0))
  short = state.shape[0] < 3
  # 128 bits; a short state's high half is its key, and is not advanced.
  low, high = _word(e, state, 1), _word(e, state, 0 if short else 2)
  size = math.prod(shape)
  per = 16 // max(4, SIZE[dtype])
  count = -(-size // per)
  index = e.iota(U64, (count,), 0)
  words = [w for v in _advance(e, low, high, index) for w in _halves(e, v)]
  bits = _philox(e, words, key)
  if SIZE[dtype] == 8:
    bits = [_join(e, *bits[:2]), _join(e, *bits[2:])]
  low_bits = [_low(e, v, dtype) for v in bits]
  rows = e.concatenate([e.reshape(v, (count, 1)) for v in low_bits], 1)
  flat = e.slice(e.reshape(rows, (count * per,)), [0], [size])
  end = _advance(e, low, high, e.constant(count, U64, ()))
  numbers = e.bitcast_convert(flat, dtype)
  return end[: 1 if short else 2], e.reshape(numbers, shape)


def _advance(e: Emitter, low: Value, high: Value, by: Value) -> list[Value]:
  """Adds 64 bits to 128."""
  moved = e.add(low, by)
  carry = e.convert(e.compare(moved, low, "LT"), U64)
  return [moved, e.add(high, carry)]


def _read_algorithm(operation: Any) -> str:
  attribute = operation.attributes["rng_algorithm"]
  return stablehlo.RngAlgorithmAttr(attribute).value


def _check_state(node: Node) -> str | None:
  (state,) = node.inputs
  sizes = (2,) if node.attributes == "THREE_FRY" else (2, 3)
  if state.dtype is U64 and state.shape in [(n,) for n in sizes]:
    return None
  return f"a state of {' or '.join(f'{n}xui64' for n in sizes)}"


define(
  Operation(
    "stablehlo.rng_bit_generator",
    read=_read_algorithm,
    check=_check_state,
    decompose=_generate,
  )
)


# --- rng -------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Distribution:
  """UNIFORM or NORMAL, and the key of the numbers."""

  name: str
  key: int


def _read_rng(operation: Any) -> Distribution:
  """Programs have no state of their own, so the key is fixed at compile time:
  different for each operation, the same in each run."""
  name = stablehlo.RngDistributionAttr(
    operation.attributes["rng_distribution"]
  ).value
  before = itertools.takewhile(
    lambda other: other.operation != operation, operation.block.operations
  )
  where = resolve(operation.location)
  text = f"{where.file}:{where.line} {sum(1 for _ in before)}"
  return Distribution(name, zlib.crc32(text.encode()))


def _rng(e: Emitter, node: Node) -> list[Value]:
  a, b, _ = node.inputs
  (result,) = node.results
  shape, dtype = result.shape, result.dtype
  state = e.constant(np.array([node.attributes.key, 0, 0], np.uint64))
  wide = SIZE[dtype] == 8
  bits_type = U64 if wide else U32
  if dtype not in FLOATS:
    _, bits = _philox_bits(e, state, shape, bits_type)
    return [_integers(e, bits, a, b)]
  compute = dtype if wide else DType.F32
  a, b = e.convert(a, compute), e.convert(b, compute)
  if node.attributes.name == "UNIFORM":
    _, bits = _philox_bits(e, state, shape, bits_type)
    numbers = e.add(e.multiply(_fractions(e, bits), e.subtract(b, a)), a)
  else:
    _, bits = _philox_bits(e, state, (2, *shape), bits_type)
    rest = [0] * len(shape)
    parts = [
      _fractions(
        e, e.reshape(e.slice(bits, [i, *rest], [i + 1, *shape]), shape)
      )
      for i in range(2)
    ]
    # Box and Muller; 1 - u is never zero.
    radius = e.sqrt(e.multiply(e.log_plus_one(e.negate(parts[0])), -2.0))
    wave = e.cosine(e.multiply(parts[1], 2 * math.pi))
    numbers = e.add(e.multiply(e.multiply(radius, wave), b), a)
  return [e.convert(numbers, dtype)]


def _fractions(e: Emitter, bits: Value) -> Value:
  """Floats in [0, 1), with all bits of a significand."""
  wide = bits.dtype is U64
  dtype, kept = (DType.F64, 53) if wide else (DType.F32, 24)
  top = e.shift_right_logical(bits, (64 if wide else 32) - kept)
  return e.multiply(e.convert(top, dtype), 2.0**-kept)


def _integers(e: Emitter, bits: Value, low: Value, high: Value) -> Value:
  """Integers in [low, high), by the remainder of wider bits."""
  wide = bits.dtype
  span = e.subtract(e.convert(high, wide), e.convert(low, wide))
  offset = e.remainder(bits, span)
  return e.add(e.convert(offset, low.dtype), low)


define(Operation("stablehlo.rng", read=_read_rng, decompose=_rng))
