// Loops over few elements, run as machine code, step by step and kernel by
// kernel, for tests.

#ifndef JAXLIB_IPU_CODELETS_LOOP_TEST_UTIL_H_
#define JAXLIB_IPU_CODELETS_LOOP_TEST_UTIL_H_

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/map_test_util.h"
#include "jaxlib/ipu/runtime/model/code_memory.h"

namespace ipu::model {

inline constexpr uint64_t kTrips = 3;

// While it lives, no executable memory is to be had.
class WithoutCode {
 public:
  WithoutCode() {
    // What is left of earlier memory is used up by one large function.
    filler_ = PlaceCode(std::vector<uint8_t>(64 << 10));
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{0, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    EXPECT_EQ(PlaceCode(std::vector<uint8_t>(1)), nullptr);
  }
  ~WithoutCode() { setrlimit(RLIMIT_NOFILE, &before_); }
  WithoutCode(const WithoutCode&) = delete;
  WithoutCode& operator=(const WithoutCode&) = delete;

 private:
  CodeHandle filler_;
  rlimit before_;
};

// The tensors and kernels of a loop's body.
class Body {
 public:
  explicit Body(const Factories& table) : table_(table) {}

  // A one-dimensional tensor; none if it is a scalar.
  template <typename T>
  Operand Tensor(const std::vector<T>& values, bool scalar = false) {
    const auto n = static_cast<int64_t>(values.size());
    Operand o = Strided(0, TypeOf<T>::kDtype, {n}, {1});
    o.view.offset = static_cast<int64_t>(memory_.size());
    if (scalar) o.dims = {-1};
    memory_.resize((memory_.size() + n * sizeof(T) + 63) / 64 * 64);
    std::memcpy(&memory_[o.view.offset], values.data(), n * sizeof(T));
    if constexpr (std::is_floating_point_v<T>) {
      floats_.push_back({o.view.offset, n, sizeof(T) == 8});
    }
    return o;
  }

  void Add(const program::Fields& fields, int64_t n,
           std::vector<Operand> operands, std::vector<Operand> results) {
    static const program::Execute kStep;
    Add(fields, {kStep, {n}, std::move(operands), std::move(results)});
  }
  void Add(const program::Fields& fields, const ComputeSet& set) {
    Add(table_.kernel(set, fields));
  }

  // A copy of all elements, or of those from `begin` on.
  void AddCopy(const Operand& from, const Operand& to, int64_t begin) {
    CopyPlan plan{from.view, to.view};
    for (View* view : {&plan.source, &plan.destination}) {
      view->offset += begin * view->item_size * view->strides[0];
      view->shape[0] -= begin;
    }
    Add(table_.copy({plan}));
  }

  void Add(KernelOr kernel) {
    ASSERT_TRUE(kernel.ok()) << kernel.status().message();
    if (*kernel == nullptr) return;  // nothing to do
    if (kernels_to_ != nullptr) {
      kernels_to_->push_back(kernel->get());
    } else {
      parts_.push_back({kernel->get()});
    }
    kernels_.push_back(std::move(*kernel));
  }

  // Adds branches, one of which a scalar selects. add(b) adds the kernels of
  // branch b.
  template <typename F>
  void AddSwitch(const Operand& selector, size_t branches, const F& add) {
    LoopPart part;
    part.selector = selector.view;
    part.counts = Tensor(std::vector<uint64_t>(branches)).view.offset;
    part.branches.resize(branches);
    for (size_t b = 0; b < branches; ++b) {
      kernels_to_ = &part.branches[b];
      add(b);
    }
    kernels_to_ = nullptr;
    parts_.push_back(std::move(part));
  }

  // Adds a loop, of as many trips or, if that is 0, as long as `predicate`
  // holds. test() adds the kernels of its condition, add() those of its body.
  template <typename Test, typename F>
  void AddLoop(uint64_t trips, const Operand& predicate, const Test& test,
               const F& add) {
    auto nested = std::make_unique<Nested>();
    nested->predicate = predicate.view;
    std::vector<LoopPart> outer = std::exchange(parts_, {});
    kernels_to_ = &nested->condition;
    test();
    kernels_to_ = nullptr;
    add();
    nested->body = std::exchange(parts_, std::move(outer));
    nested->loop = table_.scalar_loop(
        {nested->condition, nested->body,
         trips == 0 ? &nested->predicate : nullptr, calls_kernels_, kStorage});
    ASSERT_NE(nested->loop, nullptr);
    LoopPart part;
    part.loop = nested->loop.get();
    part.trips = trips;
    part.counts = Tensor(std::vector<uint64_t>(1)).view.offset;
    parts_.push_back(part);
    nested_.push_back(std::move(nested));
  }

  // Kernels that have no steps are called.
  void CallKernels() { calls_kernels_ = true; }

