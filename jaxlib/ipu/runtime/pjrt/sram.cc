#include "jaxlib/ipu/runtime/pjrt/sram.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/pjrt/array_tiles.h"
#include "jaxlib/ipu/runtime/pjrt/device.h"
#include "jaxlib/ipu/runtime/pjrt/dtype.h"

namespace ipu {
namespace {

constexpr size_t kNamed = 5;  // residents listed in an error

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

// The tile that has least room for `asked` beside `held`.
SramExcess Worst(const std::vector<int64_t>& held,
                 const std::vector<int64_t>& asked, int64_t bytes_per_tile) {
  size_t worst = 0;
  for (size_t t = 1; t < held.size(); ++t) {
    if (held[t] + asked[t] > held[worst] + asked[worst]) worst = t;
  }
  const int64_t excess = held[worst] + asked[worst] - bytes_per_tile;
  return {std::max<int64_t>(excess, 0), static_cast<int64_t>(worst),
          asked[worst]};
}

}  // namespace

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
  if (sram == nullptr) return;
  std::lock_guard lock(sram->mutex_);
  for (const auto& result : results) {
    if (!result->on_host) sram->AddKept(*result, result->layout.get(), -1);
  }
  std::erase(sram->rooms_, this);
  sram->Count(-tile_bytes, -bytes);
}

Sram::Sram(const Machine& machine, std::string name)
    : bytes_per_tile_(machine.bytes_per_tile),
      num_tiles_(machine.num_tiles),
      data_path_bytes_(machine.data_path_bytes),
      overflows_(machine.may_overflow),
      warns_(machine.warns),
      name_(std::move(name)) {}

Status Sram::Enter(const TensorInfo& info, Resident* resident) {
  std::unique_lock lock(mutex_);
  SramExcess excess;
  if (tile_bytes_ + info.tile_bytes > bytes_per_tile_) [[unlikely]]
    excess = ExcessOf(info);
  if (excess.bytes > 0 && !overflows_) [[unlikely]] {
    const int64_t held = bytes_per_tile_ + excess.bytes - excess.needed;
    return ResourceExhausted(
        "out of memory: an array " + TypeText(info) + " needs " +
        WithCommas(excess.needed) + " bytes of tile " +
        std::to_string(excess.tile) + "'s SRAM, but only " +
        WithCommas(std::max<int64_t>(bytes_per_tile_ - held, 0)) + " of " +
        WithCommas(bytes_per_tile_) + " are free there on " + name_ +
        Largest(excess.tile, {}) + kWhatToDo);
  }
  Count(info.tile_bytes, static_cast<int64_t>(info.bytes));
  AddKept(info, info.layout.get(), 1);
  Link(info, resident);
  peak_ = std::max(peak_, in_use_);
  lock.unlock();
  if (excess.bytes > 0) [[unlikely]]
    Warn("an array " + TypeText(info), excess);
  return Status();
}

SramExcess Sram::Admit(const SramNeed& need, std::span<const SramMove> moves,
                       std::span<Resident* const> donated, Room* results) {
  std::lock_guard lock(mutex_);
  const SramExcess excess = ReserveLocked(need, moves, results);
  if (results->sram != nullptr) CommitLocked(need, moves, donated);
  return excess;
}

SramExcess Sram::Reserve(const SramNeed& need, std::span<const SramMove> moves,
                         Room* results) {
  std::lock_guard lock(mutex_);
  return ReserveLocked(need, moves, results);
}

void Sram::Commit(const SramNeed& need, std::span<const SramMove> moves,
                  std::span<Resident* const> donated) {
  std::lock_guard lock(mutex_);
  CommitLocked(need, moves, donated);
}

