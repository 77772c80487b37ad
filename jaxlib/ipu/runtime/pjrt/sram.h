// Accounts for a device's SRAM between calls and decides whether more fits.
//
// The sum over arrays of what each takes on its own fullest tile bounds the use
// of every tile. Nothing else is looked at as long as the bound fits, so a call
// costs an addition and a comparison per array. Once it does not fit, each tile
// is accounted for, from the mappings of the arrays (array_tiles.h) and the
// plan of the program, and only what exceeds a tile is refused. From then on
// the sums by tile are kept up to date, until little is in use.
//
// An array counts from the call that creates it, whether or not its contents
// are ready, until it is deleted or donated. Host references do not keep it
// counted: on hardware they would refer to a copy in host memory.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_SRAM_H_
#define JAXLIB_IPU_RUNTIME_PJRT_SRAM_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/engine/engine.h"

namespace ipu {

struct Machine;
class Sram;

// The bytes of an array on its fullest tile between programs.
int64_t TileBytes(const TensorInfo& info, const Machine& machine);

// Bytes of each tile, computed when they are first asked for.
class LazyTiles {
 public:
  using Make = std::function<std::vector<int64_t>()>;
  explicit LazyTiles(Make make) : make_(std::move(make)) {}

  const std::vector<int64_t>& get() const {
    std::call_once(once_, [this] { tiles_ = make_(); });
    return tiles_;
  }

 private:
  const Make make_;
  mutable std::once_flag once_;
  mutable std::vector<int64_t> tiles_;
};

// The entry of a buffer in the account of a device's SRAM. Removes itself when
// it is destroyed.
class Resident {
 public:
  Resident() = default;
  ~Resident() { Leave(); }
  Resident(const Resident&) = delete;
  Resident& operator=(const Resident&) = delete;

  void Leave();

 private:
  friend class Sram;

  // Null: not counted. Written only under the lock.
  std::atomic<Sram*> sram_ = nullptr;
  const TensorInfo* info_ = nullptr;
  ArrayLayoutPtr layout_;   // at present
  int64_t tile_bytes_ = 0;  // of the fullest tile
  Resident* previous_ = nullptr;
  Resident* next_ = nullptr;
};

// The SRAM that a run of a program needs in addition to its arguments.
struct SramNeed {
  // On the fullest tile, at the peak, less what each argument takes on its own
  // fullest tile.
  int64_t tile_bytes = 0;
  int64_t bytes = 0;  // over all tiles
  int64_t result_tile_bytes = 0;
  int64_t result_bytes = 0;
  bool overflows = false;  // compiled although it does not fit
  // On each tile; null: nothing.
  const LazyTiles* tiles = nullptr;
  // Arguments that need space of their own in addition, which `tile_bytes`
  // includes and `tiles` does not.
  std::vector<const TensorInfo*> copies = {};
  // Those in the host's memory do not count.
  std::span<const std::shared_ptr<const TensorInfo>> results = {};
};

// An argument that moves to another layout before a run.
struct SramMove {
  Resident* resident;
  int64_t tile_bytes;     // on the fullest tile, in the new layout
  ArrayLayoutPtr layout;  // the new one
};

// By how much a tile exceeds its SRAM.
struct SramExcess {
  int64_t bytes = 0;  // 0: everything fits
  int64_t tile = 0;
  int64_t needed = 0;  // there, by what was asked for
};

class Sram {
 public:
  // `name` is the device's, for messages.
  Sram(const Machine& machine, std::string name);

  // Adds a new array. If it does not fit, fails and counts nothing. `info` must
  // outlive the time that `resident` counts.
  Status Enter(const TensorInfo& info, Resident* resident);

  // Space reserved for results that are not buffers yet. The destructor returns
  // the part that was not used.
  struct Room {
    Room() = default;
    ~Room();
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;

    Sram* sram = nullptr;
    int64_t tile_bytes = 0;
    int64_t bytes = 0;
    std::span<const std::shared_ptr<const TensorInfo>> results = {};
  };

  // Called before a run: checks whether it fits beside the arrays that are not
  // its arguments. Returns by how much the fullest tile exceeds its SRAM. On an
  // excess that is not allowed, counts nothing; otherwise applies `moves`,
  // removes `donated` and reserves `results`.
  SramExcess Admit(const SramNeed& need, std::span<const SramMove> moves,
                   std::span<Resident* const> donated, Room* results);
  // Admit in two parts, for calls of several devices, which run on all or on
  // none: the first counts nothing but `results`, the second cannot fail.
  SramExcess Reserve(const SramNeed& need, std::span<const SramMove> moves,
                     Room* results);
  void Commit(const SramNeed& need, std::span<const SramMove> moves,
              std::span<Resident* const> donated);
  // Adds a result, the next one that is not in the host's memory, taking its
  // space from `results`.
  void Enter(const TensorInfo& info, Resident* resident, Room* results);

  // The error for a program for which Admit returned `excess`.
  Status NoRoom(const std::string& program, const SramExcess& excess,
                std::span<const Resident* const> arguments) const;
  void Warn(const std::string& what, const SramExcess& excess) const;

  struct Figures {
    int64_t in_use, peak, count, largest, limit, free;
  };
  // Over all tiles. `free` is the size of the largest array, spread evenly,
  // that fits.
  Figures figures() const;

 private:
  friend class Resident;

  using Tiles = std::vector<int64_t>;

  // These require the lock.
  SramExcess ReserveLocked(const SramNeed& need,
                           std::span<const SramMove> moves, Room* results);
  void CommitLocked(const SramNeed& need, std::span<const SramMove> moves,
                    std::span<Resident* const> donated);
  SramExcess ExcessOf(const SramNeed& need, std::span<const SramMove> moves);
  SramExcess ExcessOf(const TensorInfo& info);
  void Count(int64_t tile_bytes, int64_t bytes);
  void Link(const TensorInfo& info, Resident* resident);
  void Unlink(Resident* resident);
  Tiles Sums() const;
  const Tiles& KeptSums();
  void Add(const TensorInfo& info, const ArrayLayout* layout, int64_t times,
           Tiles* tiles) const;
  void AddKept(const TensorInfo& info, const ArrayLayout* layout,
               int64_t times);
  std::string Largest(int64_t tile,
                      std::span<const Resident* const> without) const;

  const int64_t bytes_per_tile_;
  const int64_t num_tiles_;
  const int64_t data_path_bytes_;
  const bool overflows_;  // debug.allowOutOfMemory
  const bool warns_;
  const std::string name_;

  mutable std::mutex mutex_;
  int64_t tile_bytes_ = 0;  // the bound: the sum of arrays' fullest tiles
  Tiles tiles_;             // what each tile holds, if it is not empty
  std::vector<const Room*> rooms_;
  int64_t in_use_ = 0;
  int64_t peak_ = 0;
  int64_t count_ = 0;
  int64_t largest_ = 0;
  Resident* first_ = nullptr;
};

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_SRAM_H_
