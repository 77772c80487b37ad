// What lives in a device's SRAM between calls, and whether more has room.
//
// Most arrays have the tile mapping that their shape and type give them
// (plan/default_layout.py). All of these begin on the first tile, and no other
// tile has more of any of them: sums of what arrays take there are those of the
// fullest tile, without a look at the others. Of an array in the layout of a
// program (array_layouts.h) the fullest tile counts, wherever that is, so with
// such arrays the sum is a bound.
//
// An array counts from the call that makes it, whether or not its contents are
// there yet, until it is deleted or donated: whoever still looks at its
// contents on the host looks at a copy, on a machine.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_SRAM_H_
#define JAXLIB_IPU_RUNTIME_PJRT_SRAM_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>

#include "jaxlib/ipu/runtime/engine/engine.h"

namespace ipu {

struct Machine;
class Sram;

// What the fullest tile has of an array between programs, in bytes.
int64_t FullestTileBytes(const TensorInfo& info, int64_t num_tiles,
                         int64_t data_path_bytes);

// The same of an array that may have another layout than the default one.
int64_t TileBytes(const TensorInfo& info, const Machine& machine);

// The part of a buffer in the account of a device's SRAM. It leaves when it is
// destroyed.
class Resident {
 public:
  Resident() = default;
  ~Resident() { Leave(); }
  Resident(const Resident&) = delete;
  Resident& operator=(const Resident&) = delete;

  void Leave();

 private:
  friend class Sram;

  // Null: counts nowhere. Changed under the lock.
  std::atomic<Sram*> sram_ = nullptr;
  const TensorInfo* info_ = nullptr;
  int64_t tile_bytes_ = 0;
  Resident* previous_ = nullptr;
  Resident* next_ = nullptr;
};

// What a run of a program takes beside the arrays that it is called with.
struct SramNeed {
  int64_t tile_bytes = 0;  // of the fullest tile, at its fullest moment
  int64_t bytes = 0;       // of all tiles
  int64_t result_tile_bytes = 0;
  int64_t result_bytes = 0;
  bool overflows = false;  // was compiled although it does not fit
};

// An array that moves to another layout before a run.
struct SramMove {
  Resident* resident;
  int64_t tile_bytes;  // what the fullest tile has of it then
};

class Sram {
 public:
  // `name`: of the device.
  Sram(const Machine& machine, std::string name);

  // A new array. Refused if it has no room: then nothing is counted.
  // `info` must live as long as `resident` counts.
  Status Enter(const TensorInfo& info, Resident* resident);

  // Counted for results that are not buffers yet; gives back what is left.
  struct Room {
    ~Room();
    Sram* sram = nullptr;
    int64_t tile_bytes = 0;
    int64_t bytes = 0;
  };

  // Before a run: whether it has room beside the arrays that are not among its
  // arguments. The bytes by which the fullest tile is over its SRAM, if it is;
  // then, unless it may overflow, nothing is counted. Otherwise arguments move
  // as `moves` says, and `donated` leave as room for the results is taken.
  int64_t Admit(const SramNeed& need, std::span<const SramMove> moves,
                std::span<Resident* const> donated, Room* results);
  // One of the results: counted already.
  void Enter(const TensorInfo& info, Resident* resident, Room* results);

  // Of a program of which Admit returned `excess`.
  Status NoRoom(const std::string& program, const SramNeed& need,
                int64_t excess,
                std::span<const Resident* const> arguments) const;
  void Warn(const std::string& what, int64_t excess) const;

  struct Figures {
    int64_t in_use, peak, count, largest, limit, free;
  };
  // Over all tiles. `free`: the largest array, spread evenly, that has room.
  Figures figures() const;

 private:
  friend class Resident;

  // Under the lock.
  void Count(int64_t tile_bytes, int64_t bytes);
  void Link(const TensorInfo& info, Resident* resident);
  void Unlink(Resident* resident);
  std::string Largest(std::span<const Resident* const> without) const;

  const int64_t bytes_per_tile_;
  const int64_t num_tiles_;
  const bool overflows_;  // debug.allowOutOfMemory
  const bool warns_;
  const std::string name_;

  mutable std::mutex mutex_;
  int64_t tile_bytes_ = 0;  // of the fullest tile
  int64_t in_use_ = 0;
  int64_t peak_ = 0;
  int64_t count_ = 0;
  int64_t largest_ = 0;
  Resident* first_ = nullptr;
};

}  // namespace ipu

// FullestTileBytes for tests, of an array in row-major order.
extern "C" __attribute__((visibility("default"))) int64_t
ipu_fullest_tile_bytes(int dtype, const int64_t* shape, size_t rank,
                       int64_t num_tiles, int64_t data_path_bytes);

#endif  // JAXLIB_IPU_RUNTIME_PJRT_SRAM_H_
