"""Generates the C++ headers for programs.

  python3 jaxlib/ipu/program/generate_header.py schema > schema.h
  python3 jaxlib/ipu/program/generate_header.py codelets > codelets.h

The first has structs, their decoders, enums and the instructions' signatures,
the second declares a kernel factory for each codelet. The build runs this; the
headers are never edited or checked in.
"""

from __future__ import annotations

import enum
import functools
import operator
import os
import struct
import sys
import types
from typing import Any, NamedTuple


class _Modules(NamedTuple):
  """What the headers are made from."""

  schema: Any
  isa: Any
  opcode: Any
  code: Any
  codec: Any
  container: Any


def _import_schema() -> _Modules:
  """Imports the schema without importing jaxlib, which is not built yet."""
  here = os.path.dirname(os.path.abspath(__file__))
  for name, path in (
    ("jaxlib", None),
    ("jaxlib.ipu", None),
    ("jaxlib.ipu.kernel", os.path.join(os.path.dirname(here), "kernel")),
    ("jaxlib.ipu.program", here),
  ):
    package = types.ModuleType(name)
    package.__path__ = [path] if path else []
    sys.modules[name] = package
  from jaxlib.ipu.kernel import instruction, isa, opcode
  from jaxlib.ipu.program import codec, container, schema

  return _Modules(schema, isa, opcode, instruction.Code, codec, container)


schema, isa, opcode, Code, codec, container = _import_schema()

_SCALARS = {
  "B": "uint8_t", "H": "uint16_t", "I": "uint32_t", "Q": "uint64_t",
  "i": "int32_t", "q": "int64_t", "d": "double",
}  # fmt: skip

_PRELUDE = """\
// Made by jaxlib/ipu/program/generate_header.py from schema.py, kernel/isa.py
// and kernel/opcode.py, which document every field. Do not edit.

#ifndef JAXLIB_IPU_RUNTIME_PROGRAM_SCHEMA_H_
#define JAXLIB_IPU_RUNTIME_PROGRAM_SCHEMA_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::program {

// Walks over encoded bytes; stays false once anything did not fit.
class Reader {
 public:
  Reader(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  bool Take(void* to, size_t n) {
    if (n > left_) return false;
    if (n != 0) std::memcpy(to, data_, n);
    data_ += n;
    left_ -= n;
    return true;
  }
  // A count of things that take at least `smallest` bytes each.
  bool Count(uint32_t* n, size_t smallest) {
    return Take(n, sizeof *n) && *n <= left_ / smallest;
  }
  bool Enter() { return ++depth_ <= 200; }
  void Leave() { --depth_; }
  size_t left() const { return left_; }

 private:
  const uint8_t* data_;
  size_t left_;
  int depth_ = 0;
};

inline bool Decode(Reader& r, std::string& v) {
  uint32_t n;
  if (!r.Count(&n, 1)) return false;
  v.resize(n);
  return r.Take(v.data(), n);
}
template <typename T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
bool Decode(Reader& r, T& v) {
  return r.Take(&v, sizeof v);
}
template <typename T>
bool Decode(Reader& r, std::vector<T>& v);
"""

_LIST = """
template <typename T>
bool Decode(Reader& r, std::vector<T>& v) {
  uint32_t n;
  if constexpr (std::is_arithmetic_v<T>) {
    if (!r.Count(&n, sizeof(T))) return false;
    v.resize(n);
    return r.Take(v.data(), n * sizeof(T));
  } else {
    if (!r.Count(&n, T::kSmallest)) return false;
    // A count is only a claim: memory grows with what has been decoded.
    v.reserve(std::min<size_t>(n, 64));
    for (uint32_t i = 0; i < n; ++i) {
      if (!Decode(r, v.emplace_back())) return false;
    }
    return true;
  }
}
"""


def cc_type(t: Any, unions: dict[Any, str]) -> str:
  """The C++ type of a wire type."""
  t = codec.resolve(t)
  if enumeration := codec.enumeration(t):
    return enumeration
  if letter := codec.scalar_letter(t):
    return _SCALARS[letter]
  if t in (str, bytes, Code):
    return "std::string"
  if (element := codec.list_element(t)) is not None:
    return f"std::vector<{cc_type(element, unions)}>"
  if t in unions:
    return unions[t]
  return t.__name__


def reachable(root: type, unions: dict[Any, str]) -> list[Any]:
  """Records and unions in an order in which C++ can define them."""
  order: list[Any] = []
  open_: set[Any] = set()

  def visit(t: Any, through_list: bool) -> None:
    t = codec.resolve(t)
    if codec.scalar_letter(t) or t in (str, bytes, Code) or t in order:
      return
    if (element := codec.list_element(t)) is not None:
      return visit(element, True)
    if t in open_:
      assert through_list, f"{t} holds itself"
      return
    open_.add(t)
    if alternatives := codec.union_alternatives(t):
      for a in alternatives:
        visit(a, False)
    else:
      for f in codec.field_types(t).values():
        visit(f, False)
    order.append(t)

  visit(root, False)
  return order


