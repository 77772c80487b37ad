#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/bands.h"
#include "jaxlib/ipu/runtime/model/kept_rows.h"

namespace ipu::model {
namespace {

// Runs several steps in bands. Each step has a kernel for a whole band, and one
// for the last band if that has fewer rows. All bands use the same kernels: for
// every band, Run moves the base pointers from which these address operands.
class BandKernel final : public Kernel {
 public:
  BandKernel(int64_t extent, int64_t rows) : extent_(extent), rows_(rows) {}

  // Keeps the rows of a root, of which the views `uses` are, in the order of
  // access, in the band's memory. Returns false if that is not possible.
  bool Keep(const InnerRoot& root, const std::vector<Use>& uses) {
    const auto kept =
        Kept(root.address, root.bytes, uses, extent_, rows_, memory_bytes_);
    if (!kept) return false;
    for (const uint32_t t : root.tensors) kept_of_[t] = kept_.size();
    kept_.push_back(*kept);
    // The line between two of them keeps equal rows of both out of the same
    // sets of the cache, if bands have a power of two bytes.
    memory_bytes_ += (kept->bytes() + kLine - 1) / kLine * kLine + kLine;
    return true;
  }

  Status Add(const ComputeSet& step, size_t d, const Factories& factories) {
    for (const int64_t rows : {rows_, extent_ % rows_}) {
      if (rows == 0) continue;
      ComputeSet band = step;
      band.shape[d] = rows;
      const auto cut = [&](std::vector<Operand>& operands,
                           const std::vector<program::Access>& accesses) {
        for (size_t i = 0; i < operands.size(); ++i) {
          Cut(operands[i], d, rows,
              i < accesses.size() ? &accesses[i] : nullptr);
        }
      };
      cut(band.operands, step.step.operands);
      cut(band.results, step.step.results);
      KernelOr kernel = factories.kernel(band, step.step.fields);
      if (!kernel.ok()) return kernel.status();
      if (*kernel == nullptr) continue;
      (rows == rows_ ? whole_ : rest_).push_back(std::move(*kernel));
    }
    return Status();
  }

  void Run(const Memory& memory, ThreadPool& threads) const override {
    // A pool without workers: kernels run on the thread of their band, and any
    // number of threads may use the pool at once.
    static ThreadPool alone(1);
    threads.For(
        (extent_ + rows_ - 1) / rows_, 1, [&](int64_t begin, int64_t end) {
          std::vector<char*> bases(kFirst + slots_.size());
          char* const own = ThreadMemory(memory_bytes_);
          for (int64_t band = begin; band < end; ++band) {
            const int64_t row = band * rows_;
            for (size_t i = 0; i < slots_.size(); ++i) {
              if (slots_[i].base == kOwn) {
                bases[kFirst + i] = own;
                continue;
              }
              bases[kFirst + i] =
                  memory.bases[slots_[i].base] + row * slots_[i].step;
            }
            const auto& kernels = row + rows_ <= extent_ ? whole_ : rest_;
            for (const auto& kernel : kernels) {
              kernel->Run(Memory{bases.data()}, alone);
            }
          }
        });
  }

 private:
  // The kernels' first base. Different slots may point to the same storage, so
  // kernels have to expect this of their bases.
  static constexpr uint32_t kFirst = kFirstArgumentBase;
  static_assert(MayAlias(kFirst, kFirst + 1));
  // Stands for the band's memory.
  static constexpr uint32_t kOwn = std::numeric_limits<uint32_t>::max();
  static constexpr int64_t kLine = 64;

  // Memory of this thread, aligned to a cache line, kept between runs.
  static char* ThreadMemory(int64_t bytes) {
    static thread_local std::vector<char> memory;
    const auto size = static_cast<size_t>(bytes + kLine);
    if (memory.size() < size) memory = std::vector<char>(size);
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    return memory.data() + (kLine - address % kLine) % kLine;
  }

  // A base pointer of the kernels: in row i, base `base` of the program plus
  // i * step bytes.
  struct Slot {
    uint32_t base;
    int64_t step;
  };

  // Restricts an operand to a band of `rows` rows along dimension d, addressed
  // from a slot.
  void Cut(Operand& o, size_t d, int64_t rows, const program::Access* access) {
    Slot slot{o.view.base, o.Stride(d) * o.view.item_size};
    const auto found =
        access == nullptr ? kept_of_.end() : kept_of_.find(access->tensor);
    if (found != kept_of_.end()) {
      kept_[found->second].Redirect(o.view, o.dims[d]);
      slot = {kOwn, 0};
    }
    size_t i = 0;
    while (i < slots_.size() &&
           (slots_[i].base != slot.base || slots_[i].step != slot.step)) {
      ++i;
    }
    if (i == slots_.size()) slots_.push_back(slot);
    o.view.base = static_cast<uint32_t>(kFirst + i);
    if (o.dims[d] >= 0) o.view.shape[o.dims[d]] = rows;
  }

  const int64_t extent_, rows_;
  std::vector<Slot> slots_;
  std::vector<KeptRows> kept_;
  std::map<uint32_t, size_t> kept_of_;  // by tensor
  int64_t memory_bytes_ = 0;            // of the rows that a band keeps
  std::vector<std::unique_ptr<Kernel>> whole_, rest_;
};

}  // namespace

KernelOr MakeBandKernel(std::span<const ComputeSet> steps, const Bands& bands,
                        const Factories& factories) {
  auto kernel = std::make_unique<BandKernel>(bands.extent, bands.rows);
  for (const InnerRoot& root : bands.inner) {
    std::vector<Use> uses;
    for (size_t i = bands.begin; i < bands.end; ++i) {
      const size_t d = bands.dims[i - bands.begin];
      ForUses(steps[i], [&](const Operand& o, int64_t tensor, bool written) {
        if (std::count(root.tensors.begin(), root.tensors.end(), tensor) > 0) {
          uses.push_back({&o, d, written});
        }
      });
    }
    if (!kernel->Keep(root, uses)) return Internal("bands cannot keep a root");
  }
  for (size_t i = bands.begin; i < bands.end; ++i) {
    IPU_RETURN_IF_ERROR(
        kernel->Add(steps[i], bands.dims[i - bands.begin], factories));
  }
  return KernelOr(std::move(kernel));
}

}  // namespace ipu::model
