"""Encodes and decodes the schema's records.

For each record class an encoder and a decoder are built from its field types,
once, at first use. The wire format is little-endian without padding: scalars as
written by `struct`, strings and lists with a 32-bit count, a union with an
8-bit tag, the index of its alternative. Register programs are written as the
bytes of their instructions.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
import struct
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any

from jaxlib.ipu.kernel.instruction import Code

_COUNT = struct.Struct("<I")

Getter = Callable[[Any], Any]
Encoder = Callable[[Any, list[bytes]], None]
Decoder = Callable[[memoryview, int], tuple[Any, int]]


@functools.cache
def field_types(cls: type) -> dict[str, Any]:
  """The wire type of each field of a record, in order; not to be modified."""
  return typing.get_type_hints(cls, include_extras=True)


def scalar_letter(t: Any) -> str | None:
  """The `struct` letter of a scalar wire type; None for other types."""
  if typing.get_origin(t) is typing.Annotated:
    return str(typing.get_args(t)[1])
  return None


def enumeration(t: Any) -> str | None:
  """The name of a scalar's type in C++, if it is an enumeration there."""
  if typing.get_origin(t) is typing.Annotated and len(typing.get_args(t)) > 2:
    return str(typing.get_args(t)[2])
  return None


def union_alternatives(t: Any) -> tuple[type, ...] | None:
  """The record classes of a union, in the order of their tags."""
  if typing.get_origin(t) in (typing.Union, types.UnionType):
    return typing.get_args(t)
  return None


def list_element(t: Any) -> Any | None:
  """The element type of a list; None for other types."""
  return typing.get_args(t)[0] if typing.get_origin(t) is list else None


@functools.cache
def encoder(t: Any) -> Encoder:
  """A function (value, chunks) that appends the value's bytes to chunks."""
  if letter := scalar_letter(t):
    pack = struct.Struct("<" + letter).pack
    return lambda value, out: out.append(pack(value))
  if t is str:
    return _put_text
  if t is bytes:
    return _put_bytes
  if t is Code:
    return lambda value, out: _put_bytes(value.wire, out)
  if (element := list_element(t)) is not None:
    return _list_encoder(resolve(element))
  if alternatives := union_alternatives(t):
    tags = {a: bytes([i]) for i, a in enumerate(alternatives)}

    def encode_union(value: Any, out: list[bytes]) -> None:
      kind: Any = type(value)
      out.append(tags[kind])
      encoder(kind)(value, out)

    return encode_union
  return _record_encoder(t)


class Shared(list[Any]):
  """A list of records that several records of one type have: encoded once, and
  not to be modified afterwards.

  Attributes:
    wire: its bytes; empty before it is encoded.
  """

  __slots__ = ("wire",)

  def __init__(self, values: Iterable[Any]) -> None:
    super().__init__(values)
    self.wire: list[bytes] = []


def _put_bytes(value: bytes, out: list[bytes]) -> None:
  out += _COUNT.pack(len(value)), value


def _put_text(value: str, out: list[bytes]) -> None:
  text = value.encode()
  out += _COUNT.pack(len(text)), text


def _list_encoder(element: Any) -> Encoder:
  if letter := scalar_letter(element):
    short = [struct.Struct(f"<I{n}{letter}").pack for n in range(9)]

    def encode_scalars(value: Any, out: list[bytes]) -> None:
      n = len(value)
      if n < len(short):
        out.append(short[n](n, *value))
      else:
        out.append(struct.pack(f"<I{n}{letter}", n, *value))

    return encode_scalars

  one: Encoder | None = None

  def encode_list(value: Any, out: list[bytes]) -> None:
    nonlocal one
    if isinstance(value, Shared):
      if not value.wire:
        encode_list([*value], value.wire)
        value.wire = [b"".join(value.wire)]
      out += value.wire
      return
    if one is None:  # made at first use: records are recursive
      one = encoder(element)
    out.append(_COUNT.pack(len(value)))
    for v in value:
      one(v, out)

  return encode_list


