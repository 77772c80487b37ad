// Kernels for exchanges: what the machine moves between tiles, the model copies
// between tensors.

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/copy/interleave.h"
#include "jaxlib/ipu/runtime/model/kernels/copy/strided_copy.h"
#include "jaxlib/ipu/runtime/model/kernels/factories_internal.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/scalar_loop.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

struct Place {
  uint32_t base;
  int64_t offset;

  explicit Place(const View& view) : base(view.base), offset(view.offset) {}
  char* In(const Memory& memory) const { return memory.bases[base] + offset; }
  Item At(int64_t distance, int64_t bytes) const {
    return {base, offset + distance, static_cast<uint32_t>(bytes)};
  }
};

bool SameStrides(const CopyPlan& plan) {
  for (size_t d = 0; d < plan.source.shape.size(); ++d) {
    if (plan.source.shape[d] > 1 &&
        plan.source.strides[d] != plan.destination.strides[d]) {
      return false;
    }
  }
  return true;
}

// Contiguous bytes that are copied, from where the views begin.
struct Piece {
  int64_t source, destination, bytes;
};

// More moves than these take longer than a call that makes them. A guess.
constexpr size_t kMostPieces = 32;

// Appends those of a copy. Returns false if they are too many.
bool AddPieces(const CopyPlan& plan, std::vector<Piece>& pieces) {
  const View &from = plan.source, &to = plan.destination;
  int64_t bytes = from.item_size;
  size_t rank = from.shape.size();
  for (; rank > 0; --rank) {
    const int64_t extent = from.shape[rank - 1];
    const int64_t dense = bytes / from.item_size;
    if (extent != 1 &&
        (from.strides[rank - 1] != dense || to.strides[rank - 1] != dense)) {
      break;
    }
    bytes *= extent;
  }
  std::vector<Piece> all = {{0, 0, bytes}};
  for (size_t d = 0; d < rank; ++d) {
    std::vector<Piece> more;
    for (const Piece& piece : all) {
      if (more.size() + from.shape[d] > kMostPieces) return false;
      for (int64_t i = 0; i < from.shape[d]; ++i) {
        more.push_back({piece.source + i * from.strides[d] * from.item_size,
                        piece.destination + i * to.strides[d] * from.item_size,
                        bytes});
      }
    }
    all = std::move(more);
  }
  pieces.insert(pieces.end(), all.begin(), all.end());
  return pieces.size() <= kMostPieces;
}

class CopyKernel : public Kernel {
 public:
  explicit CopyKernel(const std::vector<CopyPlan>& plans)
      : interleave_(Interleave::Make(plans)) {
    int64_t largest = 0;
    for (const CopyPlan& plan : plans) {
      const StridedCopy copy(plan.source.item_size, plan.source.shape,
                             plan.source.strides, plan.destination.strides);
      if (copy.bytes() == 0) continue;
      bytes_ += copy.bytes();
      largest = std::max(largest, copy.bytes());
      Move& move = moves_.emplace_back(
          Place(plan.source), Place(plan.destination), SameStrides(plan), copy);
      are_few_ = are_few_ && AddPieces(plan, move.pieces);
    }
    share_moves_ = largest < StridedCopy::kParallelBytes &&
                   bytes_ >= 2 * StridedCopy::kParallelBytes;
    if (share_moves_) {
      const auto count = static_cast<int64_t>(moves_.size());
      grain_ = std::max<int64_t>(
          1, count * StridedCopy::kParallelBytes / 2 / bytes_);
    }
  }

  void Run(const Memory& memory, ThreadPool& threads) const override {
    if (interleave_) return interleave_->Run(memory, threads);
    if (!share_moves_) {
      for (const Move& move : moves_) move.Run(memory, threads);
      return;
    }
    threads.For(static_cast<int64_t>(moves_.size()), grain_,
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) moves_[i].Run(memory);
                });
  }

  bool Record(model::Tape& of) const override {
    Tape& tape = static_cast<Tape&>(of);
    const auto is_few = [](const Move& move) {
      return std::all_of(
          move.pieces.begin(), move.pieces.end(),
          [](const Piece& piece) { return Tape::IsFew(piece.bytes); });
    };
    if (are_few_ && std::all_of(moves_.begin(), moves_.end(), is_few)) {
      return std::all_of(moves_.begin(), moves_.end(), [&](const Move& move) {
        return std::all_of(
            move.pieces.begin(), move.pieces.end(), [&](const Piece& piece) {
              return tape.Copy(
                  move.source.At(piece.source, piece.bytes),
                  move.destination.At(piece.destination, piece.bytes));
            });
      });
    }
    if (bytes_ > kMostBytes) return false;
    tape.Call(
        [](const Step& step, const Frame& frame) {
          const void* self = PayloadOf<const void*>(step);
          static_cast<const CopyKernel*>(self)->RunAll({frame.bases});
        },
        this);
    return true;
  }

 private:
  // On one thread, as a part of a loop. A guess: the time of a few other steps.
  static constexpr int64_t kMostBytes = 4096;

  struct Move {
    Place source;
    Place destination;
    bool same_strides;
    StridedCopy copy;
    std::vector<Piece> pieces = {};

    // On the threads given, or else on the calling one.
    template <typename... Threads>
    void Run(const Memory& memory, Threads&... threads) const {
      char* const from = source.In(memory);
      char* const to = destination.In(memory);
      // A donated argument that is returned unchanged.
      if (from == to && same_strides) return;
      copy.Run(from, to, threads...);
    }
  };

  void RunAll(const Memory& memory) const {
    for (const Move& move : moves_) move.Run(memory);
  }

  const std::optional<Interleave> interleave_;  // all moves as one
  std::vector<Move> moves_;
  int64_t bytes_ = 0;
  bool are_few_ = true;       // all moves have their pieces
  bool share_moves_ = false;  // threads share the moves, not each move's bytes
  int64_t grain_ = 1;
};

// Copies 1, 2, 4 or 8 contiguous bytes, such as a loop's counter.
template <typename T>
class CopyOne : public Kernel {
 public:
  explicit CopyOne(const CopyPlan& plan)
      : source_(plan.source), destination_(plan.destination) {}

  void Run(const Memory& memory, ThreadPool&) const override {
    T item;
    std::memcpy(&item, source_.In(memory), sizeof item);
    std::memcpy(destination_.In(memory), &item, sizeof item);
  }

  bool Record(model::Tape& tape) const override {
    return static_cast<Tape&>(tape).Copy(source_.At(0, sizeof(T)),
                                         destination_.At(0, sizeof(T)));
  }

 private:
  const Place source_;
  const Place destination_;
};

}  // namespace

KernelOr MakeCopy(std::vector<CopyPlan> plans) {
  if (plans.size() == 1) {
    const CopyPlan& plan = plans[0];
    const StridedCopy copy(plan.source.item_size, plan.source.shape,
                           plan.source.strides, plan.destination.strides);
    if (copy.dense()) {
      switch (copy.bytes()) {
        case 1:
          return std::unique_ptr<Kernel>(new CopyOne<uint8_t>(plan));
        case 2:
          return std::unique_ptr<Kernel>(new CopyOne<uint16_t>(plan));
        case 4:
          return std::unique_ptr<Kernel>(new CopyOne<uint32_t>(plan));
        case 8:
          return std::unique_ptr<Kernel>(new CopyOne<uint64_t>(plan));
      }
    }
  }
  return std::unique_ptr<Kernel>(new CopyKernel(plans));
}

}  // namespace ipu::model::IPU_SIMD_NS
