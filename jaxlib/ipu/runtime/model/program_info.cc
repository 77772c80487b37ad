#include "jaxlib/ipu/runtime/model/program_info.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "jaxlib/ipu/runtime/program/shape.h"

namespace ipu::model {
namespace {

ArrayLayoutPtr MakeLayout(const program::ArrayLayout& layout,
                          const program::Mapping& mapping) {
  const auto cycles = [](const program::Cost& cost) {
    return cost.compute_cycles + cost.exchange_cycles + cost.sync_cycles;
  };
  auto made = std::make_shared<ArrayLayout>();
  made->mapping = {mapping.base};
  for (const std::vector<int64_t>* list :
       {&mapping.extents, &mapping.blocks, &mapping.strides,
        &mapping.replica_counts, &mapping.replica_strides}) {
    made->mapping.push_back(static_cast<int64_t>(list->size()));
    made->mapping.insert(made->mapping.end(), list->begin(), list->end());
  }
  made->tile_bytes = static_cast<int64_t>(layout.tile_bytes);
  made->cycles_from_default = cycles(layout.from_default);
  made->cycles_to_default = cycles(layout.to_default);
  made->bytes_from_default = layout.from_default.exchange_bytes;
  made->bytes_to_default = layout.to_default.exchange_bytes;
  return made;
}

// Appends the lines of loops of unknown trip count, outer ones first.
void AddLoops(const program::Program& p,
              const std::vector<program::Step>& steps,
              std::vector<std::string>& loops) {
  for (const program::Step& step : steps) {
    if (const auto* s = std::get_if<program::While>(&step.value)) {
      const program::Location& at = p.locations[s->location];
      loops.push_back(at.file + ':' + std::to_string(at.line));
      AddLoops(p, s->condition, loops);
      AddLoops(p, s->body, loops);
    } else if (const auto* s = std::get_if<program::Repeat>(&step.value)) {
      AddLoops(p, s->body, loops);
    } else if (const auto* s = std::get_if<program::Call>(&step.value)) {
      AddLoops(p, s->body, loops);
    } else if (const auto* s = std::get_if<program::Switch>(&step.value)) {
      for (const program::Branch& b : s->branches) AddLoops(p, b.steps, loops);
    }
  }
}

}  // namespace

ProgramInfo MakeInfo(program::Contents contents) {
  program::Program& p = contents.program;
  const auto describe = [&](const std::vector<uint32_t>& tensors) {
    std::vector<TensorInfo> infos;
    infos.reserve(tensors.size());
    for (uint32_t i : tensors) {
      program::Tensor& t = p.tensors[i];
      infos.push_back(
          {t.dtype, t.shape, static_cast<size_t>(program::Bytes(t))});
    }
    return infos;
  };
  ProgramInfo info;
  info.arguments = describe(p.arguments);
  info.results = describe(p.results);
  for (program::HostType& type : p.host_types) {
    auto& infos = type.is_result ? info.results : info.arguments;
    infos[type.number].dtype = type.dtype;
    infos[type.number].shape = std::move(type.shape);
    infos[type.number].minor_to_major = std::move(type.minor_to_major);
    infos[type.number].on_host = type.on_host != 0;
  }
  for (const program::ArrayLayout& layout : p.layouts) {
    auto& infos = layout.is_result ? info.results : info.arguments;
    infos[layout.number].layout =
        MakeLayout(layout, p.mappings[layout.mapping]);
  }
  for (const program::Alias& a : p.aliases) {
    info.aliases.push_back({a.argument, a.result});
  }
  for (program::NamedValue& v : p.cost_analysis) {
    info.cost_analysis.emplace_back(std::move(v.name), v.value);
  }
  AddLoops(p, p.steps, info.loops);
  info.name = std::move(p.name);
  for (program::Sharding& sharding : p.shardings) {
    info.shardings.push_back(std::move(sharding.proto));
  }
  info.plan = {std::move(p.target.version), p.target.num_tiles,
               static_cast<int64_t>(p.target.bytes_per_tile)};
  info.donors = std::move(p.donors);
  info.argument_bytes = static_cast<int64_t>(p.memory.argument_bytes);
  info.result_bytes = static_cast<int64_t>(p.memory.result_bytes);
  info.alias_bytes = static_cast<int64_t>(p.memory.alias_bytes);
  info.temporary_bytes = static_cast<int64_t>(p.memory.temporary_bytes);
  info.code_bytes = static_cast<int64_t>(p.memory.code_bytes);
  info.peak_tile_bytes = static_cast<int64_t>(p.memory.peak_tile_bytes);
  for (size_t i = 0; i < p.memory.range_tiles.size(); ++i) {
    info.tile_ranges.push_back({p.memory.range_tiles[i],
                                static_cast<int64_t>(p.memory.range_bytes[i])});
  }
  info.module.text = std::move(p.module);
  for (const program::Omission& o : p.omissions) {
    const auto bytes = contents.constants.subspan(o.address, o.size);
    info.module.omitted.emplace_back(
        o.position,
        std::string_view(reinterpret_cast<const char*>(bytes.data()), o.size));
  }
  info.estimated_seconds = p.estimated_seconds;
  info.num_partitions = p.num_partitions;
  return info;
}

}  // namespace ipu::model
