#include "jaxlib/ipu/runtime/moves/functions.h"

#include "jaxlib/ipu/runtime/moves/layout.h"
#include "jaxlib/ipu/runtime/moves/moved_elements.h"

namespace ipu::moves {
namespace {

// Reads the integers of a move.
class Reader {
 public:
  Reader(const int64_t* next, size_t count) : next_(next), left_(count) {}

  int64_t Next() {
    if (!left_) {
      failed_ = true;
      return 0;
    }
    --left_;
    return *next_++;
  }

  // A number of further elements of at least `size` integers each.
  size_t Count(size_t size) {
    const int64_t count = Next();
    failed_ |= count < 0 || count > static_cast<int64_t>(left_ / size);
    return failed_ ? 0 : count;
  }

  Ints List(size_t count) {
    Ints list(count);
    for (int64_t& x : list) x = Next();
    return list;
  }

  MoveEnd End(size_t dims) {
    MoveEnd end;
    const size_t factors = Count(3), replicas = Count(2);
    end.layout.base = Next();
    for (size_t i = 0; i < factors; ++i) {
      const int64_t extent = Next(), block = Next();
      failed_ |= extent < 1 || block < 1;
      end.layout.factors.push_back({extent, block, Next()});
    }
    for (size_t i = 0; i < replicas; ++i) {
      const int64_t count = Next();
      end.layout.replicas.push_back({count, Next()});
    }
    end.offset = Next();
    end.strides = List(dims);
    return end;
  }

  bool done() const { return !failed_ && !left_; }

 private:
  const int64_t* next_;
  size_t left_;
  bool failed_ = false;
};

}  // namespace
}  // namespace ipu::moves

__attribute__((visibility("default"))) int64_t
ipu_moved_elements(const int64_t* move, size_t count, int once, size_t tiles,
                   int64_t* figures) {
  ipu::moves::Reader reader(move, count);
  const size_t dims = reader.Count(1);
  const ipu::moves::Ints shape = reader.List(dims);
  const ipu::moves::MoveEnd source = reader.End(dims);
  const ipu::moves::MoveEnd destination = reader.End(dims);
  if (!reader.done()) return -1;
  return ipu::moves::CountMovedElements(source, destination, shape, once != 0,
                                        tiles, figures);
}
