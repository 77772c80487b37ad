#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <variant>
#include <vector>

#include "jaxlib/ipu/runtime/program/shape.h"
#include "jaxlib/ipu/runtime/program/validate_internal.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::program {
namespace {

// A limit for all machines together; far more than exist.
constexpr int64_t kMostTiles = int64_t{1} << 24;
// A limit of the number of machines.
constexpr uint32_t kMostPartitions = 1024;

// The type of a tensor's elements that hold elements of a host type.
constexpr DType StoredType(DType dtype) {
  if (IsComplex(dtype)) return dtype == DType::kC64 ? DType::kF32 : DType::kF64;
  return ItemSize(dtype) != 0 ? dtype : DType::kU8;
}

class TensorValidator {
 public:
  TensorValidator(const Program& program, size_t constants_bytes)
      : p_(program), constants_bytes_(constants_bytes) {}

  Status Check() {
    if (p_.arena_bytes > kMostBytes) {
      return Corrupt("an arena of ", p_.arena_bytes, " bytes is too large");
    }
    IPU_RETURN_IF_ERROR(CheckFigures());
    for (size_t i = 0; i < p_.mappings.size(); ++i) {
      IPU_RETURN_IF_ERROR(CheckMapping(i));
    }
    for (size_t i = 0; i < p_.tensors.size(); ++i) {
      IPU_RETURN_IF_ERROR(CheckShape(i));
    }
    IPU_RETURN_IF_ERROR(CheckEnds(p_.arguments, Space::kArgument, "argument"));
    IPU_RETURN_IF_ERROR(CheckEnds(p_.results, Space::kResult, "result"));
    for (const HostType& type : p_.host_types) {
      IPU_RETURN_IF_ERROR(CheckHostType(type));
    }
    for (const ArrayLayout& layout : p_.layouts) {
      IPU_RETURN_IF_ERROR(CheckLayout(layout));
    }
    for (size_t i = 0; i < p_.tensors.size(); ++i) {
      const bool root = p_.tensors[i].root == i;
      IPU_RETURN_IF_ERROR(root ? CheckRoot(i) : CheckPlaced(i));
    }
    IPU_RETURN_IF_ERROR(CheckOmissions());
    return CheckDonation();
  }

 private:
  // Checks the machine and the program's requirements.
  Status CheckFigures() {
    if (p_.num_partitions == 0 || p_.num_partitions > kMostPartitions) {
      return Corrupt("a program for ", p_.num_partitions, " devices");
    }
    if (!p_.shardings.empty() &&
        p_.shardings.size() != p_.arguments.size() + 1) {
      return Corrupt("a program of ", p_.arguments.size(), " arguments with ",
                     p_.shardings.size(), " shardings");
    }
    const Target& target = p_.target;
    if (target.num_tiles == 0 || target.num_tiles > kMostTiles ||
        target.bytes_per_tile > kMostBytes || !(target.clock_hz > 0) ||
        !std::isfinite(target.clock_hz)) {
      return Corrupt("a machine of ", target.num_tiles, " tiles of ",
                     target.bytes_per_tile, " bytes at ", target.clock_hz,
                     " Hz");
    }
    const Memory& m = p_.memory;
    for (uint64_t bytes :
         {m.argument_bytes, m.result_bytes, m.alias_bytes, m.temporary_bytes,
          m.code_bytes, m.peak_tile_bytes}) {
      if (bytes > kMostBytes) {
        return Corrupt("an SRAM plan of ", bytes, " bytes");
      }
    }
    if (m.peak_tile >= target.num_tiles || m.alias_bytes > m.argument_bytes ||
        m.alias_bytes > m.result_bytes) {
      return Corrupt("an SRAM plan whose fullest tile is ", m.peak_tile, " of ",
                     target.num_tiles, ", ", m.alias_bytes,
                     " bytes of arguments and results being the same");
    }
    for (const uint64_t bytes : m.range_bytes) {
      if (bytes > m.peak_tile_bytes) {
        return Corrupt("an SRAM plan of ", bytes, " bytes on a tile, but ",
                       m.peak_tile_bytes, " on the fullest");
      }
    }
    uint64_t tiles = 0;
    for (const uint32_t count : m.range_tiles) tiles += count;
    if (m.range_bytes.size() != m.range_tiles.size() ||
        (!m.range_tiles.empty() && tiles != target.num_tiles)) {
      return Corrupt("an SRAM plan for ", tiles, " of ", target.num_tiles,
                     " tiles, of ", m.range_tiles.size(), " and ",
                     m.range_bytes.size(), " ranges");
    }
    for (const NamedValue& cost : p_.cost_analysis) {
      if (!std::isfinite(cost.value)) return Corrupt(cost.name, " is infinite");
    }
    if (!std::isfinite(p_.estimated_seconds) || p_.estimated_seconds < 0) {
      return Corrupt("a run of ", p_.estimated_seconds, " seconds");
    }
    return Status();
  }

