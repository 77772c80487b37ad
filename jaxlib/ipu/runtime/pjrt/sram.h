// Accounts for a device's SRAM between calls and decides whether more fits.
//
// Most arrays have the default tile mapping, which their shape and type
// determine (plan/default_layout.py). All of these mappings begin on tile 0 and
// none puts more on any other tile, so the sum over arrays of what they take on
// tile 0 is the use of the fullest tile, and no other tile has to be tracked.
// An array that has a program's layout (array_layouts.h) counts with what its
// own fullest tile holds, so with such arrays the sum is an upper bound.
//
// An array counts from the call that creates it, whether or not its contents
// are ready, until it is deleted or donated. Host references do not keep it
// counted: on hardware they would refer to a copy in host memory.

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

// The bytes of an array on its fullest tile between programs.
int64_t FullestTileBytes(const TensorInfo& info, int64_t num_tiles,
                         int64_t data_path_bytes);

// The same for an array whose layout may not be the default one.
int64_t TileBytes(const TensorInfo& info, const Machine& machine);

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
  int64_t tile_bytes_ = 0;
  Resident* previous_ = nullptr;
  Resident* next_ = nullptr;
};

// The SRAM that a run of a program needs in addition to its arguments.
struct SramNeed {
  int64_t tile_bytes = 0;  // on the fullest tile, at the peak
  int64_t bytes = 0;       // over all tiles
  int64_t result_tile_bytes = 0;
  int64_t result_bytes = 0;
  bool overflows = false;  // compiled although it does not fit
};

// An argument that moves to another layout before a run.
struct SramMove {
  Resident* resident;
  int64_t tile_bytes;  // on the fullest tile, in the new layout
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
    ~Room();
    Sram* sram = nullptr;
    int64_t tile_bytes = 0;
    int64_t bytes = 0;
  };

  // Called before a run: checks whether it fits beside the arrays that are not
  // its arguments. Returns the bytes by which the fullest tile exceeds its
  // SRAM, or 0. On an excess that is not allowed, counts nothing; otherwise
  // applies `moves`, removes `donated` and reserves `results`.
  int64_t Admit(const SramNeed& need, std::span<const SramMove> moves,
                std::span<Resident* const> donated, Room* results);
  // Admit in two parts, for calls of several devices, which run on all or on
  // none: the first counts nothing but `results`, the second cannot fail.
  int64_t Reserve(const SramNeed& need, std::span<const SramMove> moves,
                  Room* results);
  void Commit(const SramNeed& need, std::span<const SramMove> moves,
              std::span<Resident* const> donated);
  // Adds a result, taking its space from `results`.
  void Enter(const TensorInfo& info, Resident* resident, Room* results);

  // The error for a program for which Admit returned `excess`.
  Status NoRoom(const std::string& program, const SramNeed& need,
                int64_t excess,
                std::span<const Resident* const> arguments) const;
  void Warn(const std::string& what, int64_t excess) const;

  struct Figures {
    int64_t in_use, peak, count, largest, limit, free;
  };
  // Over all tiles. `free` is the size of the largest array, spread evenly,
  // that fits.
  Figures figures() const;

 private:
  friend class Resident;

  // These require the lock.
  int64_t ReserveLocked(const SramNeed& need, std::span<const SramMove> moves,
                        Room* results);
  void CommitLocked(const SramNeed& need, std::span<const SramMove> moves,
                    std::span<Resident* const> donated);
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

// FullestTileBytes of a row-major array, for tests.
extern "C" __attribute__((visibility("default"))) int64_t
ipu_fullest_tile_bytes(int dtype, const int64_t* shape, size_t rank,
                       int64_t num_tiles, int64_t data_path_bytes);

#endif  // JAXLIB_IPU_RUNTIME_PJRT_SRAM_H_