  // Expects the same memory after three iterations, whatever runs them.
  void Check() const {
    if (parts_.empty()) return;
    const std::vector<char> expected = After([this](const Memory& memory) {
      for (uint64_t trip = 0; trip < kTrips; ++trip) RunParts(parts_, memory);
    });
    const auto run = [this](const Memory& memory) {
      const auto loop = Loop();
      ASSERT_NE(loop, nullptr);
      ThreadPool threads(1);
      EXPECT_EQ(loop->Run(memory, threads, kTrips), kTrips);
    };
    EXPECT_EQ(After(run), expected) << "as machine code";
    const WithoutCode without;
    EXPECT_EQ(After(run), expected) << "step by step";
  }

 private:
  struct Floats {
    int64_t offset, n;
    bool wide;
  };

  struct Nested {
    std::vector<const Kernel*> condition;
    std::vector<LoopPart> body;
    View predicate;
    std::unique_ptr<ScalarLoop> loop;
  };

  void RunParts(const std::vector<LoopPart>& parts,
                const Memory& memory) const {
    ThreadPool threads(1);
    for (const LoopPart& part : parts) {
      if (part.kernel != nullptr) {
        part.kernel->Run(memory, threads);
      } else if (part.loop != nullptr) {
        RunLoop(part, memory);
      } else {
        for (const Kernel* kernel : part.branches[Take(part, memory)]) {
          kernel->Run(memory, threads);
        }
      }
    }
  }

  void RunLoop(const LoopPart& part, const Memory& memory) const {
    const auto is_it = [&](const auto& n) {
      return n->loop.get() == part.loop;
    };
    const Nested& nested =
        **std::find_if(nested_.begin(), nested_.end(), is_it);
    ThreadPool threads(1);
    for (uint64_t trip = 0; part.trips == 0 || trip < part.trips; ++trip) {
      for (const Kernel* kernel : nested.condition) {
        kernel->Run(memory, threads);
      }
      if (part.trips == 0 && !*nested.predicate.Data(memory)) break;
      RunParts(nested.body, memory);
      if (part.trips > 0) continue;
      ++*reinterpret_cast<uint64_t*>(memory.bases[0] + part.counts);
    }
  }

  std::unique_ptr<ScalarLoop> Loop() const {
    ScalarLoopParts parts{{}, {}, nullptr, calls_kernels_, kStorage};
    parts.body = parts_;
    return table_.scalar_loop(parts);
  }

  // The branch that is selected, which is counted.
  static size_t Take(const LoopPart& part, const Memory& memory) {
    const char* const selector = part.selector.Data(memory);
    uint32_t index = *selector ? 0 : 1;
    if (part.selector.dtype != DType::kBool) {
      std::memcpy(&index, selector, sizeof index);
    }
    const size_t b = std::min<size_t>(index, part.branches.size() - 1);
    ++reinterpret_cast<uint64_t*>(memory.bases[0] + part.counts)[b];
    return b;
  }

  // The memory after a run. Which NaN an operation gives is not defined.
  template <typename Run>
  std::vector<char> After(const Run& run) const {
    std::vector<char> memory = memory_;
    char* const bases[] = {memory.data(), memory.data()};
    run(Memory{bases});
    const auto same_nan = [&]<typename T>(const Floats& f, T x) {
      for (int64_t i = 0; i < f.n; ++i) {
        char* const at = &memory[f.offset + i * sizeof x];
        std::memcpy(&x, at, sizeof x);
        if (x != x) x = std::numeric_limits<T>::quiet_NaN();
        std::memcpy(at, &x, sizeof x);
      }
    };
    for (const Floats& f : floats_) {
      if (f.wide) {
        same_nan(f, 0.);
      } else {
        same_nan(f, 0.f);
      }
    }
    return memory;
  }

  const Factories& table_;
  std::vector<char> memory_;
  std::vector<Floats> floats_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<LoopPart> parts_;
  std::vector<std::unique_ptr<Nested>> nested_;
  // What Add adds to instead of parts_.
  std::vector<const Kernel*>* kernels_to_ = nullptr;
  bool calls_kernels_ = false;
  // Two bases of the same memory.
  inline static const std::vector<uint32_t> kStorage = {0, 0};
};

// n elements with all special values of a type.
template <typename T>
std::vector<T> Values(int64_t n, int64_t shift) {
  using Limits = std::numeric_limits<T>;
  std::vector<T> of = {T(0), T(1),          T(2), T(3),
                       T(7), Limits::max(), T(5), Limits::lowest()};
  if constexpr (std::is_floating_point_v<T>) {
    of.insert(of.end(), {T(-0.), T(0.3), T(-1.25), Limits::infinity(),
                         -Limits::infinity(), Limits::quiet_NaN(),
                         Limits::denorm_min(), Limits::min() / 2, T(1e30)});
  } else if constexpr (std::is_signed_v<T>) {
    of.insert(of.end(), {T(-1), T(-6)});
  }
  std::vector<T> values;
  for (int64_t i = 0; i < n; ++i) {
    values.push_back(of[(i * 5 + shift) % static_cast<int64_t>(of.size())]);
  }
  return values;
}

}  // namespace ipu::model

#endif  // JAXLIB_IPU_CODELETS_LOOP_TEST_UTIL_H_