  // Checks everything about a mapping that involves no tensor: its parts must
  // be valid and on existing tiles.
  Status CheckMapping(size_t i) {
    const Mapping& m = p_.mappings[i];
    const auto within = [](int64_t x, int64_t least, int64_t most) {
      return least <= x && x <= most;
    };
    bool valid = m.extents.size() == m.blocks.size() &&
                 m.extents.size() == m.strides.size() &&
                 m.replica_counts.size() == m.replica_strides.size() &&
                 m.replica_counts.size() <= kHighestRank &&
                 Count(m.extents) >= 0;
    int64_t last = m.base;
    for (size_t f = 0; valid && f < m.extents.size(); ++f) {
      valid = within(m.blocks[f], 1, kMostElements) &&
              within(m.strides[f], 0, kMostTiles);
      if (!valid || m.extents[f] == 0 || m.strides[f] == 0) continue;
      const int64_t parts = (m.extents[f] - 1) / m.blocks[f];
      valid = parts < kMostTiles;
      if (valid) last += parts * m.strides[f];
      valid = valid && last < p_.target.num_tiles;
    }
    for (size_t r = 0; valid && r < m.replica_counts.size(); ++r) {
      valid = within(m.replica_counts[r], 1, kMostTiles) &&
              within(m.replica_strides[r], 0, kMostTiles);
      if (valid) last += (m.replica_counts[r] - 1) * m.replica_strides[r];
      valid = valid && last < p_.target.num_tiles;
    }
    if (valid && last < p_.target.num_tiles) return Status();
    return Corrupt("mapping ", i, " is invalid or uses tiles beyond the ",
                   p_.target.num_tiles, " of the machine");
  }

  // Checks everything about a tensor that involves no other tensor.
  Status CheckShape(size_t i) {
    const Tensor& t = p_.tensors[i];
    if (ItemSize(t.dtype) == 0) {
      return Corrupt("tensor ", i, " has the unknown element type ",
                     Number(t.dtype));
    }
    if (Count(t.shape) < 0) {
      return Corrupt("tensor ", i, " has no valid shape");
    }
    if (t.strides.size() != t.shape.size()) {
      return Corrupt("tensor ", i, " has ", t.shape.size(), " dimensions but ",
                     t.strides.size(), " strides");
    }
    if (t.mapping >= p_.mappings.size()) {
      return Corrupt("tensor ", i, " refers to mapping ", t.mapping, " of ",
                     p_.mappings.size());
    }
    if (Count(p_.mappings[t.mapping].extents) != Count(t.shape)) {
      return Corrupt("tensor ", i, " of ", Count(t.shape),
                     " elements has a mapping of ",
                     Count(p_.mappings[t.mapping].extents));
    }
    if (t.root >= p_.tensors.size() || p_.tensors[t.root].root != t.root) {
      return Corrupt("tensor ", i, " refers to root ", t.root,
                     ", which is not a root");
    }
    return Status();
  }

  // Checks the arguments or the results.
  Status CheckEnds(const std::vector<uint32_t>& ends, Space space,
                   const char* name) {
    for (size_t i = 0; i < ends.size(); ++i) {
      if (ends[i] >= p_.tensors.size()) {
        return Corrupt(name, " ", i, " refers to tensor ", ends[i], " of ",
                       p_.tensors.size());
      }
      const Tensor& t = p_.tensors[ends[i]];
      if (t.root != ends[i] || t.space != static_cast<uint8_t>(space) ||
          t.address != i) {
        return Corrupt("tensor ", ends[i], " is named as ", name, " ", i,
                       " but is not stored there");
      }
    }
    return Status();
  }

