#include "rehearsal/message_sizes.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/compute.h"
#include "runtime/tag.h"
#include "world/job_model.h"

namespace tenuto {

namespace {

// The size of a group's all-reduces: bytes of the parameters, and number of chunks.
struct SumSize {
  Bytes parameters;
  int32_t chunks = 1;
};

struct PricedMessages {
  Sizes values;               // by stage
  std::vector<SumSize> sums;  // by group
  Bytes tied;

  Bytes size(const Tag& tag, Bytes real) const {
    if (const auto move = move_of(tag)) {
      const auto group = static_cast<size_t>(move->group.value);
      if (group >= sums.size()) return real;
      const Bytes all = size_of_sum(sums[group].parameters, tied, move->part);
      return chunk_size(all, sums[group].chunks, move->chunk.value);
    }
    const auto value = value_of(tag);
    if (!value || !feeds_compute(value->kind) || value->stage.value < 0 ||
        static_cast<size_t>(value->stage.value) >= values.of.size()) {
      return real;
    }
    return values.of[static_cast<size_t>(value->stage.value)][static_cast<size_t>(value->kind)];
  }
};

}  // namespace

MessageSizes message_sizes(const Job& job, const Plan& plan) {
  if (job.device.layers == nullptr) return nullptr;
  const Model model = job_model(job, plan);
  PricedMessages priced;
  priced.values = sizes_of(model, plan.stages);
  priced.tied = model.tied;
  for (const Group& group : plan.schedule.groups) {
    const auto stage = static_cast<size_t>(group.stages.front().value);
    const auto collective = static_cast<size_t>(group.collective.value);
    SumSize& sum = priced.sums.emplace_back();
    sum.parameters = stage_cost(model, plan.stages[stage]).parameters;
    if (collective < plan.schedule.collectives.size()) {
      sum.chunks = std::max(1, plan.schedule.collectives[collective].chunk_count);
    }
  }
  const auto kept = std::make_shared<const PricedMessages>(std::move(priced));
  return [kept](const Tag& tag, Bytes real) { return kept->size(tag, real); };
}

}  // namespace tenuto
