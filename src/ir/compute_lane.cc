#include "ir/compute_lane.h"

#include <algorithm>

#include "base/check.h"

namespace tenuto {

bool is_compute(OpKind kind) {
  return kind != OpKind::Send && kind != OpKind::Recv && kind != OpKind::Reduce;
}

ComputeLane::Queue ComputeLane::queue_of(OpKind kind) const {
  if (kind == OpKind::Validate) return Judgement;
  if (dispatch_ == Dispatch::Listed) return Listed;
  switch (kind) {
    case OpKind::BackwardInput:
      return Backward;
    case OpKind::Forward:
    case OpKind::Evaluate:
      return Ahead;
    case OpKind::BackwardWeight:
      return Weight;
    default:
      return Update;
  }
}

ComputeLane::ComputeLane(std::span<const Op> list, Dispatch dispatch, Limit limit,
                         bool (*keep)(const Op&))
    : list_(list), dispatch_(dispatch), holder_{HeldLimit(limit), {}} {
  int32_t forwards = 0;
  const auto mine = [&](const Op& op) {
    return is_compute(op.kind) && (keep == nullptr || keep(op));
  };
  const auto queue = [&](const Op& op) { return static_cast<size_t>(queue_of(op.kind)); };
  std::array<int32_t, kQueueCount> count{};
  for (const Op& op : list) {
    if (!mine(op)) continue;
    ++count[queue(op)];
    if (op.kind == OpKind::Forward) ++forwards;
  }
  warm_up_ = std::min(limit.warm_up, forwards);
  if (forwards == 0) holder_.limit = {};  // Evaluate holds nothing
  int32_t place = 0;
  for (size_t q = 0; q < kQueueCount; ++q) {
    runs_[q] = {place, place, place};
    place += count[q];
  }
  ops_.resize(static_cast<size_t>(place));
  for (size_t i = 0; i < list.size(); ++i) {
    if (!mine(list[i])) continue;
    ops_[static_cast<size_t>(runs_[queue(list[i])].end++)] = static_cast<int32_t>(i);
  }
}

int32_t ComputeLane::ready_candidate(const int32_t* missing) const {
  const int32_t update = head(Update, missing);
  // Outputs for other workers must be computed with the parameters before the step.
  if (update >= 0 && (list_[static_cast<size_t>(update)].kind != OpKind::Step || !owes_outputs())) {
    return update;
  }
  return first_ready(
      forwards_begun_ < warm_up_, holder_, [&] { return head(Backward, missing); },
      [&] { return head(Ahead, missing); }, [&] { return head(Weight, missing); });
}

void ComputeLane::heads(std::vector<int32_t>& into) const {
  for (const Run& run : runs_) {
    if (run.next < run.end) into.push_back(ops_[static_cast<size_t>(run.next)]);
  }
}

void ComputeLane::restart() {
  CHECK(done(), "a lane starts again when all its ops have ended");
  for (Run& run : runs_) run.next = run.first;
  ended_ = forwards_begun_ = 0;
}

}  // namespace tenuto
