#include "jaxlib/ipu/runtime/model/loader.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <numeric>
#include <string>
#include <utility>
#include <variant>

#include "jaxlib/ipu/runtime/model/bands.h"
#include "jaxlib/ipu/runtime/model/joined_transforms.h"
#include "jaxlib/ipu/runtime/model/move_view.h"
#include "jaxlib/ipu/runtime/model/parallel_copy.h"
#include "jaxlib/ipu/runtime/model/recomputed_maps.h"
#include "jaxlib/ipu/runtime/model/redirects.h"
#include "jaxlib/ipu/runtime/model/root_accesses.h"
#include "jaxlib/ipu/runtime/program/independent.h"
#include "jaxlib/ipu/runtime/program/shape.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model {
namespace {

constexpr int64_t kCacheLine = 64;
// Of the branches and nested loops in a loop that is run from a tape. A limit:
// 2 KiB of each arena.
constexpr int64_t kMostCounts = 256;
constexpr int64_t kCountBytes = sizeof(uint64_t);
// Large results of steps that read and write at least so much are stored past
// the caches: memory need not be read before it is written. Measured, of
// copies, where the third-level cache has 32 MB, shared with others: 1.4 to 1.9
// times as fast from 8 MB read and 8 MB written on; as fast there if what was
// written is read next, and slower below (7 MB each: 0.8).
constexpr int64_t kFewBytes = int64_t{16} << 20;
// Smaller results are not stored past the caches: a guess.
constexpr int64_t kFewWritten = int64_t{4} << 20;

// Writes the number of the device.
class WritePartitionId : public Kernel {
 public:
  explicit WritePartitionId(View view) : view_(std::move(view)) {}
  void Run(const Memory& memory, ThreadPool&) const override {
    std::memcpy(view_.Data(memory), &memory.partition, sizeof memory.partition);
  }

 private:
  const View view_;
};

int64_t AlignUp(uint64_t bytes) {
  return static_cast<int64_t>((bytes + kCacheLine - 1) / kCacheLine *
                              kCacheLine);
}

Counters CountersOf(const program::Cost& cost) {
  return {cost.compute_cycles + cost.exchange_cycles + cost.sync_cycles,
          cost.exchange_bytes};
}

void Add(Counters& sum, const Counters& cost, double times = 1) {
  sum.cycles += times * cost.cycles;
  sum.exchange_bytes += times * cost.exchange_bytes;
}

class Loader {
 public:
  Loader(const program::Program& program, const Factories& factories)
      : p_(program),
        factories_(factories),
        counts_offset_(AlignUp(program.arena_bytes)),
        scratch_offset_(counts_offset_ + kMostCounts * kCountBytes),
        accesses_(program),
        roots_(accesses_.ArenaRoots()),
        redirects_(FindRedirects(program, accesses_)),
        executable_(std::make_unique<Executable>()) {
    storage_.resize(kFirstArgumentBase + p_.arguments.size() +
                    p_.results.size());
    std::iota(storage_.begin(), storage_.end(), 0);
    for (const program::Alias& a : p_.aliases) {
      storage_[ResultBase(a.result)] = kFirstArgumentBase + a.argument;
    }
  }

  StatusOr<std::unique_ptr<const Executable>> Load(
      std::span<const uint8_t> constants) {
    executable_->constants = reinterpret_cast<const char*>(constants.data());
    IPU_RETURN_IF_ERROR(AddBlock(p_.steps, &executable_->entry));
    executable_->arena_bytes = scratch_offset_ + scratch_bytes_;
    return std::unique_ptr<const Executable>(std::move(executable_));
  }

 private:
  uint32_t ResultBase(uint64_t result) const {
    return static_cast<uint32_t>(kFirstArgumentBase + p_.arguments.size() +
                                 result);
  }

  Status AddBlock(const std::vector<program::Step>& steps, uint32_t* index) {
    Block block;
    std::vector<ComputeSet> outer = std::exchange(waiting_, {});
    IPU_RETURN_IF_ERROR(AddSteps(steps, block));
    IPU_RETURN_IF_ERROR(AddComputeSets(block));
    waiting_ = std::move(outer);
    *index = static_cast<uint32_t>(executable_->blocks.size());
    executable_->blocks.push_back(std::move(block));
    return Status();
  }