SramExcess Sram::ReserveLocked(const SramNeed& need,
                               std::span<const SramMove> moves, Room* results) {
  const SramExcess excess = ExcessOf(need, moves);
  if (excess.bytes > 0 && !overflows_ && !need.overflows) [[unlikely]]
    return excess;
  Count(need.result_tile_bytes, need.result_bytes);
  for (const auto& result : need.results) {
    if (!result->on_host) AddKept(*result, result->layout.get(), 1);
  }
  results->sram = this;
  results->tile_bytes = need.result_tile_bytes;
  results->bytes = need.result_bytes;
  results->results = need.results;
  rooms_.push_back(results);
  return excess;
}

void Sram::CommitLocked(const SramNeed& need, std::span<const SramMove> moves,
                        std::span<Resident* const> donated) {
  for (const SramMove& move : moves) {
    if (move.resident->sram_ != this) continue;
    Resident& moved = *move.resident;
    Count(move.tile_bytes - moved.tile_bytes_, 0);
    AddKept(*moved.info_, moved.layout_.get(), -1);
    AddKept(*moved.info_, move.layout.get(), 1);
    moved.tile_bytes_ = move.tile_bytes;
    moved.layout_ = move.layout;
  }
  // The results are counted already.
  peak_ = std::max(peak_, in_use_ - need.result_bytes + need.bytes);
  for (Resident* resident : donated) Unlink(resident);
}

void Sram::Enter(const TensorInfo& info, Resident* resident, Room* results) {
  std::lock_guard lock(mutex_);
  results->tile_bytes -= info.tile_bytes;
  results->bytes -= static_cast<int64_t>(info.bytes);
  size_t next = 0;
  while (results->results[next].get() != &info) ++next;
  results->results = results->results.subspan(next + 1);
  Link(info, resident);
  const auto on_host = [](const auto& result) { return result->on_host; };
  if (!std::all_of(results->results.begin(), results->results.end(), on_host))
    return;
  // All is used: the destructor has nothing to return.
  std::erase(rooms_, results);
  results->sram = nullptr;
}

Status Sram::NoRoom(const std::string& program, const SramExcess& excess,
                    std::span<const Resident* const> arguments) const {
  std::lock_guard lock(mutex_);
  return ResourceExhausted(
      "out of memory: program " + program + " needs " +
      WithCommas(excess.needed) + " bytes of tile " +
      std::to_string(excess.tile) +
      "'s SRAM in addition to its arguments; with the arrays on " + name_ +
      " that is " + WithCommas(excess.bytes) + " more than the " +
      WithCommas(bytes_per_tile_) + " bytes of a tile" +
      Largest(excess.tile, arguments) + kWhatToDo);
}

void Sram::Warn(const std::string& what, const SramExcess& excess) const {
  if (!warns_) return;
  std::fprintf(stderr,
               "%s: out of memory: %s takes tile %s %s bytes beyond its SRAM "
               "of %s bytes (debug.allowOutOfMemory is set)\n",
               name_.c_str(), what.c_str(), std::to_string(excess.tile).c_str(),
               WithCommas(excess.bytes).c_str(),
               WithCommas(bytes_per_tile_).c_str());
}

Sram::Figures Sram::figures() const {
  std::lock_guard lock(mutex_);
  const Tiles sums = Sums();
  const int64_t fullest = *std::max_element(sums.begin(), sums.end());
  const int64_t free = std::max<int64_t>(bytes_per_tile_ - fullest, 0);
  return {
      in_use_,          peak_, count_, largest_, bytes_per_tile_ * num_tiles_,
      free * num_tiles_};
}

