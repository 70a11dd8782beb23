// Index types. Every index in Tenuto is 0-based and has its own type, so that a worker cannot be
// passed where a stage is meant.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace tenuto {

// A 0-based index of one kind of thing; -1 means none.
template <class Tag>
struct Id {
  int32_t value = -1;
  auto operator<=>(const Id&) const = default;
};

// Worker number in the cluster; in a fresh plan: pipeline x workers of a pipeline + the worker's
// place in its pipeline.
using WorkerId = Id<struct WorkerTag>;
// Position in the model, input side first.
using StageId = Id<struct StageTag>;
// Micro-batch number in a step, over all pipelines: position x pipelines + pipeline, where position
// is the micro-batch's place in its pipeline.
using MicroId = Id<struct MicroTag>;
// Index into Schedule::groups.
using GroupId = Id<struct GroupTag>;
// Index into Schedule::collectives.
using CollectiveId = Id<struct CollectiveTag>;
// A piece of the tensor that a collective moves.
using ChunkId = Id<struct ChunkTag>;

}  // namespace tenuto

// Lets an Id be the key of an unordered container.
template <class Tag>
struct std::hash<tenuto::Id<Tag>> {
  size_t operator()(const tenuto::Id<Tag>& id) const { return std::hash<int32_t>{}(id.value); }
};
