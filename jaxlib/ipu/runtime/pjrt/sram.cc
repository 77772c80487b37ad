#include "jaxlib/ipu/runtime/pjrt/sram.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/pjrt/device.h"
#include "jaxlib/ipu/runtime/pjrt/dtype.h"

namespace ipu {
namespace {

// The constants of plan/default_layout.py, where it says which is a guess;
// tests/ipu/test_sram.py checks that both sides agree.
constexpr int64_t kSmallestBytes = 128;
constexpr double kCoarser = 1.25;
constexpr int64_t kCoarsest = 8;
constexpr int64_t kWordBytes = 4;

constexpr size_t kNamed = 5;  // residents listed in an error

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Sets parts[d] to the number of blocks that dimension d is cut into and
// returns the number of elements of the largest cell.
int64_t Cut(std::span<const int64_t> shape, int64_t tiles, int64_t grain,
            double worth, int64_t* parts) {
  if (shape.empty()) return 1;
  const int64_t extent = shape[0];
  const std::span<const int64_t> rest = shape.subspan(1);
  const int64_t unit = rest.empty() ? grain : 1;
  const int64_t smallest = CeilDiv(extent, std::min(tiles, extent));
  int64_t best = -1;
  std::vector<int64_t> trial(shape.size());
  for (int64_t times = 1; times <= kCoarsest; ++times) {
    const int64_t block = std::min(CeilDiv(smallest * times, unit) * unit,
                                   CeilDiv(extent, unit) * unit);
    trial[0] = CeilDiv(extent, block);
    const int64_t cell =
        Cut(rest, tiles / trial[0], grain, worth, trial.data() + 1) *
        std::min(block, extent);
    if (best < 0 || cell * worth < best) {
      best = cell;
      std::copy(trial.begin(), trial.end(), parts);
    }
    if (trial[0] * kCoarsest < tiles || block >= extent || rest.empty()) break;
  }
  return best;
}

std::string WithCommas(int64_t number) {
  std::string digits = std::to_string(number);
  for (int64_t i = static_cast<int64_t>(digits.size()) - 3;
       i > (number < 0 ? 1 : 0); i -= 3) {
    digits.insert(static_cast<size_t>(i), 1, ',');
  }
  return digits;
}

std::string TypeText(const TensorInfo& info) {
  std::string text = InfoOf(info.dtype).name;
  text += '[';
  for (size_t d = 0; d < info.shape.size(); ++d) {
    if (d > 0) text += ',';
    text += std::to_string(info.shape[d]);
  }
  return text + ']';
}

constexpr char kWhatToDo[] =
    "\n  Delete arrays that are no longer needed (x.delete()), donate state "
    "(jax.jit(..., donate_argnums=...)), or keep arrays in the host's memory "
    "(jax.device_put(x, x.sharding.with_memory_kind(\"pinned_host\"))). To "
    "run on the model regardless: POPLAR_ENGINE_OPTIONS="
    "'{\"debug.allowOutOfMemory\": \"true\"}'";

}  // namespace

int64_t FullestTileBytes(const TensorInfo& info, int64_t num_tiles,
                         int64_t data_path_bytes) {
  if (info.bytes == 0) return 0;
  // The shape as it is in memory: outermost dimension first, complex numbers as
  // pairs.
  std::vector<int64_t> shape = info.shape;
  for (size_t d = 0; d < info.minor_to_major.size(); ++d) {
    shape[shape.size() - 1 - d] = info.shape[info.minor_to_major[d]];
  }
  auto item = static_cast<int64_t>(InfoOf(info.dtype).bytes);
  if (IsComplex(info.dtype)) {
    shape.push_back(2);
    item /= 2;
  }
  const auto bytes = static_cast<int64_t>(info.bytes);
  const int64_t size = bytes / item;
  const int64_t grain = std::max<int64_t>(1, data_path_bytes / item);
  const int64_t tiles =
      std::min(num_tiles, std::max<int64_t>(1, CeilDiv(bytes, kSmallestBytes)));
  if (shape.size() <= 1) {
    return std::min(CeilDiv(CeilDiv(size, tiles), grain) * grain, size) * item;
  }
  std::vector<int64_t> parts(shape.size());
  const double worth = tiles < num_tiles ? kCoarser : 1.0;
  Cut(shape, tiles, grain, worth, parts.data());
  int64_t cell = 1;
  for (size_t d = 0; d < shape.size(); ++d) cell *= CeilDiv(shape[d], parts[d]);
  // Blocks of the last dimension are rounded up to whole words.
  const int64_t last = CeilDiv(shape.back(), parts.back());
  const int64_t word = std::max<int64_t>(1, kWordBytes / item);
  const int64_t whole = CeilDiv(last, word) * word;
  return cell / last * std::min(whole, shape.back()) * item;
}

int64_t TileBytes(const TensorInfo& info, const Machine& machine) {
  if (info.layout != nullptr) return info.layout->tile_bytes;
  return FullestTileBytes(info, machine.num_tiles, machine.data_path_bytes);
}

void Resident::Leave() {
  Sram* const sram = sram_.load();
  if (sram == nullptr) return;
  std::lock_guard lock(sram->mutex_);
  sram->Unlink(this);
}

Sram::Room::~Room() {
  if (sram == nullptr || (tile_bytes == 0 && bytes == 0)) return;
  std::lock_guard lock(sram->mutex_);
  sram->tile_bytes_ -= tile_bytes;
  sram->in_use_ -= bytes;
}

Sram::Sram(const Machine& machine, std::string name)
    : bytes_per_tile_(machine.bytes_per_tile),
      num_tiles_(machine.num_tiles),
      overflows_(machine.may_overflow),
      warns_(machine.warns),
      name_(std::move(name)) {}

Status Sram::Enter(const TensorInfo& info, Resident* resident) {
  std::unique_lock lock(mutex_);
  const int64_t excess = tile_bytes_ + info.tile_bytes - bytes_per_tile_;
  if (excess > 0 && !overflows_) [[unlikely]] {
    return ResourceExhausted("out of memory: an array " + TypeText(info) +
                             " needs " + WithCommas(info.tile_bytes) +
                             " bytes of the fullest tile's SRAM, but only " +
                             WithCommas(bytes_per_tile_ - tile_bytes_) +
                             " of " + WithCommas(bytes_per_tile_) +
                             " are free on " + name_ + Largest({}) + kWhatToDo);
  }
  Count(info.tile_bytes, static_cast<int64_t>(info.bytes));
  Link(info, resident);
  peak_ = std::max(peak_, in_use_);
  lock.unlock();
  if (excess > 0) [[unlikely]]
    Warn("an array " + TypeText(info), excess);
  return Status();
}

int64_t Sram::Admit(const SramNeed& need, std::span<const SramMove> moves,
                    std::span<Resident* const> donated, Room* results) {
  std::lock_guard lock(mutex_);
  const int64_t excess = ReserveLocked(need, moves, results);
  if (results->sram != nullptr) CommitLocked(need, moves, donated);
  return excess;
}

int64_t Sram::Reserve(const SramNeed& need, std::span<const SramMove> moves,
                      Room* results) {
  std::lock_guard lock(mutex_);
  return ReserveLocked(need, moves, results);
}

void Sram::Commit(const SramNeed& need, std::span<const SramMove> moves,
                  std::span<Resident* const> donated) {
  std::lock_guard lock(mutex_);
  CommitLocked(need, moves, donated);
}

int64_t Sram::ReserveLocked(const SramNeed& need,
                            std::span<const SramMove> moves, Room* results) {
  int64_t change = 0;
  int64_t largest = 0;  // is there twice while it moves, before the run
  for (const SramMove& move : moves) {
    if (move.resident->sram_ != this) continue;  // deleted meanwhile
    change += move.tile_bytes - move.resident->tile_bytes_;
    largest = std::max(largest, move.tile_bytes);
  }
  const int64_t excess = tile_bytes_ +
                         std::max(change + need.tile_bytes, largest) -
                         bytes_per_tile_;
  if (excess > 0 && !overflows_ && !need.overflows) [[unlikely]]
    return excess;
  Count(need.result_tile_bytes, need.result_bytes);
  results->sram = this;
  results->tile_bytes = need.result_tile_bytes;
  results->bytes = need.result_bytes;
  return std::max<int64_t>(excess, 0);
}

void Sram::CommitLocked(const SramNeed& need, std::span<const SramMove> moves,
                        std::span<Resident* const> donated) {
  for (const SramMove& move : moves) {
    if (move.resident->sram_ != this) continue;
    Count(move.tile_bytes - move.resident->tile_bytes_, 0);
    move.resident->tile_bytes_ = move.tile_bytes;
  }
  // The results are counted already.
  peak_ = std::max(peak_, in_use_ - need.result_bytes + need.bytes);
  for (Resident* resident : donated) Unlink(resident);
}

void Sram::Enter(const TensorInfo& info, Resident* resident, Room* results) {
  std::lock_guard lock(mutex_);
  results->tile_bytes -= info.tile_bytes;
  results->bytes -= static_cast<int64_t>(info.bytes);
  Link(info, resident);
}

Status Sram::NoRoom(const std::string& program, const SramNeed& need,
                    int64_t excess,
                    std::span<const Resident* const> arguments) const {
  std::lock_guard lock(mutex_);
  return ResourceExhausted("out of memory: program " + program + " needs " +
                           WithCommas(need.tile_bytes) +
                           " bytes of the fullest tile's SRAM in addition to "
                           "its arguments; with the "
                           "arrays on " +
                           name_ + " that is " + WithCommas(excess) +
                           " more than the " + WithCommas(bytes_per_tile_) +
                           " bytes of a tile" + Largest(arguments) + kWhatToDo);
}

void Sram::Warn(const std::string& what, int64_t excess) const {
  if (!warns_) return;
  std::fprintf(stderr,
               "%s: out of memory: %s takes the fullest tile %s bytes beyond "
               "its SRAM of %s bytes (debug.allowOutOfMemory is set)\n",
               name_.c_str(), what.c_str(), WithCommas(excess).c_str(),
               WithCommas(bytes_per_tile_).c_str());
}

Sram::Figures Sram::figures() const {
  std::lock_guard lock(mutex_);
  const int64_t free = std::max<int64_t>(bytes_per_tile_ - tile_bytes_, 0);
  return {
      in_use_,          peak_, count_, largest_, bytes_per_tile_ * num_tiles_,
      free * num_tiles_};
}

void Sram::Count(int64_t tile_bytes, int64_t bytes) {
  tile_bytes_ += tile_bytes;
  in_use_ += bytes;
}

void Sram::Link(const TensorInfo& info, Resident* resident) {
  resident->sram_ = this;
  resident->info_ = &info;
  resident->tile_bytes_ = info.tile_bytes;
  resident->previous_ = nullptr;
  resident->next_ = first_;
  if (first_ != nullptr) first_->previous_ = resident;
  first_ = resident;
  ++count_;
  largest_ = std::max(largest_, static_cast<int64_t>(info.bytes));
}

void Sram::Unlink(Resident* resident) {
  if (resident->sram_.exchange(nullptr) == nullptr) return;
  Count(-resident->tile_bytes_, -static_cast<int64_t>(resident->info_->bytes));
  Resident* const next = resident->next_;
  (resident->previous_ ? resident->previous_->next_ : first_) = next;
  if (next != nullptr) next->previous_ = resident->previous_;
}

// Groups arrays of equal type and shape.
std::string Sram::Largest(std::span<const Resident* const> without) const {
  struct Kind {
    int64_t count = 0;
    int64_t tile_bytes = 0;  // of each
  };
  std::map<std::string, Kind> kinds;
  for (const Resident* r = first_; r != nullptr; r = r->next_) {
    if (std::find(without.begin(), without.end(), r) != without.end()) continue;
    Kind& kind = kinds[TypeText(*r->info_)];
    ++kind.count;
    kind.tile_bytes = std::max(kind.tile_bytes, r->tile_bytes_);
  }
  std::vector<std::pair<std::string, Kind>> sorted(kinds.begin(), kinds.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) {
                     return a.second.count * a.second.tile_bytes >
                            b.second.count * b.second.tile_bytes;
                   });
  if (sorted.empty()) return ".";
  std::string text = without.empty()
                         ? ". The largest arrays on it, by their bytes on that "
                           "tile:"
                         : ". The largest arrays on it that are not among the "
                           "program's arguments, by their bytes on that tile:";
  for (size_t i = 0; i < std::min(kNamed, sorted.size()); ++i) {
    const auto& [type, kind] = sorted[i];
    text += "\n    " + std::to_string(kind.count) + " x " + type + ": " +
            WithCommas(kind.tile_bytes) + " bytes" +
            (kind.count > 1 ? " each" : "");
  }
  if (sorted.size() > kNamed) {
    text += "\n    and " + std::to_string(sorted.size() - kNamed) +
            " other kinds of arrays";
  }
  return text;
}

}  // namespace ipu

extern "C" int64_t ipu_fullest_tile_bytes(int dtype, const int64_t* shape,
                                          size_t rank, int64_t num_tiles,
                                          int64_t data_path_bytes) {
  ipu::TensorInfo info;
  info.dtype = static_cast<ipu::DType>(dtype);
  info.shape.assign(shape, shape + rank);
  info.bytes = ipu::InfoOf(info.dtype).bytes;
  for (size_t d = 0; d < rank; ++d) info.bytes *= static_cast<size_t>(shape[d]);
  return ipu::FullestTileBytes(info, num_tiles, data_path_bytes);
}