SramExcess Sram::ExcessOf(const SramNeed& need,
                          std::span<const SramMove> moves) {
  const auto counts = [this](const SramMove& move) {
    return move.resident->sram_ == this;  // it may be deleted meanwhile
  };
  // An array is there twice while it moves.
  int64_t bound = tile_bytes_, most = 0;
  for (const SramMove& move : moves) {
    if (!counts(move)) continue;
    most = std::max(most, bound + move.tile_bytes);
    bound += move.tile_bytes - move.resident->tile_bytes_;
  }
  most = std::max(most, bound + need.tile_bytes);
  if (most <= bytes_per_tile_) [[likely]]
    return {};

  Tiles held = KeptSums();
  for (const SramMove& move : moves) {
    if (!counts(move)) continue;
    const Resident& moved = *move.resident;
    Tiles asked(held.size());
    Add(*moved.info_, move.layout.get(), 1, &asked);
    const SramExcess excess = Worst(held, asked, bytes_per_tile_);
    if (excess.bytes > 0) return excess;
    Add(*moved.info_, move.layout.get(), 1, &held);
    Add(*moved.info_, moved.layout_.get(), -1, &held);
  }
  Tiles asked = need.tiles != nullptr ? need.tiles->get() : Tiles(held.size());
  for (const TensorInfo* copy : need.copies) {
    Add(*copy, copy->layout.get(), 1, &asked);
  }
  return Worst(held, asked, bytes_per_tile_);
}

SramExcess Sram::ExcessOf(const TensorInfo& info) {
  const Tiles& held = KeptSums();
  Tiles asked(held.size());
  Add(info, info.layout.get(), 1, &asked);
  return Worst(held, asked, bytes_per_tile_);
}

void Sram::Count(int64_t tile_bytes, int64_t bytes) {
  tile_bytes_ += tile_bytes;
  in_use_ += bytes;
  // Far from the limit the bound decides.
  if (tile_bytes_ < bytes_per_tile_ / 2) tiles_.clear();
}

// What each tile holds.
Sram::Tiles Sram::Sums() const {
  if (!tiles_.empty()) return tiles_;
  Tiles sums(static_cast<size_t>(num_tiles_));
  for (const Resident* r = first_; r != nullptr; r = r->next_) {
    Add(*r->info_, r->layout_.get(), 1, &sums);
  }
  for (const Room* room : rooms_) {
    for (const auto& result : room->results) {
      if (!result->on_host) Add(*result, result->layout.get(), 1, &sums);
    }
  }
  return sums;
}

// The same, kept up to date from now on.
const Sram::Tiles& Sram::KeptSums() {
  if (tiles_.empty()) tiles_ = Sums();
  return tiles_;
}

void Sram::Add(const TensorInfo& info, const ArrayLayout* layout, int64_t times,
               Tiles* tiles) const {
  AddTileBytes(info, layout, data_path_bytes_, times, *tiles);
}

void Sram::AddKept(const TensorInfo& info, const ArrayLayout* layout,
                   int64_t times) {
  if (!tiles_.empty()) Add(info, layout, times, &tiles_);
}

void Sram::Link(const TensorInfo& info, Resident* resident) {
  resident->sram_ = this;
  resident->info_ = &info;
  resident->layout_ = info.layout;
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
  AddKept(*resident->info_, resident->layout_.get(), -1);
  Count(-resident->tile_bytes_, -static_cast<int64_t>(resident->info_->bytes));
  Resident* const next = resident->next_;
  (resident->previous_ ? resident->previous_->next_ : first_) = next;
  if (next != nullptr) next->previous_ = resident->previous_;
}

// Groups arrays of equal type and shape.
std::string Sram::Largest(int64_t tile,
                          std::span<const Resident* const> without) const {
  struct Kind {
    int64_t count = 0;
    int64_t tile_bytes = 0;  // of each
  };
  std::map<std::string, Kind> kinds;
  for (const Resident* r = first_; r != nullptr; r = r->next_) {
    if (std::find(without.begin(), without.end(), r) != without.end()) continue;
    Tiles held(static_cast<size_t>(num_tiles_));
    Add(*r->info_, r->layout_.get(), 1, &held);
    const int64_t bytes = held[static_cast<size_t>(tile)];
    if (bytes == 0) continue;
    Kind& kind = kinds[TypeText(*r->info_)];
    ++kind.count;
    kind.tile_bytes = std::max(kind.tile_bytes, bytes);
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