  // Adds the body of a loop. Within an outermost loop, counts are not reused.
  Status AddLoopBlock(const std::vector<program::Step>& steps,
                      uint32_t* index) {
    if (depth_++ == 0) num_counts_ = 0;
    IPU_RETURN_IF_ERROR(AddBlock(steps, index));
    --depth_;
    return Status();
  }

  Status AddSteps(const std::vector<program::Step>& steps, Block& block) {
    for (const program::Step& step : steps) {
      IPU_RETURN_IF_ERROR(std::visit(
          [&](const auto& s) { return AddStep(s, block); }, step.value));
    }
    return Status();
  }

  Status AddStep(const program::Execute& s, Block& block) {
    Add(block.cost, CountersOf(s.cost));
    if (redirects_.skipped.count(&s) > 0) return Status();
    ComputeSet set{s, s.shape, {}, {}};
    for (const program::Access& a : s.operands) {
      set.operands.push_back({ViewOf(a.tensor), a.dims});
      const auto wrap = redirects_.wraps.find(p_.tensors[a.tensor].root);
      if (wrap != redirects_.wraps.end()) {
        set.operands.back().index_wrap = wrap->second;
      }
    }
    const bool evicts = BytesOf(s.operands) + BytesOf(s.results) >= kFewBytes;
    for (const program::Access& a : s.results) {
      set.results.push_back(
          {ViewOf(a.tensor), a.dims, evicts && MayStream(a.tensor)});
    }
    if (const auto* gather = std::get_if<program::Gather>(&s.fields.value)) {
      FollowResult(*gather, set);
    }
    waiting_.push_back(std::move(set));
    return Status();
  }

  // Lets the operand of a gather follow the dimensions that it has in common
  // with the result. In the program all of it is accessed, by whichever tiles
  // have it.
  static void FollowResult(const program::Gather& gather, ComputeSet& set) {
    if (set.operands.empty()) return;
    Operand& operand = set.operands[0];
    const std::vector<int64_t>& extents = operand.view.shape;
    // The codelet refuses fields that do not fit the operand, but only later.
    if (gather.batch_dims.size() != extents.size() ||
        gather.window_dims.size() != extents.size()) {
      return;
    }
    for (size_t d = 0; d < set.shape.size(); ++d) {
      if (!program::IsIndependent({gather}, set.shape.size(), d)) continue;
      for (const int32_t k : program::DimsOf(gather, d)) {
        if (extents[k] >= set.shape[d]) operand.dims[d] = k;
      }
    }
  }

  // Adds the kernels of the compute sets that are waiting, several of them as
  // one kernel where they run in bands.
  Status AddComputeSets(Block& block) {
    JoinSite site{storage_, executable_->constants, factories_,
                  scratch_offset_};
    const std::vector<ComputeSet> sets = RecomputeMaps(
        JoinTransforms(std::exchange(waiting_, {}), site, roots_, made_), site,
        roots_, made_);
    scratch_bytes_ = std::max(scratch_bytes_, site.used);
    const auto add = [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        const program::Execute& s = sets[i].step;
        IPU_RETURN_IF_ERROR(
            AddKernel(factories_.kernel(sets[i], s.fields), s.location, block));
      }
      return Status();
    };
    size_t done = 0;
    for (const Bands& bands : FindBands(sets, storage_, roots_)) {
      KernelOr kernel = MakeBandKernel(sets, bands, factories_);
      // The sets' own kernels run, or say what is wrong.
      if (!kernel.ok()) continue;
      IPU_RETURN_IF_ERROR(add(done, bands.begin));
      IPU_RETURN_IF_ERROR(
          AddKernel(std::move(kernel), sets[bands.begin].step.location, block));
      done = bands.end;
    }
    return add(done, sets.size());
  }

