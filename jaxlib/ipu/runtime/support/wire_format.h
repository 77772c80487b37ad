// Reads and writes the wire format of protocol buffers, as far as
// CompileOptionsProto, DeviceAssignmentProto and the profiler need it. Their
// generated code would pull in the whole protobuf library for a handful of
// integers.
//
// Format: https://protobuf.dev/programming-guides/encoding

#ifndef JAXLIB_IPU_RUNTIME_SUPPORT_WIRE_FORMAT_H_
#define JAXLIB_IPU_RUNTIME_SUPPORT_WIRE_FORMAT_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace ipu {

// Reads one message field by field:
//   WireReader reader(bytes);
//   while (reader.Next()) { ... reader.number() ... }
//   if (!reader.ok()) ...
class WireReader {
 public:
  explicit WireReader(std::string_view message) : rest_(message) {}

  // Returns false at the end of the message and if it is malformed.
  bool Next();
  // Reads the next varint of a packed field, or of a buffer of varints.
  bool ReadVarint(uint64_t* value);
  bool ok() const { return ok_; }

  uint32_t number() const { return number_; }
  // The value of a varint field; 0 for others.
  uint64_t varint() const { return varint_; }
  // The bytes of a length-delimited field (a string, a message, packed
  // varints).
  std::string_view bytes() const { return bytes_; }
  bool has_bytes() const { return wire_type_ == 2; }
  // The whole field with its tag, for copying verbatim.
  std::string_view field() const { return field_; }

 private:
  std::string_view rest_;
  std::string_view bytes_;
  std::string_view field_;
  uint64_t varint_ = 0;
  uint32_t number_ = 0;
  uint32_t wire_type_ = 0;
  bool ok_ = true;
};

void AppendVarint(uint64_t value, std::string* out);
void AppendVarintField(uint32_t number, uint64_t value, std::string* out);
void AppendDoubleField(uint32_t number, double value, std::string* out);
void AppendBytesField(uint32_t number, std::string_view bytes,
                      std::string* out);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_SUPPORT_WIRE_FORMAT_H_