  // An argument or a result that another table describes.
  struct End {
    std::string name;
    const Tensor* tensor;  // null if there is no such argument or result
  };

  template <typename Description>
  End EndOf(const Description& of) const {
    const auto& ends = of.is_result ? p_.results : p_.arguments;
    const bool exists = of.number < ends.size();
    return {
        (of.is_result ? "result " : "argument ") + std::to_string(of.number),
        exists ? &p_.tensors[ends[of.number]] : nullptr};
  }

  // The caller's buffer must have the elements of the tensor: its dimensions
  // from the outermost in memory, and the parts of complex numbers.
  Status CheckHostType(const HostType& type) {
    const auto [name, tensor] = EndOf(type);
    if (tensor == nullptr) {
      return Corrupt(name, " has a host type but does not exist");
    }
    std::vector<int64_t> order(type.shape.size());
    std::iota(order.rbegin(), order.rend(), 0);
    if (!type.minor_to_major.empty()) {
      if (!std::is_permutation(order.begin(), order.end(),
                               type.minor_to_major.begin(),
                               type.minor_to_major.end())) {
        return Corrupt(name, " has a layout of other dimensions");
      }
      order = type.minor_to_major;
    }
    std::vector<int64_t> shape;
    for (size_t d = order.size(); d-- > 0;) {
      shape.push_back(type.shape[order[d]]);
    }
    if (IsComplex(type.dtype)) shape.push_back(2);
    if (HostItemSize(type.dtype) == 0 ||
        StoredType(type.dtype) != tensor->dtype || shape != tensor->shape) {
      return Corrupt(name, " has another host type, ", Number(type.dtype),
                     " of ", type.shape.size(), " dimensions, than its tensor");
    }
    return type.on_host ? CheckStream(type, name) : Status();
  }

  // An array in the host's memory is streamed, once, outside of loops.
  Status CheckStream(const HostType& type, const std::string& name) {
    const auto& ends = type.is_result ? p_.results : p_.arguments;
    for (const Step& step : p_.steps) {
      const auto* copy = std::get_if<HostCopy>(&step.value);
      if (copy != nullptr && copy->tensor == ends[type.number] &&
          !copy->to_device == !!type.is_result) {
        return Status();
      }
    }
    return Corrupt(name, " is in the host's memory but not streamed");
  }

  // Checks that the mapping covers the tensor's elements, and the costs.
  Status CheckLayout(const ArrayLayout& layout) {
    const auto [name, tensor] = EndOf(layout);
    if (tensor == nullptr) {
      return Corrupt(name, " has a layout but does not exist");
    }
    if (layout.mapping >= p_.mappings.size() ||
        Count(p_.mappings[layout.mapping].extents) != Count(tensor->shape) ||
        layout.tile_bytes > kMostBytes) {
      return Corrupt(name, " has the layout ", layout.mapping, " of ",
                     layout.tile_bytes,
                     " bytes, which is none of its elements");
    }
    const Mapping& m = p_.mappings[layout.mapping];
    // Each combination of parts and replicas is on a tile of its own.
    int64_t used = 1;
    const auto spread = [&](int64_t count, int64_t stride) {
      if (stride > 0) used = std::min<int64_t>(used * count, kMostTiles + 1);
    };
    for (size_t f = 0; f < m.extents.size(); ++f) {
      spread((m.extents[f] + m.blocks[f] - 1) / m.blocks[f], m.strides[f]);
    }
    for (size_t r = 0; r < m.replica_counts.size(); ++r) {
      spread(m.replica_counts[r], m.replica_strides[r]);
    }
    if (used > p_.target.num_tiles) {
      return Corrupt(name, " has the layout ", layout.mapping,
                     " with more parts than tiles");
    }
    for (const Cost* cost : {&layout.from_default, &layout.to_default}) {
      IPU_RETURN_IF_ERROR(CheckCost(*cost));
    }
    return Status();
  }