  Status AddStep(const program::Copy& s, Block& block) {
    Add(block.cost, CountersOf(s.cost));
    std::vector<CopyPlan> plans;
    for (const program::Move& m : s.moves) {
      // Placed tensors have no storage: they are read through their root.
      if (p_.tensors[m.destination].root != m.destination) continue;
      if (std::count(m.shape.begin(), m.shape.end(), 0) > 0) continue;
      if (IsReordered(m.source)) continue;
      const program::Tensor& source = p_.tensors[m.source];
      StatusOr<MoveDims> source_dims =
          SourceDims(m, source, /*placed=*/source.root != m.source);
      if (!source_dims.ok()) return At(source_dims.status(), s.location);
      CopyPlan plan{StorageOf(m.source), StorageOf(m.destination)};
      plan.source.offset += source_dims->source_offset * plan.source.item_size;
      plan.destination.offset +=
          m.destination_offset * plan.destination.item_size;
      for (const MoveDim& dim : source_dims->dims) {
        plan.source.shape.push_back(dim.extent);
        plan.source.strides.push_back(dim.source_stride);
        plan.destination.strides.push_back(dim.destination_stride);
      }
      plan.destination.shape = plan.source.shape;
      if (!SamePlaces(plan.source, plan.destination)) {
        plans.push_back(std::move(plan));
      }
    }
    ParallelCopy copy =
        ScheduleCopies(std::move(plans), storage_, scratch_offset_);
    scratch_bytes_ = std::max(scratch_bytes_, copy.scratch_bytes);
    if (!copy.groups.empty()) IPU_RETURN_IF_ERROR(AddComputeSets(block));
    for (std::vector<CopyPlan>& group : copy.groups) {
      IPU_RETURN_IF_ERROR(
          AddKernel(factories_.copy(std::move(group)), s.location, block));
    }
    return Status();
  }

  Status AddStep(const program::HostCopy& s, Block& block) {
    Add(block.cost, CountersOf(s.cost));
    return Status();
  }

  Status AddStep(const program::HostCallback& s, Block& block) {
    Add(block.cost, CountersOf(s.cost));
    host::CallSite site{s.target, s.attributes, {}, {}};
    const auto views = [&](const std::vector<program::HostArray>& arrays,
                           std::vector<TensorInfo>& infos) {
      std::vector<View> views;
      for (const program::HostArray& a : arrays) {
        views.push_back(ViewOf(a.tensor));
        const program::Tensor& t = p_.tensors[a.tensor];
        TensorInfo info{a.dtype, {}, static_cast<size_t>(program::Bytes(t))};
        for (const int32_t d : a.dims) info.shape.push_back(t.shape[d]);
        infos.push_back(std::move(info));
      }
      return views;
    };
    std::vector<View> operands = views(s.operands, site.operands);
    std::vector<View> results = views(s.results, site.results);
    host::FunctionOr function = host::Bind(std::move(site));
    if (!function.ok()) return At(function.status(), s.location);
    executable_->host_calls.push_back(std::make_unique<HostCall>(
        std::move(*function), std::move(operands), std::move(results),
        s.aliases, Where(s.location)));
    Instruction i;
    i.op = Instruction::Op::kHostCall;
    i.number = executable_->num_host_steps++;
    i.host_call = executable_->host_calls.back().get();
    return AddInstruction(i, block);
  }

  Status AddStep(const program::PartitionId& s, Block& block) {
    Add(block.cost, CountersOf(s.cost));
    IPU_RETURN_IF_ERROR(AddComputeSets(block));
    std::unique_ptr<Kernel> kernel =
        std::make_unique<WritePartitionId>(ViewOf(s.tensor));
    return AddKernel(std::move(kernel), s.location, block);
  }

  Status AddStep(const program::Collective& s, Block& block) {
    Add(block.cost, CountersOf(s.cost));
    const std::string& path = p_.locations[s.location].name;
    CollectiveSite site{s,
                        {},
                        {},
                        p_.num_partitions,
                        path.substr(path.rfind('/') + 1),
                        Where(s.location)};
    for (const uint32_t t : s.operands) site.operands.push_back(ViewOf(t));
    for (const uint32_t t : s.results) site.results.push_back(ViewOf(t));
    auto collective = Collective::Make(std::move(site), factories_);
    if (!collective.ok()) return At(collective.status(), s.location);
    Instruction i;
    i.op = Instruction::Op::kCollective;
    i.collective = collective->get();
    executable_->collectives.push_back(std::move(*collective));
    return AddInstruction(i, block);
  }

