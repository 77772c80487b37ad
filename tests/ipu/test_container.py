"""Programs survive serialisation; damaged ones are refused, never misread."""

from __future__ import annotations

import dataclasses
import enum
import functools
import struct
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from program_kit import FREE, Kit

from jaxlib.ipu.codelets import CODELETS
from jaxlib.ipu.kernel import isa
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.program import codec, container, schema


def as_read(fields: Any) -> Any:
  """Fields whose register programs have no element types, which are not
  written."""
  values = {f.name: getattr(fields, f.name) for f in dataclasses.fields(fields)}
  codes = {
    name: Code.of_wire(value.wire)
    for name, value in values.items()
    if isinstance(value, Code)
  }
  return dataclasses.replace(fields, **codes)


def sample() -> tuple[schema.Program, bytes]:
  """A program with every kind of step and codelet."""
  kit = Kit()
  a, r = kit.argument((8,)), kit.result((8,))
  c = kit.constant(np.arange(8, dtype=np.float32))
  t = kit.tensor((8,))
  kit.copy(kit.whole(a, t))
  for codelet in CODELETS.values():
    fields, _ = codelet.example()
    kit.execute(as_read(fields), (8,), [(t, (0,)), (c, (0,))], [(r, (0,))])
  inner = list(kit.steps)
  kit.steps += [
    schema.HostCopy(a, 1, FREE, 0),
    schema.Repeat(3, inner[:1], 0),
    schema.While(inner[:2], t, [schema.Repeat(1, inner[2:3], 0)], FREE, 0),
    schema.Switch(t, [schema.Branch([]), schema.Branch(inner[:1])], FREE, 0),
  ]
  program = dataclasses.replace(
    kit.program(),
    name="größe",
    aliases=[schema.Alias(0, 0)],
    donors=[0],
    cost_analysis=[schema.NamedValue("flops", 1.5)],
    memory=schema.Memory(1, 2, 3, 4, 5, 6, 7),
    estimated_seconds=1e-6,
    module=bytes(range(256)),
    omissions=[schema.Omission(7, 0, 32)],
  )
  return program, kit.constants


PROGRAM, CONSTANTS = sample()
DATA = container.write(PROGRAM, CONSTANTS)


def resealed(data: bytes) -> bytes:
  """With a matching checksum, so that later checks are reached."""
  crc = zlib.crc32(data[16:])
  return data[:12] + struct.pack("<I", crc) + data[16:]


def test_instructions_that_do_not_exist_are_refused():
  (code,) = {
    step.fields.code.wire
    for step in PROGRAM.steps
    if isinstance(step, schema.Execute) and isinstance(step.fields, schema.Map)
  }
  unknown = DATA.replace(code, bytes([250]) + code[1:])
  with pytest.raises(ValueError, match="unknown number 250"):
    container.read(resealed(unknown))


def test_round_trip():
  program, constants = container.read(DATA)
  assert program == PROGRAM
  assert bytes(constants) == CONSTANTS


def test_equal_programs_are_equal_bytes():
  assert container.write(*sample()) == DATA


def test_constants_are_aligned():
  (start,) = struct.unpack_from("<Q", DATA, 32)
  assert start % container.ALIGNMENT == 0
  assert DATA[start:] == CONSTANTS


def test_empty_program():
  data = Kit().bytes()
  program, constants = container.read(data)
  assert program.steps == [] and not len(constants)


@pytest.mark.parametrize("size", [0, 7, 47])
def test_data_shorter_than_the_header(size):
  with pytest.raises(ValueError, match="not an IPU program"):
    container.read(DATA[:size])


def test_wrong_magic_number():
  with pytest.raises(ValueError, match="not an IPU program"):
    container.read(b"ML\xefR" + DATA[4:])


def test_truncation():
  for size in range(48, len(DATA)):
    with pytest.raises(ValueError, match="corrupt IPU program"):
      container.read(DATA[:size])


def test_bytes_after_the_end():
  with pytest.raises(ValueError, match="corrupt IPU program"):
    container.read(DATA + b"\0")
  with pytest.raises(ValueError, match="sections"):
    container.read(resealed(DATA + b"\0"))


@given(st.integers(16, len(DATA) - 1), st.integers(1, 255))
def test_a_corrupted_byte_breaks_the_checksum(position, flip):
  bent = bytearray(DATA)
  bent[position] ^= flip
  with pytest.raises(ValueError):
    container.read(bytes(bent))