def smallest(t: Any) -> int:
  """The bytes that a value of a wire type takes at least."""
  t = codec.resolve(t)
  if letter := codec.scalar_letter(t):
    return struct.calcsize("<" + letter)
  if t in (str, bytes, Code) or codec.list_element(t) is not None:
    return 4  # a count
  if alternatives := codec.union_alternatives(t):
    return 1 + min(map(smallest, alternatives))
  return sum(map(smallest, codec.field_types(t).values()))


class _Expression:
  """An integer expression in C++: what a method returns for it in Python."""

  def __init__(self, text: str) -> None:
    self.text = text

  def __add__(self, other: _Expression | int) -> _Expression:
    return _Expression(f"{self.text} + {_operand(other)}")

  def __sub__(self, other: _Expression | int) -> _Expression:
    return _Expression(f"{self.text} - {_operand(other)}")


def _operand(value: _Expression | int) -> str:
  return value.text if isinstance(value, _Expression) else str(value)


def facts_text(t: type) -> list[str]:
  """The members of a codelet's record that correspond to `schema.Facts`.

  `EachCode` calls a function with one register program after the other, as long
  as it returns true.
  """
  fields = codec.field_types(t)
  symbols = {
    name: _Expression(f"int64_t{{{name}}}")
    for name, f in fields.items()
    if codec.scalar_letter(f)
  }
  facts: Any = t  # its methods take expressions here instead of integers
  count = facts.num_independent(
    types.SimpleNamespace(**symbols), _Expression("rank")
  )
  codes = " && ".join(f"f({n})" for n, f in fields.items() if f is Code)
  return [
    "  int64_t NumIndependent([[maybe_unused]] int64_t rank) const {",
    f"    return {_operand(count)};",
    "  }",
    f"  static constexpr bool kPacks = {str(facts.packs).lower()};",
    "  template <typename F>",
    "  bool EachCode([[maybe_unused]] F f) const {",
    f"    return {codes or 'true'};",
    "  }",
  ]


def struct_text(t: type, unions: dict[Any, str]) -> str:
  """The definition of a record.

  `Each` calls a function with one field after the other, as long as it returns
  true. `kFields` has their names, `kSmallest` is the size of the smallest
  encoding.
  """
  fields = codec.field_types(t)
  lines = [f"struct {t.__name__} {{"]
  lines += [f"  {cc_type(f, unions)} {n}{{}};" for n, f in fields.items()]
  calls = " && ".join(f"f(v.{n})" for n in fields) or "true"
  lines += [
    f"  static constexpr size_t kSmallest = {smallest(t)};",
    f'  static constexpr const char* kName = "{t.__name__}";',
    "  static constexpr const char* kFields[] = {",
    *(f'      "{n}",' for n in fields),
    "  };",
    "  template <typename Self, typename F>",
    "  static bool Each(Self& v, F f) {",
    f"    return {calls};",
    "  }",
    *(facts_text(t) if issubclass(t, schema.Facts) else ()),
    "};",
  ]
  return "\n".join(lines)


def decoder_text(t: type) -> str:
  """The definition of a record's decoder."""
  name = t.__name__
  return (
    f"inline bool Decode(Reader& r, {name}& v) {{\n"
    f"  return {name}::Each(v, [&](auto& f) {{ return Decode(r, f); }});\n"
    "}"
  )


def union_text(name: str, alternatives: tuple[type, ...]) -> str:
  """A union: a struct around a variant, in the order of the tags."""
  kinds = ", ".join(a.__name__ for a in alternatives)
  size = smallest(functools.reduce(operator.or_, alternatives))
  return (
    f"struct {name} {{\n  static constexpr size_t kSmallest = {size};\n"
    f"  std::variant<{kinds}> value;\n}};"
  )


def union_decoder_text(name: str, alternatives: tuple[type, ...]) -> str:
  """The definition of a union's decoder."""
  cases = "\n".join(
    f"    case {i}: ok = Decode(r, v.value.emplace<{i}>()); break;"
    for i in range(len(alternatives))
  )
  return (
    f"inline bool Decode(Reader& r, {name}& v) {{\n"
    "  uint8_t tag;\n"
    "  if (!Decode(r, tag) || !r.Enter()) return false;\n"
    "  bool ok = false;\n"
    f"  switch (tag) {{\n{cases}\n    default: break;\n  }}\n"
    "  r.Leave();\n"
    "  return ok;\n}"
  )


def enum_text(e: type[enum.IntEnum]) -> str:
  """The definition of an enum."""
  rows = "\n".join(f"  k{_camel(m.name)} = {m.value}," for m in e)
  return f"enum class {e.__name__} : uint8_t {{\n{rows}\n}};"


_REGISTER = """\
struct RegisterInfo {
  const char* name;
  uint32_t bytes;
  bool is_float;
};
inline constexpr std::array<RegisterInfo, %d> kRegisters = {{
%s
}};"""