  Status AddStep(const program::HostMove& s, Block& block) {
    Add(block.cost, CountersOf(s.cost));
    HostMove move{ViewOf(s.source), ViewOf(s.destination), OnHost(s.source)};
    if (s.index != program::kNone) move.index = ViewOf(s.index);
    executable_->host_moves.push_back(
        std::make_unique<HostMove>(std::move(move)));
    Instruction i;
    i.op = Instruction::Op::kHostMove;
    i.host_move = executable_->host_moves.back().get();
    return AddInstruction(i, block);
  }

  Status AddStep(const program::Infeed& s, Block& block) {
    Add(block.cost, CountersOf(s.cost));
    FeedCall call = FeedOf(s.results, s.location);
    if (s.feed != program::kNone) call.feed = ViewOf(s.feed);
    if (s.valid != program::kNone) call.valid = ViewOf(s.valid);
    return AddFeed(std::move(call), block);
  }

  Status AddStep(const program::Outfeed& s, Block& block) {
    Add(block.cost, CountersOf(s.cost));
    FeedCall call = FeedOf(s.operands, s.location);
    call.to_host = true;
    return AddFeed(std::move(call), block);
  }

  Status AddStep(const program::Repeat& s, Block& block) {
    Instruction i;
    i.op = Instruction::Op::kRepeat;
    i.count = s.count;
    uint32_t body;
    IPU_RETURN_IF_ERROR(AddLoopBlock(s.body, &body));
    const Block& b = executable_->blocks[body];
    if (b.instructions.empty()) {  // only costs
      Add(block.cost, b.cost, static_cast<double>(s.count));
      return Status();
    }
    i.target = AddTargets({body});
    i.loop = AddLoop(nullptr, executable_->blocks[body], nullptr);
    return AddInstruction(i, block);
  }

  Status AddStep(const program::While& s, Block& block) {
    Instruction i;
    i.op = Instruction::Op::kWhile;
    SetScalar(s.predicate, i);
    i.number = executable_->num_loops++;  // as in MakeInfo and MakeSteps
    i.cost = CountersOf(s.cost);
    uint32_t condition;
    uint32_t body;
    IPU_RETURN_IF_ERROR(AddBlock(s.condition, &condition));
    IPU_RETURN_IF_ERROR(AddLoopBlock(s.body, &body));
    i.target = AddTargets({condition, body});
    const View predicate = ViewOf(s.predicate);
    i.loop = AddLoop(&executable_->blocks[condition], executable_->blocks[body],
                     &predicate);
    return AddInstruction(i, block);
  }

  Status AddStep(const program::Switch& s, Block& block) {
    Instruction i;
    i.op = Instruction::Op::kSwitch;
    SetScalar(s.selector, i);
    i.selects_by_bool = p_.tensors[s.selector].dtype == DType::kBool;
    i.number = executable_->num_branches;
    executable_->num_branches += static_cast<uint32_t>(s.branches.size());
    i.cost = CountersOf(s.cost);
    std::vector<uint32_t> branches(s.branches.size());
    for (size_t b = 0; b < branches.size(); ++b) {
      IPU_RETURN_IF_ERROR(AddBlock(s.branches[b].steps, &branches[b]));
    }
    i.target = AddTargets(branches);
    i.branches = static_cast<uint32_t>(branches.size());
    return AddInstruction(i, block);
  }

  // This machine has no need to share code: a call is the steps that it runs.
  Status AddStep(const program::Call& s, Block& block) {
    Add(block.cost, CountersOf(s.cost));
    return AddSteps(s.body, block);
  }

  // Whether a tensor is a large result of the program that nothing but one step
  // accesses, and that takes no argument's memory.
  bool MayStream(uint32_t tensor) const {
    const uint32_t root = p_.tensors[tensor].root;
    const uint32_t base = StorageOf(tensor).base;
    return p_.tensors[root].space ==
               static_cast<uint8_t>(program::Space::kResult) &&
           storage_[base] == base && accesses_.OfComputeSets(root) == 1 &&
           accesses_.OfOthers(root) == 0 &&
           static_cast<int64_t>(program::Bytes(p_.tensors[root])) >=
               kFewWritten;
  }