@given(st.integers(24, len(DATA) - 1), st.integers(1, 255))
def test_corruption_with_a_valid_checksum_is_read_or_refused(position, flip):
  bent = bytearray(DATA)
  bent[position] ^= flip
  try:
    program, _ = container.read(resealed(bytes(bent)))
  except ValueError:
    return
  assert isinstance(program, schema.Program)


def test_other_format_version():
  other = DATA[:8] + struct.pack("<I", 999) + DATA[12:]
  with pytest.raises(ValueError, match="format 999 .* compile it again"):
    container.read(resealed(other))


def test_other_schema():
  other = DATA[:16] + struct.pack("<Q", 1) + DATA[24:]
  with pytest.raises(ValueError, match="schema 0x1.* compile it again"):
    container.read(resealed(other))


@functools.cache
def wire(t: Any, depth: int = 1) -> st.SearchStrategy[Any]:
  """Values of a wire type; steps are nested down to a depth."""
  t = codec.resolve(t)
  if letter := codec.scalar_letter(t):
    if letter == "d":
      return st.floats(allow_nan=False)
    bits = struct.calcsize(letter) * 8
    low = -(1 << (bits - 1)) if letter.islower() else 0
    return st.integers(low, low + (1 << bits) - 1)
  if t is str:
    return st.text(max_size=5)
  if t is bytes:
    return st.binary(max_size=5)
  if (element := codec.list_element(t)) is not None:
    element = codec.resolve(element)
    if element not in (schema.Step, schema.Branch):
      return st.lists(wire(element, depth), max_size=3)
    if not depth:
      return st.just([])
    return st.lists(wire(element, depth - 1), max_size=2)
  if alternatives := codec.union_alternatives(t):
    return st.one_of([wire(a, depth) for a in alternatives])
  fields = codec.field_types(t)
  return st.builds(t, **{n: wire(f, depth) for n, f in fields.items()})


RECORDS = [
  r
  for r in vars(schema).values()
  if dataclasses.is_dataclass(r) and isinstance(r, type)
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.__name__)
@given(st.data())
def test_every_record_round_trips(record, data):
  value = data.draw(wire(record))
  chunks: list[bytes] = []
  codec.encoder(record)(value, chunks)
  encoded = b"".join(chunks)
  decoded, end = codec.decoder(record)(memoryview(encoded), 0)
  assert decoded == value and end == len(encoded)


def test_encoders_made_by_several_threads(monkeypatch):
  value = schema.Access(3, [1, 2])

  def encoded(*_) -> bytes:
    chunks: list[bytes] = []
    codec.encoder(schema.Access)(value, chunks)
    return b"".join(chunks)

  expected, interval = encoded(), sys.getswitchinterval()
  sys.setswitchinterval(1e-6)
  monkeypatch.setattr(
    codec, "encoder", functools.cache(codec.encoder.__wrapped__)
  )
  try:
    with ThreadPoolExecutor(3) as pool:
      for _ in range(100):
        codec.encoder.cache_clear()
        assert set(pool.map(encoded, range(3))) == {expected}
        assert encoded() == expected
  finally:
    sys.setswitchinterval(interval)


def another_fingerprint() -> bool:
  """Whether recomputing the fingerprint gives another value than before."""
  return container.fingerprint.__wrapped__() != container.fingerprint()


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.__name__)
def test_an_added_field_changes_the_fingerprint(monkeypatch, record):
  # Every record is part of it; a record that nothing refers to is not part of
  # the format.
  fields_of = codec.field_types
  assert not another_fingerprint()
  monkeypatch.setattr(
    codec,
    "field_types",
    lambda t: fields_of(t) | ({"more": schema.U8} if t is record else {}),
  )
  assert another_fingerprint()


@pytest.mark.parametrize(
  "where, name",
  [
    (container, "Opcode"),
    (isa, "RegisterType"),
    (isa, "ReduceKind"),
    (schema, "FactorKind"),
  ],
)
def test_an_added_enumerator_changes_the_fingerprint(monkeypatch, where, name):
  numbers = {member.name: member.value for member in getattr(where, name)}
  changed = enum.IntEnum(name, numbers | {"MORE": 200})
  monkeypatch.setattr(where, name, changed)
  assert another_fingerprint()