_SIGNATURES = """\
// As isa.Row; `types` is a bit per type. Types are RegisterType's, or
// one of the two after it. Numbers without an instruction have no types.
inline constexpr uint8_t kOwnType = %d;
inline constexpr uint8_t kSourceType = %d;
struct Signature {
  bool in_programs = false;
  uint8_t types = 0;
  uint8_t arity = 0;
  std::array<uint8_t, 3> operands{};
  uint8_t result = 0;
};
inline constexpr std::array<Signature, 256> kSignatures = [] {
  std::array<Signature, 256> s{};
%s
  return s;
}();"""


def registers_text() -> str:
  """The register types: a name, a size, a kind."""
  rows = [
    f'    {{"{t.name}", {int(t.name[1:]) // 8}, '
    f"{str(t.name[0] == 'F').lower()}}},"
    for t in isa.RegisterType
  ]
  return _REGISTER % (len(rows), "\n".join(rows))


def signatures_text() -> str:
  """The fused instructions, and the signatures of all instructions."""
  rows = []
  for op in (*opcode.Opcode, *opcode.Fused):
    s = op.row
    types = sum(1 << t for t in s.types)
    operands = ", ".join(str(int(t)) for t in s.operands)
    known = str(isinstance(op, opcode.Opcode)).lower()
    rows.append(
      f"  s[{int(op)}] = {{{known}, {types}, {len(s.operands)}, "
      f"{{{operands}}}, {int(s.result)}}};"
    )
  fused = "\n".join(
    f"inline constexpr Opcode k{_camel(f.name)}{{{f.value}}};"
    for f in opcode.Fused
  )
  table = _SIGNATURES % (isa.OWN, isa.SOURCE, "\n".join(rows))
  return f"{fused}\n\n{table}"


def _camel(name: str) -> str:
  return "".join(p.capitalize() for p in name.split("_"))


def schema_header() -> str:
  """All of schema.h."""
  unions = {schema.Fields: "Fields", schema.Step: "Step"}
  order = reachable(schema.Program, unions)
  parts = [_PRELUDE]
  parts.append(
    f"inline constexpr uint32_t kFormatVersion = {schema.FORMAT_VERSION};\n"
    f"inline constexpr uint64_t kFingerprint = {container.fingerprint():#x};\n"
    f"inline constexpr size_t kAlignment = {container.ALIGNMENT};\n"
    f"inline constexpr size_t kHighestRank = {schema.HIGHEST_RANK};\n"
    f"inline constexpr int64_t kNone = {schema.NONE};\n"
    f"enum class Space : uint8_t {{ kArena = {schema.ARENA}, "
    f"kArgument = {schema.ARGUMENT}, kResult = {schema.RESULT}, "
    f"kConstant = {schema.CONSTANT}, kHost = {schema.HOST} }};\n"
    f"enum AttributeKind : uint8_t {{ kScalar = {schema.SCALAR}, "
    f"kArray = {schema.ARRAY}, kString = {schema.STRING}, "
    f"kDictionary = {schema.DICTIONARY} }};"
  )
  parts += [
    enum_text(e)
    for e in (
      isa.RegisterType,
      opcode.Opcode,
      isa.ReduceKind,
      schema.FactorKind,
      schema.CollectiveKind,
    )
  ]
  parts += [registers_text(), signatures_text()]
  parts.append("struct Step;")
  for t in order:
    if t in unions:
      parts.append(union_text(unions[t], codec.union_alternatives(t)))
    else:
      parts.append(struct_text(t, unions))
  names = [unions.get(t) or t.__name__ for t in order]
  parts.append("\n".join(f"bool Decode(Reader& r, {n}& v);" for n in names))
  parts.append(_LIST)
  for t in order:
    if t in unions:
      parts.append(union_decoder_text(unions[t], codec.union_alternatives(t)))
    else:
      parts.append(decoder_text(t))
  parts.append("}  // namespace ipu::program\n")
  parts.append("#endif  // JAXLIB_IPU_RUNTIME_PROGRAM_SCHEMA_H_\n")
  return "\n\n".join(parts)


_CODELETS = """\
// Made by jaxlib/ipu/program/generate_header.py from schema.py. Do not edit.
//
// Makes the kernel of a codelet; codelets/x.cc defines that of its record.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_CODELETS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_CODELETS_H_

#include "jaxlib/ipu/runtime/model/kernel.h"
#include "jaxlib/ipu/runtime/program/schema.h"

namespace ipu::model::IPU_SIMD_NS {

%s

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_CODELETS_H_
"""


def codelets_header() -> str:
  """All of codelets.h."""
  return _CODELETS % "\n".join(
    f"KernelOr MakeKernel(const ComputeSet& set, const program::{record}& f);"
    for record in (t.__name__ for t in codec.union_alternatives(schema.Fields))
  )


if __name__ == "__main__":
  headers = {"schema": schema_header, "codelets": codelets_header}
  sys.stdout.write(headers[sys.argv[1]]())