  int64_t BytesOf(const std::vector<program::Access>& accesses) const {
    int64_t bytes = 0;
    for (const program::Access& a : accesses) {
      bytes += static_cast<int64_t>(program::Bytes(p_.tensors[a.tensor]));
    }
    return bytes;
  }

  bool OnHost(uint32_t tensor) const {
    return p_.tensors[tensor].space ==
           static_cast<uint8_t>(program::Space::kHost);
  }

  FeedCall FeedOf(const std::vector<program::HostArray>& arrays,
                  uint32_t location) const {
    FeedCall call;
    for (const program::HostArray& a : arrays) {
      const program::Tensor& t = p_.tensors[a.tensor];
      const auto rank = static_cast<std::ptrdiff_t>(a.dims.size());
      call.arrays.push_back(ViewOf(a.tensor));
      call.type.push_back({a.dtype,
                           {t.shape.begin(), t.shape.begin() + rank},
                           static_cast<size_t>(program::Bytes(t))});
    }
    call.where = Where(location);
    return call;
  }

  Status AddFeed(FeedCall call, Block& block) {
    executable_->feeds.push_back(std::make_unique<FeedCall>(std::move(call)));
    Instruction i;
    i.op = Instruction::Op::kFeed;
    i.number = executable_->num_host_steps++;
    i.feed = executable_->feeds.back().get();
    return AddInstruction(i, block);
  }

  // A faster implementation of a loop, or null if there is none.
  const ScalarLoop* AddLoop(const Block* condition, Block& body,
                            const View* predicate) {
    // Devices that run a program together are interrupted between trips, which
    // then must not take long.
    const bool is_alone = p_.num_partitions == 1;
    ScalarLoopParts parts{{}, {}, predicate, is_alone, storage_};
    const auto add = [](const Block& block, std::vector<const Kernel*>& to) {
      for (const Instruction& i : block.instructions) {
        if (i.op != Instruction::Op::kKernel) return false;
        to.push_back(i.kernel);
      }
      return true;
    };
    if (condition != nullptr && !add(*condition, parts.condition)) {
      return nullptr;
    }
    const auto counts = [this](Instruction& i, LoopPart& part, int64_t n) {
      i.counts = part.counts = counts_offset_ + num_counts_ * kCountBytes;
      num_counts_ += n;
      return num_counts_ <= kMostCounts;
    };
    for (Instruction& i : body.instructions) {
      if (i.op == Instruction::Op::kRepeat && i.count == 0) continue;
      LoopPart& part = parts.body.emplace_back();
      if (i.op == Instruction::Op::kKernel) {
        part.kernel = i.kernel;
        continue;
      }
      if (i.loop != nullptr && is_alone) {
        part.loop = i.loop;
        part.trips = i.count;
        if (i.op == Instruction::Op::kWhile && !counts(i, part, 1)) {
          return nullptr;
        }
        continue;
      }
      if (i.op != Instruction::Op::kSwitch) return nullptr;
      part.selector.base = i.base;
      part.selector.offset = i.offset;
      part.selector.dtype = i.selects_by_bool ? DType::kBool : DType::kI32;
      if (!counts(i, part, i.branches)) return nullptr;
      for (uint32_t b = 0; b < i.branches; ++b) {
        const uint32_t branch = executable_->targets[i.target + b];
        if (!add(executable_->blocks[branch], part.branches.emplace_back())) {
          return nullptr;
        }
      }
    }
    auto loop = factories_.scalar_loop(parts);
    if (loop == nullptr) return nullptr;
    executable_->loops.push_back(std::move(loop));
    return executable_->loops.back().get();
  }

  // Adds an instruction that is not a kernel, after what is waiting.
  Status AddInstruction(const Instruction& instruction, Block& block) {
    IPU_RETURN_IF_ERROR(AddComputeSets(block));
    block.instructions.push_back(instruction);
    return Status();
  }

  Status AddKernel(KernelOr kernel, uint32_t location, Block& block) {
    if (!kernel.ok()) return At(kernel.status(), location);
    if (*kernel == nullptr) return Status();  // nothing to do
    Instruction i;
    i.kernel = kernel->get();
    executable_->kernels.push_back(std::move(*kernel));
    block.instructions.push_back(i);
    return Status();
  }