  Status CheckRoot(size_t i) {
    const Tensor& t = p_.tensors[i];
    if (t.offset != 0 || !Dense(t.shape, t.strides)) {
      return Corrupt("tensor ", i, " is a root but not dense");
    }
    uint64_t start = t.address;
    uint64_t room = 0;
    switch (static_cast<Space>(t.space)) {
      case Space::kArena:
      case Space::kHost:
        room = p_.arena_bytes;
        break;
      case Space::kConstant:
        room = constants_bytes_;
        break;
      case Space::kArgument:
      case Space::kResult: {
        const bool argument = t.space == static_cast<uint8_t>(Space::kArgument);
        const auto& ends = argument ? p_.arguments : p_.results;
        if (t.address >= ends.size()) {
          return Corrupt("tensor ", i, " is stored in ",
                         argument ? "argument " : "result ", t.address, " of ",
                         ends.size());
        }
        start = 0;
        room = static_cast<uint64_t>(Bytes(p_.tensors[ends[t.address]]));
        break;
      }
      default:
        return Corrupt("tensor ", i, " is stored in the unknown space ",
                       t.space);
    }
    const uint64_t bytes = static_cast<uint64_t>(Bytes(t));
    if (start > room || bytes > room - start) {
      return Corrupt("tensor ", i, " takes ", bytes, " bytes from ", start,
                     " on of a space of ", room);
    }
    if (start % ItemSize(t.dtype) != 0) {
      return Corrupt("tensor ", i, " starts at byte ", start,
                     ", between two elements");
    }
    return Status();
  }

  Status CheckPlaced(size_t i) {
    const Tensor& t = p_.tensors[i];
    const Tensor& root = p_.tensors[t.root];
    if (t.dtype != root.dtype) {
      return Corrupt("tensor ", i, " has element type ", Number(t.dtype),
                     ", but its root has ", Number(root.dtype));
    }
    if (!Inside(t.shape, t.offset, t.strides, Count(root.shape))) {
      return Corrupt("tensor ", i, " reaches outside of its root ", t.root);
    }
    return Status();
  }

  Status CheckDonation() {
    std::vector<bool> argument_used(p_.arguments.size());
    std::vector<bool> result_used(p_.results.size());
    for (const Alias& a : p_.aliases) {
      if (a.argument >= p_.arguments.size() || a.result >= p_.results.size()) {
        return Corrupt("argument ", a.argument, " aliases result ", a.result,
                       ", and one of them does not exist");
      }
      if (argument_used[a.argument] || result_used[a.result]) {
        return Corrupt("argument ", a.argument, " or result ", a.result,
                       " is aliased twice");
      }
      argument_used[a.argument] = result_used[a.result] = true;
      const int64_t argument_bytes =
          Bytes(p_.tensors[p_.arguments[a.argument]]);
      const int64_t result_bytes = Bytes(p_.tensors[p_.results[a.result]]);
      if (argument_bytes != result_bytes) {
        return Corrupt("argument ", a.argument, " of ", argument_bytes,
                       " bytes aliases result ", a.result, " of ",
                       result_bytes);
      }
    }
    for (uint32_t donor : p_.donors) {
      if (donor >= p_.arguments.size()) {
        return Corrupt("argument ", donor, " is donated but does not exist");
      }
    }
    return Status();
  }

  // Checks that what was left out of the module can be put back.
  Status CheckOmissions() {
    uint64_t position = 0;
    for (const Omission& o : p_.omissions) {
      if (o.position < position || o.position > p_.module.size() ||
          o.size > constants_bytes_ || o.address > constants_bytes_ - o.size) {
        return Corrupt("byte ", o.position, " of a module of ",
                       p_.module.size(), " follows ", o.size, " bytes at ",
                       o.address, " of ", constants_bytes_, " of constants");
      }
      position = o.position;
    }
    return Status();
  }

  const Program& p_;
  const size_t constants_bytes_;
};

}  // namespace

Status ValidateTensors(const Program& program, size_t constants_bytes) {
  return TensorValidator(program, constants_bytes).Check();
}

}  // namespace ipu::program
