"""The file format around a program: header, records, constants.

offset  bytes
0       8   magic "JAXIPU\\0\\n"
8       4   format version (schema.FORMAT_VERSION)
12      4   CRC-32 of everything from byte 16 on
16      8   fingerprint of the schema
24      8   bytes of the encoded Program record, which starts at 48
32      8   where the constants start, a multiple of 64
40      8   bytes of the constants
48      …   the Program record, zeros up to a multiple of 64, the constants
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import struct
import zlib

from jaxlib.ipu.kernel import isa
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.kernel.opcode import Opcode
from jaxlib.ipu.program import codec, schema

MAGIC = b"JAXIPU\0\n"
ALIGNMENT = 64
# Bytes of a record that is not copied to join it with others; a guess: copying
# smaller ones takes less than writing them one by one.
_LARGE = 1 << 16
_HEADER = struct.Struct("<8sIIQQQQ")


@functools.cache
def fingerprint() -> int:
  """64 bits that change with the schema and the instruction set."""
  seen: set[type] = set()
  text: list[str] = []

  def describe(t: object) -> str:
    t = codec.resolve(t)
    if letter := codec.scalar_letter(t):
      return letter
    if (element := codec.list_element(t)) is not None:
      return f"[{describe(element)}]"
    if alternatives := codec.union_alternatives(t):
      return "|".join(describe(a) for a in alternatives)
    assert isinstance(t, type)
    if t is Code:
      return "bytes"
    if t in (str, bytes) or t in seen:
      return t.__name__
    seen.add(t)
    fields = codec.field_types(t)
    described = ",".join(f"{n}:{describe(f)}" for n, f in fields.items())
    text.append(f"{t.__name__}({described})")
    return t.__name__

  describe(schema.Program)
  for enumeration in (
    Opcode,
    isa.RegisterType,
    isa.ReduceKind,
    schema.FactorKind,
  ):
    text.append(",".join(f"{e.name}={e.value}" for e in enumeration))
  digest = hashlib.sha256("\n".join(text).encode()).digest()
  return int.from_bytes(digest[:8], "little")


def write(program: schema.Program, *constants: bytes | memoryview) -> bytes:
  """The bytes of a program and its constants, which may be given in pieces."""
  return b"".join(pieces(program, *constants))


def pieces(
  program: schema.Program, *constants: bytes | memoryview
) -> list[bytes | memoryview]:
  """What `write` joins; `constants` are among it as they are."""
  records: list[bytes] = []
  codec.encoder(schema.Program)(program, records)
  size = sum(map(len, records))
  end = _HEADER.size + size
  start = -(-end // ALIGNMENT) * ALIGNMENT
  header = _HEADER.pack(
    MAGIC, schema.FORMAT_VERSION, 0, fingerprint(), size, start,
    sum(map(len, constants)),
  )  # fmt: skip
  body: list[bytes | memoryview] = [header[16:]]
  if max(map(len, records)) <= _LARGE:
    body.append(b"".join(records))
  else:
    for large, run in itertools.groupby(records, lambda r: len(r) > _LARGE):
      parts = list(run)
      body += parts if large else [b"".join(parts)]
  body += [bytes(start - end), *constants]
  crc = functools.reduce(lambda c, part: zlib.crc32(part, c), body, 0)
  return [header[:12], struct.pack("<I", crc), *body]


def read(data: bytes) -> tuple[schema.Program, memoryview]:
  """The program and its constants.

  Raises:
    ValueError: the bytes are truncated, corrupt, or of another format version.
  """
  if len(data) < _HEADER.size or data[:8] != MAGIC:
    raise ValueError(
      f"not an IPU program: {len(data)} bytes that start with {data[:8]!r}"
    )
  _, version, crc, schema_id, size, start, constant_size = _HEADER.unpack_from(
    data
  )
  if version != schema.FORMAT_VERSION or schema_id != fingerprint():
    raise ValueError(
      f"IPU program of format {version} (schema {schema_id:#x}), this reader "
      f"knows format {schema.FORMAT_VERSION} (schema {fingerprint():#x}): "
      "compile it again"
    )
  if zlib.crc32(memoryview(data)[16:]) != crc:
    raise ValueError("corrupt IPU program: its checksum does not match")
  if start + constant_size != len(data) or _HEADER.size + size > start:
    raise ValueError("corrupt IPU program: its sections do not fit its size")
  view = memoryview(data)
  try:
    program, end = codec.decoder(schema.Program)(view, _HEADER.size)
  except (struct.error, IndexError, ValueError) as e:
    raise ValueError(f"corrupt IPU program: {e}") from e
  if end != _HEADER.size + size:
    raise ValueError("corrupt IPU program: bytes left over after its records")
  return program, view[start:]