  uint32_t AddTargets(const std::vector<uint32_t>& blocks) {
    std::vector<uint32_t>& targets = executable_->targets;
    const auto first = static_cast<uint32_t>(targets.size());
    targets.insert(targets.end(), blocks.begin(), blocks.end());
    return first;
  }

  void SetScalar(uint32_t tensor, Instruction& i) const {
    const View view = ViewOf(tensor);
    i.base = view.base;
    i.offset = view.offset;
  }

  // Whether a root is stored in the order of what it is copied to.
  bool IsReordered(uint32_t tensor) const {
    const auto place = redirects_.places.find(tensor);
    return place != redirects_.places.end() && !place->second.strides.empty();
  }

  // A view of the start of a tensor's root, without shape and strides.
  View StorageOf(uint32_t tensor) const {
    const program::Tensor& t = p_.tensors[tensor];
    const auto place = redirects_.places.find(t.root);
    const bool elsewhere = place != redirects_.places.end();
    const program::Tensor& root =
        p_.tensors[elsewhere ? place->second.root : t.root];
    View view;
    view.dtype = t.dtype;
    view.item_size = ItemSize(t.dtype);
    switch (static_cast<program::Space>(root.space)) {
      case program::Space::kArena:
      case program::Space::kHost:
        view.base = kArenaBase;
        view.offset = static_cast<int64_t>(root.address);
        break;
      case program::Space::kConstant:
        view.base = kConstantsBase;
        view.offset = static_cast<int64_t>(root.address);
        break;
      case program::Space::kArgument:
        view.base = kFirstArgumentBase + static_cast<uint32_t>(root.address);
        break;
      case program::Space::kResult:
        view.base = ResultBase(root.address);
        break;
    }
    if (elsewhere) view.offset += place->second.offset * view.item_size;
    return view;
  }

  View ViewOf(uint32_t tensor) const {
    const program::Tensor& t = p_.tensors[tensor];
    View view = StorageOf(tensor);
    view.offset += t.offset * view.item_size;
    view.shape = t.shape;
    view.strides =
        IsReordered(tensor) ? redirects_.places.at(tensor).strides : t.strides;
    return view;
  }

  // The user's source line, for error messages. Each host call keeps one, so
  // they must not be as long as a file may make them.
  std::string Where(uint32_t location) const {
    const auto shown = [](const std::string& text) {
      return text.size() <= 1000 ? text : text.substr(0, 1000) + "...";
    };
    const program::Location& l = p_.locations[location];
    std::string where = " (program " + shown(p_.name);
    if (!l.operation.empty()) where += ", operation " + shown(l.operation);
    if (!l.name.empty()) where += " \"" + shown(l.name) + '"';
    if (!l.file.empty()) {
      where += ", " + shown(l.file) + ':' + std::to_string(l.line);
    }
    return where + ')';
  }

  Status At(const Status& status, uint32_t location) const {
    return Status(status.code(), status.message() + Where(location));
  }

  const program::Program& p_;
  const Factories& factories_;
  // Consecutive compute sets, at the end of the block that is being made, whose
  // kernels are not made yet: first it is decided which of them run in bands.
  std::vector<ComputeSet> waiting_;
  int depth_ = 0;           // of loops around the block that is being made
  int64_t num_counts_ = 0;  // in the outermost of them
  const int64_t counts_offset_;
  const int64_t scratch_offset_;
  int64_t scratch_bytes_ = 0;
  std::vector<uint32_t> storage_;  // see ScheduleCopies
  const RootAccesses accesses_;
  std::vector<ArenaRoot> roots_;       // see FindBands
  std::deque<program::Execute> made_;  // in place of the program's own
  const Redirects redirects_;
  std::unique_ptr<Executable> executable_;
};

}  // namespace

StatusOr<std::unique_ptr<const Executable>> MakeExecutable(
    const program::Contents& contents, const Factories& factories) {
  return Loader(contents.program, factories).Load(contents.constants);
}

}  // namespace ipu::model
