#include "jaxlib/ipu/runtime/model/kernels/native/pointers.h"

#include <cstddef>
#include <cstdlib>
#include <iterator>

#include "jaxlib/ipu/runtime/model/kernels/native/lane_loads.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

constexpr Gpr kRegistersOfPointers[] = {
    Gpr::kR8,  Gpr::kR9,  Gpr::kR10, Gpr::kR11, Gpr::kRbx,
    Gpr::kRbp, Gpr::kR12, Gpr::kR13, Gpr::kR14, Gpr::kR15};
constexpr size_t kFreelyUsed = 4;  // caller-saved; the others are pushed

// Two sources' places that are further apart have pointers of their own, so
// that offsets within a group can be added in 32 bits.
constexpr int64_t kFarthest = int64_t{1} << 29;

}  // namespace

bool MoveAlike(const StridedIterator& a, const StridedIterator& b) {
  if (a.base() != b.base() || a.item_size() != b.item_size() ||
      std::abs(a.offset() - b.offset()) > kFarthest) {
    return false;
  }
  if (a.dense() || b.dense()) return a.dense() && b.dense();
  return a.group() == b.group() && a.group_step() == b.group_step();
}

Gpr Pointers::OfSlot(int slot, int64_t step) {
  for (size_t k = 0; k < pointers_.size(); ++k) {
    if (pointers_[k].source == nullptr && pointers_[k].slot == slot) {
      return kRegistersOfPointers[k];
    }
  }
  if (pointers_.size() < std::size(kRegistersOfPointers)) {
    pointers_.push_back({slot, nullptr, static_cast<int32_t>(step)});
    return kRegistersOfPointers[pointers_.size() - 1];
  }
  if (step != 0) emit_.Fail();
  emit_.body().Load(Gpr::kRcx, Gpr::kRsi, slot * 8);
  return Gpr::kRcx;
}

Address Pointers::OfSource(const Source& source, int64_t elements) {
  const StridedIterator& iterator = source.iterator;
  for (size_t k = 0; k < pointers_.size(); ++k) {
    if (pointers_[k].source == nullptr) continue;
    const StridedIterator& other = pointers_[k].source->iterator;
    if (!MoveAlike(iterator, other)) continue;
    return {.base = kRegistersOfPointers[k],
            .indexed = false,
            .offset = static_cast<int32_t>(iterator.offset() - other.offset())};
  }
  if (pointers_.size() == std::size(kRegistersOfPointers)) {
    emit_.Fail();
    return {Gpr::kRcx};
  }
  const int64_t step = iterator.dense() ? 0 : GroupStep(iterator, elements);
  pointers_.push_back({0, &source, static_cast<int32_t>(step)});
  return {.base = kRegistersOfPointers[pointers_.size() - 1], .indexed = false};
}

void Pointers::Prepare(Assembler& a) const {
  for (size_t k = kFreelyUsed; k < pointers_.size(); ++k) {
    a.Push(kRegistersOfPointers[k]);
  }
  a.Load(Gpr::kRsi, Gpr::kRdi, offsetof(Frame, slots));
  for (size_t k = 0; k < pointers_.size(); ++k) Point(a, k);
}

void Pointers::Point(Assembler& a, size_t k) const {
  const auto [slot, source, step] = pointers_[k];
  const Gpr r = kRegistersOfPointers[k];
  if (source == nullptr) return a.Load(r, Gpr::kRsi, slot * 8);
  const StridedIterator& iterator = source->iterator;
  a.Load(r, Gpr::kRdi, offsetof(Frame, bases));
  a.Load(r, r, static_cast<int32_t>(iterator.base() * 8));
  a.Move(Gpr::kRcx, static_cast<uint64_t>(iterator.offset()));
  a.Add(r, Gpr::kRcx);
  if (iterator.dense()) {
    a.Load(Gpr::kRcx, Gpr::kRdi, offsetof(Frame, begin));
    return a.AddScaled(r, Gpr::kRcx, static_cast<int>(iterator.item_size()));
  }
  const int64_t group = iterator.group(), by = GroupStep(iterator, group);
  if (by == 0) return;
  a.Load(Gpr::kRax, Gpr::kRdi, offsetof(Frame, begin));
  if (group > 1) {
    a.Move(Gpr::kRcx, static_cast<uint64_t>(group));
    a.Divide(Gpr::kRcx);
  }
  a.Multiply(Gpr::kRax, Gpr::kRax, static_cast<int32_t>(by));
  a.Add(r, Gpr::kRax);
}

void Pointers::Advance(Assembler& a) const {
  for (size_t k = 0; k < pointers_.size(); ++k) {
    if (pointers_[k].step != 0) {
      a.Add(kRegistersOfPointers[k], pointers_[k].step);
    }
  }
}

void Pointers::Restore(Assembler& a) const {
  for (size_t k = pointers_.size(); k-- > kFreelyUsed;) {
    a.Pop(kRegistersOfPointers[k]);
  }
}

}  // namespace ipu::model::IPU_SIMD_NS