def _record_encoder(cls: type) -> Encoder:
  fields: list[tuple[Getter, Encoder]] | None = None

  def encode_record(value: Any, out: list[bytes]) -> None:
    nonlocal fields
    if fields is None:  # made at first use: records are recursive
      fields = _field_encoders(cls)  # assigned at once: threads may race
    for get, encode in fields:
      encode(get(value), out)

  return encode_record


def _field_encoders(cls: type) -> list[tuple[Getter, Encoder]]:
  """What to get of a record, and the encoder of it; a run of scalars is one
  `struct` call."""
  encoders: list[tuple[Getter, Encoder]] = []
  typed = [(n, t, scalar_letter(t)) for n, t in field_types(cls).items()]
  for scalar, run in itertools.groupby(typed, lambda f: f[2] is not None):
    if scalar:
      names, _, letters = zip(*run, strict=True)
      encode = _scalars_encoder("".join(letters))
      encoders.append((operator.attrgetter(*names), encode))
    else:
      encoders += [(operator.attrgetter(n), encoder(t)) for n, t, _ in run]
  return encoders


def _scalars_encoder(letters: str) -> Encoder:
  pack = struct.Struct("<" + letters).pack
  if len(letters) == 1:
    return lambda value, out: out.append(pack(value))
  return lambda values, out: out.append(pack(*values))


def resolve(t: Any) -> Any:
  """Resolves the forward references of recursive records."""
  if isinstance(t, typing.ForwardRef):
    t = t.__forward_arg__
  if isinstance(t, str):
    from jaxlib.ipu.program import schema

    return getattr(schema, t)
  return t


@functools.cache
def decoder(t: Any) -> Decoder:
  """A function (buffer, position) -> (value, next position).

  Raises struct.error, ValueError or IndexError for invalid bytes; `container`
  turns these into one error.
  """
  if letter := scalar_letter(t):
    packed = struct.Struct("<" + letter)
    size = packed.size
    return lambda b, p: (packed.unpack_from(b, p)[0], p + size)
  if t is str:
    return lambda b, p: _get_bytes(b, p, lambda raw: raw.decode())
  if t is bytes:
    return lambda b, p: _get_bytes(b, p, lambda raw: raw)
  if t is Code:
    return lambda b, p: _get_bytes(b, p, Code.of_wire)
  if (element := list_element(t)) is not None:
    return _list_decoder(resolve(element))
  if alternatives := union_alternatives(t):
    return lambda b, p: decoder(alternatives[b[p]])(b, p + 1)
  return _record_decoder(t)


def _get_bytes(
  buffer: memoryview, position: int, convert: Callable[[bytes], Any]
) -> tuple[Any, int]:
  (n,) = _COUNT.unpack_from(buffer, position)
  end = position + 4 + n
  if end > len(buffer):
    raise ValueError(f"{n} bytes announced, {len(buffer) - position - 4} left")
  return convert(bytes(buffer[position + 4 : end])), end


def _list_decoder(element: Any) -> Decoder:
  if letter := scalar_letter(element):

    def decode_scalars(b: memoryview, p: int) -> tuple[Any, int]:
      (n,) = _COUNT.unpack_from(b, p)
      packed = struct.Struct(f"<{n}{letter}")
      return list(packed.unpack_from(b, p + 4)), p + 4 + packed.size

    return decode_scalars

  def decode_list(b: memoryview, p: int) -> tuple[Any, int]:
    (n,) = _COUNT.unpack_from(b, p)
    p += 4
    values = []
    for _ in range(n):
      value, p = decoder(element)(b, p)
      values.append(value)
    return values, p

  return decode_list


def _record_decoder(cls: type) -> Decoder:
  fields = list(field_types(cls).values())
  assert dataclasses.is_dataclass(cls)

  def decode_record(b: memoryview, p: int) -> tuple[Any, int]:
    values = []
    for t in fields:
      value, p = decoder(t)(b, p)
      values.append(value)
    return cls(*values), p

  return decode_record
